"""The consumers of a session that follow a pattern, and what they are told of destinations that match."""
from typing import TYPE_CHECKING

from angarium.client.destination import Pattern
from angarium.client.ended import ended_error
from angarium.client.pattern_consumer import PatternConsumer
from angarium.client.subscribing import SubscriptionOptions
from angarium.core.client import events
from angarium.core.errors import AngariumError

if TYPE_CHECKING:
    from angarium.client.session import Session


class Watches:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._consumers: dict[int, PatternConsumer] = {}
        self._last = 0

    def open(self, pattern: str | Pattern, prefetch: int, options: SubscriptionOptions) -> PatternConsumer:
        wanted = Pattern(pattern) if isinstance(pattern, str) else pattern
        self._last += 1
        consumer = PatternConsumer(self._session, self._last, wanted, prefetch, options)
        self._consumers[consumer.number] = consumer
        return consumer

    def forget(self, number: int) -> None:
        self._consumers.pop(number, None)

    def notify(self, command: events.WatchFound | events.WatchEnded) -> None:
        consumer = self._consumers.get(command.watch)
        if consumer is None:
            return
        if isinstance(command, events.WatchFound):
            consumer.on_found(command)
        else:
            consumer.on_ended(ended_error(f"consumer of '{consumer.destination}'", command.code, command.reason))

    def on_ended(self, error: AngariumError | None) -> None:
        for consumer in list(self._consumers.values()):
            consumer.on_ended(error)

"""One consumer over all destinations that match a pattern, those to come as well.

Behind it is an ordinary consumer for each of them, in the same session. Their messages are handed out in turns, one of
each; the prefetch is divided among them, at least one for each. A destination that is new is taken from its beginning,
so that nothing is missed; one that is removed leaves. If one refuses the consumer, all end with that error.
"""
import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from angarium.client.acknowledging import Taken
from angarium.client.consumer import Consumer
from angarium.client.destination import PATTERN_KINDS, PATTERN_SYNTAXES, Pattern, Queue, Topic, checked_pattern
from angarium.client.entering import Entering
from angarium.client.message import Message
from angarium.client.ready import Ready
from angarium.client.subscribing import whole_prefetch
from angarium.core.client import events
from angarium.core.client.consumer import check_prefetch
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected
from angarium.core.wire.frames import DestinationKind

if TYPE_CHECKING:
    from angarium.client.session import Session
    from angarium.client.subscribing import SubscriptionOptions

_GONE = ("destination-removed", "unknown-destination")


class PatternConsumer(Ready, Entering):
    """Made by `Session.consume` with a `Pattern`. As a `Consumer`; each message knows its `destination`."""

    def __init__(
        self, session: "Session", number: int, pattern: Pattern, prefetch: int, options: "SubscriptionOptions"
    ) -> None:
        super().__init__(session.loop, prefetch)
        pattern = checked_pattern(pattern)
        if options.name and pattern.kind != "topic":
            raise Rejected("wrong-kind", f"{pattern}: only topics have named subscriptions")
        self.destination = pattern.text
        self.number = number
        self.is_transacted = session.is_transacted
        self.is_closing = False
        self.is_ended = False
        self.error: AngariumError | None = None
        self.fetched: deque[Message] = deque()  # on their way to the application, behind the blocking face
        self._session = session
        self._options = options
        self._consumers: dict[str, Consumer] = {}
        self._turns: deque[Consumer] = deque()  # those that may have something ready
        self._found: dict[str, tuple[DestinationKind, bool]] = {}  # to be merged: kind, and whether it is new
        self._complete: asyncio.Future[None] = session.loop.create_future()  # all that existed are merged
        self._lost_before = self._dropped_before = 0  # by consumers that have left
        kind, syntax = PATTERN_KINDS[pattern.kind], PATTERN_SYNTAXES[pattern.syntax]
        session.driver.handle(events.OpenWatch(session.number, number, pattern.text, syntax, kind))

    @property
    def destinations(self) -> list[str]:
        """Names of those that it consumes from now."""
        return sorted(self._consumers)

    @property
    def is_merged(self) -> bool:
        """All that existed when it was opened have been found."""
        return self._complete.done()

    @property
    def lost_count(self) -> int:
        """Messages settled here that were no longer this consumer's."""
        return self._lost_before + sum(consumer.lost_count for consumer in self._consumers.values())

    @property
    def dropped_count(self) -> int:
        """Messages that the broker dropped because a subscription was too far behind."""
        return self._dropped_before + sum(consumer.dropped_count for consumer in self._consumers.values())

    # -- receiving -------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if there was none within the time, or the consumer was closed."""
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        if self._session.hands_out:
            for taken in self.all_taken():
                taken.asked()
        await self._let_others_run()
        while True:
            if (message := self._take()) is not None:
                self._burst += 1
                if self._turns and self._waiters:
                    self._wake_one()
                return message
            if self.error is not None:
                raise self.error
            if self.is_closing or self.is_ended:
                return None
            for taken in self.all_taken():
                taken.starving()
            if not await self._wait(deadline):
                return None

    async def receive_batch(self, max: int = 1_000, timeout_s: float | None = None) -> list[Message]:
        """At least one message and what else lies ready, up to `max`; none as for `receive`."""
        first = await self.receive(timeout_s)
        messages = [] if first is None else [first]
        while messages and len(messages) < max and (message := self._take()) is not None:
            messages.append(message)
        self._burst += len(messages)
        return messages

    def _take(self) -> Message | None:
        while self._turns:
            consumer = self._turns.popleft()
            message = consumer.take_ready()
            if message is not None:
                self._turns.append(consumer)
                if consumer.taken is not None and self._session.hands_out:
                    consumer.taken.messages.append(message)
                return message
        return None

    def all_taken(self) -> list[Taken]:
        """What was handed out of each destination and is not settled, unless the application settles by itself."""
        return [taken for consumer in list(self._consumers.values()) for taken in consumer.all_taken()]

    # -- merging ---------------------------------------------------------------------------------

    def on_found(self, command: events.WatchFound) -> None:
        # What comes after the first list is new, also when it came while there was no connection.
        is_new = command.created or self._complete.done()
        for name in command.names:
            self._found.setdefault(name, (command.destination_kind, is_new))
        self._loop.call_soon(self._merge, command.complete)  # the machine is being listened to just now

    def _merge(self, complete: bool) -> None:
        found, self._found = self._found, {}
        if self.is_closing or self.is_ended:
            return
        try:
            for name, (kind, is_new) in found.items():
                if name not in self._consumers:
                    destination = Topic(name) if kind == DestinationKind.TOPIC else Queue(name)
                    options = self._options._replace(start="oldest") if is_new else self._options
                    consumer = self._session.open_consumer(destination, self._share(1), options)
                    consumer.on_change = self._on_change
                    consumer.fetched = self.fetched
                    self._consumers[name] = consumer
        except AngariumError as error:
            self.on_ended(error)
            return
        self._divide()
        if complete and not self._complete.done():
            self._complete.set_result(None)

    def _share(self, more: int = 0) -> int:
        return max(1, self.prefetch // max(1, len(self._consumers) + more)) if self.prefetch else 0

    def _divide(self) -> None:
        share = self._share()
        for consumer in self._consumers.values():
            consumer.set_prefetch(share)

    def _on_change(self, consumer: Consumer) -> None:
        if not consumer.is_ended:
            if consumer not in self._turns:
                self._turns.append(consumer)
            self._wake_one()
            return
        if self._consumers.get(consumer.destination) is consumer:
            del self._consumers[consumer.destination]
            self._lost_before += consumer.lost_count
            self._dropped_before += consumer.dropped_count
        error = consumer.error
        if error is None or (isinstance(error, Rejected) and error.code in _GONE):
            self._loop.call_soon(self._divide)
        else:
            self.on_ended(error)

    async def opened(self) -> None:
        """Wait until all destinations that match now are merged; raises what the pattern, or one of them, was refused
        with."""
        await asyncio.shield(self._complete)
        for consumer in list(self._consumers.values()):
            await _opened_or_gone(consumer)
            if self.error is not None:
                raise self.error

    # -- control ---------------------------------------------------------------------------------

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages may be here unsettled, from now on: divided among the destinations; 0: none come."""
        prefetch = whole_prefetch(prefetch)
        check_prefetch(prefetch)
        self.prefetch = prefetch
        self._divide()

    async def close(self, *, unsubscribe: bool = False, timeout_s: float = 30.0) -> None:
        """Give back what is unsettled; returns when the settlements so far are durable. `unsubscribe` ends the durable
        subscriptions of all destinations that it consumes from now."""
        if not self.is_closing and not self.is_ended:
            self._session.driver.handle(events.CloseWatch(self._session.number, self.number))
        self.is_closing = True
        self._turns.clear()
        self._wake_all()
        self._session.watches.forget(self.number)
        open_ones = list(self._consumers.values())
        closings = [consumer.close(unsubscribe=unsubscribe, timeout_s=timeout_s) for consumer in open_ones]
        for result in await asyncio.gather(*closings, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        self.on_ended(None)

    def on_ended(self, error: AngariumError | None) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        self.error = error
        if not self._complete.done():
            closed = LocalProtocolError(f"consumer of {self.destination!r} was closed")
            self._complete.set_exception(error or closed)
            self._complete.exception()  # whether anybody still asks or not
        self._wake_all()
        if error is not None:
            self._loop.call_soon(self._end_all)

    def _end_all(self) -> None:
        """One of them was refused: the others end as well."""
        if not self._session.is_usable:
            return
        self._session.watches.forget(self.number)
        self._session.driver.handle(events.CloseWatch(self._session.number, self.number))
        for consumer in list(self._consumers.values()):
            if not consumer.is_closing and not consumer.is_ended:
                consumer.flush_now()
                consumer.close_now(False)


async def _opened_or_gone(consumer: Consumer) -> None:
    with suppress(AngariumError):  # it has left, or told all
        await consumer.opened()

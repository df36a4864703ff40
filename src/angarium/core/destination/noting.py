"""Notes of how far subscriptions have delivered, so that after a crash what was delivered is marked as redelivered.

A note is written a moment after the delivery. Most messages are settled by then; the settlement's own write says how
far was delivered, too, and no other note is needed. Nobody waits for a note, and one for all that was delivered in that
moment costs hardly more than one for a single message.
"""
from collections.abc import Mapping

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command
from angarium.core.destination.subscription import Subscription

NOTE_AFTER_S = 0.005  # as long as a client gathers settlements


class Noting:
    def __init__(self, destinations: Mapping[int, Destination]) -> None:
        self._destinations = destinations
        self._waiting: dict[tuple[int, str], None] = {}  # destination and name: at most all subscriptions
        self._due: float | None = None

    def note(self, destination: int, subscription: Subscription, now: float) -> None:
        """It has delivered something that the disk does not know of."""
        if self._due is None:
            self._due = now + NOTE_AFTER_S
        self._waiting[destination, subscription.name] = None

    def deadline(self) -> float | None:
        return self._due

    def tick(self, now: float) -> list[Command]:
        if self._due is None or now < self._due:
            return []
        waiting, self._waiting, self._due = self._waiting, {}, None
        commands: list[Command] = []
        for identity, name in waiting:
            destination = self._destinations.get(identity)
            subscription = None if destination is None else destination.subscriptions.get(name)
            if destination is not None and subscription is not None:
                commands += destination.dispatch.note(subscription)
        return commands

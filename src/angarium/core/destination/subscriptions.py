"""The subscriptions of one destination, and which of them its log still has to wait for.

A queue always has exactly one, with an empty name. A topic has one for each durable name and, named after its consumer
with a leading '#', one for each consumer that is not durable; the latter go when their consumer goes.
"""
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from angarium.core.destination.subscription import Subscription
from angarium.core.errors import Rejected
from angarium.core.wire.frames import ConsumerOpen, DestinationKind, Start

_CURSORS_OUTDATED_MAX = 100  # of subscriptions that are gone; past it the heap is built anew


class Subscriptions:
    def __init__(self, kind: DestinationKind) -> None:
        self._kind = kind
        self._by_name: dict[str, Subscription] = {}
        self._parking: dict[str, Subscription] = {}  # those with something parked: the only ones that time concerns
        self._cursors: list[tuple[int, str]] = []  # a heap with one, perhaps outdated, cursor of each
        if kind == DestinationKind.QUEUE:
            self.add(Subscription("", durable=True, cursor=0))

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Subscription | None:
        return self._by_name.get(name)

    def add(self, subscription: Subscription) -> Subscription:
        self._by_name[subscription.name] = subscription
        heappush(self._cursors, (subscription.cursor, subscription.name))
        self.note_parking(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        del self._by_name[subscription.name]
        self._parking.pop(subscription.name, None)
        if len(self._cursors) > 2 * len(self._by_name) + _CURSORS_OUTDATED_MAX:  # behind one that does not move
            self._cursors = [(other.cursor, other.name) for other in self]
            heapify(self._cursors)

    def note_parking(self, subscription: Subscription) -> None:
        """To be called when something of the subscription may have been parked or freed."""
        if subscription.parking:
            self._parking[subscription.name] = subscription
        else:
            self._parking.pop(subscription.name, None)

    def parking(self) -> list[Subscription]:
        return list(self._parking.values())

    def deadline(self) -> float | None:
        return min((d for s in self._parking.values() if (d := s.deadline()) is not None), default=None)

    def slowest_cursor(self) -> int | None:
        """Positions below are settled everywhere; None without subscriptions."""
        heap = self._cursors
        while heap:
            cursor, name = heap[0]
            subscription = self._by_name.get(name)
            if subscription is None:
                heappop(heap)
            elif subscription.cursor != cursor:
                heapreplace(heap, (subscription.cursor, name))
            else:
                return cursor
        return None

    def find_for(self, session: bytes, frame: ConsumerOpen, *, first: int, next_position: int) -> Subscription:
        """The subscription that a consumer asks for, created if need be; raises Rejected."""
        if self._kind == DestinationKind.QUEUE:
            if frame.subscription:
                raise Rejected("wrong-kind", f"{frame.destination!r} is a queue: it has no named subscriptions")
            return self._by_name[""]
        name = frame.subscription or f"#{session.hex()}.{frame.consumer}"
        known = self._by_name.get(name)
        if known is None:
            return self.add(_new(name, frame, first, next_position))
        if known.consumers or any(key[0] != session for key in (*known.parked, *known.awaited)):
            reason = f"subscription {name!r} on {frame.destination!r} has an active consumer"
            raise Rejected("subscription-in-use", reason)
        return known


def _new(name: str, frame: ConsumerOpen, first: int, next_position: int) -> Subscription:
    durable = bool(frame.subscription)
    if not frame.resumed or frame.next_position < 0:  # new, or its opening was never answered
        cursor = first if frame.start == Start.OLDEST else next_position
        return Subscription(name, durable=durable, cursor=cursor)
    # It was lost with a restart or after the grace time: it goes on from what its client tells, as far as the log
    # still reaches.
    next_fresh = min(max(frame.next_position, first), next_position)
    held = [(max(low, first), high) for low, high in frame.held if high > first]
    subscription = Subscription(name, durable=durable, cursor=min([next_fresh, *(low for low, _ in held)]))
    subscription.next_fresh = next_fresh
    for low, high in held:
        subscription.orphaned.add(max(low, subscription.cursor), min(high, next_fresh))
    for low, high in subscription.orphaned.gaps(subscription.cursor, next_fresh):
        subscription.settled.add(low, high)
    return subscription

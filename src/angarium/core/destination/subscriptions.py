"""The subscriptions of one destination, and which of them its log still has to wait for.

A queue always has exactly one, with an empty name. A topic has one for each name of a durable one, one for each name
of one that is not, with a leading '##' (Jakarta Messaging 3.1, 8.3.2: they have nothing to do with each other), and,
named after its consumer with a leading '#', one for each consumer that gave none. Those that are not durable go when
their last consumer goes.
"""
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from angarium.core.destination.log import Lane, Log, lane_of
from angarium.core.destination.subscription import Subscription
from angarium.core.errors import Rejected
from angarium.core.wire.frames import ConsumerOpen, DestinationKind, Start

_CURSORS_OUTDATED_MAX = 100  # of subscriptions that are gone; past it the heap is built anew


class Subscriptions:
    def __init__(
        self, kind: DestinationKind, log: Log, *, subscriptions_max: int, in_flight_max: int, holes_max: int
    ) -> None:
        self._kind = kind
        self._log = log
        self._subscriptions_max = subscriptions_max
        self._in_flight_max = in_flight_max
        self._holes_max = holes_max
        self._by_name: dict[str, Subscription] = {}
        self._timed: dict[str, Subscription] = {}  # those with something parked or delayed: time concerns only them
        self._cursors: dict[int, list[tuple[int, str]]] = {}  # by lane: a heap of cursors, some outdated
        self.no_local_count = 0  # of those that leave out what a connection sends itself
        if kind == DestinationKind.QUEUE:
            self.add(Subscription("", durable=True, in_flight_max=in_flight_max, holes_max=holes_max))

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def sole(self) -> Subscription | None:
        """The only one there is."""
        return next(iter(self._by_name.values())) if len(self._by_name) == 1 else None

    def get(self, name: str) -> Subscription | None:
        return self._by_name.get(name)

    def add(self, subscription: Subscription) -> Subscription:
        self.no_local_count += bool(subscription.no_local)
        self._by_name[subscription.name] = subscription
        for number, heap in self._cursors.items():
            heappush(heap, (subscription.cursor_of(number), subscription.name))
        self.note_time(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        self.no_local_count -= bool(subscription.no_local)
        del self._by_name[subscription.name]
        self._timed.pop(subscription.name, None)
        for number, heap in self._cursors.items():
            if len(heap) > 2 * len(self._by_name) + _CURSORS_OUTDATED_MAX:  # behind one that does not move
                self._cursors[number] = self._heap(number)

    def note_time(self, subscription: Subscription) -> None:
        """To be called when something of the subscription may have been parked, delayed or freed."""
        if subscription.is_timed:
            self._timed[subscription.name] = subscription
        else:
            self._timed.pop(subscription.name, None)

    def timed(self) -> list[Subscription]:
        return list(self._timed.values())

    def deadline(self) -> float | None:
        if not self._timed:
            return None
        return min((d for s in self._timed.values() if (d := s.deadline()) is not None), default=None)

    def slowest_cursor(self, lane: Lane) -> int | None:
        """Positions of the lane below it are settled everywhere; None if no subscription is in the way."""
        heap = self._cursors.get(lane.number)
        if heap is None:
            heap = self._cursors[lane.number] = self._heap(lane.number)
        while heap:
            cursor, name = heap[0]
            subscription = self._by_name.get(name)
            if subscription is None or subscription.is_idle_in(lane.number):
                heappop(heap)
            elif (now_at := subscription.cursor_of(lane.number)) != cursor:
                heapreplace(heap, (now_at, name))
            else:
                return cursor
        return None

    def note_unsettled(self, subscription: Subscription, position: int) -> None:
        """A subscription that looks at nothing but what is offered to it has got something: the log waits for it."""
        heap = self._cursors.get(lane_of(position))
        if heap is not None:
            heappush(heap, (subscription.cursor_of(lane_of(position)), subscription.name))

    def _heap(self, number: int) -> list[tuple[int, str]]:
        heap = [(other.cursor_of(number), other.name) for other in self]
        heapify(heap)
        return heap

    # -- which one a consumer asks for -------------------------------------------------------------

    def name_for(self, session: bytes, frame: ConsumerOpen) -> str:
        if self._kind == DestinationKind.QUEUE:
            if frame.subscription or frame.shared:
                raise Rejected("wrong-kind", f"{frame.destination!r} is a queue: it has no named subscriptions")
            return ""
        if frame.shared and not frame.subscription:
            raise Rejected("bad-name", f"a shared subscription on {frame.destination!r} needs a name")
        if frame.subscription:
            return frame.subscription if frame.durable else f"##{frame.subscription}"
        return f"#{session.hex()}.{frame.consumer}"

    def check_compatible(self, known: Subscription, session: bytes, frame: ConsumerOpen, client: bytes) -> bool:
        """Whether the consumer may join as it is; False if the subscription is to be replaced; raises Rejected."""
        if self._kind == DestinationKind.QUEUE:
            return True
        others = any(key[0] != session for key in known.parking.keys)
        active = bool(known.consumers) or others
        name = frame.subscription or known.name
        if active and not (known.shared and frame.shared):
            reason = (
                f"subscription {name!r} on {frame.destination!r} has an active consumer, or one that was cut off "
                "and may come back; close it, wait, or share the subscription"
            )
            raise Rejected("subscription-in-use", reason)
        # Between two uses the connection may be another one; while one uses it, it is that one's.
        no_local = known.no_local if frame.no_local and known.no_local and not active else client.hex()
        durable = bool(frame.subscription) and frame.durable
        is_other_kind = (frame.shared, durable) != (known.shared, known.durable)
        same = (frame.selector, no_local if frame.no_local else "") == (known.selector, known.no_local)
        what = f"subscription {name!r} on {frame.destination!r} exists"
        if is_other_kind:
            kind = f"{'shared' if known.shared else 'unshared'}, {'durable' if known.durable else 'not durable'}"
            raise Rejected("subscription-differs", f"{what} as {kind}; ask for that, remove it, or use another name")
        if active and not same:
            other = "another selector" if frame.selector != known.selector else "another no_local"
            reason = f"{what} with {other}; close its consumers first, or use another name"
            raise Rejected("subscription-differs", reason)
        return same

    def new_for(self, name: str, frame: ConsumerOpen, client: bytes) -> Subscription:
        """A new subscription, or one that was lost with a restart or after the grace time; raises Rejected."""
        if len(self._by_name) >= self._subscriptions_max:
            reason = (
                f"{frame.destination!r} has {len(self._by_name):,} subscriptions, as many as subscriptions_max allows; "
                "remove some with `angarium rm --subscription`"
            )
            raise Rejected("too-many-subscriptions", reason)
        is_new = not frame.resumed or frame.next_position < 0  # or its opening was never answered
        oldest = is_new and frame.start == Start.OLDEST
        cursors = {lane.number: lane.first if oldest else lane.next for lane in self._log.order}
        subscription = Subscription(
            name,
            durable=bool(frame.subscription) and frame.durable,
            cursors=cursors,
            shared=frame.shared,
            selector=frame.selector,
            no_local=client.hex() if frame.no_local else "",
            in_flight_max=self._in_flight_max,
            holes_max=self._holes_max,
        )
        if not is_new:
            self._go_on(subscription, frame)
        return self.add(subscription)

    def _go_on(self, subscription: Subscription, frame: ConsumerOpen) -> None:
        """It goes on from what its client tells, as far as the log still reaches. A lane that it does not name is newer
        than it."""
        told = {lane_of(position): position for position in (*frame.next_positions, frame.next_position)}
        for lane in self._log.order:
            held = [(max(low, lane.first), min(high, lane.next)) for low, high in frame.held]
            held = [(low, high) for low, high in held if low < high]
            following = told.get(lane.number, lane.base)
            fresh = min(max(following, lane.first, *(high for _, high in held)), lane.next)
            cursor = min([fresh, *(low for low, _ in held)])
            subscription.cursors[lane.number] = cursor
            subscription.fresh[lane.number] = subscription.delivered[lane.number] = fresh
            for low, high in held:
                subscription.parking.orphaned.add(low, high)
            for low, high in subscription.parking.orphaned.gaps(cursor, fresh):
                subscription.settled.add(low, high)

"""A subscription: which positions of a log are done with, held by someone, or free to be delivered.

        cursor            next_fresh            readable end of the log
    ------|-----------------|-----------------------|
    settled   settled         never delivered
              held by a consumer
              returned: free to be delivered again
              parked: held by a session that was cut off, and may come back

Every position in [cursor, next_fresh) is in exactly one of the four sets; all are ranges, so that memory follows what
is in flight. A queue has one subscription that all its consumers share; a topic has one for each subscriber.

Parking is what lets a session that survived go on. When a connection is cut, what its consumers hold is parked for a
grace time; after a restart of the broker everything unsettled is parked if consumers were attached when it stopped.
A consumer that resumes claims what it holds, resends its settlements, grants credit; with the credit, what it left
unclaimed is free again. What nobody claims in time is delivered to others. Until then nothing newer is delivered: among
the positions parked by a restart are some that were never delivered, and they come first.
"""
from dataclasses import dataclass, field

import msgspec

from angarium.core.destination.redeliveries import Redeliveries
from angarium.core.ranges import Range, RangeSet

ConsumerKey = tuple[bytes, int]  # session identity, the client's number


class SubscriptionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A durable subscription as it is stored."""

    cursor: int
    settled: list[Range]
    delivered: int
    redeliveries: dict[int, list[Range]]


@dataclass(slots=True, eq=False)
class Consumer:
    session: bytes
    number: int
    subscription: "Subscription"
    limit: int  # messages it accepts in all
    attachment: bytes = b""  # to be repeated when it is told that it is open
    delivered: int = 0
    opening: bool = False  # it has not been told yet that it is open
    cut: bool = False  # its session was cut off: should it resume, another one takes its place
    stalled: bool = False  # its connection takes no more for now
    held: RangeSet = field(default_factory=RangeSet)
    unclaimed: RangeSet | None = None  # until its first credit after a resume

    @property
    def position(self) -> int:
        """Where its subscription goes on, if that is known only while it is here; else -1."""
        if self.subscription.durable:
            return -1
        unclaimed = self.unclaimed.first() if self.unclaimed else None
        return self.subscription.next_fresh if unclaimed is None else unclaimed[0]

    @property
    def credit(self) -> int:
        if self.opening or self.stalled or self.unclaimed is not None:
            return 0
        return max(0, self.limit - self.delivered)


@dataclass(slots=True)
class Parked:
    positions: RangeSet
    until: float


class Subscription:
    def __init__(self, name: str, *, durable: bool, cursor: int) -> None:
        self.name = name
        self.durable = durable
        self.cursor = cursor
        self.settled = RangeSet()
        self.next_fresh = cursor
        self.delivered = cursor  # one past the highest position that was ever delivered
        self.noting = False  # a write that notes `delivered` is under way
        self.returned = RangeSet()
        self.redeliveries = Redeliveries()
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self.parked: dict[ConsumerKey, Parked] = {}
        self.orphaned = RangeSet()  # parked by a restart: whose they are, only their holders know
        self.awaited: dict[ConsumerKey, None] = {}  # consumers that were attached before the restart
        self.awaited_until = 0.0
        self.reading = False
        self._ready: dict[Consumer, None] = {}  # consumers with credit, in turn

    @classmethod
    def restored(
        cls, name: str, record: SubscriptionRecord, attached: list[ConsumerKey], *, log_next: int, until: float
    ) -> "Subscription":
        # It may have been saved ahead of what was then lost with a crash: it must not wait behind the log's end.
        self = cls(name, durable=True, cursor=min(record.cursor, log_next))
        self.settled = RangeSet(record.settled)
        self.settled.remove(log_next, max(log_next, record.delivered))
        self.next_fresh = log_next
        self.delivered = min(record.delivered, log_next)
        self.redeliveries = Redeliveries(record.redeliveries)
        unsettled = self.settled.gaps(self.cursor, self.next_fresh)
        for low, high in self.settled.gaps(self.cursor, self.delivered):
            self.redeliveries.mark_delivered(low, high)
        if attached:
            self.orphaned = RangeSet(unsettled)
            self.awaited = dict.fromkeys(attached)
            self.awaited_until = until
        else:
            self.returned = RangeSet(unsettled)
        return self

    def record(self) -> bytes:
        return msgspec.msgpack.encode(
            SubscriptionRecord(self.cursor, list(self.settled), self.delivered, self.redeliveries.levels())
        )

    # -- what is free ------------------------------------------------------------------------------

    def free_count(self, readable: int) -> int:
        return self.returned.count + (0 if self.orphaned else max(0, readable - self.next_fresh))

    def waiting_count(self, readable: int) -> int:
        """Everything not settled: free, held or parked."""
        return max(0, readable - self.cursor) - self.settled.count

    def in_flight_count(self) -> int:
        return sum(c.held.count for c in self.consumers.values()) + sum(
            p.positions.count for p in self.parked.values()
        )

    def wanted(self, readable: int) -> int | None:
        """The first free position, if some consumer would take it."""
        if not self._ready:
            return None
        returned = self.returned.first()
        if returned is not None:
            return returned[0]
        return self.next_fresh if self.next_fresh < readable and not self.orphaned else None

    def free_in(self, low: int, high: int) -> list[Range]:
        """The free parts of [low, high); the caller knows that all of it is readable."""
        parts = self.returned.overlap(low, high)
        if high > self.next_fresh and not self.orphaned:
            parts.append((max(low, self.next_fresh), high))
        return parts

    def next_ready(self) -> Consumer | None:
        return next(iter(self._ready), None)

    def ready_count(self) -> int:
        return len(self._ready)

    def take(self, consumer: Consumer, low: int, high: int) -> list[int]:
        """Give the free range to the consumer, which goes to the end of the line; return redelivery counts."""
        self._leave_free(low, high)
        consumer.held.add(low, high)
        consumer.delivered += high - low
        self.delivered = max(self.delivered, high)
        del self._ready[consumer]
        self.update_ready(consumer)
        return self.redeliveries.of(low, high)

    def discard(self, low: int, high: int) -> None:
        """Settle free positions that nobody will get: expired, damaged or purged."""
        self._leave_free(low, high)
        self._settle_part(low, high)

    def _leave_free(self, low: int, high: int) -> None:
        self.returned.remove(low, min(high, self.next_fresh))
        if high > self.next_fresh:
            if low > self.next_fresh:
                self.returned.add(self.next_fresh, low)
            self.next_fresh = high

    # -- consumers ---------------------------------------------------------------------------------

    def update_ready(self, consumer: Consumer) -> None:
        if consumer.credit > 0:
            self._ready.setdefault(consumer)
        else:
            self._ready.pop(consumer, None)

    def attach(self, consumer: Consumer, held: list[Range], *, resumed: bool) -> list[Range]:
        """Add a consumer, which claims what it held before; return what it can no longer have."""
        key = (consumer.session, consumer.number)
        if not resumed:
            self._unpark([key])  # an earlier consumer of that number will not come back
        self.consumers[key] = consumer
        lost: list[Range] = []
        if resumed:
            parked = self.parked.pop(key, None)
            mine = parked.positions if parked else RangeSet()
            orphaned = self._orphaned_for(key)
            for low, high in held:
                got = mine.remove(low, high) + orphaned.remove(low, high)
                for part in got:
                    consumer.held.add(*part)
                lost += RangeSet(got).gaps(low, high)
            consumer.unclaimed = mine
        self.update_ready(consumer)
        return lost

    def credit(self, consumer: Consumer, limit: int) -> None:
        consumer.limit = limit
        if consumer.unclaimed is not None:
            # It has said all that it holds and has settled: the rest never reached its application.
            for low, high in consumer.unclaimed:
                self.returned.add(low, high)
            consumer.unclaimed = None
            self.awaited.pop((consumer.session, consumer.number), None)
            self._end_awaiting_if_complete()
        self.update_ready(consumer)

    def detach(self, consumer: Consumer, *, park_until: float | None) -> None:
        """Remove a consumer; what it holds is parked until then, or free at once."""
        key = (consumer.session, consumer.number)
        del self.consumers[key]
        self._ready.pop(consumer, None)
        if park_until is not None:
            positions = consumer.held
            for part in consumer.unclaimed or ():
                positions.add(*part)
            self.parked[key] = Parked(positions, park_until)
            return
        self._give_back(consumer.held)
        for part in consumer.unclaimed or ():
            self.returned.add(*part)

    @property
    def parking(self) -> bool:
        return bool(self.parked or self.awaited)

    def forget_session(self, session: bytes) -> list[ConsumerKey]:
        """The session has ended for good: nothing of it will be claimed. Return its consumers."""
        return self._unpark([key for key in (*self.parked, *self.awaited) if key[0] == session])

    def _unpark(self, keys: list[ConsumerKey]) -> list[ConsumerKey]:
        """Free what is kept for them; return those that are not attached."""
        for key in keys:
            parked = self.parked.pop(key, None)
            if parked is not None:
                self._give_back(parked.positions)
            self.awaited.pop(key, None)
        self._end_awaiting_if_complete()
        return [key for key in keys if key not in self.consumers]

    def _give_back(self, positions: RangeSet) -> None:
        for low, high in positions:
            self.redeliveries.raise_by_one(low, high)
            self.returned.add(low, high)

    def _orphaned_for(self, key: ConsumerKey) -> RangeSet:
        """What the consumer may claim: nothing, if it was given up before the restart, for others may hold it since."""
        return self.orphaned if key in self.awaited or not self.awaited else RangeSet()

    def _end_awaiting_if_complete(self) -> None:
        if not self.awaited and self.orphaned:
            for low, high in self.orphaned:
                self.returned.add(low, high)
            self.orphaned = RangeSet()

    # -- time --------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        times = [parked.until for parked in self.parked.values()]
        if self.awaited:
            times.append(self.awaited_until)
        return min(times, default=None)

    def expire_parked(self, now: float) -> list[ConsumerKey]:
        """Free what nobody came back for; return the consumers that are given up."""
        due = [key for key, parked in self.parked.items() if parked.until <= now]
        if self.awaited and self.awaited_until <= now:
            due += self.awaited
        return self._unpark(due)

    # -- outcomes ----------------------------------------------------------------------------------

    def settle(self, consumer: Consumer, low: int, high: int) -> tuple[int, list[Range]]:
        """Settle what the consumer holds of the range; return how much that was, and what was not its to settle.

        Positions that are settled already are no loss: a resent settlement is answered as the first one was.
        """
        got = self._take_own(consumer, low, high)
        if consumer.unclaimed is not None:
            # After a restart of the broker only the client knows that it had these and settled them. What it had and
            # released may be somebody else's, who has not resumed yet.
            got += self._orphaned_for((consumer.session, consumer.number)).remove(low, high)
        for part in got:
            self._settle_part(*part)
        known = RangeSet(got)
        gaps = known.gaps(max(low, self.cursor), high)
        return known.count, [rest for gap in gaps for rest in self.settled.gaps(*gap)]

    def release(self, consumer: Consumer, low: int, high: int) -> list[Range]:
        """Give held positions back, to be delivered again; return what was not the consumer's to release."""
        got = self._take_own(consumer, low, high)
        self._give_back(RangeSet(got))
        return RangeSet(got).gaps(low, high)

    def _take_own(self, consumer: Consumer, low: int, high: int) -> list[Range]:
        got = consumer.held.remove(low, high)
        if consumer.unclaimed is not None:
            got += consumer.unclaimed.remove(low, high)
        return got

    def _settle_part(self, low: int, high: int) -> None:
        self.redeliveries.drop(low, high)
        if low > self.cursor:
            self.settled.add(low, high)
            return
        self.cursor = max(self.cursor, high)
        first = self.settled.first()
        if first is not None and first[0] <= self.cursor:
            self.cursor = max(self.cursor, first[1])
            self.settled.remove(*first)

    def check(self, log_next: int) -> None:
        """Assert the invariant of the picture above. For tests and the simulator."""
        sets = [self.settled, self.returned, self.orphaned]
        sets += [c.held for c in self.consumers.values()] + [c.unclaimed or RangeSet() for c in self.consumers.values()]
        sets += [parked.positions for parked in self.parked.values()]
        union = RangeSet()
        for positions in sets:
            for part in positions:
                assert not union.overlap(*part), f"{self.name!r}: {part} is in two sets"
                union.add(*part)
        expected = [(self.cursor, self.next_fresh)] if self.cursor < self.next_fresh else []
        assert list(union) == expected, f"{self.name!r}: {union} does not cover {expected}"
        assert not self.settled or self.settled.first()[0] > self.cursor  # type: ignore[index]
        # A new subscription starts behind what is still on its way to the disk: it may stand beyond what is readable.
        assert self.next_fresh <= log_next or not self.consumers, f"{self.name!r}: beyond the log's end {log_next}"

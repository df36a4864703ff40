"""A subscription: who holds which positions of a log, settles them, gives them back, or may come back for them.

Where every position stands is in `positions.py`; what is with somebody there is, here, in exactly one of three sets:

    held by a consumer
    parked: held by a session that was cut off, and may come back
    locked: to be settled by a transaction that is prepared and not decided

A queue has one subscription that all its consumers share; a topic has one for each subscriber or name.

Parking is what lets a session that survived go on. When a connection is cut, what its consumers hold is parked for a
grace time; after a restart of the broker everything unsettled is parked if consumers were attached when it stopped.
A consumer that resumes claims what it holds, resends its settlements, grants credit; with the credit, what it left
unclaimed is free again. What nobody claims in time is delivered to others. Until then nothing newer is delivered: among
the positions parked by a restart are some that were never delivered, and they come first.
"""
from collections.abc import Callable

from angarium.core.destination.consumer import UNSEEN_RANGES_MAX, Consumer, ConsumerKey
from angarium.core.destination.headers import Names
from angarium.core.destination.locks import Lock, Locks, TransactionKey
from angarium.core.destination.log import LANE_BITS, Log, lane_of
from angarium.core.destination.positions import Positions
from angarium.core.ranges import Range, RangeSet
from angarium.core.selector.fields import Fields


class Subscription(Positions):
    def __init__(
        self,
        name: str,
        *,
        durable: bool,
        cursors: dict[int, int] | None = None,
        shared: bool = False,
        selector: str = "",
        no_local: str = "",
        in_flight_max: int = 1 << 62,
        holes_max: int = 1 << 62,
    ) -> None:
        super().__init__(noted=durable, cursors=cursors, in_flight_max=in_flight_max, holes_max=holes_max)
        self.name = name
        self.durable = durable
        self.shared = shared
        self.selector = selector
        self.no_local = no_local
        self.is_described = not selector  # its selector is stored
        self.dropped = 0  # messages that it lost because it was too far behind
        self.unselected = 0  # messages that it looked at since it came, or the start, and did not accept
        self.noting = False  # how far it has delivered will be noted, or is being noted
        self.is_noted = True  # the last record that was asked for has all that was delivered
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self.locks = Locks()
        self.reading = False
        self.reads = 0  # that were answered
        self.is_pausing = False  # nothing is delivered until what has died is durable
        self.accepts: Callable[[Fields, bytes], bool] | None = None  # by fields and producer; None: everything
        self.names: Names = frozenset()  # what some selector asks for, its own or of a consumer that it ever had
        self.is_large = False  # its own selector
        self.weight = 0  # comparisons that a message takes at most, by its own selector and those of its consumers
        self.burying = False  # a read of what is doomed is under way
        self.presumed = RangeSet()  # delivered once before the last start, and counted for that alone

    def unselected_count(self, log: Log) -> int:
        """Messages that it did not accept, since it came or the start of the broker."""
        return self.unselected + (log.readable_count - self.live_beyond if self.is_live else 0)

    def in_flight_count(self) -> int:
        return sum(c.held.count for c in self.consumers.values()) + self.parking.parked_count + self.locks.count

    @property
    def looks(self) -> bool:
        """Whether what is free has to be looked at one by one."""
        return (self.accepts is not None and not self.is_live) or self.line.choosy > 0

    @property
    def is_plain(self) -> bool:
        """Nothing was given back or passed over, is to be buried, kept for somebody, or has to be looked at."""
        return not (
            self.returned.count
            or self.passed_over.count
            or self.doom
            or self.parking.orphaned
            or self.accepts is not None
            or self.line.choosy
            or self.reading
            or self.is_pausing
        )

    def take(self, consumer: Consumer, low: int, high: int) -> None:
        """Give the free range to the consumer, which goes to the end of the line."""
        self._leave_free(low, high)
        consumer.held.add(low, high)
        if consumer.unseen is not None:
            consumer.unseen.remove(low, high)
        consumer.delivered += high - low
        lane = lane_of(low)
        delivered = self.delivered.get(lane, lane << LANE_BITS)
        if high > delivered:
            for part in self.returned.overlap(delivered, low):
                self.passed_over.add(*part)
            self.delivered[lane] = high
        self.line.step_back(consumer)

    def tidy(self) -> None:
        """Whether somebody has looked at what is not free need not be remembered."""
        for consumer in self.line:
            if consumer.unseen is not None and len(consumer.unseen) > consumer.unseen_ranges_max:
                free = RangeSet()
                for low, high in consumer.unseen:
                    for part in self.returned.overlap(low, high):
                        free.add(*part)
                    for lane in range(lane_of(low), lane_of(high - 1) + 1):
                        free.add(max(low, self.fresh_of(lane)), min(high, (lane + 1) << LANE_BITS))
                consumer.unseen, consumer.unseen_ranges_max = free, max(UNSEEN_RANGES_MAX, 2 * len(free))

    # -- consumers ---------------------------------------------------------------------------------

    def attach(self, consumer: Consumer, held: list[Range], *, resumed: bool) -> list[Range]:
        """Add a consumer, which claims what it held before; return what it can no longer have."""
        key = consumer.key
        if not resumed:
            self._unpark([key])  # an earlier consumer of that number will not come back
        self.consumers[key] = consumer
        self.weight += consumer.weight
        lost: list[Range] = []
        if resumed:
            consumer.recovered = self.parking.recovered(key)
            mine, orphaned = self.parking.take(key), self.parking.orphaned_for(key)
            locked = self.locks.claim(key, held)
            for low, high in held:
                claimed = orphaned.remove(low, high)
                self._never_left(claimed)
                got = mine.remove(low, high) + claimed
                for part in got:
                    consumer.held.add(*part)
                lost += RangeSet([*got, *locked]).gaps(low, high)
            consumer.unclaimed = mine
        self.line.join(consumer)
        return lost

    def _never_left(self, claimed: list[Range]) -> None:
        """After a restart, whatever was under way is taken for delivered. What its consumer still has is not."""
        for low, high in claimed:
            self.passed_over.remove(low, high)
            for part in self.presumed.remove(low, high):
                self.redeliveries.drop(*part)

    def credit(self, consumer: Consumer, limit: int) -> None:
        consumer.limit = limit
        if consumer.unclaimed is not None:
            # It has said all that it holds and has settled: the rest never reached its application.
            self._free_again(consumer.unclaimed)
            consumer.unclaimed = None
            self._return_all(self.parking.has_come(consumer.key))
        self.line.update(consumer)

    def detach(self, consumer: Consumer, *, park_until: float | None, seen: list[Range] | None = None) -> None:
        """Remove a consumer; what it holds is parked until then, or free at once. Only what its application has seen
        counts as delivered; None: nobody knows, so all of it."""
        del self.consumers[consumer.key]
        self.weight -= consumer.weight
        self.line.leave(consumer, may_return=park_until is not None)
        unclaimed = consumer.unclaimed or RangeSet()
        if park_until is not None:
            for part in unclaimed:
                consumer.held.add(*part)
            self.parking.park(consumer.key, consumer.held, park_until, consumer.recovered)
            # After a restart it had come, and had claimed what it holds: that is kept for its own time from now on.
            self._return_all(self.parking.has_come(consumer.key))
            return
        self.locks.disown(consumer.key)
        for low, high in list(consumer.held) if seen is None else seen:
            self._give_back(RangeSet(consumer.held.remove(low, high)))
        self._return_unseen(consumer.held)
        self._free_again(unclaimed)
        # After a restart it may have claimed what it holds, and given no credit yet: nobody waits for it any longer.
        self._return_all(self.parking.has_come(consumer.key))

    def forget_session(self, session: bytes) -> list[ConsumerKey]:
        """The session has ended for good: nothing of it will be claimed. Return its consumers."""
        return self._unpark([key for key in self.parking.keys if key[0] == session])

    def _unpark(self, keys: list[ConsumerKey]) -> list[ConsumerKey]:
        """Free what is kept for them; return those that are not attached."""
        for key in keys:
            self.line.give_up(key)
            if key not in self.consumers:
                self.locks.disown(key)
            self._give_back(self.parking.take(key))
            self.parking.awaited.pop(key, None)
        self._return_all(self.parking.unclaimed())
        return [key for key in keys if key not in self.consumers]

    # -- time --------------------------------------------------------------------------------------

    @property
    def is_timed(self) -> bool:
        """Whether it has a deadline."""
        return bool(self.parking or self.delayed)

    def deadline(self) -> float | None:
        parked = self.parking.deadline()
        if not self.delayed:
            return parked
        return self.delayed[0][0] if parked is None else min(parked, self.delayed[0][0])

    def expire_parked(self, now: float) -> list[ConsumerKey]:
        """Free what nobody came back for; return the consumers that are given up."""
        return self._unpark(self.parking.due(now))

    # -- outcomes ----------------------------------------------------------------------------------

    def settle(self, consumer: Consumer, low: int, high: int, *, doom: str = "") -> tuple[int, list[Range]]:
        """Settle, or doom, what the consumer holds of the range; return how much, and what was not its to settle.

        Positions that are settled already are no loss: a resent settlement is answered as the first one was.
        """
        got = self._take_own(consumer, low, high)
        if consumer.unclaimed is not None:
            # After a restart of the broker only the client knows that it had these and settled them. What it had and
            # released may be somebody else's, who has not resumed yet.
            claimed = self.parking.orphaned_for(consumer.key).remove(low, high)
            self._never_left(claimed)
            got += claimed
        for part in got:
            if doom:
                self._doom(doom, *part)
            else:
                self._settle_part(*part, by=consumer.key)
        gaps = RangeSet(got).gaps(max(low, self.cursor_of(lane_of(low))), high)
        unsettled = [rest for gap in gaps for rest in self.settled.gaps(*gap)]
        return sum(b - a for a, b in got), [rest for part in unsettled for rest in self.doom.gaps(*part)]

    def release(self, consumer: Consumer, low: int, high: int, *, until: float | None = None) -> list[Range]:
        """Give held positions back, to be delivered again; return what was not the consumer's to release."""
        got = self._take_own(consumer, low, high)
        self._give_back(RangeSet(got), until)
        return RangeSet(got).gaps(low, high)

    def hand_back(self, consumer: Consumer, low: int, high: int) -> list[Range]:
        """Give held positions back as if they had never been delivered; return what was not the consumer's."""
        got = self._take_own(consumer, low, high)
        self._return_unseen(RangeSet(got))  # before a restart it may have been given back once too often
        return RangeSet(got).gaps(low, high)

    def recover(self, consumer: Consumer, number: int, seen: list[Range], *, until: float | None = None) -> None:
        """All that the consumer holds goes back; what its application has seen counts as delivered. Asked for again
        because the answer was lost, nothing that went out since has been seen."""
        is_again, consumer.recovered = number <= consumer.recovered, max(number, consumer.recovered)
        if consumer.unclaimed is not None and self.parking.awaited:
            self._orphan_recovered(consumer, [] if is_again else seen)
        for low, high in seen if not is_again else ():
            self._give_back(RangeSet(self._take_own(consumer, low, high)), until)
        for low, high in list(consumer.held):
            self.hand_back(consumer, low, high)
        self.line.update(consumer)

    def _orphan_recovered(self, consumer: Consumer, seen: list[Range]) -> None:
        """It may have been recovered before the restart already, and be somebody else's, who has not resumed yet."""
        for low, high in seen:
            for part in consumer.held.overlap(low, high):
                self.redeliveries.raise_by_one(*part)
        for low, high in list(consumer.held):
            for part in self._take_own(consumer, low, high):
                self.parking.orphaned.add(*part)

    def _take_own(self, consumer: Consumer, low: int, high: int) -> list[Range]:
        got = consumer.held.remove(low, high)
        if consumer.unclaimed is not None:
            got += consumer.unclaimed.remove(low, high)
        if not consumer.held:
            consumer.held_since = None
        return got

    # -- transactions that are prepared ----------------------------------------------------------------

    def lock(self, lock: Lock, ranges: list[Range]) -> None:
        """What its consumer holds, or left unclaimed so far, is the transaction's from now on; after a restart, when
        nobody holds anything yet, what is not settled of it."""
        consumer = self.consumers.get((lock.transaction[0], lock.consumer))
        for low, high in ranges:
            if consumer is not None:
                taken = self._take_own(consumer, low, high)
            else:
                taken = self.returned.remove(low, high) + self.parking.orphaned.remove(low, high)
            for part in taken:
                lock.positions.add(*part)
        self.locks.add(lock)

    def settle_locked(self, transaction: TransactionKey, consumer: int) -> int | None:
        """The transaction is committed; return how many it settled here, None if it has no lock here."""
        lock = self.locks.take(transaction, consumer)
        for low, high in lock.positions if lock is not None else ():
            self._settle_part(low, high, by=(transaction[0], consumer))
        return None if lock is None else lock.positions.count

    def unlock(self, transaction: TransactionKey, consumer: int) -> None:
        """The transaction is rolled back: what it locked goes back to the consumer that held it, or becomes free."""
        lock = self.locks.take(transaction, consumer)
        if lock is None:
            return
        owner = (transaction[0], consumer)
        kept = self.consumers[owner].held if owner in self.consumers else self.parking.kept_for(owner)
        if not lock.is_owned or kept is None:
            self._give_back(lock.positions)
            return
        for low, high in lock.positions:
            kept.add(low, high)

    def check(self, log: Log) -> None:
        """Assert the invariant of `positions.py`. For tests and the simulator."""
        sets = [self.settled, self.returned, RangeSet(part for _, part in self.delayed)]
        sets += [c.held for c in self.consumers.values()] + [c.unclaimed or RangeSet() for c in self.consumers.values()]
        sets += self.parking.sets() + self.doom.sets() + self.locks.sets()
        union = RangeSet()
        for positions in sets:
            for part in positions:
                assert not union.overlap(*part), f"{self.name!r}: {part} is in two sets"
                union.add(*part)
        stretches = [(self.cursor_of(lane), self.fresh_of(lane)) for lane in sorted({*self.cursors, *self.fresh})]
        expected = [stretch for stretch in stretches if stretch[0] < stretch[1]]
        assert list(union) == expected, f"{self.name!r}: {union} does not cover {expected}"
        for lane in log.order:
            first = self.settled.first_in(lane.base, lane.end)
            assert first is None or first[0] > self.cursor_of(lane.number)
            # A new subscription starts behind what is still on its way to the disk: it may stand beyond the readable.
            beyond = self.fresh_of(lane.number) > lane.next
            assert not beyond or not self.consumers, f"{self.name!r}: beyond the log's end {lane.next}"

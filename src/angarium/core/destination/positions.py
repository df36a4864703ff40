"""Where each position of a log stands for one subscription: settled, free, delayed, doomed, or with somebody.

        cursor             fresh               readable end of the lane
    ------|-----------------|-----------------------|
    settled   settled         never delivered
              returned: free to be delivered again
              delayed: will be returned at a given time
              doomed: will never be delivered again, and is to be buried
              with somebody: who that is, a subscription knows (`subscription.py`)

In each lane of the log every position from cursor to fresh is in exactly one of these sets; all are ranges, so that
memory follows what is in flight. Positions become free, are settled or doomed here; who takes them is not known here,
but that what becomes free is shown to whoever stands in line.
"""
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.doom import Doom
from angarium.core.destination.line import Line
from angarium.core.destination.log import LANE_BITS, Log, lane_of
from angarium.core.destination.pages import NotedRanges
from angarium.core.destination.parking import Parking
from angarium.core.destination.redeliveries import Redeliveries
from angarium.core.ranges import Range, RangeSet

Traced = Callable[[str, ConsumerKey | None, int, int], None]


class Positions:
    def __init__(self, *, noted: bool, cursors: dict[int, int] | None, in_flight_max: int, holes_max: int) -> None:
        """`noted`: what changes is remembered until it is written."""
        self.cursors = dict(cursors or {})  # by lane, as the next two; where there is none, the lane's beginning
        self.fresh = dict(self.cursors)
        self.delivered = dict(self.cursors)  # one past the highest position that was ever delivered
        self.changed_pages: set[int] = set()  # since it was last written
        new_set: Callable[[], RangeSet] = partial(NotedRanges, self.changed_pages) if noted else RangeSet
        self.settled = new_set()
        self.passed_over = new_set()  # never delivered, or given back unseen, and before something that was
        self.returned = RangeSet()
        self.delayed: list[tuple[float, Range]] = []  # a heap: until when, and what
        self.redeliveries = Redeliveries(new_set)
        self.redeliveries_max = 0  # 0: no limit
        self.doom = Doom(new_set)
        self.buries = False  # what is doomed goes to the dead message queue; else it is gone
        self.parking = Parking()
        self.line = Line()
        self.is_live = False  # what it accepts is offered to it as it arrives; it need not look for it
        self.live_beyond = 0  # messages of the log when it became live, and those that it was offered since
        self.trace: Traced | None = None  # is told what has ended: why, by whom, and which
        self._in_flight_max = in_flight_max
        self._holes_max = holes_max

    # -- what is free ------------------------------------------------------------------------------

    def cursor_of(self, lane: int) -> int:
        return self.cursors.get(lane, lane << LANE_BITS)

    def fresh_of(self, lane: int) -> int:
        return self.fresh.get(lane, lane << LANE_BITS)

    def free_count(self, log: Log) -> int:
        if self.parking.orphaned or self.is_live:
            return self.returned.count
        return self.returned.count + sum(max(0, lane.readable - self.fresh_of(lane.number)) for lane in log.order)

    def waiting_count(self, log: Log) -> int:
        """Everything not settled: free, held, delayed or parked."""
        ends = ((lane.number, self.fresh_of(lane.number) if self.is_live else lane.readable) for lane in log.order)
        return sum(max(0, end - self.cursor_of(lane)) for lane, end in ends) - self.settled.count

    def first_free(self, low: int, high: int) -> int | None:
        """The first free position of [low, high), which lies in one lane and is readable."""
        if (returned := self.returned.first_in(low, high)) is not None:
            return returned[0]
        fresh = max(low, self.fresh_of(lane_of(low)))
        return fresh if fresh < high and not self.parking.orphaned and not self.is_live else None

    def free_in_lane(self, low: int, high: int) -> int:
        return sum(b - a for a, b in self.free_in(low, high)) if low < high else 0

    def offer(self, low: int, high: int) -> bool:
        """To a live subscription: it accepts these positions, and none between them and those it was offered before.
        True if they are the first that it has to settle in their lane."""
        lane = lane_of(low)
        fresh = self.fresh_of(lane)
        low = max(low, fresh)
        if low >= high:
            return False
        was_idle = self.cursor_of(lane) == fresh
        if low > fresh:
            self._settle_part(fresh, low, "unselected")
        self.fresh[lane] = high
        self.live_beyond += high - low
        self.returned.add(low, high)
        return was_idle

    def is_idle_in(self, lane: int) -> bool:
        """The log need not wait for it: it waits only for what it is offered."""
        return self.is_live and self.cursor_of(lane) == self.fresh_of(lane)

    def room(self) -> int:
        """How many new ones may be delivered before others are settled: so there is a limit to what it remembers."""
        in_flight = -self.settled.count - self.returned.count
        for lane, fresh in self.fresh.items():
            in_flight += fresh - self.cursor_of(lane)
        return min(self._in_flight_max, self._holes_max - len(self.settled)) - in_flight  # each may become a hole

    def free_in(self, low: int, high: int) -> list[Range]:
        """The free parts of [low, high), which lies in one lane; the caller knows that all of it is readable."""
        parts = self.returned.overlap(low, high)
        fresh = self.fresh_of(lane_of(low))
        if high > fresh and not self.parking.orphaned and not self.is_live:
            parts.append((max(low, fresh), high))
        return parts

    def discard(self, low: int, high: int, reason: str) -> None:
        """Settle free positions that nobody will get: expired, damaged, purged, not selected, and the like."""
        self._leave_free(low, high)
        self._settle_part(low, high, reason)

    def _leave_free(self, low: int, high: int) -> None:
        lane = lane_of(low)
        fresh = self.fresh_of(lane)
        self.returned.remove(low, min(high, fresh))
        if self.passed_over:
            self.passed_over.remove(low, high)
        if high > fresh:
            if low > fresh:
                self.returned.add(fresh, low)
            self.fresh[lane] = high

    def _free_again(self, positions: RangeSet) -> None:
        for low, high in positions:
            self.returned.add(low, high)
            self.line.show(low, high)

    # -- to be delivered again ---------------------------------------------------------------------

    def _give_back(self, positions: RangeSet, until: float | None = None) -> None:
        """To be delivered again, at once or at a given time, with a higher count."""
        for low, high in positions:
            self.redeliveries.raise_by_one(low, high)
            if until is None:
                self._return(low, high)
            else:
                heappush(self.delayed, (until, (low, high)))

    def _return(self, low: int, high: int) -> None:
        """Free to be delivered again, unless that was done too often already."""
        worn = RangeSet(self.redeliveries.above(self.redeliveries_max, low, high) if self.redeliveries_max else ())
        for part in worn:
            self._doom("redelivery-limit", *part)
        self._free_again(RangeSet(worn.gaps(low, high)))

    def _return_unseen(self, positions: RangeSet) -> None:
        """Nobody has seen them. What had no count shall have none after a restart either, though it was delivered."""
        for low, high in positions:
            for part in self.redeliveries.uncounted(low, high):
                self.passed_over.add(*part)
        self._return_all(positions)

    def _return_all(self, positions: RangeSet) -> None:
        for low, high in positions:
            self._return(low, high)

    def end_delays(self, now: float) -> bool:
        """Return what has waited long enough; True if there was any."""
        is_due = bool(self.delayed) and self.delayed[0][0] <= now
        while self.delayed and self.delayed[0][0] <= now:
            _, (low, high) = heappop(self.delayed)
            self._return(low, high)
        return is_due

    # -- death -------------------------------------------------------------------------------------

    def doom_free(self, reason: str, low: int, high: int) -> None:
        """Free positions are not to be delivered any more."""
        self._leave_free(low, high)
        self._doom(reason, low, high)

    def _doom(self, reason: str, low: int, high: int) -> None:
        if self.buries:
            self.doom.add(reason, low, high)
        else:
            self._settle_part(low, high, reason)

    def entomb(self, low: int, high: int) -> list[tuple[str, Range, list[int]]]:
        """Settle what is doomed in [low, high), which is buried now; return reasons, ranges and redelivery counts."""
        found = [(reason, part, self.redeliveries.of(*part)) for reason, part in self.doom.remove(low, high)]
        for reason, part, _ in found:
            self._settle_part(*part, reason)
        return found

    def _settle_part(self, low: int, high: int, reason: str = "", by: ConsumerKey | None = None) -> None:
        if self.trace is not None:
            self.trace(reason, by, low, high)
        self.redeliveries.drop(low, high)
        lane = lane_of(low)
        cursor = self.cursor_of(lane)
        if low > cursor:
            self.settled.add(low, high)
            return
        cursor = max(cursor, high)
        following = self.settled.first_in(cursor, (lane + 1) << LANE_BITS) if self.settled else None
        if following is not None and following[0] == cursor:
            cursor = following[1]
            self.settled.remove(*following)
        self.cursors[lane] = cursor

"""What is kept for consumers that are away and may come back.

    cut off while the broker runs:  parked, by consumer, each until its own time
    a restart of the broker:        orphaned, for all that were attached then, until one time for all

Whose the orphaned positions are only their holders know: they claim them when they come back. The rest is free when
the last of them has come, was given up, or is late.
"""
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.ranges import Range, RangeSet

_OUTDATED_MAX = 100  # times that count no longer, kept for the sake of speed, beyond as many as do


@dataclass(slots=True)
class Parked:
    positions: RangeSet
    until: float
    recovered: int  # number of its last recovery: asked for again, it is not counted again


class Parking:
    def __init__(self) -> None:
        self.parked: dict[ConsumerKey, Parked] = {}
        self.orphaned = RangeSet()  # parked by a restart
        self.awaited: dict[ConsumerKey, int] = {}  # consumers that were attached before the restart, as `recovered`
        self._awaited_until = 0.0
        self._times: list[tuple[float, ConsumerKey]] = []  # a heap; one that is not its consumer's any more is outdated

    def __bool__(self) -> bool:
        return bool(self.parked or self.awaited)

    @property
    def keys(self) -> list[ConsumerKey]:
        """Consumers that may come back."""
        return [*self.parked, *self.awaited]

    @property
    def parked_count(self) -> int:
        return sum(parked.positions.count for parked in self.parked.values())

    def sets(self) -> list[RangeSet]:
        return [self.orphaned, *(parked.positions for parked in self.parked.values())]

    def park(self, key: ConsumerKey, positions: RangeSet, until: float, recovered: int) -> None:
        self.parked[key] = Parked(positions, until, recovered)
        heappush(self._times, (until, key))
        self._drop_outdated()

    def orphan(self, ranges: list[Range], attached: dict[ConsumerKey, int], until: float) -> None:
        self.orphaned = RangeSet(ranges)
        self.awaited = dict(attached)
        self._awaited_until = until

    def recovered(self, key: ConsumerKey) -> int:
        """The number of the last recovery of a consumer that comes back."""
        parked = self.parked.get(key)
        return parked.recovered if parked is not None else self.awaited.get(key, 0)

    def take(self, key: ConsumerKey) -> RangeSet:
        """What was parked for the consumer, which is kept no longer."""
        parked = self.parked.pop(key, None)
        self._drop_outdated()
        return RangeSet() if parked is None else parked.positions

    def _drop_outdated(self) -> None:
        if len(self._times) > 2 * len(self.parked) + _OUTDATED_MAX:
            self._times = [(parked.until, of) for of, parked in self.parked.items()]
            heapify(self._times)

    def kept_for(self, key: ConsumerKey) -> RangeSet | None:
        """Where something more is kept for a consumer that may come back; None if it will not."""
        if key in self.parked:
            return self.parked[key].positions
        return self.orphaned if key in self.awaited else None

    def orphaned_for(self, key: ConsumerKey) -> RangeSet:
        """What the consumer may claim: nothing, if it was given up before the restart, for others may hold it since."""
        return self.orphaned if key in self.awaited or not self.awaited else RangeSet()

    def has_come(self, key: ConsumerKey) -> RangeSet:
        """The consumer is back or will not be; return the orphaned positions, if it was the last that might be."""
        self.awaited.pop(key, None)
        return self.unclaimed()

    def unclaimed(self) -> RangeSet:
        """The orphaned positions, if nobody is awaited who might claim them; they are no longer here."""
        if self.awaited:
            return RangeSet()
        orphaned, self.orphaned = self.orphaned, RangeSet()
        return orphaned

    def deadline(self) -> float | None:
        soonest = self._soonest()
        if not self.awaited:
            return soonest
        return self._awaited_until if soonest is None else min(soonest, self._awaited_until)

    def _soonest(self) -> float | None:
        while self._times:
            until, key = self._times[0]
            parked = self.parked.get(key)
            if parked is not None and parked.until == until:
                return until
            heappop(self._times)
        return None

    def due(self, now: float) -> list[ConsumerKey]:
        """Who is late."""
        soonest = self._soonest()
        late: list[ConsumerKey] = []
        if soonest is not None and soonest <= now:
            late = [key for key, parked in self.parked.items() if parked.until <= now]
        return [*late, *self.awaited] if self.awaited and self._awaited_until <= now else late

"""How often each unsettled position was delivered before, held as one set of ranges for each count.

A position that was never delivered is in no set. Releasing a whole backlog costs one range, not an entry for each
message.
"""
from collections.abc import Callable, Iterable

from angarium.core.ranges import Range, RangeSet


class Redeliveries:
    __slots__ = ("_levels", "_new_set")

    def __init__(self, new_set: Callable[[], RangeSet] = RangeSet) -> None:
        self._new_set = new_set
        self._levels: dict[int, RangeSet] = {}

    def restore(self, count: int, ranges: Iterable[Range]) -> None:
        for part in ranges:
            self._add(count, part)

    def starting_in(self, low: int, high: int) -> dict[int, list[Range]]:
        """Of each count the ranges, whole, that begin in [low, high)."""
        found = {count: positions.starting_in(low, high) for count, positions in self._levels.items()}
        return {count: ranges for count, ranges in found.items() if ranges}

    @property
    def count(self) -> int:
        """How many unsettled positions were delivered before."""
        return sum(positions.count for positions in self._levels.values())

    def raise_by_one(self, low: int, high: int) -> None:
        taken = {count: positions.remove(low, high) for count, positions in self._levels.items()}
        counted = RangeSet()
        for count, parts in taken.items():
            for part in parts:
                counted.add(*part)
                self._add(count + 1, part)
        for part in counted.gaps(low, high):
            self._add(1, part)
        self._prune()

    def mark_delivered(self, low: int, high: int) -> list[Range]:
        """Positions without a count get the count 1; the others keep theirs. Returns the former."""
        marked = self.uncounted(low, high)
        for part in marked:
            self._add(1, part)
        return marked

    def uncounted(self, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that were never delivered before."""
        counted = RangeSet()
        for positions in self._levels.values():
            for part in positions.overlap(low, high):
                counted.add(*part)
        return counted.gaps(low, high)

    def drop(self, low: int, high: int) -> None:
        if self._levels:
            for positions in self._levels.values():
                positions.remove(low, high)
            self._prune()

    def of(self, low: int, high: int) -> list[int]:
        """The count of each position in [low, high); empty when all are zero."""
        if not self._levels:
            return []
        counts = [0] * (high - low)
        found = False
        for count, positions in self._levels.items():
            for start, end in positions.overlap(low, high):
                counts[start - low : end - low] = [count] * (end - start)
                found = True
        return counts if found else []

    def above(self, limit: int, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that were delivered more often than that."""
        levels = [positions for count, positions in self._levels.items() if count > limit]
        return [part for positions in levels for part in positions.overlap(low, high)]

    def _add(self, count: int, part: Range) -> None:
        if count not in self._levels:
            self._levels[count] = self._new_set()
        self._levels[count].add(*part)

    def _prune(self) -> None:
        for count in [count for count, positions in self._levels.items() if not positions]:
            del self._levels[count]

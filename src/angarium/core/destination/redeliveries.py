"""How often each unsettled position was delivered before, held as one set of ranges for each count.

A position that was never delivered is in no set. Releasing a whole backlog costs one range, not an entry for each
message.
"""
from angarium.core.ranges import Range, RangeSet


class Redeliveries:
    __slots__ = ("_levels",)

    def __init__(self, levels: dict[int, list[Range]] | None = None) -> None:
        self._levels: dict[int, RangeSet] = {
            count: RangeSet(ranges) for count, ranges in (levels or {}).items() if ranges
        }

    def levels(self) -> dict[int, list[Range]]:
        return {count: list(positions) for count, positions in self._levels.items()}

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

    def mark_delivered(self, low: int, high: int) -> None:
        """Positions without a count get the count 1; the others keep theirs."""
        counted = RangeSet()
        for positions in self._levels.values():
            for part in positions.overlap(low, high):
                counted.add(*part)
        for part in counted.gaps(low, high):
            self._add(1, part)

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
        self._levels.setdefault(count, RangeSet()).add(*part)

    def _prune(self) -> None:
        for count in [count for count, positions in self._levels.items() if not positions]:
            del self._levels[count]

"""A set of integers held as sorted, disjoint, half-open ranges [low, high).

Positions settled, held or returned are nearly always runs, so the memory of a subscription follows the number of
holes, not of messages. Neighbouring ranges are always merged. Nearly every set has few of them, in two lists; one that
has thousands, because somebody settles in no order, keeps them in chunks (`large_ranges.py`).
"""
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from angarium.core.large_ranges import LargeRanges

FLAT_RANGES_MAX = 2_000  # in two lists; a change of longer ones costs more than finding the chunk

Range = tuple[int, int]


class RangeSet:
    __slots__ = ("_highs", "_large", "_lows", "count")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._large: LargeRanges | None = None  # then the two lists are empty
        self.count = 0  # integers in the set
        for low, high in ranges:
            self.add(low, high)

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Range]:
        if self._large is not None:
            return zip(self._large.lows(), self._large.highs(), strict=True)
        return iter(zip(self._lows, self._highs, strict=True))

    def __len__(self) -> int:
        """How many ranges, not how many integers."""
        return len(self._lows) if self._large is None else self._large.length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self.count == other.count and list(self) == list(other)

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def __contains__(self, value: int) -> bool:
        if self._large is not None:
            return self.first_in(value, value + 1) is not None
        at = bisect_right(self._lows, value) - 1
        return at >= 0 and value < self._highs[at]

    def add(self, low: int, high: int) -> None:
        if low >= high:
            return
        highs = self._highs
        if highs and highs[-1] == low:  # the common case: the run goes on
            highs[-1] = high
            self.count += high - low
            return
        if self._large is not None:
            self._add_large(low, high, self._large)
            return
        first = bisect_left(highs, low)  # first range that touches or follows
        last = bisect_right(self._lows, high)  # one past the last range that touches
        if first < last:
            low = min(low, self._lows[first])
            high = max(high, highs[last - 1])
            self.count -= sum(highs[i] - self._lows[i] for i in range(first, last))
        self._lows[first:last] = [low]
        highs[first:last] = [high]
        self.count += high - low
        if len(highs) > FLAT_RANGES_MAX:
            self._enlarge()

    def _add_large(self, low: int, high: int, large: LargeRanges) -> None:
        first, last = large.ending_from(low), large.beginning_beyond(high)
        lows, highs = large.between(first, last)
        if lows:
            low, high = min(low, lows[0]), max(high, highs[-1])
            self.count -= sum(highs) - sum(lows)
        large.replace(first, last, [low], [high])
        self.count += high - low
        self._flatten_if_small(large)

    def remove(self, low: int, high: int) -> list[Range]:
        """Take [low, high) out; return the parts of it that were in the set."""
        if low >= high:
            return []
        if self._large is not None:
            return self._remove_large(low, high, self._large)
        lows, highs = self._lows, self._highs
        first, last = bisect_right(highs, low), bisect_left(lows, high)
        if first >= last:
            return []
        begins, ends = lows[first], highs[first]
        if begins == low and high < ends:  # the common case: a run grows shorter
            lows[first] = high
            self.count -= high - low
            return [(low, high)]
        if low <= begins and ends <= high and last - first == 1:  # or goes
            del lows[first], highs[first]
            self.count -= ends - begins
            return [(begins, ends)]
        touched = lows[first:last], highs[first:last]
        lows[first:last], highs[first:last] = _outside(*touched, low, high)
        removed = _inside(*touched, low, high)
        self.count -= sum(b - a for a, b in removed)
        if len(self._lows) > FLAT_RANGES_MAX:
            self._enlarge()
        return removed

    def _remove_large(self, low: int, high: int, large: LargeRanges) -> list[Range]:
        first, last = large.ending_beyond(low), large.beginning_from(high)
        lows, highs = large.between(first, last)
        if not lows:
            return []
        large.replace(first, last, *_outside(lows, highs, low, high))
        removed = _inside(lows, highs, low, high)
        self.count -= sum(b - a for a, b in removed)
        self._flatten_if_small(large)
        return removed

    def _enlarge(self) -> None:
        self._large = LargeRanges(self._lows, self._highs)
        self._lows, self._highs = [], []

    def _flatten_if_small(self, large: LargeRanges) -> None:
        """Well below where it became large: one that stays about there shall not go back and forth."""
        if large.length < FLAT_RANGES_MAX // 4:
            self._lows, self._highs, self._large = list(large.lows()), list(large.highs()), None

    def overlap(self, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that are in the set."""
        if not self.count:  # as is mostly so of what was given back
            return []
        lows, highs = self._reaching_into(low, high)
        return _inside(lows, highs, low, high) if lows else []

    def beginnings_in_reach(self, low: int, high: int, *, touching: bool = False) -> list[int]:
        """Where the ranges begin that overlap with [low, high), or touch it as well."""
        return self._reaching_into(low - touching, high + touching)[0]

    def _reaching_into(self, low: int, high: int) -> tuple[list[int], list[int]]:
        """The ranges, whole, that overlap with [low, high): where they begin, and where they end."""
        if low >= high:
            return [], []
        if self._large is not None:
            return self._large.between(self._large.ending_beyond(low), self._large.beginning_from(high))
        first, last = bisect_right(self._highs, low), bisect_left(self._lows, high)
        return self._lows[first:last], self._highs[first:last]

    def starting_in(self, low: int, high: int) -> list[Range]:
        """The ranges, whole, that begin in [low, high)."""
        if low >= high:
            return []
        if self._large is not None:
            lows, highs = self._large.between(self._large.beginning_from(low), self._large.beginning_from(high))
            return list(zip(lows, highs, strict=True))
        first, last = bisect_left(self._lows, low), bisect_left(self._lows, high)
        return list(zip(self._lows[first:last], self._highs[first:last], strict=True))

    def first(self) -> Range | None:
        return (self._lows[0], self._highs[0]) if self._lows else next(iter(self), None)

    def first_in(self, low: int, high: int) -> Range | None:
        """The first part of [low, high) that is in the set."""
        if self._large is not None:
            found = self._large.at(self._large.ending_beyond(low))
        else:
            at = bisect_right(self._highs, low)
            found = (self._lows[at], self._highs[at]) if at < len(self._lows) else None
        if found is None or found[0] >= high or low >= high:
            return None
        return max(found[0], low), min(found[1], high)

    def gaps(self, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that are not in the set."""
        if self._large is None:  # of a few ranges none is copied: who settles a message asks this
            lows, highs, at = self._lows, self._highs, bisect_right(self._highs, low)
        else:
            (lows, highs), at = self._reaching_into(low, high), 0
        found: list[Range] = []
        while low < high and at < len(lows) and lows[at] < high:
            if lows[at] > low:
                found.append((low, lows[at]))
            low = highs[at]
            at += 1
        if low < high:
            found.append((low, high))
        return found


def _inside(lows: list[int], highs: list[int], low: int, high: int) -> list[Range]:
    """What of these ranges, which overlap with [low, high), is in it."""
    if len(lows) == 1:  # the common case
        return [(max(lows[0], low), min(highs[0], high))]
    ranges = list(zip(lows, highs, strict=True))
    if ranges:
        ranges[0] = max(lows[0], low), highs[0]
        ranges[-1] = lows[-1], min(highs[-1], high)
    return ranges


def _outside(lows: list[int], highs: list[int], low: int, high: int) -> tuple[list[int], list[int]]:
    """What of them is not: before it, and after it."""
    before, after = lows[0] < low, highs[-1] > high
    return lows[:before] + [high] * after, [low] * before + highs[len(highs) - after :]

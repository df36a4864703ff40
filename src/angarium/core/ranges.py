"""A set of integers held as sorted, disjoint, half-open ranges [low, high).

Positions settled, held or returned are nearly always runs, so the memory of a subscription follows the number of
holes, not of messages. Neighbouring ranges are always merged.
"""
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class RangeSet:
    __slots__ = ("_highs", "_lows", "count")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self.count = 0  # integers in the set
        for low, high in ranges:
            self.add(low, high)

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __iter__(self) -> Iterator[Range]:
        return iter(zip(self._lows, self._highs, strict=True))

    def __len__(self) -> int:
        """How many ranges, not how many integers."""
        return len(self._lows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._lows == other._lows and self._highs == other._highs

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def __contains__(self, value: int) -> bool:
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
        first = bisect_left(highs, low)  # first range that touches or follows
        last = bisect_right(self._lows, high)  # one past the last range that touches
        if first < last:
            low = min(low, self._lows[first])
            high = max(high, highs[last - 1])
            self.count -= sum(highs[i] - self._lows[i] for i in range(first, last))
        self._lows[first:last] = [low]
        highs[first:last] = [high]
        self.count += high - low

    def remove(self, low: int, high: int) -> list[Range]:
        """Take [low, high) out; return the parts of it that were in the set."""
        if low >= high:
            return []
        first = bisect_right(self._highs, low)
        last = bisect_left(self._lows, high)
        if first >= last:
            return []
        if self._lows[first] == low and high < self._highs[first]:  # the common case: a run grows shorter
            self._lows[first] = high
            self.count -= high - low
            return [(low, high)]
        removed = [(max(self._lows[i], low), min(self._highs[i], high)) for i in range(first, last)]
        kept: list[Range] = []
        if self._lows[first] < low:
            kept.append((self._lows[first], low))
        if self._highs[last - 1] > high:
            kept.append((high, self._highs[last - 1]))
        self._lows[first:last] = [k[0] for k in kept]
        self._highs[first:last] = [k[1] for k in kept]
        self.count -= sum(b - a for a, b in removed)
        return removed

    def overlap(self, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that are in the set."""
        if low >= high:
            return []
        first = bisect_right(self._highs, low)
        last = bisect_left(self._lows, high)
        return [(max(self._lows[i], low), min(self._highs[i], high)) for i in range(first, last)]

    def starting_in(self, low: int, high: int) -> list[Range]:
        """The ranges, whole, that begin in [low, high)."""
        first, last = bisect_left(self._lows, low), bisect_left(self._lows, high)
        return list(zip(self._lows[first:last], self._highs[first:last], strict=True))

    def first(self) -> Range | None:
        return (self._lows[0], self._highs[0]) if self._lows else None

    def first_in(self, low: int, high: int) -> Range | None:
        """The first part of [low, high) that is in the set."""
        at = bisect_right(self._highs, low)
        if at == len(self._lows) or self._lows[at] >= high:
            return None
        return max(self._lows[at], low), min(self._highs[at], high)

    def gaps(self, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that are not in the set."""
        found: list[Range] = []
        at = bisect_right(self._highs, low)
        while low < high and at < len(self._lows) and self._lows[at] < high:
            if self._lows[at] > low:
                found.append((low, self._lows[at]))
            low = self._highs[at]
            at += 1
        if low < high:
            found.append((low, high))
        return found

"""Positions that will never be delivered again, and are to be buried: by the reason that they die of."""
from collections.abc import Callable

from angarium.core.ranges import Range, RangeSet


class Doom:
    def __init__(self, new_set: Callable[[], RangeSet] = RangeSet) -> None:
        self._new_set = new_set
        self._by_reason: dict[str, RangeSet] = {}

    def __bool__(self) -> bool:
        return bool(self._by_reason)

    def add(self, reason: str, low: int, high: int) -> None:
        if reason not in self._by_reason:
            self._by_reason[reason] = self._new_set()
        self._by_reason[reason].add(low, high)

    def remove(self, low: int, high: int) -> list[tuple[str, Range]]:
        """Take [low, high) out; return the parts that were doomed, each with its reason."""
        found = [(reason, part) for reason, ranges in self._by_reason.items() for part in ranges.remove(low, high)]
        if found:
            self._by_reason = {reason: ranges for reason, ranges in self._by_reason.items() if ranges}
        return found

    def first(self) -> int | None:
        firsts = (ranges.first() for ranges in self._by_reason.values())
        return min((first[0] for first in firsts if first is not None), default=None)

    def gaps(self, low: int, high: int) -> list[Range]:
        """The parts of [low, high) that are not doomed."""
        rest: list[Range] = [(low, high)]
        for ranges in self._by_reason.values():
            rest = [part for gap in rest for part in ranges.gaps(*gap)]
        return rest

    def sets(self) -> list[RangeSet]:
        return list(self._by_reason.values())

    def starting_in(self, low: int, high: int) -> dict[str, list[Range]]:
        """Of each reason the ranges, whole, that begin in [low, high)."""
        found = {reason: ranges.starting_in(low, high) for reason, ranges in self._by_reason.items()}
        return {reason: ranges for reason, ranges in found.items() if ranges}

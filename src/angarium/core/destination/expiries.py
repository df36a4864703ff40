"""Where in a lane messages lie that will expire, and when the first of them does: told without remembering each.

A mark is a stretch of positions and the earliest expiry in it. Past `MARKS_MAX` neighbours become one: so memory does
not grow with the backlog, and what is looked for later is looked for in longer stretches. A lane in which nothing
expires has no marks.
"""
from bisect import bisect_left
from dataclasses import dataclass

MARKS_MAX = 1_024


@dataclass(slots=True)
class Mark:
    low: int
    high: int
    at_ms: int  # the earliest expiry of what is in it, or earlier


class ExpiryMarks:
    __slots__ = ("_marks", "earliest_ms")

    def __init__(self) -> None:
        self._marks: list[Mark] = []  # ascending, disjoint
        self.earliest_ms: int | None = None  # of all, or earlier; None: there are no marks

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, low: int, high: int, at_ms: int) -> None:
        """Something from `low` on expires then; nothing behind it is marked yet."""
        marks = self._marks
        if marks and marks[-1].high == low and marks[-1].at_ms == at_ms:
            marks[-1].high = high
        else:
            marks.append(Mark(low, high, at_ms))
            self._merge()
        if self.earliest_ms is None or at_ms < self.earliest_ms:
            self.earliest_ms = at_ms

    def _merge(self) -> None:
        if len(self._marks) > MARKS_MAX:
            pairs = zip(self._marks[::2], self._marks[1::2], strict=False)
            merged = [Mark(a.low, b.high, min(a.at_ms, b.at_ms)) for a, b in pairs]
            self._marks = merged + self._marks[2 * len(merged) :]

    def due(self, wall_ms: int) -> tuple[int, int] | None:
        """The first stretch in which something may have expired."""
        return next(((mark.low, mark.high) for mark in self._marks if mark.at_ms <= wall_ms), None)

    def looked(self, low: int, high: int, found: list[tuple[int, int, int]]) -> None:
        """All of [low, high), which lies in one mark, has been looked at: what expires later is in `found`."""
        at = bisect_left(self._marks, low + 1, key=lambda mark: mark.high)
        new = [Mark(*each) for each in found]
        if at < len(self._marks) and self._marks[at].low < high:
            old = self._marks[at]
            if old.low < low:
                new.insert(0, Mark(old.low, low, old.at_ms))
            if old.high > high:
                new.append(Mark(high, old.high, old.at_ms))
            self._marks[at : at + 1] = new
        self._merge()
        self._note_earliest()

    def free(self, first: int) -> None:
        """Everything below `first` is gone."""
        at = bisect_left(self._marks, first + 1, key=lambda mark: mark.high)
        if at:
            del self._marks[:at]
            self._note_earliest()

    def _note_earliest(self) -> None:
        self.earliest_ms = min((mark.at_ms for mark in self._marks), default=None)

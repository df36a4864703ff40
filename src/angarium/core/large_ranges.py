"""The ranges of a large `RangeSet`, in chunks: a change moves what is behind it in its chunk, not in all of them.

    _lows   [[0, 20, 31], [40, 55], [90]]        the n-th range of chunk c is [_lows[c][n], _highs[c][n])
    _highs  [[9, 25, 33], [50, 60], [95]]
    _firsts [40, 90]                             where chunks 1, 2, ... begin

A place is (chunk, number in it); one past the end of a chunk is the same place as the first of the next. No chunk is
empty but the only one.
"""
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain

CHUNK_RANGES = 512  # a chunk of more than twice as many is divided

Place = tuple[int, int]
Bounds = tuple[list[int], list[int]]  # lows and highs of some neighbouring ranges


class LargeRanges:
    __slots__ = ("_firsts", "_highs", "_lows", "length")

    def __init__(self, lows: list[int], highs: list[int]) -> None:
        self._lows, self._highs = _divided(lows), _divided(highs)
        self._firsts = [chunk[0] for chunk in self._lows[1:]]
        self.length = len(lows)

    def lows(self) -> Iterator[int]:
        return chain.from_iterable(self._lows)

    def highs(self) -> Iterator[int]:
        return chain.from_iterable(self._highs)

    # -- places ------------------------------------------------------------------------------------

    def ending_from(self, value: int) -> Place:
        """The first range whose end is `value` or more."""
        chunk = bisect_right(self._firsts, value)
        return chunk, bisect_left(self._highs[chunk], value)

    def ending_beyond(self, value: int) -> Place:
        """The first range whose end is more than `value`."""
        chunk = bisect_right(self._firsts, value)
        return chunk, bisect_right(self._highs[chunk], value)

    def beginning_from(self, value: int) -> Place:
        """The first range that begins at `value` or later."""
        chunk = bisect_left(self._firsts, value)
        return chunk, bisect_left(self._lows[chunk], value)

    def beginning_beyond(self, value: int) -> Place:
        """The first range that begins later than `value`."""
        chunk = bisect_right(self._firsts, value)
        return chunk, bisect_right(self._lows[chunk], value)

    def at(self, place: Place) -> tuple[int, int] | None:
        """The range there; None behind the last one."""
        chunk, number = place
        if number == len(self._lows[chunk]):
            chunk, number = chunk + 1, 0
        if chunk == len(self._lows) or not self._lows[chunk]:
            return None
        return self._lows[chunk][number], self._highs[chunk][number]

    # -- ranges between two places -----------------------------------------------------------------

    def between(self, first: Place, last: Place) -> Bounds:
        (chunk, start), (end_chunk, end) = first, last
        if chunk == end_chunk:
            return self._lows[chunk][start:end], self._highs[chunk][start:end]
        lows, highs = self._lows[chunk][start:], self._highs[chunk][start:]
        for whole in range(chunk + 1, end_chunk):
            lows += self._lows[whole]
            highs += self._highs[whole]
        if chunk < end_chunk:
            lows += self._lows[end_chunk][:end]
            highs += self._highs[end_chunk][:end]
        return lows, highs

    def replace(self, first: Place, last: Place, lows: list[int], highs: list[int]) -> None:
        """Put these in the place of the ranges between the two."""
        (chunk, start), (end_chunk, end) = first, last
        if chunk == end_chunk:
            self.length += len(lows) - (end - start)
            self._lows[chunk][start:end] = lows
            self._highs[chunk][start:end] = highs
        else:
            touched = range(chunk, end_chunk + 1)
            before = sum(len(self._lows[number]) for number in touched)
            self._lows[chunk : end_chunk + 1] = [self._lows[chunk][:start] + lows + self._lows[end_chunk][end:]]
            self._highs[chunk : end_chunk + 1] = [self._highs[chunk][:start] + highs + self._highs[end_chunk][end:]]
            del self._firsts[chunk:end_chunk]
            self.length += len(self._lows[chunk]) - before
        self._tidy(chunk)

    def _tidy(self, chunk: int) -> None:
        """What has become of it may be too long, or empty, or begin elsewhere."""
        lows, highs = self._lows[chunk], self._highs[chunk]
        if not lows and len(self._lows) > 1:
            del self._lows[chunk], self._highs[chunk], self._firsts[max(0, chunk - 1)]
        elif len(lows) > 2 * CHUNK_RANGES:
            self._lows[chunk : chunk + 1] = parts = _divided(lows)
            self._highs[chunk : chunk + 1] = _divided(highs)
            self._firsts[max(0, chunk - 1) : chunk] = [part[0] for part in (parts if chunk else parts[1:])]
        elif chunk:
            self._firsts[chunk - 1] = lows[0]


def _divided(values: list[int]) -> list[list[int]]:
    return [values[at : at + CHUNK_RANGES] for at in range(0, len(values), CHUNK_RANGES)] or [[]]

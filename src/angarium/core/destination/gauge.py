"""How many bytes a lane has stored, told without remembering every batch.

Marks (position, bytes up to there) stand at the ends of batches. When there are too many every second one is dropped;
between two marks bytes are taken to be spread evenly. So the figure is exact while few batches are stored, and off by
at most the bytes between two marks, two parts in `MARKS_MAX` of the backlog or so, when there are very many.
"""
from bisect import bisect_left, bisect_right

MARKS_MAX = 4_096


class ByteGauge:
    __slots__ = ("_bytes", "_from", "_positions", "added", "freed")

    def __init__(self, first: int) -> None:
        self._from = first  # freed up to this position
        self.freed = 0  # bytes up to there
        self.added = 0  # bytes in all
        self._positions: list[int] = []  # marks, ascending
        self._bytes: list[int] = []  # `added` when each was made

    def restore(self, first: int, end: int, added: int, freed: int) -> None:
        self._from, self.added = first, added
        self.freed = min(freed, added) if end > first else added
        self._positions, self._bytes = ([end], [added]) if end > first else ([], [])

    @property
    def total(self) -> int:
        return self.added - self.freed

    def add(self, end: int, batch_bytes: int) -> None:
        self.added += batch_bytes
        self._positions.append(end)
        self._bytes.append(self.added)
        if len(self._positions) > MARKS_MAX:
            # The last mark stays: it is where all ends.
            self._positions, self._bytes = self._positions[1::2], self._bytes[1::2]
            if self._positions[-1] != end:
                self._positions.append(end)
                self._bytes.append(self.added)

    def total_from(self, position: int) -> int:
        """Bytes from there on."""
        if position <= self._from:
            return self.total
        at = bisect_right(self._positions, position)
        if at == len(self._positions):
            return 0
        below, below_bytes = (self._positions[at - 1], self._bytes[at - 1]) if at else (self._from, self.freed)
        share = (position - below) / (self._positions[at] - below)
        return self.added - below_bytes - int((self._bytes[at] - below_bytes) * share)

    def latest(self, limit_bytes: int) -> int:
        """From where on there are no more than so many bytes."""
        target = self.added - limit_bytes
        if target <= self.freed:
            return self._from
        at = bisect_left(self._bytes, target)
        below, below_bytes = (self._positions[at - 1], self._bytes[at - 1]) if at else (self._from, self.freed)
        positions, spread_bytes = self._positions[at] - below, self._bytes[at] - below_bytes
        return below - (-(target - below_bytes) * positions // spread_bytes)

    def free(self, first: int) -> None:
        """Everything below `first` is gone."""
        at = bisect_left(self._positions, first)
        if at == len(self._positions):
            self.freed = self.added
            self._positions, self._bytes = [], []
        else:
            below, below_bytes = (self._positions[at - 1], self._bytes[at - 1]) if at else (self._from, self.freed)
            share = (first - below) / (self._positions[at] - below)
            self.freed = below_bytes + int((self._bytes[at] - below_bytes) * share)
            del self._positions[:at], self._bytes[:at]
        self._from = first

"""What a session has published and nobody has confirmed, in bytes: all its producers share one limit."""
from collections import deque


class Unconfirmed:
    def __init__(self) -> None:
        self.bytes = 0
        self._batches: dict[int, deque[tuple[int, int]]] = {}  # producer -> (last sequence, bytes) of each

    def add(self, producer: int, last_sequence: int, batch_bytes: int) -> None:
        self.bytes += batch_bytes
        self._batches.setdefault(producer, deque()).append((last_sequence, batch_bytes))

    def confirmed(self, producer: int, sequence: int) -> None:
        batches = self._batches.get(producer)
        while batches and batches[0][0] <= sequence:
            self.bytes -= batches.popleft()[1]

    def forget(self, producer: int) -> None:
        for _, size in self._batches.pop(producer, ()):
            self.bytes -= size

"""How many fragments of streams are on their way in one connection: few, so that small messages never wait behind many.

Fragments count from their sending until the broker has made room for another. Streams that could send and may not stand
in a row, and are served in turn.
"""
from typing import Protocol

FRAGMENTS_MAX = 8


class Sender(Protocol):
    def send_one(self) -> bool:
        """Send the next fragment; False if there is none to send."""


class Flight:
    __slots__ = ("_row", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._row: dict[Sender, None] = {}

    def offer(self, sender: Sender) -> None:
        """It has something to send: now, or when it is its turn."""
        self._row.setdefault(sender, None)
        self.serve()

    def landed(self, count: int) -> None:
        self._total -= count
        self.serve()

    def leave(self, sender: Sender, count: int) -> None:
        """It sends no more; so many of its fragments no longer count."""
        self._row.pop(sender, None)
        self.landed(count)

    def serve(self) -> None:
        while self._row and self._total < FRAGMENTS_MAX:
            sender = next(iter(self._row))
            del self._row[sender]
            if sender.send_one():
                self._total += 1
                self._row[sender] = None

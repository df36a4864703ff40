"""Repairs that were asked for: gathered for a moment, kept to a budget, and not repeated at once.

Whoever lacks the same datagram asks within about the same moment, so a repair waits `repair_gather_s` after the first
question: asked for by one it goes to that one, asked for by several it goes to all. Asking again before an answer can
have arrived is ignored. What the budget does not allow waits; there is never more than the ring holds.
"""
from collections.abc import Callable

from angarium.core.bus.events import BusSettings, Part
from angarium.core.bus.pacing import RepairBudget

Find = Callable[[int, bytes | None], Part | None]


class Repairs:
    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._asked: dict[int, bytes | None] = {}  # sequence: who asked, None if several; in the order of asking
        self._due_at = 0.0  # of the first, when something is asked for
        self._done: dict[int, tuple[float, bytes | None]] = {}  # sequence: when it was repaired last, for whom

    def ask(self, asker: bytes, sequences: list[int], *, ignored_s: float, now: float) -> int:
        """How many of them were not yet asked for."""
        asked, done = self._asked, self._done
        new = 0
        was_empty = not asked
        for sequence in sequences:
            last = done.get(sequence)
            if last is not None and now < last[0] + ignored_s and last[1] in (None, asker):
                continue
            if sequence not in asked:
                asked[sequence] = asker
                new += last is None
            elif asked[sequence] != asker:
                asked[sequence] = None
        if was_empty and asked:
            self._due_at = now + self._settings.repair_gather_s
        return new

    def take(self, find: Find, budget: RepairBudget, now: float) -> tuple[list[bytes], dict[bytes, list[bytes]]]:
        """What is due, within the budget: for all, and for one each."""
        for_all: list[bytes] = []
        for_one: dict[bytes, list[bytes]] = {}
        if not self._asked or now < self._due_at:
            return for_all, for_one
        left = budget.allowance(now)
        for sequence, asker in list(self._asked.items()):
            if left < self._settings.datagram_bytes_max:
                break
            del self._asked[sequence]
            datagram = find(sequence, asker)
            if datagram is None:
                continue
            assert isinstance(datagram, bytes), "only what was sent can be missing"
            left -= len(datagram)
            budget.spend(len(datagram))
            self._done[sequence] = (now, asker)
            if asker is None:
                for_all.append(datagram)
            else:
                for_one.setdefault(asker, []).append(datagram)
        return for_all, for_one

    def due_at(self, budget: RepairBudget) -> float | None:
        if not self._asked:
            return None
        return max(self._due_at, budget.ready_at(self._settings.datagram_bytes_max))

    def forget_below(self, floor: int) -> None:
        for table in (self._asked, self._done):
            for sequence in [s for s in table if s < floor]:
                del table[sequence]

"""Virtual time: what happens next is what is due first, and nothing else moves the clock.

Things due at the same moment happen in an order that the seed draws, so that no machine comes to lean on an accidental
one. Whoever needs an order of its own (a stream, a disk, a bus queue) keeps it: one timer, one queue.
"""
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Clock:
    def __init__(self, chance: Random) -> None:
        self.now = 0.0
        self.happened = 0  # events so far
        self._tie_break = chance.random
        self._due: list[tuple[float, float, int, Timer]] = []
        self._numbers = 0

    def at(self, time: float, action: Callable[[], None]) -> Timer:
        timer = Timer(max(time, self.now), action)
        self._numbers += 1
        heappush(self._due, (timer.at, self._tie_break(), self._numbers, timer))
        return timer

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        return self.at(self.now + delay_s, action)

    def step(self, until: float) -> bool:
        """Let the next thing happen that is due by `until`; False, and the clock stands there, if there is none."""
        due = self._due
        while due and due[0][0] <= until:
            timer = heappop(due)[3]
            action = timer.action
            if action is not None:
                timer.action = None
                self.now = timer.at
                self.happened += 1
                action()
                return True
        self.now = max(self.now, until)
        return False

    def run_until(self, until: float) -> None:
        while self.step(until):
            pass

"""The wall clock, which somebody may set, beside the loop's, which nobody can."""
import asyncio
import logging
import time
from collections.abc import Callable

_LOOKS = 4
_LOOK_EVERY_S = 5.0  # whether the wall clock was set
_STEP_MS_MIN = 20.0  # less is how it is kept right, and adds up until it counts
_log = logging.getLogger("angarium")


def wall_ms_now() -> float:
    return time.time() * 1000


def wall_ms_at_zero(clock: Callable[[], float], wall_ms: Callable[[], float] = wall_ms_now) -> float:
    """What the wall clock showed when `clock` was 0, in ms. Of a few looks the quickest counts: if this thread is held
    up between reading the two clocks, the difference looks like a step that nobody made."""
    looks: list[tuple[float, float]] = []
    for _ in range(_LOOKS):
        before = clock()
        shown_ms = wall_ms()
        after = clock()
        looks.append((after - before, shown_ms - (before + after) / 2 * 1000))
    return min(looks)[1]


class WallClock:
    """Due times and expiries are by the wall clock, timers are not: it is looked at again and again, until `stop`.
    `stepped` is told what it showed when the loop's clock was 0, if somebody has set it."""

    def __init__(self, stepped: Callable[[float], None], wall_ms: Callable[[], float] = wall_ms_now) -> None:
        self._stepped = stepped
        self._wall_ms = wall_ms
        self._loop = asyncio.get_running_loop()
        self.ms_at_zero = wall_ms_at_zero(self._loop.time, wall_ms)
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        at_zero_ms = wall_ms_at_zero(self._loop.time, self._wall_ms)
        if abs(stepped_ms := at_zero_ms - self.ms_at_zero) >= _STEP_MS_MIN:
            self.ms_at_zero = at_zero_ms
            _log.warning("clock-stepped: the wall clock was set by %+.3f s", stepped_ms / 1000)
            self._stepped(at_zero_ms)

    def stop(self) -> None:
        self._timer.cancel()

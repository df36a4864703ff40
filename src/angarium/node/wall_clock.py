"""The wall clock, which somebody may set, beside the loop's, which nobody can."""
import time
from collections.abc import Callable

_LOOKS = 4


def wall_ms_at_zero(clock: Callable[[], float]) -> float:
    """What the wall clock showed when `clock` was 0, in ms. Of a few looks the one that took least time counts: who is
    made to wait between the two clocks would see a step that nobody made."""
    looks: list[tuple[float, float]] = []
    for _ in range(_LOOKS):
        before = clock()
        wall_s = time.time()
        after = clock()
        looks.append((after - before, wall_s - (before + after) / 2))
    return min(looks)[1] * 1000

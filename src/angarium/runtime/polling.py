"""Staying awake for the next lone message, for a moment: whoever has to be woken is late.

An event loop that has nothing to do sleeps, and so does its processor. To be woken costs a lone message more than all
that is done for it: an interrupt for another processor, on a virtual machine the host's scheduler as well, and code and
data that have left the caches meanwhile (docs/adr/0026-awake-for-the-next.md). So, while lone messages follow each
other within `window_s`, the loop looks for the next one again and again instead of sleeping, and gives way to whoever
else wants its processor each time it has looked:

    asleep --message, and the last one came less than `window_s` ago--> awake --nothing for `window_s`--> asleep

Nothing is decided by it but how long the loop sleeps. Everybody else's events are seen as ever, only sooner. It costs a
processor that would have slept, for as long as such messages come and `window_s` longer; messages that come more seldom
cost nothing. Where that processor is not there to be spent, it always sleeps: see `may_stay_awake`.
"""
import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PROCESSORS_MIN = 2  # with fewer, who waits awake keeps those from running for whom he waits


class Polling:
    """`came` is told of each lone message, `rest` of whatever is none."""

    def __init__(
        self,
        window_s: float,
        *,
        near: frozenset[int] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
        give_way: Callable[[], None] = os.sched_yield,
        may_stay_awake: Callable[[], bool] | None = None,
    ) -> None:
        """`window_s` 0: it always sleeps. `near`: the processors where what it waits for is told, if it matters."""
        self.is_awake = False
        self._window_s = window_s
        self._near = near
        self._clock = clock
        self._give_way = give_way
        self._may_stay_awake = may_stay_awake or _may_stay_awake
        self._loop = asyncio.get_running_loop()
        self._came_at = float("-inf")

    def came(self) -> None:
        now = self._clock()
        is_brisk = now - self._came_at < self._window_s
        self._came_at = now
        if is_brisk and not self.is_awake and self._may_stay_awake():
            self.is_awake = True
            _move_to(self._near)
            self._loop.call_soon(self._look)

    def rest(self) -> None:
        """Somebody else has work to do in this process: awake, the loop would be in his way."""
        self._came_at = float("-inf")

    def _look(self) -> None:
        """A loop that has something to call looks at its sockets without waiting for them."""
        if self._clock() - self._came_at >= self._window_s:
            self.is_awake = False
            return
        self._give_way()
        self._loop.call_soon(self._look)


def _move_to(near: frozenset[int]) -> None:
    """Whoever waits awake is never woken, so that the system has no occasion to move him. This thread goes to one of
    them, and may be moved away again at once if the system has something better to do there."""
    allowed = os.sched_getaffinity(0)
    if near & allowed and near & allowed != allowed:
        with suppress(OSError):  # a filter of system calls may forbid it: then it waits where it is
            os.sched_setaffinity(0, near & allowed)
            os.sched_setaffinity(0, allowed)


def _may_stay_awake() -> bool:
    """Not in real time, where giving way gives nothing to those of a lower priority: they would not run at all."""
    try:
        return _PROCESSORS >= _PROCESSORS_MIN and os.sched_getscheduler(0) in (os.SCHED_OTHER, os.SCHED_BATCH)
    except OSError:  # a filter of system calls does not let it know
        return False


def processors(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """How many this process may use: those it may run on, or as much time as its control groups leave it."""
    usable = float(len(os.sched_getaffinity(0)))
    try:
        path = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return usable
    group = groups / path.lstrip("/")
    for directory in (group, *group.parents):
        if not directory.is_relative_to(groups):
            break
        try:
            quota, period = (directory / "cpu.max").read_text().split()
            usable = usable if quota == "max" else min(usable, int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return usable


_PROCESSORS = processors()

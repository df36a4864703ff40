"""Staying awake for the next lone message, for a moment: whoever has to be woken is late.

An event loop that has nothing to do sleeps, and so does its processor. To be woken costs a lone message more than all
that is done for it: an interrupt for another processor, on a virtual machine the host's scheduler as well, and code and
data that have left the caches meanwhile (docs/adr/0026-awake-for-the-next.md). So, while lone messages follow each
other within `window_s`, the loop looks for the next one again and again instead of sleeping, and gives way to whoever
else wants its processor each time it has looked:

    asleep --message, and the last one came less than `window_s` ago--> awake --nothing for `window_s`--> asleep
                                                                          └──others need the processor──> a pause

Nothing is decided by it but how long the loop sleeps. Everybody else's events are seen as ever, only sooner. It costs a
processor that would have slept, for as long as such messages come and `window_s` longer; messages that come more seldom
cost nothing. Where that processor is not there to be spent, it always sleeps: see `_judge`.
"""
import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

from angarium.runtime.processors import processors

_PROCESSORS_MIN = 2  # with fewer, who waits awake keeps those from running for whom he waits
_JUDGE_AFTER_S = 0.005  # so long, at least, before it says whether others need the processor
_PAUSE_S = 0.25  # ... and so long it sleeps if they do


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
        self._may_stay_awake = may_stay_awake or _judge()
        self._loop = asyncio.get_running_loop()
        self._came_at = float("-inf")
        self._judged_at = 0.0
        self._given_s = 0.0  # to others, since then
        self._not_before = float("-inf")

    def came(self) -> None:
        now = self._clock()
        is_brisk = now - self._came_at < self._window_s
        self._came_at = now
        if is_brisk and not self.is_awake and now >= self._not_before and self._may_stay_awake():
            self.is_awake = True
            self._judged_at, self._given_s = now, 0.0
            self._loop.call_soon(self._look)
            _move_to(self._near)

    def rest(self) -> None:
        """Somebody else has work to do in this process: awake, the loop would be in his way."""
        self._came_at = float("-inf")

    def _look(self) -> None:
        """A loop that has something to call looks at its sockets without waiting for them."""
        now = self._clock()
        if now - self._came_at >= self._window_s or self._is_in_the_way(now):
            self.is_awake = False
            return
        self._give_way()
        self._given_s += self._clock() - now
        self._loop.call_soon(self._look)

    def _is_in_the_way(self, now: float) -> bool:
        """Others have had most of the time: the processor is not idle, and who gives way to them takes turns with them
        all the same."""
        if now - self._judged_at < _JUDGE_AFTER_S:
            return False
        is_in_the_way = self._given_s > (now - self._judged_at) / 2
        self._judged_at, self._given_s = now, 0.0
        if is_in_the_way:
            self._not_before = now + _PAUSE_S
        return is_in_the_way


def _move_to(near: frozenset[int]) -> None:
    """Whoever waits awake is never woken, so that the system has no occasion to move him. This thread goes to one of
    them, and may be moved away again at once if the system has something better to do there."""
    allowed = os.sched_getaffinity(0)
    if near & allowed and near & allowed != allowed:
        with suppress(OSError):  # a filter of system calls may forbid it: then it waits where it is
            os.sched_setaffinity(0, near & allowed)
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)


def _judge() -> Callable[[], bool]:
    """Not in real time, where giving way gives nothing to those of a lower priority: they would not run at all."""
    has_processors = processors() >= _PROCESSORS_MIN

    def may_stay_awake() -> bool:
        try:
            return has_processors and os.sched_getscheduler(0) in (os.SCHED_OTHER, os.SCHED_BATCH)
        except OSError:  # a filter of system calls does not let it know
            return False

    return may_stay_awake

"""An event loop in virtual time: as much of asyncio's as a node uses, one for each start of a node's process.

    clock ──> turn: what is due, then everything that was ready when the turn began, in order

A turn takes no time. Whatever comes from outside (a network, a disk) comes by `call_soon`, so it waits its turn; while
the process stands still (`pause`), all of it waits. A loop that is dead runs nothing any more and takes nothing: tasks
and timers of a killed process end where they stood. While a turn runs, this loop is the current one.

The loop's time begins anywhere, as a monotonic clock does, and runs a little faster or slower than others: two nodes
never have the same.
"""
import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar

from angarium.sim.clock import Clock, Timer
from angarium.sim.messages import Violation

_T = TypeVar("_T")
_TURNS_MAX = 10_000  # at one moment: somebody who is never content


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self, clock: Clock, name: str, *, starts_at: float, rate: float = 1.0) -> None:
        """`rate`: seconds of this loop in a second of the world."""
        self.name = name
        self.is_dead = False
        self._clock = clock
        self._rate = rate
        self._offset_s = starts_at - clock.now * rate
        self._time_least = 0.0  # a timer that is due finds its time come, however sums are rounded
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._turn: Timer | None = None
        self._paused_until = 0.0
        self._busy_until = 0.0
        self._turns = (0.0, 0)
        self._tasks: dict[asyncio.Task[Any], Callable[[], None]] = {}  # that have not ended, and how they end
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # -- what happens to it ----------------------------------------------------------------------------

    def die(self) -> None:
        self.is_dead = True
        self._ready.clear()
        self._timers.clear()
        for close in self._tasks.values():
            with suppress(ValueError, RuntimeError):  # the one that runs now: it has come to its own end
                close()
        self._tasks.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def pause(self, seconds: float) -> None:
        """The process stands still."""
        self._paused_until = max(self._paused_until, self._clock.now + seconds)
        self._arm()

    def work(self, seconds: float) -> None:
        """What it does just now takes so long: its next turn comes after it."""
        if seconds:
            self._busy_until = max(self._busy_until, self._clock.now) + seconds

    def resume(self) -> None:
        self._paused_until = 0.0
        self._arm()

    @property
    def is_paused(self) -> bool:
        return self._clock.now < self._paused_until

    # -- turns -----------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self.is_dead:
            return
        if self._ready:
            at = self._clock.now
        else:
            while self._timers and self._timers[0][2].cancelled():
                heappop(self._timers)
            if not self._timers:
                return
            at = self._moment(self._timers[0][0])
        held_until = max(self._paused_until, self._busy_until)
        at = max(at, held_until, self._clock.now)
        if self._turn is not None:
            if self._turn.action is not None and self._turn.at <= at and at > held_until:
                return
            self._turn.cancel()
        self._turn = self._clock.at(at, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self.is_paused or self._clock.now < self._busy_until:
            self._arm()
            return
        at, count = self._turns
        self._turns = (self._clock.now, count + 1 if at == self._clock.now else 0)
        if self._turns[1] > _TURNS_MAX:
            raise Violation("comes to rest", f"{self.name} is busy again and again at {self._clock.now:.6f} s")
        timers = self._timers
        while timers and self._moment(timers[0][0]) <= self._clock.now:
            when, _, timer = heappop(timers)
            if not timer.cancelled():
                self._time_least = max(self._time_least, when)
                self._ready.append(timer)
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                if not self._ready:  # dead meanwhile
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(before)
        self._arm()

    # -- asyncio's side --------------------------------------------------------------------------------

    def time(self) -> float:
        return max(self._clock.now * self._rate + self._offset_s, self._time_least)

    def _moment(self, when: float) -> float:
        """Of the world, in which it is that time here."""
        return (when - self._offset_s) / self._rate

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._ready.append(handle)
            if len(self._ready) == 1:
                self._arm()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self._numbers += 1
            heappush(self._timers, (when, self._numbers, handle))
            if self._timers[0][2] is handle:
                self._arm()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, _T] | Generator[Any, None, _T], *, name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:  # fmt: skip
        task: asyncio.Task[_T] = asyncio.Task(coro, loop=self, name=name)
        self._tasks[task] = coro.close
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        """In a real loop this is told when the task is collected; here at once, so that it is the same each time."""
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.call_exception_handler({"message": "a task failed", "exception": error})

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_dead or error is None:  # without one: a task was collected before its end, after the run
            return
        if isinstance(error, Violation):
            raise error
        if self._handler is None:
            raise Violation("a node does not fail", f"{self.name}: {error!r}")
        self._handler(self, context)

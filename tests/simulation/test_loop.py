"""The loop in virtual time keeps asyncio's promises, and two of its own: it stands still, and it dies."""
import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from angarium.sim.clock import Clock
from angarium.sim.loop import SimLoop
from angarium.sim.messages import Violation


def a_loop() -> tuple[Clock, SimLoop]:
    clock = Clock(Random(1))
    return clock, SimLoop(clock, "tested", starts_at=1_000.1)  # type: ignore[abstract]


def begin(loop: SimLoop, work: Coroutine[Any, Any, Any]) -> None:
    loop.call_soon(lambda: loop.create_task(work))


def test_callbacks_run_in_order_and_timers_when_they_are_due() -> None:
    clock, loop = a_loop()
    seen: list[object] = []
    loop.call_later(0.3, lambda: seen.append(round(loop.time() - 1_000.1, 6)))
    loop.call_soon(seen.append, 1)
    loop.call_soon(seen.append, 2)
    loop.call_later(0.1, seen.append, "cancelled").cancel()
    clock.run_until(1.0)
    assert seen == [1, 2, 0.3]


def test_a_timer_that_is_due_finds_its_time_come() -> None:
    clock, loop = a_loop()
    when = loop.time() + 0.1 + 0.2
    found: list[bool] = []
    loop.call_at(when, lambda: found.append(loop.time() >= when))
    clock.run_until(1.0)
    assert found == [True]


def test_tasks_wait_and_time_out() -> None:
    clock, loop = a_loop()
    seen: list[str] = []

    async def work() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, event.set)
        await event.wait()
        seen.append("waited")
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.5)
        except TimeoutError:
            seen.append("timed out")

    begin(loop, work())
    clock.run_until(0.6)
    assert seen == ["waited"]
    clock.run_until(1.0)
    assert seen == ["waited", "timed out"]


def test_while_it_stands_still_everything_waits() -> None:
    clock, loop = a_loop()
    seen: list[float] = []
    loop.call_later(0.1, lambda: seen.append(clock.now))
    loop.pause(0.5)
    clock.run_until(0.2)
    loop.call_soon(lambda: seen.append(clock.now))
    clock.run_until(0.4)
    assert seen == []
    clock.run_until(1.0)
    assert seen == [0.5, 0.5]


def test_a_loop_that_is_dead_runs_nothing() -> None:
    clock, loop = a_loop()
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.1)
        seen.append("woke up")

    begin(loop, work())
    loop.call_later(0.1, seen.append, "timer")
    clock.run_until(0.05)
    loop.die()
    loop.call_soon(seen.append, "late")
    clock.run_until(1.0)
    assert seen == []


def test_what_fails_is_told_at_once() -> None:
    clock, loop = a_loop()
    told: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(repr(context["exception"])))

    async def work() -> None:
        raise OSError("no such thing")

    begin(loop, work())
    loop.call_soon(lambda: 1 // 0)
    clock.run_until(0.1)
    assert sorted(told) == ["OSError('no such thing')", "ZeroDivisionError('integer division or modulo by zero')"]


def test_a_broken_promise_ends_the_run() -> None:
    clock, loop = a_loop()

    async def work() -> None:
        raise Violation("promise", "broken")

    begin(loop, work())
    with pytest.raises(Violation, match="broken"):
        clock.run_until(0.1)


def test_somebody_who_is_never_content_is_found_out() -> None:
    clock, loop = a_loop()

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Violation, match="comes to rest"):
        clock.run_until(0.1)

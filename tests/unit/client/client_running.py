"""Running a scenario on a real loop, and seeing to it that it leaves nothing behind."""
import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import angarium
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.client_fake_server import FakeServer, serving

Scenario = Callable[[FakeServer, angarium.Session], Awaitable[None]]
Runner = Callable[[Coroutine[Any, Any, None]], None]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_on(loop_factory: LoopFactory, main: Coroutine[Any, Any, None]) -> None:
    """Run it to its end; no task, warning or unhandled error may be left over."""
    errors: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await asyncio.wait_for(main, 60)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left over: {left}"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(watched())
        gc.collect()
    assert errors == [], errors


def with_session(run: Runner, scenario: Scenario, broker: FakeBroker | None = None) -> None:
    async def main() -> None:
        async with (
            serving(broker) as server,
            angarium.connect(server.address) as connection,
            connection.session() as session,
        ):
            await scenario(server, session)

    run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Poll, but not for ever."""
    for _ in range(5_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")

"""Goal: whatever block an exception leaves by, the message that was being processed is not settled by that.
Method: the fake broker behind a real server; what is settled there afterwards, and what comes again."""
import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import pytest

import angarium
from angarium import blocking
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner
from tests.unit.client.test_client_acknowledging import settled
from tests.unit.client.test_client_blocking import ServerThread

Lazy = Literal["auto", "duplicates-ok"]
BODIES = [b"%d" % n for n in range(10)]


async def fill(connection: angarium.Connection) -> None:
    async with connection.session() as session:
        await session.send_many("orders", BODIES)


async def comes_again(connection: angarium.Connection, position: int) -> None:
    async with connection.session() as session, session.consume("orders") as consumer:
        message = await consumer.receive(5)
        assert message is not None
        assert (message.position, message.redelivered) == (position, True)


@pytest.mark.parametrize("acknowledge", ["auto", "duplicates-ok"])
@pytest.mark.parametrize("left", ["session", "connection"])
def test_an_exception_in_the_block_of_a_session_settles_nothing(run: Runner, acknowledge: Lazy, left: str) -> None:
    async def consume(server: FakeServer) -> None:
        async with angarium.connect(server.address) as connection:
            await fill(connection)
            session = connection.session(acknowledge=acknowledge)
            if left == "session":
                await session.__aenter__()
            consumer = session.consume("orders")
            assert (await anext(consumer)).body == b"0"
            error = ValueError("mine")
            if left == "session":
                await session.__aexit__(ValueError, error, None)
            raise error

    async def main() -> None:
        async with serving() as server:
            with pytest.raises(ValueError, match="mine"):
                await consume(server)
            assert settled(server) == []
            async with angarium.connect(server.address) as connection:
                await comes_again(connection, 0)

    run(main())


def test_a_cancelled_task_settles_nothing(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            await fill(connection)
            took: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def work() -> None:
                async with connection.session(acknowledge="auto") as session:
                    await session.receive("orders", timeout_s=5)
                    took.set_result(None)
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await took
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert settled(server) == []

    run(main())


def test_what_a_listener_is_through_with_is_settled_although_the_session_is_left_by_an_exception(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            await fill(connection)
            begun = asyncio.Event()

            async def callback(message: angarium.Message) -> None:
                begun.set()
                await asyncio.sleep(0.05)

            with pytest.raises(ValueError, match="mine"):
                async with connection.session(acknowledge="auto") as session:
                    session.listen("orders", callback)
                    await begun.wait()
                    raise ValueError("mine")
            assert settled(server) == [(0, 1)], "its callback returned: that is no failure"

    run(main())


# -- without asyncio ---------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ServerThread]:
    thread = ServerThread(FakeBroker())
    with blocking.connect(thread.address) as connection, connection.session() as session:
        session.send_many("orders", BODIES, timeout_s=5)
    yield thread
    thread.stop()


def durable(server: ServerThread) -> list[tuple[int, int]]:
    return list(server.broker.log("orders").subscriptions[""].durable)


@pytest.mark.parametrize("acknowledge", ["auto", "duplicates-ok"])
def test_an_exception_in_the_block_of_a_blocking_session_settles_nothing(
    server: ServerThread, acknowledge: Lazy
) -> None:
    with (
        pytest.raises(ValueError, match="mine"), blocking.connect(server.address) as connection,
        connection.session(acknowledge=acknowledge) as session,
    ):  # fmt: skip
        assert next(session.consume("orders")).body == b"0"
        raise ValueError("mine")
    assert durable(server) == []


def test_an_exception_in_the_block_of_a_blocking_connection_settles_nothing(server: ServerThread) -> None:
    with pytest.raises(ValueError, match="mine"), blocking.connect(server.address) as connection:
        message = connection.session(acknowledge="auto").receive("orders", timeout_s=5)
        assert message is not None
        raise ValueError("mine")
    assert durable(server) == []

"""Goal: whoever leaves, by an exception or without a word, is not held back for long and is told what is not confirmed.
Method: the fake broker that confirms nothing, or is gone, behind a real server."""
import asyncio
import gc
import subprocess
import sys
import time
import warnings

import pytest

import angarium
from angarium import blocking
from angarium.client import ended
from angarium.client.connection import CLOSE_TIMEOUT_S
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until
from tests.unit.client.test_client_blocking import ServerThread

# Every block that is left may take a little; whoever waits as an orderly close does takes longer than all of them.
AT_ONCE_S_MAX = 0.4 * CLOSE_TIMEOUT_S
assert 8 * ended.LEAVING_TIMEOUT_S < AT_ONCE_S_MAX


def test_an_exception_does_not_wait_for_confirms(run: Runner) -> None:
    async def main() -> None:
        async with serving(FakeBroker(commits=False)) as server:
            started = time.monotonic()
            with pytest.raises(ValueError, match="mine") as caught:
                async with angarium.connect(server.address) as connection, connection.session() as session:
                    session.send("a", b"1")
                    raise ValueError("mine")
            assert time.monotonic() - started < AT_ONCE_S_MAX
            [note] = caught.value.__notes__
            assert "1 message is not confirmed" in note

    run(main())


def test_an_exception_in_a_consumer_is_the_one_to_see_when_the_broker_is_gone(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server:
            started = time.monotonic()
            with pytest.raises(ValueError, match="mine"):
                async with angarium.connect(server.address) as connection, connection.session() as session:
                    await session.send("a", b"1")
                    async with session.consume("a") as consumer:
                        message = await consumer.receive(5)
                        assert message is not None
                        await server.stop()
                        await until(lambda: not connection.is_connected)
                        message.settle()
                        raise ValueError("mine")
            assert time.monotonic() - started < AT_ONCE_S_MAX

    run(main())


def test_an_exception_in_a_transaction_is_the_one_to_see_and_does_not_wait_for_a_broker_that_is_away(
    run: Runner,
) -> None:
    async def main() -> None:
        async with serving() as server:
            started = time.monotonic()
            with pytest.raises(ValueError, match="mine") as caught:
                async with (
                    angarium.connect(server.address) as connection, connection.session(transacted=True) as session,
                ):  # fmt: skip
                    session.send("a", b"1")
                    await session.commit()
                    consumer = session.consume("a")
                    async with session.transaction():
                        assert await consumer.receive(5) is not None
                        await server.stop()
                        await until(lambda: not connection.is_connected)
                        raise ValueError("mine")
            assert time.monotonic() - started < AT_ONCE_S_MAX
            assert any("rolling back" in note for note in caught.value.__notes__)

    run(main())


def test_a_transaction_that_cannot_be_rolled_back_hides_no_exception(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session(transacted=True)
            with pytest.raises(ValueError, match="mine") as caught:
                async with session.transaction():
                    await session.close()
                    raise ValueError("mine")
            assert caught.value.__notes__

    run(main())


def test_a_cancelled_close_is_not_waited_for_again(run: Runner) -> None:
    async def main() -> None:
        async with serving(FakeBroker(commits=False)) as server:
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                async with (
                    asyncio.timeout(0.2), angarium.connect(server.address) as connection,
                    connection.session() as session,
                ):  # fmt: skip
                    session.send("a", b"1")
            assert time.monotonic() - started < AT_ONCE_S_MAX

    run(main())


def test_settling_after_the_session_was_closed_is_refused(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            async with connection.session() as session:
                await session.send("a", b"1")
                message = await session.receive("a", 5)
            assert message is not None
            with pytest.raises(angarium.LocalProtocolError, match="is closed and has given it back"):
                message.settle()

    run(main())


def test_a_message_of_a_failed_connection_is_lost(run: Runner) -> None:
    async def main() -> None:
        policy = angarium.ReconnectPolicy(give_up_after_s=0.1)
        async with serving() as server, angarium.connect(server.address, reconnect=policy) as connection:
            session = connection.session()
            await session.send("a", b"1")
            message = await session.receive("a", 5)
            assert message is not None and not message.lost
            await server.stop()
            await until(lambda: message.lost)
            message.settle()

    run(main())


def test_the_state_of_the_connection_can_be_followed(run: Runner) -> None:
    async def main() -> None:
        seen: list[tuple[bool, str]] = []
        async with serving() as server, angarium.connect(server.address) as connection:
            connection.on_change = lambda: seen.append((connection.is_connected, connection.loss))
            server.cut_all()
            await until(lambda: len(seen) == 2)
        assert [connected for connected, _ in seen] == [False, True]
        assert "the broker closed the connection" in seen[0][1] or "reset" in seen[0][1]
        assert seen[1][1] == ""

    run(main())


@pytest.mark.parametrize(("count", "kind"), [(0, ResourceWarning), (3, RuntimeWarning)])
def test_a_forgotten_connection_is_told_of(count: int, kind: type[Warning]) -> None:
    async def main(server: FakeServer) -> None:
        connection = await angarium.connect(server.address)
        session = connection.session()
        for _ in range(count):
            session.send("a", b"1")

    async def served() -> None:
        async with serving() as server:
            await main(server)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(served())
        gc.collect()
    [told] = [w for w in caught if "was not closed" in str(w.message)]
    assert told.category is kind
    assert (f"{count} messages were sent and not confirmed" in str(told.message)) == (count > 0)


FORGETFUL = """
import sys
from angarium import blocking
session = blocking.connect(sys.argv[1]).session()
for i in range(20_000):
    session.send("a", b"%d" % i)
"""


def test_a_blocking_program_that_ends_without_closing_confirms_first() -> None:
    server = ServerThread(FakeBroker())
    try:
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", FORGETFUL, server.address], capture_output=True, timeout=60
        )
        assert done.returncode == 0 and b"ResourceWarning" in done.stderr, done.stderr
        assert b"RuntimeWarning" not in done.stderr
        assert len(server.broker.log("a").bodies()) == 20_000
    finally:
        server.stop()


def test_a_blocking_session_leaves_by_an_exception_at_once_also_with_a_full_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("angarium.client.buffer.SEND_BUFFER_MESSAGES_MAX", 10)
    server = ServerThread(FakeBroker(commits=False))
    started = time.monotonic()
    try:
        with (
            pytest.raises(ValueError, match="mine") as caught,
            blocking.connect(server.address) as connection, connection.session() as session,
        ):  # fmt: skip
            handles = [session.send("a", b"1") for _ in range(200)]
            assert "waiting" in repr(handles[0]) and "open" in repr(session) and "connected" in repr(connection)
            raise ValueError("mine")
        assert time.monotonic() - started < AT_ONCE_S_MAX
        assert "not confirmed" in caught.value.__notes__[0]
        assert "closed" in repr(session) and "closed" in repr(connection)
    finally:
        server.stop()


def test_an_exception_in_a_blocking_transaction_does_not_wait_for_a_broker_that_is_away() -> None:
    thread = ServerThread(FakeBroker())
    started = time.monotonic()
    with (
        pytest.raises(ValueError, match="mine"), blocking.connect(thread.address) as connection,
        connection.session(transacted=True) as session,
    ):  # fmt: skip
        session.send("a", b"1")
        session.commit(5)
        consumer = session.consume("a")
        with session.transaction():
            assert consumer.receive(5) is not None
            thread.stop()
            raise ValueError("mine")
    assert time.monotonic() - started < AT_ONCE_S_MAX

"""Goal: rules of the specification that are about the calls themselves: what is said when, and in which state.
Method: the fake broker behind a real server; both faces."""
import asyncio
import threading
from typing import Any

import pytest

import angarium
from angarium import blocking
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until, with_session

_CHANGES: list[tuple[Any, Any]] = [({"a": 1}, "clear"), ([1, 2], "clear"), (bytearray(b"one"), "clear")]


@pytest.mark.parametrize(("body", "change"), _CHANGES)
def test_what_is_changed_after_the_sending_does_not_change_what_was_sent(run: Runner, body: Any, change: str) -> None:
    body = body.copy()  # each parameter serves every loop

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        properties = {"n": 1}
        as_sent = dict(body) if isinstance(body, dict) else list(body) if isinstance(body, list) else bytes(body)
        sending = session.send("orders", body, properties=properties)
        getattr(body, change)()
        properties["n"] = 2
        await sending
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
        value = message.value
        assert (list(value) if isinstance(as_sent, list) else value) == as_sent
        assert dict(message.properties) == {"n": 1}

    with_session(run, scenario)


@pytest.mark.parametrize("closes", ["consumer", "session", "connection"])
def test_closing_ends_a_receive_that_waits_with_nothing(run: Runner, closes: str) -> None:
    async def main() -> None:
        async with serving() as server:
            connection = await angarium.connect(server.address)
            session = connection.session()
            consumer = session.consume("orders")
            await consumer.opened()
            waiting = [asyncio.ensure_future(consumer.receive())]
            if closes != "consumer":
                waiting.append(asyncio.ensure_future(session.receive("others")))
            await asyncio.sleep(0.05)
            match closes:
                case "consumer":
                    await consumer.close()
                case "session":
                    await session.close()
                case _:
                    await connection.close()
            assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [None] * len(waiting)
            await connection.close()

    run(main())


def test_closing_ends_a_receive_that_waits_in_another_thread(run: Runner) -> None:
    found: list[object] = []

    async def main() -> None:
        async with serving() as server:
            await asyncio.to_thread(wait_and_close, server.address)

    def wait_and_close(address: str) -> None:
        with blocking.connect(address) as connection, connection.session() as session:
            consumer = session.consume("orders")
            thread = threading.Thread(target=lambda: found.append(consumer.receive()))
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
            consumer.close()
            thread.join(10)

    run(main())
    assert found == [None]


def test_committing_and_recovering_are_for_their_own_kind_of_session(run: Runner) -> None:
    async def main() -> None:
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session() as plain,
            connection.session(transacted=True) as transacted,
        ):
            for call in (plain.commit, plain.rollback, transacted.recover):
                with pytest.raises(angarium.LocalProtocolError):
                    await call()
            with pytest.raises(angarium.LocalProtocolError):
                transacted.acknowledge()
            assert plain.is_usable
            assert transacted.is_usable

    run(main())


@pytest.mark.parametrize("closes", ["listener", "session", "connection"])
def test_a_callback_cannot_close_what_it_runs_in(run: Runner, closes: str) -> None:
    seen: list[bytes] = []
    refused: list[str] = []

    async def main() -> None:
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session() as other,
            connection.session(acknowledge="auto") as session,
        ):

            async def callback(message: angarium.Message) -> None:
                close = {"listener": listener.close, "session": session.close, "connection": connection.close}[closes]
                try:
                    await close()
                except angarium.LocalProtocolError as error:
                    refused.append(str(error))
                seen.append(message.body)

            listener = session.listen("orders", callback)
            await other.send_many("orders", [b"1", b"2"])
            await asyncio.wait_for(until(lambda: len(seen) == 2), 10)
            assert other.is_usable, "nothing has changed"
            assert session.is_usable

    run(main())
    assert seen == [b"1", b"2"]
    assert len(refused) == 2


@pytest.mark.parametrize("closes", ["listener", "session", "connection"])
def test_a_callback_cannot_close_what_it_runs_in_without_asyncio(run: Runner, closes: str) -> None:
    seen: list[bytes] = []
    refused: list[str] = []
    done = threading.Event()

    async def main() -> None:
        async with serving() as server:
            await asyncio.to_thread(listen, server.address)

    def listen(address: str) -> None:
        with blocking.connect(address) as connection, connection.session() as other, connection.session() as session:

            def callback(message: angarium.Message) -> None:
                try:
                    {"listener": listener.close, "session": session.close, "connection": connection.close}[closes]()
                except angarium.LocalProtocolError as error:
                    refused.append(str(error))
                seen.append(message.body)
                message.settle()
                if len(seen) == 2:
                    done.set()

            listener = session.listen("orders", callback)
            other.send_many("orders", [b"1", b"2"])
            assert done.wait(10)
            other.send("orders", b"3").result(10)  # nothing has changed

    run(main())
    assert seen[:2] == [b"1", b"2"]
    assert len(refused) >= 2

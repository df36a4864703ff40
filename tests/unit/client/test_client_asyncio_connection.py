"""Goal: a client comes up, comes back, and ends, and leaves nothing and nobody waiting.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio

import pytest

import angarium
from angarium.client.driver import Link
from angarium.core.wire.frames import Failure, SessionClosed
from tests.unit.client.client_fake_broker import BODY_BYTES_MAX, FakeBroker
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until, with_session


def test_requests(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address, name="me") as connection:
            assert connection.node == "fake" and connection.is_connected
            answer = await connection.request("echo", {"a": [1, {"b": None}]})
            assert answer == ({"a": [1, {"b": None}]}, b"payload")
            with pytest.raises(angarium.Rejected) as caught:
                await connection.request("nonsense")
            assert caught.value.code == "unknown-command"
            silence = asyncio.create_task(connection.request("silence"))
            await connection.request("echo")
            server.cut_all()
            with pytest.raises(angarium.Unavailable, match="lost before the reply"):
                await silence

    run(main())


def test_sessions_that_are_detached_are_a_delay_and_nothing_else(run: Runner) -> None:
    async def main() -> None:
        changes: list[bool] = []
        async with serving() as server, angarium.connect(server.address) as connection:
            connection.on_change = lambda: changes.append(connection.is_connected)
            async with connection.session() as session, session.consume("orders", prefetch=3) as consumer:
                for number in range(20):
                    if number % 4 == 0:
                        server.broker.peers[0].detach()
                        server.write_all()
                    sending = session.send("orders", b"%d" % number)
                    message = await anext(consumer)
                    await sending
                    assert message.body == b"%d" % number and not message.redelivered
                    if number % 7 == 0:
                        server.broker.peers[0].detach()
                        server.write_all()
                    await message.settle()
                await session.sync()
            assert server.broker.log("orders").subscriptions[""].settled.count == 20
            assert len(server.broker.peers) == 1 and connection.is_connected
            assert changes == [] and server.broker.violations == []

    run(main())


def test_nobody_there(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server:
            address = server.address.removeprefix("angarium://")
        started = asyncio.get_running_loop().time()
        with pytest.raises(angarium.Unavailable, match=rf"no broker answered at {address}.*refused"):
            async with angarium.connect(address, connect_timeout_s=5.0):
                raise AssertionError
        assert asyncio.get_running_loop().time() - started < 10

    run(main())


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_name_that_no_host_can_have_is_said(run: Runner, host: str) -> None:
    async def main() -> None:
        with pytest.raises(angarium.Unavailable, match="no host can have that name"):
            async with angarium.connect(f"{host}:4560", connect_timeout_s=1.0):
                raise AssertionError

    run(main())


def test_the_second_address_will_do(run: Runner) -> None:
    async def main() -> None:
        async with serving() as gone:
            pass
        async with serving() as server, angarium.connect([gone.address, server.address]) as connection:
            assert connection.is_connected

    run(main())


def test_a_peer_that_is_no_broker(run: Runner) -> None:
    async def main() -> None:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(angarium.RemoteProtocolError):
                await angarium.connect(f"127.0.0.1:{port}")

    run(main())


def test_a_client_survives_cuts_and_restarts(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            async with connection.session() as session:
                consumer = session.consume("orders", prefetch=50)
                bodies: list[bytes] = []

                async def work() -> None:
                    async for message in consumer:
                        bodies.append(message.body)
                        await message.settle()

                task = asyncio.create_task(work())
                for n in range(300):
                    session.send("orders", b"%d" % n)
                    if n % 60 == 30:
                        server.cut_all()
                    if n == 150:
                        await server.stop()
                        await asyncio.sleep(0.02)
                        await server.start()
                    await asyncio.sleep(0.0005)
                await session.flush()
                await until(lambda: len(bodies) == 300)
                await session.sync()
                await consumer.close()
                await task
            assert bodies == [b"%d" % n for n in range(300)]
            assert server.broker.log("orders").bodies() == bodies
            assert server.broker.violations == []

    run(main())


def test_messages_lost_to_others_are_marked(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"0", b"1", b"2", b"3"])
        consumer = session.consume("orders")
        mine = [await anext(consumer) for _ in range(2)]
        server.broker.crash()  # forgets who holds what ...
        subscription = server.broker.log("orders").subscriptions[""]
        subscription.waiting.remove(1, 3)
        subscription.held[1] = subscription.held[2] = (b"somebody", 1)  # ... and gives two of them to somebody else
        server.cut_all()
        await until(lambda: mine[1].lost)
        assert (await anext(consumer)).position == 3  # 2 lay ready, and is dropped
        assert not mine[0].lost
        await mine[0].settle()
        await mine[1].settle()  # does nothing
        assert consumer.lost_count == 1
        await session.sync()

    with_session(run, scenario)


def test_a_transport_that_comes_too_late_is_dropped(run: Runner) -> None:
    class LateTransport(asyncio.Transport):
        is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        transport, link = LateTransport(), Link(session.driver)
        link.connection_made(transport)
        assert transport.is_aborted
        link.buffer_updated(0)
        link.pause_writing()
        link.resume_writing()
        link.connection_lost(None)
        await session.send("orders", b"the other one is not disturbed")

    with_session(run, scenario)


def test_a_session_that_is_taken_ends_with_its_code(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"1")
        consumer = session.consume("orders")
        await anext(consumer)
        waiting = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0)
        server.links[0].peer.send(1, SessionClosed("session-taken", "resumed elsewhere"))
        server.write_all()
        with pytest.raises(angarium.Rejected, match="resumed elsewhere"):
            await waiting
        for use in (
            lambda: session.send("orders", b""), lambda: session.send("other", b""), lambda: session.consume("orders"),
        ):  # fmt: skip
            with pytest.raises(angarium.Rejected) as caught:
                use()
            assert caught.value.code == "session-taken"

    with_session(run, scenario)


def test_closing_gives_up_in_time_and_says_what_is_missing(run: Runner) -> None:
    async def main() -> None:
        async with serving(FakeBroker(commits=False)) as server:
            connection = await angarium.connect(server.address, close_timeout_s=0.1)
            session = connection.session()
            handles = [session.send("orders", b"1"), session.send("orders", b"2")]
            with pytest.raises(angarium.Unavailable, match="2 messages are not confirmed"):
                await session.close()
            for handle in handles:
                with pytest.raises(angarium.Unavailable):
                    await handle
            with pytest.raises(angarium.Unavailable):
                session.send("orders", b"3")
            await connection.close()

    run(main())


def test_everything_that_waits_ends_with_a_connection_that_fails(run: Runner) -> None:
    async def main() -> None:
        async with serving(FakeBroker(commits=False)) as server:
            connection = await angarium.connect(server.address)
            session = connection.session()
            consumer = session.consume("orders")

            async def confirm() -> None:
                await session.send("orders", b"1")

            async def consume() -> None:
                await anext(consumer)

            async def request() -> None:
                await connection.request("silence")

            tasks = [asyncio.create_task(work()) for work in (confirm, consume, session.flush, request)]
            await until(lambda: len(consumer._waiters) == 1 and len(connection._requests) == 1)
            server.links[0].peer.send(0, Failure("version-unsupported", "upgrade"))
            server.write_all()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [getattr(result, "code", result) for result in results] == ["version-unsupported"] * 4
            with pytest.raises(angarium.Rejected):
                connection.session()
            await connection.close()

    run(main())


def test_silence_is_noticed(run: Runner) -> None:
    async def main() -> None:
        async with (
            serving(FakeBroker(heartbeat_s=0.2)) as server,
            angarium.connect(server.address) as connection,
            connection.session() as session,
        ):
            await session.send("orders", b"1")
            (link,) = server.links
            await asyncio.sleep(1.0)
            assert server.links == [link]  # pings are answered: nobody left
            server.is_mute = True
            await asyncio.wait_for(link.lost.wait(), 20)
            server.is_mute = False
            await session.send("orders", b"2")

    run(main())


def test_large_messages_and_a_slow_reader(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        body = bytes(BODY_BYTES_MAX)
        for _ in range(5):
            session.send("orders", body)
        server.links[0].transport.pause_reading()
        await asyncio.sleep(0.05)
        handles = [session.send("orders", b"x" * 100_000) for _ in range(20)]
        await asyncio.sleep(0.05)
        server.links[0].transport.resume_reading()
        await session.flush()
        assert all(handle.done for handle in handles)
        async with session.consume("orders", prefetch=2) as consumer:
            assert (await anext(consumer)).body == body

    with_session(run, scenario)


def test_awaiting_a_send_may_be_given_up(run: Runner) -> None:
    async def main() -> None:
        async with serving(FakeBroker(commits=False)) as server, angarium.connect(server.address) as connection:
            session = connection.session()
            handle = session.send("orders", b"1")
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await handle
            server.broker.commits_by_itself = True
            server.cut_all()
            assert len(await handle) == 24
            await session.close()

    run(main())


def test_use_after_close(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server:
            async with angarium.connect(server.address) as connection:
                async with connection.session() as session:
                    await session.send("orders", b"1")
                await session.close()
                with pytest.raises(angarium.LocalProtocolError, match="session 1 is closed"):
                    session.send("orders", b"2")
            await connection.close()
            with pytest.raises(angarium.LocalProtocolError, match="connection is closed"):
                connection.session()
        with pytest.raises(angarium.LocalProtocolError, match="not open"):
            angarium.connect("a").session()

    run(main())


def test_leaving_with_an_error_shows_that_error(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        session.send("orders", b"refuse me")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with_session(run, scenario)

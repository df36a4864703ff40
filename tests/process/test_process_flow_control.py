"""Goal: whoever is blocked, those who need to know are told, by the application's own signals.
Method: each row of the table of flow control, on a real broker, as real clients see it."""
import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import angarium
from angarium.core.wire import frames
from tests.process.process_broker import WAIT_S, Broker, running, until_async
from tests.process.process_proxy import Proxy
from tests.process.process_wire import RECEIVE_BUFFER_BYTES_MIN, RawClient, stalled_consumer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("flow-control")) as broker:
        yield broker


async def created(connection: angarium.Connection, name: str, **options: object) -> None:
    await connection.request("destination.create", {"name": name, "kind": "queue", **options})


def test_row_1_a_client_that_grants_no_credit_is_known_to_its_destination_and_passed_over(broker: Broker) -> None:
    async def run() -> None:
        async with (
            angarium.connect(broker.address) as connection,
            connection.session() as blocked,
            connection.session() as free,
        ):
            full = blocked.consume("row1", prefetch=3)
            await full.opened()
            await free.send_many("row1", [b"%d" % n for n in range(100)])
            held = [await full.receive(WAIT_S) for _ in range(3)]
            taken: list[bytes] = []
            async with free.consume("row1") as other:
                while len(taken) < 97:
                    message = await other.receive(WAIT_S)
                    assert message is not None
                    await message.settle()
                    taken.append(message.body)
            bodies = [message.body for message in held if message is not None]
            assert sorted([*bodies, *taken], key=int) == [b"%d" % n for n in range(100)]

    asyncio.run(run())


def test_row_1_a_client_that_does_not_read_is_passed_over_as_well(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("row1b", [bytes(1_000)] * 20_000)
            taken = 0
            async with session.consume("row1b") as consumer:
                described = {"messages": 20_000, "in_flight": 0}
                while described["messages"] > described["in_flight"]:
                    while (message := await consumer.receive(0.2)) is not None:
                        await message.settle()
                        taken += 1
                    await session.sync()
                    described = (await connection.request("destination.describe", {"name": "row1b"})).result
            assert taken >= 10_000, "what the stalled connection's buffers took, and no more"
            assert described["messages"] == described["in_flight"] == 20_000 - taken

    with contextlib.ExitStack() as stack:
        stack.enter_context(stalled_consumer(broker.port, "row1b"))
        asyncio.run(run())


def test_row_2_a_full_destination_tells_producers_with_the_reason_until_there_is_room(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await created(connection, "row2", messages_max=10)
            seen: list[tuple[str, str]] = []
            session.on_blocked(lambda destination, reason: seen.append((destination, reason)))
            await session.send_many("row2", [b"x"] * 10)
            await until_async(lambda: session.is_blocked("row2"), "the producer is told")
            assert "messages_max is 10" in session.blocked_reason("row2")
            assert session.try_send("row2", b"one more") is None
            assert not session.is_blocked("elsewhere")
            await session.send("elsewhere", b"goes on")
            waiting = asyncio.create_task(session.unblocked("row2"))
            await asyncio.sleep(0)
            assert not waiting.done()
            async with session.consume("row2") as consumer:
                for _ in range(3):
                    message = await consumer.receive(WAIT_S)
                    assert message is not None
                    await message.settle()
            async with asyncio.timeout(WAIT_S):
                await waiting
            assert not session.is_blocked("row2")
            await session.send("row2", b"goes on")
            assert [bool(reason) for name, reason in seen if name == "row2"] == [True, False]

    asyncio.run(run())


# Once: the first batch of each left before it was told, so those that send once and go filled the queue without end.
def test_row_2_a_full_destination_holds_back_those_that_send_once_and_go(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection:
            await created(connection, "row2-short", messages_max=5)
            for _ in range(10):
                session = connection.session()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await session.send("row2-short", b"x")
                with contextlib.suppress(angarium.AngariumError):
                    await session.close(timeout_s=0.1)
            described = (await connection.request("destination.describe", {"name": "row2-short"})).result
            assert described["messages"] == 5

    asyncio.run(run())


def test_row_2_a_commit_waits_for_a_full_destination_and_can_be_given_up(broker: Broker) -> None:
    async def run() -> None:
        async with (
            angarium.connect(broker.address) as connection,
            connection.session(transacted=True) as session,
            connection.session() as other,
        ):
            await created(connection, "row2t", messages_max=2)
            for _ in range(3):
                session.send("row2t", b"x")
            await session.commit()
            await until_async(lambda: session.is_blocked("row2t"), "the producer is told")
            assert session.try_send("row2t", b"y") is None
            for outcome in ("given up", "done"):
                session.send("row2t", outcome.encode())
                committing = asyncio.create_task(session.commit())
                assert not (await asyncio.wait([committing], timeout=0.2))[0], "it waits"
                if outcome == "given up":
                    committing.cancel()
                    await asyncio.wait([committing])
                    await session.rollback()
            async with other.consume("row2t") as consumer:
                for _ in range(3):
                    message = await consumer.receive(WAIT_S)
                    assert message is not None
                    await message.settle()
                await asyncio.wait_for(committing, WAIT_S)
                message = await consumer.receive(WAIT_S)
                assert message is not None and message.body == b"done"
                await message.settle()

    asyncio.run(run())


def test_row_2_a_refusing_destination_refuses_with_the_reason(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await created(connection, "row2r", messages_max=5, over_limit="refuse")
            sendings = [session.send("row2r", b"%d" % n) for n in range(8)]
            outcomes = await asyncio.gather(*map(asyncio.ensure_future, sendings), return_exceptions=True)
            refused = [outcome for outcome in outcomes if isinstance(outcome, angarium.Rejected)]
            assert [isinstance(outcome, bytes) for outcome in outcomes] == [True] * 5 + [False] * 3
            assert {error.code for error in refused} == {"destination-full"}

    asyncio.run(run())


def test_row_3_a_session_that_sends_faster_than_is_stored_waits_in_the_client(tmp_path: Path) -> None:
    """The client manager's signal to its client is the window of unconfirmed bytes: while nothing is confirmed, no more
    than that leaves, from all its producers together, and the application sees what waits."""
    window_bytes, beside_bytes = 1_200_000, 4_096  # headers of frames, openings, heartbeats

    async def quiet(proxy: Proxy) -> int:
        """How much was asked when nothing more came for a while."""
        before, count = -1, 0
        while count < 5:
            count = count + 1 if proxy.asked_bytes == before else 0
            before = proxy.asked_bytes
            await asyncio.sleep(0.1)
        return before

    async def run(broker: Broker) -> None:
        proxy = Proxy(broker.port, seed=1, bytes_max=1 << 30)
        proxy.heal()
        async with proxy, angarium.connect(proxy.address) as connection, connection.session() as session:
            for name in ("row3a", "row3b"):
                await session.send(name, b"opens it")
            before = proxy.asked_bytes
            proxy.hold_answers()
            for name in ("row3a", "row3b"):
                for _ in range(2_000):
                    session.send(name, bytes(1_000))
            sent = await quiet(proxy) - before
            assert window_bytes / 4 < sent <= window_bytes + beside_bytes, "of four million"
            assert session.unconfirmed_count == 4_000
            assert connection.is_connected
            proxy.release_answers()
            await session.flush()
            assert session.unconfirmed_count == 0
            assert proxy.asked_bytes - before > 4_000_000

    with running(tmp_path, {"session.unconfirmed_bytes_max": window_bytes}) as broker:
        asyncio.run(run(broker))


def test_row_3_the_application_is_told_when_its_buffer_is_full(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            with pytest.raises(angarium.Unavailable, match="wait"):
                for _ in range(1_000):
                    session.send("row3", bytes(1 << 20))
            assert session.try_send("row3", bytes(1 << 20)) is None
            await session.room()
            await session.send("row3", b"goes on")
            await session.flush()
            await connection.request("destination.remove", {"name": "row3"})

    asyncio.run(run())


def test_row_4_a_stalled_session_is_known_to_all_destinations_of_its_consumers(broker: Broker) -> None:
    """One session with two consumers does not read. What it gets from one destination fills its connection; at the
    other, from which it never got anything, it is stalled as well."""

    async def explained(connection: angarium.Connection, name: str, *, settles: bool = False) -> str:
        deadline = time.monotonic() + (WAIT_S if settles else 0)
        while True:
            code = str((await connection.request("destination.explain", {"name": name})).result["code"])
            if code == "stalled" or time.monotonic() > deadline:
                return code
            await asyncio.sleep(0.05)

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("row4a", [bytes(1_000)] * 15_000)
            assert await explained(connection, "row4a", settles=True) == "stalled"
            await session.send_many("row4b", [b"x"] * 10)
            assert await explained(connection, "row4b") == "stalled"
            described = (await connection.request("destination.describe", {"name": "row4b"})).result
            assert (described["messages"], described["in_flight"]) == (10, 0)
            for name in ("row4a", "row4b"):
                async with session.consume(name) as consumer:
                    message = await consumer.receive(WAIT_S)
                    assert message is not None, "the other one does not read: this one is served"
                    await message.settle()

    with RawClient(broker.port, receive_buffer_bytes=RECEIVE_BUFFER_BYTES_MIN) as client:
        client.hello()
        client.open_session()
        for number, name in enumerate(("row4a", "row4b"), start=1):
            client.send(1, frames.ConsumerOpen(number, name, frames.DestinationKind.QUEUE, credit=1 << 30))
            client.expect(frames.ConsumerOpened)
        asyncio.run(run())


def test_a_slow_subscriber_is_told_how_many_messages_it_lost(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await created(connection, "ticks", kind="topic", messages_max=20, slow_subscriber="drop")
            slow = session.consume(angarium.Topic("ticks"), prefetch=5)
            await slow.opened()
            await session.send_many(angarium.Topic("ticks"), [b"%d" % n for n in range(100)])
            got: list[bytes] = []
            while len(got) + slow.dropped_count < 100:
                message = await slow.receive(WAIT_S)
                assert message is not None, f"{len(got)} came, and {slow.dropped_count} were said to be dropped"
                await message.settle()
                got.append(message.body)
            assert await slow.receive(0.2) is None and len(got) + slow.dropped_count == 100
            assert slow.dropped_count > 50
            assert got[-1] == b"99"

    asyncio.run(run())

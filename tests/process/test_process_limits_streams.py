"""Goal: the content of streams counts against the limits on bytes, of a destination and of the node: whoever limits
what may be stored limits all of it.
Method: a real broker with its files; streams that are waiting, delayed, settled, retained; restarts between."""
import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest

import angarium
from tests.process.process_broker import WAIT_S, Broker, running, until_async
from tests.process.process_streams import files

LIMIT_BYTES = 1_000_000
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("limits-streams")) as broker:
        yield broker


def run(broker: Broker, scene: Callable[[angarium.Connection, angarium.Session], Awaitable[None]]) -> None:
    async def play() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await scene(connection, session)

    asyncio.run(play())


async def created(connection: angarium.Connection, **options: object) -> str:
    name = f"streams.{next(_numbers)}"
    await connection.request("destination.create", {"name": name, "kind": "queue", **options})
    return name


def content(size: int = LIMIT_BYTES) -> io.BytesIO:
    return io.BytesIO(bytes(size))


async def taken(session: angarium.Session, name: str) -> None:
    message = await session.receive(name, WAIT_S)
    assert message is not None
    await message.settle()
    await session.sync()


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_a_queue_is_full_of_a_streams_content_until_it_is_taken(broker: Broker, delay_s: float) -> None:
    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name = await created(connection, bytes_max=LIMIT_BYTES)
        await session.send(name, b"small")
        await session.send_stream(name, content(), delay_s=delay_s)
        await until_async(lambda: session.is_blocked(name), "the producer is told")
        assert "bytes_max" in session.blocked_reason(name)
        assert session.try_send(name, b"no") is None
        described = (await connection.request("destination.describe", {"name": name})).result
        assert described["bytes_held"] > LIMIT_BYTES > described["bytes"]
        await taken(session, name)
        assert session.is_blocked(name)
        await taken(session, name)
        await asyncio.wait_for(session.unblocked(name), WAIT_S)

    run(broker, scene)


@pytest.mark.parametrize("transacted", [False, True])
def test_nothing_of_a_stream_is_stored_while_its_queue_is_full(broker: Broker, transacted: bool) -> None:
    """Once: all of it was, and only its message waited."""

    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name = await created(connection, bytes_max=LIMIT_BYTES)
        other = await created(connection)
        await (await session.send_stream(name, content()))  # it is full
        async with connection.session(transacted=transacted) as late:
            source = content(5 * LIMIT_BYTES)
            sending = asyncio.create_task(late.send_stream(name, source))
            await until_async(lambda: late.is_blocked(name), "the sender is told")
            assert "bytes_max" in late.blocked_reason(name)
            await (await session.send_stream(other, content(5 * LIMIT_BYTES)))  # nobody else waits
            assert source.tell() < LIMIT_BYTES
            before = 6 * LIMIT_BYTES  # of the two others
            assert sum(file.stat().st_size for file in files(broker)) < 1.1 * before
            await taken(session, name)
            await asyncio.wait_for(sending, WAIT_S)
            if transacted:
                await late.commit()
        await taken(session, name)
        await taken(session, other)

    run(broker, scene)


def test_it_is_full_after_a_restart_as_well(broker: Broker) -> None:
    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name = await created(connection, bytes_max=LIMIT_BYTES)
        await session.send_stream(name, content())
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        async with angarium.connect(broker.address) as other, other.session() as late:
            late.send(name, b"has to wait")
            await until_async(lambda: late.is_blocked(name), "a new producer is told")
            await taken(session, name)
            await late.flush()

    run(broker, scene)


def test_one_that_refuses_does_so(broker: Broker) -> None:
    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name = await created(connection, bytes_max=LIMIT_BYTES, over_limit="refuse")
        await session.send_stream(name, content())
        with pytest.raises(angarium.Rejected) as refused:
            await session.send(name, b"no")
        assert refused.value.code == "destination-full"

    run(broker, scene)


def test_the_oldest_make_room_with_their_content(broker: Broker) -> None:
    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name = await created(connection, bytes_max=3 * LIMIT_BYTES + 10_000, over_limit="oldest")
        for number in range(4):
            await session.send_stream(name, content(), type=str(number))
        dead = await session.receive("_DMQ", WAIT_S)
        assert dead is not None
        assert (dead.type, dead.stream_bytes) == ("0", LIMIT_BYTES)
        await dead.settle()
        assert [message.type async for message in session.browse(name)] == ["1", "2", "3"]

    run(broker, scene)


def test_what_is_only_retained_does_not_count(broker: Broker) -> None:
    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name = await created(connection, bytes_max=LIMIT_BYTES, retain_s=3_600)
        await session.send_stream(name, content())
        await until_async(lambda: session.is_blocked(name), "the producer is told")
        await taken(session, name)
        await asyncio.wait_for(session.unblocked(name), WAIT_S)

    run(broker, scene)


def test_the_node_counts_it(broker: Broker) -> None:
    async def scene(connection: angarium.Connection, session: angarium.Session) -> None:
        name, other = await created(connection), await created(connection)
        await session.send(other, b"before")
        limit = {"key": "destination.node_bytes_max", "value": 50 * LIMIT_BYTES}
        await connection.request("config.set", limit)
        assert not session.is_blocked(other)
        await session.send_stream(name, content(50 * LIMIT_BYTES))
        await until_async(lambda: session.is_blocked(other), "all producers are told")
        assert session.blocked_reason(other).startswith("node-full")
        await taken(session, name)
        await asyncio.wait_for(session.unblocked(other), WAIT_S)
        await connection.request("config.unset", {"key": "destination.node_bytes_max"})

    run(broker, scene)

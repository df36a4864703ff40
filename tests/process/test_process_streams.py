"""Goal: streams through a real broker: any source, both faces, redelivery, transactions, the dead message queue; what
is refused or given up leaves nothing, and ends nothing else.
Method: processes on loopback."""
import asyncio
import io
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import angarium
from angarium import blocking
from angarium.core.stream.blocks import FRAGMENT_BYTES
from tests.process.cli_node import Node as CliNode
from tests.process.process_broker import WAIT_S, Broker, free_port, running, until, until_async
from tests.process.process_streams import asynchronous, content, files, read_all, received


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path) as broker:
        yield broker


# -- sources and sinks -----------------------------------------------------------------------------------


class Slow:
    """An asynchronous source, as asyncio.StreamReader is one."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    async def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, 10_000))


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 100_001):
        yield data[at : at + 100_001]


@pytest.mark.parametrize("size", [0, 1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 1_000_000])
@asynchronous
async def test_every_kind_of_source_arrives_whole(broker: Broker, size: int) -> None:
    data = content(size)
    parts = [data[at : at + 70_000] for at in range(0, size, 70_000)]
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        for source in (io.BytesIO(data), Slow(data), parts, pieces(data)):
            sending = await session.send_stream("files", source, type="t", properties={"n": 1})
            assert await sending
            message = await received(session, "files")
            assert (message.stream_bytes, message.body, message.type, message.properties) == (size, b"", "t", {"n": 1})
            assert await read_all(message) == data
            assert await read_all(message) == data, "as often as one likes"
            message.settle()
        await session.sync()
        await until_async(lambda: not files(broker), "no file is left")


@asynchronous
async def test_an_ordinary_message_opens_as_well(broker: Broker) -> None:
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        session.send("plain", b"abc")
        message = await received(session, "plain")
        assert message.stream_bytes is None
        async with message.open() as stream:
            assert (await stream.read(2), await stream.read(2), await stream.read(2)) == (b"ab", b"c", b"")
        message.settle()


def test_the_blocking_face_reads_and_writes_like_a_file(broker: Broker, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(content())
    with blocking.connect(broker.address) as connection, connection.session() as session:
        with source.open("rb") as file:
            assert session.send_stream("files", file).result()
        message = session.receive("files", WAIT_S)
        assert message is not None
        with message.open() as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file)
        assert target.read_bytes() == source.read_bytes()
        message.settle()
        with session.open_stream("files") as outgoing:
            outgoing.write(b"piece ")
            outgoing.write(b"by piece")
        assert outgoing.sending is not None and outgoing.sending.result()
        message = session.receive("files", WAIT_S)
        assert message is not None and message.open().read() == b"piece by piece"
        message.settle()
        with pytest.raises(ZeroDivisionError), session.open_stream("files") as outgoing:
            outgoing.write(b"x" * 200_000)
            raise ZeroDivisionError
        session.sync()
    until(lambda: not files(broker), "no file is left")


# -- what leaves nothing behind --------------------------------------------------------------------------


class Broken:
    def __init__(self, good_bytes: int) -> None:
        self._left = good_bytes

    def read(self, size: int, /) -> bytes:
        if self._left <= 0:
            raise OSError("the source is broken")
        self._left -= size
        return b"x" * size


@asynchronous
async def test_a_stream_that_fails_or_is_cancelled_leaves_nothing(broker: Broker) -> None:
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        with pytest.raises(OSError, match="the source is broken"):
            await session.send_stream("files", Broken(3_000_000))
        await until_async(lambda: not files(broker), "no file is left")

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 50_000

        task = asyncio.create_task(session.send_stream("files", endless()))
        await until_async(lambda: any(path.stat().st_size > 1_000_000 for path in files(broker)), "the file grows")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(lambda: not files(broker), "no file is left")
        assert await session.receive("files", 0.2) is None
        assert (await connection.request("node.status")).result["streams_open"] == 0


@asynchronous
async def test_a_stream_that_is_refused_ends_nothing_else(broker: Broker) -> None:
    """By its name, by the kind of its destination, by a destination that is gone."""
    async with angarium.connect(broker.address) as other, other.session() as session:
        gone = await session.temporary_queue()
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await session.send(angarium.Queue("files"), b"before")
        for destination, code in (
            ("_ADMIN", "reserved-name"), (angarium.Topic("files"), "wrong-kind"), (gone, "unknown-destination"),
        ):  # fmt: skip
            with pytest.raises(angarium.Rejected) as caught:
                await session.send_stream(destination, io.BytesIO(b"refused"))
            assert caught.value.code == code
            await session.send("files", b"after")
        await (await session.send_stream("files", io.BytesIO(b"taken")))
        assert [await read_all(await received(session, "files")) for _ in range(5)] == [b"before"] + [b"after"] * 3 + [
            b"taken"
        ]


# -- redelivery, transactions, dead messages ---------------------------------------------------------------


@asynchronous
async def test_a_released_stream_comes_again_and_a_rejected_one_rests_with_the_dead(broker: Broker) -> None:
    data = content(300_000)
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(data)))
        message = await received(session, "files")
        message.release()
        message = await received(session, "files")
        assert await read_all(message) == data
        message.reject()
        await session.sync()
        await until_async(lambda: len(files(broker)) == 1, "one file is left")
        async with session.streams.open_reader(-1, 0, len(data), "_DMQ") as stream:
            assert await stream.read() == data, "the dead keep their streams"
        await connection.request("destination.purge", {"name": "_DMQ"})
        await until_async(lambda: not files(broker), "no file is left")


@asynchronous
async def test_a_stream_can_be_read_by_every_subscriber_until_the_last_has_settled(broker: Broker) -> None:
    data = content(300_000)
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        consumers = [session.consume(angarium.Topic("news"), durable=name) for name in ("a", "b")]
        for consumer in consumers:
            await consumer.opened()
        await (await session.send_stream(angarium.Topic("news"), io.BytesIO(data)))
        for consumer in consumers:
            message = await consumer.receive(WAIT_S)
            assert message is not None
            assert len(files(broker)) == 1
            assert await read_all(message) == data
            message.settle()
            await session.sync()
        await until_async(lambda: not files(broker), "no file is left")


@asynchronous
async def test_a_transaction_takes_its_stream_along_or_leaves_nothing(broker: Broker) -> None:
    data = content(300_000)
    async with angarium.connect(broker.address) as connection, connection.session(transacted=True) as session:
        await session.send_stream("files", io.BytesIO(b"given up"))
        await session.rollback()
        await until_async(lambda: not files(broker), "no file is left")
        await session.send_stream("files", io.BytesIO(data))
        async with connection.session() as other:
            assert await other.receive("files", 0.2) is None, "not before the commit"
        await session.commit()
        message = await received(session, "files")
        assert await read_all(message) == data
        await session.rollback()
        message = await received(session, "files")
        assert await read_all(message) == data, "rolled back, it comes again"
        await session.commit()
        await until_async(lambda: not files(broker), "no file is left")


@asynchronous
async def test_a_settled_message_cannot_be_read_any_more(broker: Broker) -> None:
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(content())))
        message = await received(session, "files")
        stream = message.open()
        await stream.read(10)
        message.settle()
        await session.sync()  # a settlement may leave some milliseconds later, and all of it be read by then
        with pytest.raises(angarium.Rejected) as caught:
            await stream.read()
        assert caught.value.code == "stream-gone"


# Once: whoever read it waited for ever.
@asynchronous
async def test_a_message_whose_consumer_was_closed_cannot_be_read_any_more(broker: Broker) -> None:
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(content())))
        async with session.consume("files") as consumer:
            message = await consumer.receive()
            assert message is not None
        with pytest.raises(angarium.Rejected) as caught:
            await message.open().read()
        assert caught.value.code == "not-held"


# -- the command line --------------------------------------------------------------------------------------


def test_files_go_in_and_come_out_by_command(tmp_path: Path) -> None:
    node = CliNode(tmp_path / "data", free_port())
    try:
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(content())
        target.mkdir()
        assert node.run("send", "files", "--stream", str(source)).returncode == 0
        assert node.run("send", "files", "--stream", "-", stdin=b"from a pipe").returncode == 0
        printed = node.run("receive", "files", "--count", "1", "--timeout", "2")
        assert printed.returncode == 1 and b"--output-dir" in printed.stderr
        done = node.run("receive", "files", "--count", "2", "--output-dir", str(target))
        assert done.returncode == 0, done.stderr
        names = [Path(os.fsdecode(line)) for line in done.stdout.splitlines()]
        assert sorted(target.iterdir()) == sorted(names)
        assert {name.read_bytes() for name in names} == {content(), b"from a pipe"}
    finally:
        node.stop()

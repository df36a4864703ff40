"""Goal: streams through a real broker: any source, both faces, redelivery, the dead message queue; kill -9 while they
are sent and while they are received; a flipped bit; a full disk; an abort that leaves nothing.
Method: processes on loopback, content checked by hash."""
import asyncio
import functools
import hashlib
import io
import os
import random
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import angarium
from angarium import blocking
from angarium.core.stream.blocks import BLOCK_BYTES, FRAGMENT_BYTES
from angarium.core.wire.batch import Batch
from tests.process.cli_node import Node as CliNode
from tests.process.process_broker import WAIT_S, Broker, free_port, running, until, until_async
from tests.process.process_traffic import PATIENT

SIZE = 6_000_000


def content(size: int = SIZE, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path) as broker:
        yield broker


@pytest.fixture
def patient_broker(tmp_path: Path) -> Iterator[Broker]:
    """Sessions find what is theirs after a restart, however long that takes."""
    with running(tmp_path, PATIENT) as broker:
        yield broker


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def files(broker: Broker) -> list[Path]:
    return sorted((Path(broker.data) / "streams").iterdir())


async def received(session: angarium.Session, destination: str) -> angarium.Message:
    message = await session.receive(destination, WAIT_S)
    assert message is not None
    return message


async def read_all(message: angarium.Message) -> bytes:
    async with message.open() as stream:
        return await stream.read()


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
async def test_a_killed_sender_leaves_nothing_once_it_is_given_up(tmp_path: Path) -> None:
    with running(tmp_path, {"stream.unfinished_keep_s": 1.0}) as broker:
        connection = await angarium.connect(broker.address)
        session = connection.session()

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 50_000

        task = asyncio.create_task(session.send_stream("files", endless()))
        await until_async(lambda: any(path.stat().st_size > 1_000_000 for path in files(broker)), "the file grows")
        link = connection.driver.link
        assert link is not None and link.transport is not None
        task.cancel()
        connection.driver.link = None  # the process is as good as dead: it never speaks again
        link.transport.abort()
        await until_async(lambda: not files(broker), "no file is left")


# -- kill -9 ---------------------------------------------------------------------------------------------


class Paced:
    """A file that gives a fragment at a time and lets the test act in between."""

    def __init__(self, data: bytes, at: int, act: threading.Event, go_on: threading.Event) -> None:
        self._file = io.BytesIO(data)
        self._at, self._act, self._go_on = at, act, go_on

    def read(self, size: int, /) -> bytes:
        if self._file.tell() >= self._at and not self._act.is_set():
            self._act.set()
            assert self._go_on.wait(WAIT_S)
        return self._file.read(size)


@asynchronous
async def test_a_broker_killed_in_the_middle_of_sending_gets_the_rest_only(patient_broker: Broker) -> None:
    broker = patient_broker
    data = content()
    act, go_on = threading.Event(), threading.Event()
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        task = asyncio.create_task(session.send_stream("files", Paced(data, SIZE // 2, act, go_on)))
        await asyncio.to_thread(act.wait, WAIT_S)
        await until_async(lambda: any(path.stat().st_size > SIZE // 3 for path in files(broker)), "the file grows")
        before = files(broker)[0]
        await broker.restart_after_kill()
        go_on.set()
        await (await task)
        assert files(broker) == [before], "the same stream, gone on with"
        message = await received(session, "files")
        assert await read_all(message) == data
        message.settle()
        await session.sync()


@asynchronous
async def test_a_broker_killed_in_the_middle_of_receiving_goes_on_from_there(patient_broker: Broker) -> None:
    broker = patient_broker
    data = content()
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(data)))
        message = await received(session, "files")
        found = hashlib.sha256()
        async with message.open() as stream:
            count = 0
            async for piece in stream:
                found.update(piece)
                count += 1
                if count == 20:
                    await broker.restart_after_kill()
        assert found.digest() == hashlib.sha256(data).digest()
        message.settle()
        await session.sync()
        assert (await connection.request("node.status")).result["streams"] == 0


@asynchronous
async def test_a_killed_consumer_leaves_the_message_to_another(broker: Broker) -> None:
    data = content()
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(data)))
    first = await angarium.connect(broker.address)
    message = await received(first.session(), "files")
    stream = message.open()
    assert len(await stream.read(1_000)) == 1_000
    link = first.driver.link
    assert link is not None and link.transport is not None
    first.driver.link = None
    link.transport.abort()
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        again = await received(session, "files")
        assert again.redelivery_count == 1
        assert await read_all(again) == data
        again.settle()
        await session.sync()
        await until_async(lambda: not files(broker), "no file is left")


# -- redelivery, dead messages, damage, a full disk ----------------------------------------------------------


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
        with pytest.raises(angarium.Rejected) as caught:
            await stream.read()
        assert caught.value.code == "stream-gone"


@asynchronous
async def test_a_flipped_bit_is_found_reported_and_the_message_set_aside(broker: Broker) -> None:
    data = content()
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(data)))
        await (await session.send_stream("files", io.BytesIO(b"sound")))
        damaged = max(files(broker), key=lambda path: path.stat().st_size)
        with damaged.open("r+b") as file:
            file.seek(10 * BLOCK_BYTES + 5_000)
            byte = file.read(1)[0]
            file.seek(10 * BLOCK_BYTES + 5_000)
            file.write(bytes([byte ^ 1]))
        message = await received(session, "files")
        with pytest.raises(angarium.Rejected) as caught:
            await read_all(message)
        assert caught.value.code == "stream-damaged"
        sound = await received(session, "files")
        assert await read_all(sound) == b"sound"
        sound.settle()
        await session.sync()
        answer = await connection.request("destination.browse", {"name": "_DMQ"})
        dead = Batch.parse(answer.payload)
        assert msgspec.msgpack.decode(dead.headers_of(0))["dead_letter"]["reason"] == "damaged"
        await until_async(lambda: files(broker) == [damaged], "the damaged one stays for whoever wants to look at it")
    broker.until_logged("stream-damaged")


@asynchronous
async def test_a_missing_file_is_reported_at_the_start(broker: Broker) -> None:
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        await (await session.send_stream("files", io.BytesIO(content(100_000))))
    broker.kill()
    files(broker)[0].unlink()
    broker.start()
    broker.until_logged("has no file")


@asynchronous
async def test_a_full_disk_blocks_with_the_reason_and_goes_on(tmp_path: Path) -> None:
    """Full for streams: they leave `free_bytes_min` to messages, so what is above it is as good as gone."""
    free = shutil.disk_usage(tmp_path).free
    with running(tmp_path, PATIENT | {"stream.free_bytes_min": free * 2}) as broker:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            async with session.open_stream("files") as stream:
                writing = asyncio.create_task(stream.write(content()))
                await until_async(lambda: bool(stream.blocked_reason), "it is blocked")
                assert "free_bytes_min" in stream.blocked_reason
                assert not writing.done()
                assert await session.send("small", b"messages still get through")
                broker._settings = PATIENT
                await broker.restart_after_kill()
                await writing
            assert stream.sending is not None
            await stream.sending
            assert not stream.blocked_reason
            message = await received(session, "files")
            assert await read_all(message) == content()
            message.settle()
            await session.sync()


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

"""Goal: whatever fails while streams are sent and received costs nothing that was durable: kill -9 of brokers and
clients, a flipped bit, a missing file, a full disk.
Method: processes on loopback, content checked by hash."""
import asyncio
import hashlib
import io
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

import angarium
from angarium.core.stream.blocks import BLOCK_BYTES
from angarium.core.wire.batch import Batch
from tests.process.process_broker import WAIT_S, Broker, running, until_async
from tests.process.process_streams import SIZE, asynchronous, content, files, read_all, received
from tests.process.process_traffic import PATIENT


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path) as broker:
        yield broker


@pytest.fixture
def patient_broker(tmp_path: Path) -> Iterator[Broker]:
    """Sessions find what is theirs after a restart, however long that takes."""
    with running(tmp_path, PATIENT) as broker:
        yield broker


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


# -- damage, a full disk ------------------------------------------------------------------------------------


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

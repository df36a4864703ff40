"""Goal: a full disk blocks producers with the reason, confirms nothing that is not stored, lets consumers empty it, and
then goes on by itself.
Method: data on a small tmpfs, which root may mount. What was confirmed is known from the producer's handles; what is
stored shows after kill -9."""
import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import angarium
from tests.process.cli_node import run as command
from tests.process.process_broker import MIB, WAIT_S, Broker, running, until_async
from tests.process.process_bulk import BODY_BYTES, BULK, BulkProducer, mounted
from tests.process.process_drain import drain
from tests.process.process_ledger import assert_same, body_of
from tests.process.process_traffic import EAGER, PATIENT


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as path:
        yield path


async def status(address: str) -> tuple[str, str]:
    """Why the node is blocked, and the destination."""
    async with angarium.connect(address) as connection:
        node = (await connection.request("node.status", {})).result
        described = (await connection.request("destination.describe", {"name": BULK.name})).result
        return node["blocked"], described["blocked"]


def test_a_full_disk_blocks_producers_until_consumers_have_emptied_it(tmp_path: Path, small_disk: Path) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            producer = BulkProducer(session, 14_000)  # 56 MB
            producer.start()
            reason = await producer.blocked()
            assert reason.startswith("disk-full: ") and "data.mdb" in reason
            confirmed = producer.confirmed()
            assert 0 < confirmed < len(producer.bodies)
            node, destination = await status(broker.address)
            assert node and destination, "administrators see it as well"
            broker.until_logged("disk-blocked")
            assert producer.confirmed() == confirmed, "nothing is confirmed while nothing can be stored"
            # A consumer that comes only now finds all of it, and makes the room for the rest.
            draining = drain(broker.address, BULK, at_least=len(producer.bodies))
            inbox, _ = await asyncio.gather(draining, producer.finished())
            assert_same(inbox.bodies, producer.bodies)
            assert inbox.disorders == []
            assert not session.is_blocked(BULK)
            assert await status(broker.address) == ("", "")
            broker.until_logged("disk-unblocked")

    with running(tmp_path, data=small_disk / "data") as broker:
        asyncio.run(run())
        assert broker.stop() == 0


def test_producers_go_on_when_somebody_else_makes_room(tmp_path: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send(BULK, body_of("first", 0, BODY_BYTES))
            _fill(filler, small_disk, leave_bytes=2 * MIB)
            producer = BulkProducer(session, 5_000)  # 20 MB
            producer.start()
            await producer.blocked()
            assert producer.confirmed() < len(producer.bodies)
            filler.unlink()
            await producer.finished()
            assert not session.is_blocked(BULK)
            inbox = await drain(broker.address, BULK, at_least=1 + len(producer.bodies))
            assert_same(inbox.bodies, [body_of("first", 0, BODY_BYTES), *producer.bodies])

    with running(tmp_path, data=small_disk / "data") as broker:
        asyncio.run(run())


# Once: nobody told whoever came with a destination that did not exist yet.
def test_who_sends_to_a_new_destination_is_told_why_it_waits(tmp_path: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            _fill(filler, small_disk, leave_bytes=2 * MIB)
            producer = BulkProducer(session, 5_000)
            producer.start()
            await producer.blocked()
            sending = session.send("new", b"waits")
            await until_async(lambda: session.is_blocked("new"), lambda: "told that 'new' is blocked")
            assert session.blocked_reason("new").startswith("disk-full: ")
            assert session.try_send("new", b"does not wait") is None
            waiting = ("send", "newer", "m", "--timeout", "1"), ("receive", "newest", "--timeout", "0")
            for arguments in waiting:
                done = await asyncio.to_thread(command, *arguments, ANGARIUM_ADDRESS=broker.address)
                assert done.returncode == 1 and b": disk-full: " in done.stderr, done.stderr
            assert not sending.done
            filler.unlink()
            await asyncio.wait_for(sending, WAIT_S)
            assert not session.is_blocked("new")
            await producer.finished()

    with running(tmp_path, data=small_disk / "data") as broker:
        asyncio.run(run())


def test_a_blocked_broker_can_be_stopped(tmp_path: Path, small_disk: Path) -> None:
    """It says that something was left unwritten, which nobody was told was written, and has all the rest."""

    async def run() -> int:
        async with angarium.connect(broker.address, reconnect=EAGER) as connection, connection.session() as session:
            producer = BulkProducer(session, 14_000)
            producer.start()
            await producer.blocked()
            confirmed = producer.confirmed()
            assert await asyncio.to_thread(broker.stop) == 1
            assert "none of them was confirmed" in broker.log()
            await asyncio.to_thread(broker.start)
            await _assert_stored(broker, confirmed)
            draining = drain(broker.address, BULK, at_least=len(producer.bodies))
            inbox, _ = await asyncio.gather(draining, producer.finished())
            assert_same(inbox.bodies, producer.bodies)
            return confirmed

    with running(tmp_path, PATIENT, data=small_disk / "data") as broker:
        assert asyncio.run(run()) > 0
        assert broker.stop() == 0


def _fill(filler: Path, disk: Path, *, leave_bytes: int) -> None:
    found = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_frsize - leave_bytes, 4096))


def test_a_broker_killed_on_a_full_disk_starts_there_and_has_what_it_confirmed(
    tmp_path: Path, small_disk: Path
) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address, reconnect=EAGER) as connection, connection.session() as session:
            producer = BulkProducer(session, 14_000)
            producer.start()
            await producer.blocked()
            for _ in range(3):
                confirmed = producer.confirmed()
                await broker.restart_after_kill()
                await until_async(lambda: connection.is_connected, "the producer is back")
                await _assert_stored(broker, confirmed)
            await producer.blocked()
            draining = drain(broker.address, BULK, at_least=len(producer.bodies))
            inbox, _ = await asyncio.gather(draining, producer.finished())
            assert_same(inbox.bodies, producer.bodies)

    with running(tmp_path, PATIENT, data=small_disk / "data") as broker:
        asyncio.run(run())
        assert broker.stop() == 0


async def _assert_stored(broker: Broker, count: int) -> None:
    """What was confirmed before is there: by number now, by hash once it is drained."""
    async with angarium.connect(broker.address) as connection:
        described = (await connection.request("destination.describe", {"name": BULK.name})).result
        assert described["messages"] >= count, described


def test_confirmed_messages_survive_a_kill_on_a_full_disk_without_their_producer(
    tmp_path: Path, small_disk: Path
) -> None:
    async def fill() -> list[bytes]:
        connection = await angarium.connect(broker.address, close_timeout_s=0.1)
        try:
            producer = BulkProducer(connection.session(), 14_000)
            producer.start()
            await producer.blocked()
            broker.kill()
            return producer.bodies[: producer.confirmed()]
        finally:
            with suppress(angarium.Unavailable):  # not all is confirmed: that is the point
                await connection.close()

    with running(tmp_path, {"destination.resume_grace_s": 0.2}, data=small_disk / "data") as broker:
        confirmed = asyncio.run(fill())
        assert len(confirmed) > 1_000
        broker.start()
        inbox = asyncio.run(drain(broker.address, BULK))
    # Some more may be there: written, and killed before the confirm left.
    assert inbox.bodies[: len(confirmed)] == confirmed
    assert inbox.bodies == [body_of("bulk", number, BODY_BYTES) for number in range(len(inbox.bodies))]


def test_a_producer_that_was_idle_when_the_disk_filled_up_is_unblocked_as_well(
    tmp_path: Path, small_disk: Path
) -> None:
    """Only settlements were waiting when the disk was full, and they found room in the reserve: nothing is left that
    would be tried again, and the producer, told to wait, sends nothing either."""
    filler = small_disk / "filler"

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many(BULK, [body_of("p", number, 500) for number in range(1_500)])
            consumer = session.consume(BULK, prefetch=1_500)
            held: list[angarium.Message] = []
            while len(held) < 1_500:
                held += await consumer.receive_batch(1_500, timeout_s=WAIT_S)
            _fill(filler, small_disk, leave_bytes=0)
            for message in held[1::2]:  # holes: nothing of the log can be freed
                message.settle()
                await session.sync()
                if session.is_blocked(BULK):
                    break
            assert session.is_blocked(BULK), "the journal was meant to fill up"
            filler.unlink()
            await until_async(lambda: not session.is_blocked(BULK), "the producer is told to go on")
            await asyncio.wait_for(session.send(BULK, b"after"), WAIT_S)

    with running(tmp_path, {"store.segment_bytes": MIB}, data=small_disk / "data") as broker:
        asyncio.run(run())
        assert broker.stop() == 0


def test_a_disk_that_fills_up_in_the_middle_of_a_stream_blocks_it_until_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    """Really full, to the last block that fits: `free_bytes_min` is 0."""
    filler, content = small_disk / "filler", Random(1).randbytes(12 * MIB)

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            async with session.open_stream("files") as stream:
                await stream.write(content[: 2 * MIB])
                _fill(filler, small_disk, leave_bytes=3 * MIB)
                writing = asyncio.create_task(stream.write(content[2 * MIB :]))
                await until_async(lambda: bool(stream.blocked_reason), "it is blocked")
                assert "bytes are free" in stream.blocked_reason
                assert not writing.done()
                filler.unlink()
                await asyncio.wait_for(writing, WAIT_S)
            assert stream.sending is not None
            await asyncio.wait_for(stream.sending, WAIT_S)
            assert not stream.blocked_reason
            message = await session.receive("files", WAIT_S)
            assert message is not None
            async with message.open() as reading:
                assert await reading.read() == content
            message.settle()
            await session.sync()
            await until_async(lambda: not list((small_disk / "data" / "streams").iterdir()), "its file is gone")

    with running(tmp_path, {"stream.free_bytes_min": 0}, data=small_disk / "data") as broker:
        asyncio.run(run())
        assert broker.stop() == 0


class Abandoned(Exception):
    """The application gives up."""


def test_a_stream_that_is_given_up_on_a_full_disk_makes_room(tmp_path: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            with suppress(Abandoned):
                async with session.open_stream("files") as stream:
                    await stream.write(b"x" * 4 * MIB)
                    _fill(filler, small_disk, leave_bytes=MIB // 2)
                    writing = asyncio.create_task(stream.write(b"y" * 4 * MIB))
                    await until_async(lambda: bool(stream.blocked_reason), "it is blocked")
                    writing.cancel()
                    raise Abandoned
            await until_async(lambda: not list((small_disk / "data" / "streams").iterdir()), "its file is gone")

    with running(tmp_path, {"stream.free_bytes_min": 0}, data=small_disk / "data") as broker:
        asyncio.run(run())
        assert broker.stop() == 0

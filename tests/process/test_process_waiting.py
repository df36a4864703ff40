"""Goal: what nobody asks for leaves when it has expired, and what is sent for later keeps all of itself while it waits:
through kill -9, with a real disk and clock."""
import asyncio
from pathlib import Path
from random import Random

import angarium
from tests.process.process_broker import WAIT_S, Broker, running, until_async


async def waiting(connection: angarium.Connection, name: str) -> int:
    try:
        return int((await connection.request("destination.describe", {"name": name})).result["messages"])
    except angarium.Rejected:
        return 0  # it is made when it is first needed


def test_what_expires_in_a_queue_without_consumers_leaves_by_itself(tmp_path: Path) -> None:
    async def has_left(connection: angarium.Connection, dead: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while (await waiting(connection, "offers"), await waiting(connection, "_DMQ")) != (1, dead):
            assert loop.time() < deadline, "it has not left in time"
            await asyncio.sleep(0.1)

    async def run(broker: Broker) -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send("offers", b"for ever")
            for _ in range(20):
                await session.send("offers", b"for a moment", ttl_s=0.5)
            await has_left(connection, 20)
            await session.send("offers", b"for a while", ttl_s=1.0)
        await broker.restart_after_kill()
        async with angarium.connect(broker.address) as connection:
            await has_left(connection, 21)

    with running(tmp_path) as broker:
        asyncio.run(run(broker))
        assert broker.stop() == 0


def test_a_stream_for_later_outlives_its_sender_and_the_broker(tmp_path: Path) -> None:
    content = Random(1).randbytes(3_000_000)

    async def run(broker: Broker) -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            async with session.open_stream("files", delay_s=4.0) as stream:
                await stream.write(content)
            assert stream.sending is not None
            await stream.sending
        files = Path(broker.data) / "streams"
        assert len(list(files.iterdir())) == 1, "its sender has gone"
        await broker.restart_after_kill()
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            message = await session.receive("files", WAIT_S)
            assert message is not None
            async with message.open() as reading:
                assert await reading.read() == content
            message.settle()
            await session.sync()
            await until_async(lambda: not list(files.iterdir()), "its file is gone")

    with running(tmp_path, {"stream.unfinished_keep_s": 1.0}) as broker:
        asyncio.run(run(broker))
        assert broker.stop() == 0

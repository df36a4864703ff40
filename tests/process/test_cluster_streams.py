"""Goal: a body of any length survives the primary that was taking it, and the one that was giving it.
Method: a real cluster, kill -9 in the middle, content compared by hash."""
import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import angarium
from tests.process.cluster_processes import running_cluster
from tests.process.process_broker import WAIT_S

_PART_BYTES = 1 << 20
_PARTS = 24


def test_a_stream_goes_on_when_the_primary_is_killed_while_it_is_sent_and_while_it_is_read(tmp_path: Path) -> None:
    chance = random.Random(1)
    parts = [chance.randbytes(_PART_BYTES) for _ in range(_PARTS)]
    wanted = hashlib.sha256(b"".join(parts)).hexdigest()

    async def run() -> None:
        async def content() -> AsyncIterator[bytes]:
            for number, part in enumerate(parts):
                if number == _PARTS // 2:
                    await kill_and_restart()
                yield part

        async def kill_and_restart() -> None:
            primary = await cluster.primary_of("a")
            cluster.kill(primary)
            cluster.start(primary)
            await cluster.until_in_sync("a", 3)

        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await asyncio.wait_for(session.send_stream("films", content()), 2 * WAIT_S)
            message = await session.receive("films", WAIT_S)
            assert message is not None
            found = hashlib.sha256()
            async with message.open() as stream:
                found.update(await stream.read(_PARTS * _PART_BYTES // 3))
                await kill_and_restart()
                while data := await stream.read(_PART_BYTES):
                    found.update(data)
            assert found.hexdigest() == wanted
            await message.settle()

    with running_cluster(tmp_path, client_managers=1) as cluster:
        asyncio.run(run())

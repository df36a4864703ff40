"""Goal: logs of a cluster are read from its backups: also while the primary does nothing at all."""
import asyncio
import signal
from pathlib import Path

import angarium
from angarium.client.log import Log
from tests.process.cluster_processes import running_cluster

COUNT = 3_000


async def bodies_of(log: Log, identity: int, end: int) -> list[bytes]:
    return [body async for piece in log.read(0, end, identity=identity) for body in piece.batch.bodies()]


def test_a_log_is_read_while_its_primary_is_paused_and_after_it_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        sent = [b"%d" % number for number in range(COUNT)]
        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await cluster.asked(connection, "destination.create", name="q", kind="queue", retain_s=3_600)
            for body in sent:
                session.send("q", body)
            await session.flush()
            async with session.consume("q") as consumer:
                for _ in sent:
                    message = await consumer.receive()
                    assert message is not None
                    message.settle()
            group = await cluster.group_of("q")
            await cluster.until_in_sync(group, 3)
            primary = await cluster.primary_of(group)
            log = connection.log("q")
            described = await log.describe()
            end = described.lanes[0].end
            assert end == COUNT
            assert await bodies_of(log, described.identity, end) == sent
            told = {node["name"]: node["log_pages"] for node in (await cluster.status())["nodes"] if node["group"]}
            assert told[primary] == 0 and sum(told.values()) > 0, "by backups, and not by the primary"
            await asyncio.sleep(0.5)  # the backups hear that all of it is committed
            cluster.signal(primary, signal.SIGSTOP)
            found = await asyncio.wait_for(bodies_of(log, described.identity, end), 20)
            assert found == sent
            cluster.kill(primary)
            assert await asyncio.wait_for(bodies_of(log, described.identity, end), 30) == sent
            after = await asyncio.wait_for(log.describe(), 30)
            assert (after.identity, after.lanes[0].end) == (described.identity, COUNT)

    with running_cluster(tmp_path) as cluster:
        asyncio.run(scenario())

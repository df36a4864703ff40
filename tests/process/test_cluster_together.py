"""Goal: one process may be client manager and hold a copy of several groups; all of it fails over together.
Of what one process has, a part can be moved elsewhere, too.
Method: three nodes, each everything, two groups; the primary of both is killed under load."""
import asyncio
import time
from pathlib import Path

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S
from tests.process.process_traffic import Traffic


def test_nodes_that_are_everything_at_once(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=3, groups=2, copies=3, together=True) as cluster:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(1_000)
            primary = await cluster.primary_of("a")
            cluster.kill(primary)
            traffic.note_fault()
            await traffic.more_confirmed(1_000)
            with traffic.slowly():
                cluster.start(primary)
                for group in ("a", "b"):
                    await cluster.until_in_sync(group, 3)
            traffic.note_fault()
            await _move_one_of_two(cluster)
            traffic.note_fault()
            await traffic.more_confirmed(1_000)

        async def run() -> None:
            await Traffic(cluster.addresses).run(faults)

        asyncio.run(run())


async def _move_one_of_two(cluster: Cluster) -> None:
    """From a process that is primary of both groups, which stays primary of one."""
    before = await cluster.primary_of("a")
    assert await cluster.primary_of("b") == before, "the first in rank that is left"
    after = next(name for name in ("node1", "node2", "node3") if name != before)
    async with angarium.connect(cluster.addresses) as connection:
        await connection.request("cluster.move-primary", {"group": "b", "node": after})
    deadline = time.monotonic() + WAIT_S
    while (primaries := [await cluster.primary_of(group) for group in ("a", "b")]) != [before, after]:
        assert time.monotonic() < deadline, f"primaries are {primaries}"
        await asyncio.sleep(0.1)

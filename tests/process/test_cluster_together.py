"""Goal: one process may be client manager and hold a copy of several groups; all of it fails over together.
Method: three nodes, each everything, two groups; the primary of both is killed under load."""
import asyncio
from pathlib import Path

from tests.process.cluster_processes import running_cluster
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

        async def run() -> None:
            await Traffic(cluster.addresses).run(faults)

        asyncio.run(run())

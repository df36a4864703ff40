"""Goal: whichever process of a cluster is killed, paused or restarted, applications go on: nothing confirmed is lost,
nothing is doubled, order holds.
Method: traffic through the public client, on real processes over loopback multicast; see process_traffic.py."""
import asyncio
import signal
from pathlib import Path

import pytest

from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_traffic import Traffic


def _run(cluster: Cluster, faults: "object", seed: int = 0) -> None:
    async def run() -> None:
        await Traffic(cluster.addresses, seed=seed).run(faults)  # type: ignore[arg-type]

    asyncio.run(run())


def test_the_primary_is_killed_and_comes_back(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:

        async def faults(traffic: Traffic) -> None:
            for _ in range(2):
                await traffic.more_confirmed(1_000)
                primary = await cluster.primary_of("a")
                cluster.kill(primary)
                traffic.note_fault()
                await traffic.more_confirmed(1_000)
                with traffic.slowly():
                    cluster.start(primary)
                    await cluster.until_in_sync("a", 3)
            traffic.note_fault()

        _run(cluster, faults)


def test_a_client_manager_is_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:

        async def faults(traffic: Traffic) -> None:
            for name in ("cm1", "cm2"):
                await traffic.more_confirmed(1_000)
                cluster.kill(name)
                traffic.note_fault()
                await traffic.more_confirmed(1_000)
                with traffic.slowly():
                    cluster.start(name)
                    await cluster.until_ready(name)
            traffic.note_fault()

        _run(cluster, faults)


@pytest.mark.parametrize("pause_s", [0.5, 4.0])
def test_a_primary_that_is_paused_and_resumes_harms_nobody(tmp_path: Path, pause_s: float) -> None:
    with running_cluster(tmp_path) as cluster:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(1_000)
            primary = await cluster.primary_of("a")
            cluster.signal(primary, signal.SIGSTOP)
            traffic.note_fault()
            await asyncio.sleep(pause_s)
            cluster.signal(primary, signal.SIGCONT)
            await traffic.more_confirmed(1_000)
            await cluster.until_in_sync("a", 3)
            traffic.note_fault()

        _run(cluster, faults)


def test_a_backup_is_killed_and_resynchronises(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(1_000)
            primary = await cluster.primary_of("a")
            backup = next(name for name in ("a1", "a2", "a3") if name != primary)
            cluster.kill(backup)
            await traffic.more_confirmed(5_000)
            cluster.start(backup)
            await cluster.until_in_sync("a", 3)
            await traffic.more_confirmed(1_000)

        _run(cluster, faults)

"""How long applications wait when a process of a cluster is killed: from kill -9 to the next confirm.

    primary          of the group that the client sends to: until its successor confirms
    client manager   that the client is connected to: until it goes on at another

One client, one message at a time; three copies, two client managers, all on this machine:
`python -m benchmarks.failover`.
"""
import asyncio
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import angarium
from angarium.cli.local_cluster import READY_S_MAX, LocalCluster, LocalNode
from benchmarks.processes import free_port

WAIT_S_MAX = 30.0
PAUSE_S = 0.5


class Stage:
    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def node(self, name: str) -> LocalNode:
        return next(node for node in self.cluster.nodes if node.name == name)

    def kill(self, name: str) -> None:
        process = self.node(name).process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    async def back(self, name: str) -> None:
        """Start it again, and wait until everything is as before."""
        node = self.node(name)
        self.cluster.start_node(node)
        await asyncio.to_thread(self.cluster.await_ready, node, time.monotonic() + READY_S_MAX)
        while True:
            nodes = await self.status()
            if len(nodes) == len(self.cluster.nodes) and all(n["in_sync"] or not n["group"] for n in nodes):
                return
            await asyncio.sleep(0.1)

    async def status(self) -> list[dict[str, Any]]:
        async with angarium.connect(self.cluster.addresses) as connection:
            nodes: list[dict[str, Any]] = (await connection.request("cluster.status", {})).result["nodes"]
            return nodes


async def _gap(session: angarium.Session, kill: Callable[[], Awaitable[None]]) -> float:
    """Seconds from the kill to the confirm of a message that was sent after it."""
    for _ in range(20):
        await session.send("orders", b"before")
    await kill()
    killed = time.perf_counter()
    await asyncio.wait_for(session.send("orders", b"after"), WAIT_S_MAX)
    return time.perf_counter() - killed


async def _measure(stage: Stage, count: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    gaps: dict[str, list[float]] = {"primary": [], "client manager": []}
    async with (
        angarium.connect(stage.cluster.addresses) as connection,
        connection.session() as session,
    ):

        async def kill_primary() -> None:
            killed.append(next(n["name"] for n in await stage.status() if n["primary"]))
            stage.kill(killed[-1])

        async def kill_client_manager() -> None:
            killed.append(connection.node)
            stage.kill(killed[-1])

        for what, kill in (("primary", kill_primary), ("client manager", kill_client_manager)):
            for _ in range(count):
                killed: list[str] = []
                gap_s = await _gap(session, kill)
                gaps[what].append(gap_s)
                say(f"{what} {killed[-1]} killed: next confirm after {gap_s:.3f} s")
                await stage.back(killed[-1])
                await asyncio.sleep(PAUSE_S)
    return gaps


def main(count: Annotated[int, typer.Option(help="Kills of each kind.", min=1)] = 20) -> None:
    console = Console(highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="angarium-failover-", dir="var" if Path("var").is_dir() else None))
    stage = Stage(LocalCluster(directory / "cluster", free_port(), client_managers=2, groups=1, copies=3))
    stage.cluster.write_configuration()
    try:
        stage.cluster.start()
        gaps = asyncio.run(_measure(stage, count, lambda text: console.print(text, markup=False)))
    finally:
        stage.cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    for what, found in gaps.items():
        text = f"{what}: median {statistics.median(found):.2f} s, worst {max(found):.2f} s of {len(found)}"
        console.print(text, markup=False)


if __name__ == "__main__":
    typer.run(main)

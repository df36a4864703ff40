"""How many clients a cluster's client managers hold, and what each costs them: python -m benchmarks.connections

A cluster of two client managers and one group of three copies on this machine; clients in processes of their own, each
with a connection, a session, and a consumer on a queue that it shares with a hundred others. Memory is that of the two
client managers (RSS) with all of them connected, less what they had before, for each client; then one message is sent
to each queue, to show that all of them are served.
"""
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

import angarium
from angarium.cli.local_cluster import LocalCluster
from benchmarks.processes import child_environment, free_port, rss_bytes

CLIENTS_PER_QUEUE = 100
CLIENTS_PER_PROCESS = 1_000
OPENING_MAX = 50  # at once, in one process
SERVED_S_MAX = 120.0


async def _hold(addresses: list[str], first: int, count: int) -> None:
    """Connect so many, say so, then tell how many messages came, until standard input ends."""
    gate = asyncio.Semaphore(OPENING_MAX)
    received = 0
    ending = asyncio.Event()

    async def client(number: int) -> None:
        nonlocal received
        # Half of them at each client manager.
        own = addresses[number % len(addresses) :] + addresses[: number % len(addresses)]
        async with gate:
            connection = angarium.connect(own, connect_timeout_s=SERVED_S_MAX)
            await connection.__aenter__()
            session = connection.session()
            await session.__aenter__()
            consumer = session.consume(f"clients.{number // CLIENTS_PER_QUEUE}", prefetch=10)
            await consumer.opened()
        opened.release()
        while not ending.is_set():
            message = await consumer.receive(timeout_s=1.0)
            if message is not None:
                await message.settle()
                received += 1
        await connection.__aexit__(None, None, None)

    opened = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(client(number)) for number in range(first, first + count)]
    for _ in tasks:
        await opened.acquire()
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    ending.set()
    await asyncio.gather(*tasks)
    print(json.dumps({"received": received}), flush=True)


async def _send_to_all(addresses: list[str], queues: int) -> None:
    async with angarium.connect(addresses) as connection, connection.session() as session:
        for number in range(queues):
            await session.send(f"clients.{number}", b"to one of you")


def _managers_rss(cluster: LocalCluster) -> int:
    managers = [node for node in cluster.nodes if node.name.startswith("cm")]
    return sum(rss_bytes(node.process.pid) for node in managers if node.process is not None)


def main(
    clients: Annotated[int, typer.Option(help="Clients in all.", min=1)] = 5_000,
    hold: Annotated[str, typer.Option(hidden=True, help="What a process of clients is told.")] = "",
) -> None:
    if hold:
        uvloop.run(_hold(**json.loads(hold)))
        return
    console = Console(highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="angarium-connections-", dir="var" if Path("var").is_dir() else None))
    cluster = LocalCluster(directory / "cluster", free_port(), client_managers=2, groups=1, copies=3)
    cluster.write_configuration()
    holders: list[subprocess.Popen[str]] = []
    try:
        cluster.start()
        before, started = _managers_rss(cluster), time.monotonic()
        for first in range(0, clients, CLIENTS_PER_PROCESS):
            told = {"addresses": cluster.addresses, "first": first, "count": min(CLIENTS_PER_PROCESS, clients - first)}
            command = [sys.executable, "-m", "benchmarks.connections", "--hold", json.dumps(told)]
            holders.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
                )
            )
        for holder in holders:
            assert holder.stdout is not None and holder.stdout.readline().strip() == "connected"
        took_s, grown = time.monotonic() - started, _managers_rss(cluster) - before
        queues = -(-clients // CLIENTS_PER_QUEUE)
        asyncio.run(_send_to_all(cluster.addresses, queues))
        outcomes = [json.loads(holder.communicate("\n", timeout=SERVED_S_MAX)[0]) for holder in holders]
        received = sum(outcome["received"] for outcome in outcomes)
    finally:
        for holder in holders:
            if holder.poll() is None:
                holder.kill()
                holder.wait()
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    console.print(
        f"{clients:,} clients on two client managers: connected in {took_s:.1f} s, {grown / clients / 1024:.1f} KiB of "
        f"their memory for each; {received} of {queues} messages received",
        markup=False,
    )
    if received != queues:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

"""What a second and a third copy cost: python -m benchmarks.copies

One producer, one consumer, one client manager, one replica group of 1, 2 and 3 copies, each a process on this machine.
Beside the rate, what the client manager sent: a multicast leaves once, however many hear it. All copies share this
machine's cores and disk, so the rates show that, too; the bytes do not.
"""
import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import angarium
from angarium.cli.local_cluster import LocalCluster
from benchmarks.processes import Role, cpu_s, free_port
from benchmarks.systems.ours import Ours

SETTLED_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Cost:
    copies: int
    rate: float  # messages a second, until the last was settled
    bus_bytes: float  # sent by the client manager by multicast, for each message
    carried_bytes: float  # sent by it over TCP instead, for each message
    manager_cpu_us: float  # of the client manager, for each message
    copies_cpu_us: float  # of all copies together, for each message


async def _manager(address: str, *, copies: int) -> dict[str, Any]:
    """The client manager's status, once all copies hear it by multicast."""
    until = time.monotonic() + SETTLED_S_MAX
    async with angarium.connect(address) as connection:
        while True:
            status: dict[str, Any] = (await connection.request("node.status", {})).result
            bus = status["buses"][0]
            if bus["multicast"] >= copies and not bus["tcp"]:
                return status
            if time.monotonic() > until:
                raise TimeoutError(f"after {SETTLED_S_MAX:g} s the client manager is not heard by {bus['tcp']}")
            await asyncio.sleep(0.2)


def _cpu(cluster: LocalCluster) -> tuple[float, float]:
    """Of the client manager, and of all others together."""
    used = {node.name: cpu_s(node.process.pid) for node in cluster.nodes if node.process is not None}
    manager = used.pop("cm1")
    return manager, sum(used.values())


def measure(directory: Path, *, copies: int, count: int, body_bytes: int, time_s_max: float) -> Cost:
    port = free_port()
    cluster = LocalCluster(directory / f"copies-{copies}", port, client_managers=1, groups=1, copies=copies)
    cluster.write_configuration()
    work = {"port": port, "variant": Ours.fill_variant, "body_bytes": body_bytes, "time_s_max": time_s_max}
    try:
        cluster.start()
        before = asyncio.run(_manager(cluster.addresses[0], copies=copies))
        with (
            Role("consume", Ours.name, {**work, "count": count}, time_s_max=time_s_max) as consumer,
            Role("produce", Ours.name, {**work, "count": count}, time_s_max=time_s_max) as producer,
        ):
            consumer.wait_ready()
            consumer.go()
            producer.wait_ready()
            cpu_before = _cpu(cluster)
            producer.go()
            ended = float(consumer.result()["ended"])
            cpu_after = _cpu(cluster)
            started = float(producer.result()["started"])
        after = asyncio.run(_manager(cluster.addresses[0], copies=copies))
    finally:
        cluster.stop()
    spent = [1e6 * (late - early) / count for early, late in zip(cpu_before, cpu_after, strict=True)]
    sent = after["buses"][0]["sent_bytes"] - before["buses"][0]["sent_bytes"]
    carried = after["carried_bytes"] - before["carried_bytes"]
    return Cost(copies, count / (ended - started), sent / count, carried / count, *spent)


def main(
    count: Annotated[int, typer.Option(help="Messages.", min=1)] = 200_000,
    body_bytes: Annotated[int, typer.Option(help="Of each.", min=1)] = 1_024,
    copies_max: Annotated[int, typer.Option(help="The most copies.", min=1, max=5)] = 3,
    time_s_max: Annotated[float, typer.Option(help="Of one measurement.", min=1)] = 120.0,
) -> None:
    console = Console(highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="angarium-copies-", dir="var" if Path("var").is_dir() else None))
    table = Table(title=f"{count:,} messages of {body_bytes:,} B, 1 producer, 1 consumer, 1 client manager")
    columns = ("copies", "messages/s", "bus B/message", "TCP instead", "client manager CPU µs", "copies CPU µs")
    for column in columns:
        table.add_column(column, justify="right")
    try:
        for copies in range(1, copies_max + 1):
            console.print(f"{copies} copies ...")
            cost = measure(directory, copies=copies, count=count, body_bytes=body_bytes, time_s_max=time_s_max)
            table.add_row(
                str(copies), f"{cost.rate:,.0f}", f"{cost.bus_bytes:,.0f}", f"{cost.carried_bytes:,.0f}",
                f"{cost.manager_cpu_us:.1f}", f"{cost.copies_cpu_us:.1f}",
            )  # fmt: skip
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

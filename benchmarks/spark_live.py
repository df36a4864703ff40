"""What live traffic notices while Spark reads a backlog from a backup.

    python -m benchmarks.spark_live --count 10000000 --rate 20000

A cluster of three copies and two client managers on this machine: one client manager has the live traffic, Spark is
given the other one. Messages go at a fixed rate from one producer to one consumer on a queue of their own: alone, while
Spark reads the log, while it reads the same rows from Parquet, which is what Spark itself costs whoever shares its
machine, and alone again, which tells how much such figures differ by chance; in turns, and medians count.

All of it shares the machine's cores: on two of them Spark alone could use both, so it runs with the lowest priority, as
one would let it. With `--realtime` traffic and nodes, but for Spark's client manager, go before all else, as
docs/guide/operations.md has it for nodes that share their machine. Needs `pip install '.[spark]'`.
"""
import asyncio
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import typer

import angarium
from angarium.cli.local_cluster import LocalCluster
from benchmarks.processes import cpu_of_all_s, free_port
from benchmarks.spark_read import NAME, fill, passed, quiet_session

LIVE = "live"
TICK_S = 0.01
BODY_BYTES = 1024
STAMP_BYTES = 20
LAST = b"last"
LOW_PRIORITY = 19
DRAIN_S_MAX = 30.0
OF_SPARK = "cm2"  # its client manager
LOG, PARQUET = "the log", "Parquet"
PARQUET_S = 15.0  # again and again for so long: it is read faster

Figures = dict[str, float]


async def traffic(address: str, rate: int, is_over: Callable[[], bool]) -> Figures:
    """What came through a second, and how long it took, in milliseconds."""
    latencies: list[float] = []
    async with (
        angarium.connect(address) as producing, producing.session() as producer,
        angarium.connect(address) as consuming, consuming.session() as consumer,
    ):  # fmt: skip
        opened = consumer.consume(LIVE)
        await opened.opened()

        async def take() -> None:
            async for message in opened:
                message.settle()
                if message.body == LAST:
                    return
                latencies.append(time.monotonic() - float(message.body[:STAMP_BYTES]))

        taking = asyncio.create_task(take())
        began, sent = time.monotonic(), 0
        while not is_over():
            now = time.monotonic()
            due = int((now - began) * rate)
            body = (b"%-20.6f" % now).ljust(BODY_BYTES, b"x")
            await producer.send_many(LIVE, [body] * (due - sent))
            sent = due
            await asyncio.sleep(max(0.0, TICK_S - (time.monotonic() - now)))
        took_s = time.monotonic() - began
        await producer.send(LIVE, LAST)
        await asyncio.wait_for(taking, DRAIN_S_MAX)
    cuts = quantiles(latencies, n=100)
    return {"rate": len(latencies) / took_s, "p50_ms": 1e3 * cuts[49], "p99_ms": 1e3 * cuts[98], "seconds": took_s}


def step_back() -> None:
    """Whoever else wants to run goes first. Linux shares the processor between sessions of processes before it looks
    at their priorities (autogroup): so this becomes a session of its own, and that steps back."""
    os.setsid()
    os.nice(LOW_PRIORITY)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):  # a kernel without such groups
        Path("/proc/self/autogroup").write_text(str(LOW_PRIORITY))


def step_forward(pids: Iterable[int]) -> None:
    """All threads of these processes go before whatever is not real-time."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))


def read(address: str, count: int, cores: int, files: str, told: Any) -> None:
    """A process of its own: all that is stored, into nothing, from where it is told to."""
    step_back()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = quiet_session(cores)
    frame = spark.read.format("angarium").options(address=address, subscribe=NAME).load()
    frame.write.parquet(files)
    parquet = spark.read.parquet(files)
    told.send("started")
    while source := told.recv():
        began, rounds = time.perf_counter(), 0
        while rounds == 0 or (source == PARQUET and time.perf_counter() - began < PARQUET_S):
            passed(parquet if source == PARQUET else frame)
            rounds += 1
        told.send(rounds * count / (time.perf_counter() - began))
    spark.stop()


class Beside:
    """Spark in its process, and the nodes, whose time on the processors is told."""

    def __init__(self, cluster: LocalCluster, rate: int, seconds: float, reader: Any) -> None:
        self._cluster = cluster
        self._rate = rate
        self._seconds = seconds
        self._reader = reader

    def alone(self, label: str) -> Figures:
        until = time.monotonic() + self._seconds
        return self._measured(label, lambda: time.monotonic() > until)

    def reading(self, source: str) -> Figures:
        self._reader.send(source)
        found = self._measured(f"while Spark reads {source}", self._reader.poll)
        typer.echo(f"    Spark read {self._reader.recv():,.0f} messages a second")
        return found

    def _measured(self, label: str, is_over: Callable[[], bool]) -> Figures:
        before = self._cpu_s()
        found = asyncio.run(traffic(self._cluster.addresses[0], self._rate, is_over))
        busy = ", ".join(
            f"{name} {(used - before[name]) / found['seconds']:.0%}" for name, used in self._cpu_s().items()
        )
        typer.echo(
            f"{label}: {found['rate']:,.0f} messages/s of {BODY_BYTES:,} B for {found['seconds']:.0f} s, "
            f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms from send to reception\n    of a core: {busy}"
        )
        return found

    def _cpu_s(self) -> dict[str, float]:
        nodes = {node.name: node.process.pid for node in self._cluster.nodes if node.process is not None}
        return {name: cpu_of_all_s(pid) for name, pid in nodes.items()} | {"traffic": time.process_time()}


def main(
    count: Annotated[int, typer.Option(help="Messages that Spark reads.")] = 10_000_000,
    size: Annotated[int, typer.Option(help="Bytes of each of them.")] = 100,
    rate: Annotated[int, typer.Option(help="Live messages a second.")] = 10_000,
    seconds: Annotated[float, typer.Option(help="Of live traffic without Spark, in each round.")] = 20.0,
    rounds: Annotated[int, typer.Option(help="Of all four; medians count.")] = 3,
    cores: Annotated[int, typer.Option(help="Of Spark.")] = 2,
    realtime: Annotated[bool, typer.Option(help="Nodes and live traffic go before all else.")] = False,
) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once, not in every process
    directory = Path(tempfile.mkdtemp())
    cluster = LocalCluster(directory, free_port(), client_managers=2, groups=1, copies=3)
    cluster.write_configuration()
    try:
        cluster.start()
        for_traffic, for_spark = cluster.addresses
        fill(for_traffic, count, size)
        spawned = multiprocessing.get_context("spawn")
        here, there = spawned.Pipe()
        files = str(directory / "parquet")
        reader = spawned.Process(target=read, args=(for_spark, count, cores, files, there))
        reader.start()
        here.recv()  # Spark has started
        if realtime:
            forward = [node for node in cluster.nodes if node.name != OF_SPARK]
            step_forward([os.getpid(), *(node.process.pid for node in forward if node.process is not None)])
        measured = Beside(cluster, rate, seconds, here)
        measured.alone("not counted")
        found: dict[str, list[Figures]] = {"alone": [], LOG: [], PARQUET: [], "alone again": []}
        for _ in range(rounds):
            found["alone"].append(measured.alone("alone"))
            for source in (LOG, PARQUET):
                found[source].append(measured.reading(source))
            found["alone again"].append(measured.alone("alone again"))
        here.send("")
        reader.join()
        for source in (LOG, PARQUET):
            _compare(f"Spark reads {source}", found["alone"] + found["alone again"], found[source])
        _compare("without Spark, twice", found["alone"], found["alone again"])
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _compare(label: str, first: list[Figures], second: list[Figures]) -> None:
    figures = []
    for name, unit in (("rate", ""), ("p50_ms", " ms"), ("p99_ms", " ms")):
        one, other = (median(each[name] for each in rounds) for rounds in (first, second))
        figures.append(f"{name.removesuffix('_ms')} {one:,.1f} -> {other:,.1f}{unit} ({other / one - 1:+.0%})")
    typer.echo(f"{label}, medians: {', '.join(figures)}")


if __name__ == "__main__":
    typer.run(main)

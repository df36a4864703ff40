"""What live traffic notices while Spark reads a backlog from a backup.

    python -m benchmarks.spark_live --count 10000000 --rate 20000

A cluster of three copies and two client managers on this machine: one client manager has the live traffic, Spark is
given the other one. Messages go at a fixed rate from one producer to one consumer on a queue of their own, alone first,
then for as long as Spark reads. All of it shares the machine's cores: on two of them Spark alone could use both, so it
runs with the lowest priority (`nice`), as one would let it. Needs `pip install '.[spark]'`.
"""
import asyncio
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

import angarium
from angarium.cli.local_cluster import LocalCluster
from benchmarks.processes import free_port
from benchmarks.spark_read import NAME, fill, passed

LIVE = "live"
TICK_S = 0.01
BODY_BYTES = 1024
STAMP_BYTES = 20
LAST = b"last"
LOW_PRIORITY = 19
DRAIN_S_MAX = 30.0


async def traffic(address: str, rate: int, is_over: Callable[[], bool]) -> dict[str, float]:
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


def read(address: str, count: int, cores: int, told: Any) -> None:
    """A process of its own: all that is stored, into nothing."""
    step_back()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    told.send("started")
    frame = spark.read.format("angarium").options(address=address, subscribe=NAME).load()
    began = time.perf_counter()
    passed(frame)
    told.send(count / (time.perf_counter() - began))
    spark.stop()


def main(
    count: Annotated[int, typer.Option(help="Messages that Spark reads.")] = 10_000_000,
    size: Annotated[int, typer.Option(help="Bytes of each of them.")] = 100,
    rate: Annotated[int, typer.Option(help="Live messages a second.")] = 10_000,
    seconds: Annotated[float, typer.Option(help="Of live traffic without Spark.")] = 20.0,
    cores: Annotated[int, typer.Option(help="Of Spark.")] = 2,
) -> None:
    directory = Path(tempfile.mkdtemp())
    cluster = LocalCluster(directory, free_port(), client_managers=2, groups=1, copies=3)
    cluster.write_configuration()
    try:
        cluster.start()
        for_traffic, for_spark = cluster.addresses
        fill(for_traffic, count, size)
        until = time.monotonic() + seconds
        alone = asyncio.run(traffic(for_traffic, rate, lambda: time.monotonic() > until))
        typer.echo(f"alone: {_figures(alone)}")
        spawned = multiprocessing.get_context("spawn")
        here, there = spawned.Pipe()
        reader = spawned.Process(target=read, args=(for_spark, count, cores, there))
        reader.start()
        here.recv()  # Spark has started
        beside = asyncio.run(traffic(for_traffic, rate, lambda: here.poll()))
        typer.echo(f"while Spark reads {here.recv():,.0f} messages a second: {_figures(beside)}")
        reader.join()
        typer.echo(f"rate {beside['rate'] / alone['rate'] - 1:+.0%}, p99 {beside['p99_ms'] / alone['p99_ms'] - 1:+.0%}")
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _figures(found: dict[str, float]) -> str:
    return (
        f"{found['rate']:,.0f} messages/s of {BODY_BYTES:,} B for {found['seconds']:.0f} s, "
        f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms from send to reception"
    )


if __name__ == "__main__":
    typer.run(main)

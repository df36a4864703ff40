"""Angarium through its own Python client: confirmed means fdatasync, grouped.

In by `send_many`; out by `receive_batch`, every message settled. There is one way to use it: batches form by
themselves from what is waiting.
"""
import asyncio
import importlib.metadata
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import angarium
from benchmarks.processes import Launch
from benchmarks.systems.contract import Deadline, Filled, Ready, Received, Send, Variant, Work, bodies

QUEUE = "bench"
CHUNK_COUNT = 100_000  # messages between two looks at the clock
PREFETCH = 20_000
RECEIVE_COUNT = 10_000
CALL_S_MAX = 30.0


class Ours:
    name = "ours"
    title = "Angarium"
    durability = "journal and LMDB, fdatasync before each confirm, grouped; 1 copy"
    variants = (
        Variant(
            "client", f"send_many; receive_batch of up to {RECEIVE_COUNT:,} with prefetch {PREFETCH:,}, settled; uvloop"
        ),
    )
    fill_variant = "client"

    def missing(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        return {"angarium": importlib.metadata.version("angarium"), "lmdb": importlib.metadata.version("lmdb")}

    def launch(self, data: Path, port: int) -> Launch:
        options = ["--data", str(data), "--listen", f"127.0.0.1:{port}"]
        return Launch([sys.executable, "-m", "angarium.cli.main", "up", *options], "ready")

    async def prepare(self, work: Work) -> None:
        pass  # a queue is created on first use

    async def produce(self, work: Work, ready: Ready) -> Filled:
        source, deadline = bodies(work), Deadline(work.time_s_max)
        async with angarium.connect(_address(work.port)) as connection, connection.session() as session:
            ready()
            started, sent = time.monotonic(), 0
            while sent < work.count and not deadline.over:
                sent += await session.send_many(QUEUE, islice(source, CHUNK_COUNT))
            return Filled(sent, started, time.monotonic())

    async def consume(self, work: Work, ready: Ready) -> float:
        async with angarium.connect(_address(work.port)) as connection, connection.session() as session:
            consumer = session.consume(QUEUE, prefetch=PREFETCH)
            await consumer.opened()
            ready()
            received = Received(work)
            while received.left:
                messages = await consumer.receive_batch(min(RECEIVE_COUNT, received.left), CALL_S_MAX)
                for message in messages:
                    message.settle()
                received.add([len(message.body) for message in messages])
            await session.sync()  # the settlements are durable
            ended = time.monotonic()
            received.check()
            return ended

    @asynccontextmanager
    async def sending(self, work: Work) -> AsyncIterator[Send]:
        async with angarium.connect(_address(work.port)) as connection, connection.session() as session:
            yield lambda body: session.send(QUEUE, body)

    @asynccontextmanager
    async def taking(self, work: Work, arrived: Callable[[], None]) -> AsyncIterator[None]:
        async def take(consumer: angarium.Consumer) -> None:
            async for message in consumer:
                arrived()
                message.settle()

        async with angarium.connect(_address(work.port)) as connection, connection.session() as session:
            consumer = session.consume(QUEUE)
            await consumer.opened()
            taking = asyncio.create_task(take(consumer))
            yield
            taking.cancel()

    async def first(self, work: Work, ready: Ready) -> float:
        ready()
        policy = angarium.ReconnectPolicy()
        async with (
            angarium.connect(_address(work.port), connect_timeout_s=work.time_s_max, reconnect=policy) as connection,
            connection.session() as session,
        ):
            await session.receive(QUEUE, timeout_s=CALL_S_MAX)
            return time.monotonic()


class OursReplicated(Ours):
    name = "ours-3"
    title = "Angarium, 3 copies"
    durability = "3 copies in processes of their own, fdatasync on each before a confirm; 1 client manager"

    def launch(self, data: Path, port: int) -> Launch:
        options = ["--data", str(data / "cluster"), "--base-port", str(port), "--cms", "1", "--groups", "1"]
        command = [sys.executable, "-m", "angarium.cli.main", "cluster", "up", *options, "--copies", "3"]
        return Launch(command, "ready")


def _address(port: int) -> str:
    return f"angarium://127.0.0.1:{port}"

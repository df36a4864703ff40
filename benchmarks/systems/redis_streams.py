"""Redis streams through redis-py: append-only file, synchronised before every reply.

In by XADD in pipelines; out by XREADGROUP, settled by XACK and an XTRIM up to what was settled, in the same
pipeline as the next read. `one` keeps a producer's order; `four` gives up order for speed by pipelining on four
connections at once.
"""
import asyncio
import importlib.metadata
import importlib.util
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.processes import Launch
from benchmarks.systems.contract import Deadline, Filled, Ready, Received, Send, Variant, Work, bodies

STREAM, GROUP, CONSUMER = "bench", "bench", "bench"
FIELD = b"d"
PIPELINE_COUNT = 1_000
READ_COUNT = 1_000
BLOCK_MS = 5_000
CONNECTIONS = {"one": 1, "four": 4}


class RedisStreams:
    name = "redis"
    title = "Redis streams"
    durability = "appendonly yes, appendfsync always, no snapshots, 1 copy"
    variants = tuple(
        Variant(
            name,
            f"XADD in pipelines of {PIPELINE_COUNT:,} on {count} connection{'s, unordered' if count > 1 else ''}; "
            f"XREADGROUP of {READ_COUNT:,} with XACK and XTRIM; uvloop",
        )
        for name, count in CONNECTIONS.items()
    )
    fill_variant = "one"

    def missing(self) -> str:
        if importlib.util.find_spec("redis") is None:
            return "redis-py is not installed: pip install 'redis[hiredis]'"
        if shutil.which("redis-server") is None:
            return "redis-server is not installed: apt-get install redis-server"
        return ""

    def versions(self) -> dict[str, str]:
        server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
        hiredis = importlib.util.find_spec("hiredis")
        return {
            "redis-server": server.stdout.split("v=")[1].split()[0],
            "redis-py": importlib.metadata.version("redis"),
            "hiredis": importlib.metadata.version("hiredis") if hiredis else "not installed (a slower parser is used)",
        }

    def launch(self, data: Path, port: int) -> Launch:
        options = {
            "port": str(port), "bind": "127.0.0.1", "dir": str(data), "save": "",
            "appendonly": "yes", "appendfsync": "always",
            "stream-node-max-bytes": "65536", "stream-node-max-entries": "1000",
        }  # fmt: skip
        flags = [part for key, value in options.items() for part in (f"--{key}", value)]
        return Launch(["redis-server", *flags], "Ready to accept connections")

    async def prepare(self, work: Work) -> None:
        async with _connect(work.port) as redis:
            await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    async def produce(self, work: Work, ready: Ready) -> Filled:
        source, deadline = bodies(work), Deadline(work.time_s_max)
        sent = 0

        async def feed(redis: Any) -> None:
            nonlocal sent
            while (chunk := list(islice(source, PIPELINE_COUNT))) and not deadline.over:
                sent += len(chunk)
                pipeline = redis.pipeline(transaction=False)
                for body in chunk:
                    pipeline.xadd(STREAM, {FIELD: body})
                await pipeline.execute()

        feeders = [_connect(work.port) for _ in range(CONNECTIONS[work.variant])]
        for redis in feeders:
            await redis.ping()
        ready()
        started = time.monotonic()
        await asyncio.gather(*map(feed, feeders))
        ended = time.monotonic()
        for redis in feeders:
            await redis.aclose()
        return Filled(sent, started, ended)

    async def consume(self, work: Work, ready: Ready) -> float:
        async with _connect(work.port) as redis:
            await redis.ping()
            ready()
            received, entries = Received(work), list[Any]()
            while True:
                pipeline = redis.pipeline(transaction=False)
                if entries:
                    pipeline.xack(STREAM, GROUP, *(identity for identity, _ in entries))
                    pipeline.xtrim(STREAM, minid=entries[-1][0], approximate=True)
                if received.left <= 0:
                    await pipeline.execute()
                    received.check()
                    return time.monotonic()
                pipeline.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=READ_COUNT, block=BLOCK_MS)
                entries = _entries((await pipeline.execute())[-1])
                received.add([len(fields[FIELD]) for _, fields in entries])

    @asynccontextmanager
    async def sending(self, work: Work) -> AsyncIterator[Send]:
        async with _connect(work.port) as redis:
            await redis.ping()
            yield lambda body: redis.xadd(STREAM, {FIELD: body})

    @asynccontextmanager
    async def taking(self, work: Work, arrived: Callable[[], None]) -> AsyncIterator[None]:
        async def take(redis: Any) -> None:
            settled: list[Any] = []
            for _ in range(work.count):
                answer: Any = None
                while not answer:
                    pipeline = redis.pipeline(transaction=False)
                    if settled:
                        pipeline.xack(STREAM, GROUP, *settled)
                    pipeline.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=1, block=BLOCK_MS)
                    answer, settled = (await pipeline.execute())[-1], []
                arrived()
                settled = [identity for identity, _ in _entries(answer)]
            await redis.xack(STREAM, GROUP, *settled)

        async with _connect(work.port) as redis:
            taking = asyncio.create_task(take(redis))
            yield
            await taking

    async def first(self, work: Work, ready: Ready) -> float:
        from redis.exceptions import BusyLoadingError, ConnectionError

        ready()
        deadline = Deadline(work.time_s_max)
        while True:
            try:
                async with _connect(work.port) as redis:
                    await redis.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=1, block=BLOCK_MS)
                    return time.monotonic()
            except (OSError, ConnectionError, BusyLoadingError):
                if deadline.over:
                    raise
                await asyncio.sleep(0.02)


def _connect(port: int) -> Any:
    from redis.asyncio import Redis

    return Redis(host="127.0.0.1", port=port)


def _entries(answer: Any) -> list[Any]:
    """Pairs of identity and fields of an XREADGROUP answer for one stream: a list of pairs in RESP2, a map in RESP3."""
    if not answer:
        return []
    return list(next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1])

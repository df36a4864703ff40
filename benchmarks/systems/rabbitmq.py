"""RabbitMQ quorum queues through aio-pika: three nodes on this machine, as durable as they come (a write-ahead log,
synchronised before a confirm by a majority).

In by publishing with confirms, a bounded number in flight; out by a consumer with a prefetch, acknowledging many at
once.
"""
import asyncio
import importlib.metadata
import importlib.util
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.gang import Member, gang_of
from benchmarks.processes import Launch
from benchmarks.systems.contract import Deadline, Filled, Ready, Received, Send, Variant, Work, bodies

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # beside it a wrapper that would change the user
QUEUE = "bench"
NODES = 3
IN_FLIGHT_MAX = 2_000
PREFETCH = 2_000
ACKNOWLEDGE_EVERY = 500
CALL_S_MAX = 30.0


class RabbitQuorum:
    name = "rabbit-3"
    title = "RabbitMQ quorum queue"
    durability = "3 nodes, quorum queue of 3 members, write-ahead log synchronised by a majority before a confirm"
    variants = (
        Variant(
            "client",
            f"aio-pika, confirms, {IN_FLIGHT_MAX:,} in flight; prefetch {PREFETCH:,}, "
            f"acknowledged every {ACKNOWLEDGE_EVERY}; uvloop",
        ),
    )
    fill_variant = "client"

    def missing(self) -> str:
        if importlib.util.find_spec("aio_pika") is None:
            return "aio-pika is not installed: pip install aio-pika"
        if not SERVER.exists():
            return "rabbitmq-server is not installed: apt-get install rabbitmq-server"
        return ""

    def versions(self) -> dict[str, str]:
        told = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"], capture_output=True, text=True, check=False
        )
        return {"rabbitmq-server": told.stdout or "unknown", "aio-pika": importlib.metadata.version("aio-pika")}

    def launch(self, data: Path, port: int) -> Launch:
        names = [f"bench{number + 1}@localhost" for number in range(NODES)]
        lines = ["cluster_formation.peer_discovery_backend = classic_config", "loopback_users = none"]
        lines += [f"cluster_formation.classic_config.nodes.{n + 1} = {name}" for n, name in enumerate(names)]
        (data / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (data / "plugins").write_text("[].\n")
        shared = {
            "ERL_EPMD_PORT": str(port + 30), "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_ERLANG_COOKIE": "bench",
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"), "HOME": str(data),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
        }  # fmt: skip
        members = [Member(["epmd", "-port", str(port + 30)])]  # else the first node leaves one behind
        for number, name in enumerate(names):
            own = {
                "RABBITMQ_NODENAME": name, "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(port + number), "RABBITMQ_DIST_PORT": str(port + 10 + number),
                "RABBITMQ_MNESIA_BASE": str(data / "mnesia"), "RABBITMQ_LOG_BASE": str(data / "log"),
                "RABBITMQ_PID_FILE": str(data / f"{name}.pid"),
            }  # fmt: skip
            members.append(Member([str(SERVER)], "completed with", {**shared, **own}))
        return gang_of(members, data)

    async def prepare(self, work: Work) -> None:
        connection, channel = await _connect(work.port)
        await channel.declare_queue(QUEUE, durable=True, arguments=_ARGUMENTS)
        await connection.close()

    async def produce(self, work: Work, ready: Ready) -> Filled:
        import aio_pika

        connection, channel = await _connect(work.port)
        room = asyncio.Semaphore(IN_FLIGHT_MAX)

        async def publish(body: bytes) -> None:
            message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, QUEUE)
            room.release()

        ready()
        started, sent = time.monotonic(), 0
        source, deadline = bodies(work), Deadline(work.time_s_max)
        async with asyncio.TaskGroup() as group:
            while (chunk := list(islice(source, IN_FLIGHT_MAX))) and not deadline.over:
                for body in chunk:
                    await room.acquire()
                    group.create_task(publish(body))
                sent += len(chunk)
        ended = time.monotonic()
        await connection.close()
        return Filled(sent, started, ended)

    async def consume(self, work: Work, ready: Ready) -> float:
        connection, channel = await _connect(work.port)
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(QUEUE)
        received, done = Received(work), asyncio.Event()

        async def on_message(message: Any) -> None:
            received.add([len(message.body)])
            if received.count % ACKNOWLEDGE_EVERY == 0 or not received.left:
                await message.ack(multiple=True)
            if not received.left:
                done.set()

        await queue.consume(on_message)
        ready()
        await asyncio.wait_for(done.wait(), work.time_s_max)
        ended = time.monotonic()
        received.check()
        await connection.close()
        return ended

    @asynccontextmanager
    async def sending(self, work: Work) -> AsyncIterator[Send]:
        import aio_pika

        connection, channel = await _connect(work.port)

        def send(body: bytes) -> Any:
            message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            return channel.default_exchange.publish(message, QUEUE, timeout=CALL_S_MAX)

        yield send
        await connection.close()

    @asynccontextmanager
    async def taking(self, work: Work, arrived: Callable[[], None]) -> AsyncIterator[None]:
        async def on_message(message: Any) -> None:
            arrived()
            await message.ack()

        connection, channel = await _connect(work.port)
        await (await channel.get_queue(QUEUE)).consume(on_message)
        yield
        await connection.close()

    async def first(self, work: Work, ready: Ready) -> float:
        raise NotImplementedError("the backlog is measured on one node")


_ARGUMENTS = {"x-queue-type": "quorum", "x-quorum-initial-group-size": NODES}


async def _connect(port: int) -> tuple[Any, Any]:
    import aio_pika

    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/", timeout=CALL_S_MAX)
    return connection, await connection.channel(publisher_confirms=True)

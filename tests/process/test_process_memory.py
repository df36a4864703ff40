"""Goal: the broker's memory follows what is in flight, not what is waiting, and not who was there once.
Method: VmRSS of a real broker with its ordinary settings, sampled while it works."""
import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import angarium
from angarium.core.wire import frames
from tests.process.process_broker import MIB, WAIT_S, RssWatch, running, until
from tests.process.process_wire import RawClient, batch

_BACKLOG = 500_000
_BODY_BYTES = 600  # 300 MB in all
_RSS_BYTES_MAX = 200 * MIB
_READY_CPU_S_MAX = 3.0  # of a core, whoever else wants one


def backlog() -> Iterator[bytes]:
    filler = bytes(_BODY_BYTES - 8)
    for number in range(_BACKLOG):
        yield number.to_bytes(8, "big") + filler


async def send_backlog(address: str) -> None:
    async with angarium.connect(address) as connection, connection.session() as session:
        assert await session.send_many("backlog", backlog()) == _BACKLOG


async def drain_backlog(address: str) -> str:
    received, expected = hashlib.sha256(), 0
    async with angarium.connect(address) as connection, connection.session() as session:
        consumer = session.consume("backlog", prefetch=10_000)
        while expected < _BACKLOG:
            messages = await consumer.receive_batch(2_000, timeout_s=WAIT_S)
            assert messages, f"nothing came for {WAIT_S:g} s after {expected} messages"
            for message in messages:
                received.update(message.body)
                message.settle()
            expected += len(messages)
        await session.sync()
    return received.hexdigest()


def test_memory_and_restart_do_not_depend_on_the_backlog(tmp_path: Path) -> None:
    with running(tmp_path, {"store.segment_bytes": None}) as broker:
        with RssWatch(broker.pid) as publishing:
            asyncio.run(send_backlog(broker.address))
        assert publishing.highest_bytes < _RSS_BYTES_MAX
        broker.kill()
        broker.start()
        assert broker.cpu_s() < _READY_CPU_S_MAX
        with RssWatch(broker.pid) as draining:
            received = asyncio.run(drain_backlog(broker.address))
        assert draining.highest_bytes < _RSS_BYTES_MAX
        sent = hashlib.sha256()
        for body in backlog():
            sent.update(body)
        assert received == sent.hexdigest(), "all of it, in order"
        assert broker.stop() == 0


def test_subscriptions_that_are_not_durable_cost_nothing_once_closed(tmp_path: Path) -> None:
    topic = angarium.Topic("passing")

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:

            async def pass_by(number: int) -> None:
                async with session.consume(topic, prefetch=1) as consumer:
                    await consumer.opened()
                    if number % 10 == 0:  # some with a message in their hands
                        await session.send(topic, bytes(200))
                        assert await consumer.receive(timeout_s=WAIT_S) is not None

            async def crowd(count: int) -> None:
                for first in range(0, count, 100):
                    await asyncio.gather(*(pass_by(number) for number in range(first, first + 100)))

            await crowd(200)
            with RssWatch(broker.pid) as watch:
                await crowd(2_000)
                described = (await connection.request("destination.describe", {"name": topic.name})).result
                assert described["subscriptions"] == []
                assert described["consumers"] == described["messages"] == 0
                assert described["first_position"] == described["next_position"] > 0
            assert watch.highest_bytes - watch.first_bytes < 16 * MIB

    with running(tmp_path) as broker:
        asyncio.run(run())
        assert broker.stop() == 0


def test_subscribers_that_vanish_are_forgotten_after_the_grace_time(tmp_path: Path) -> None:
    topic = angarium.Topic("passing")

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            for _ in range(50):
                await asyncio.to_thread(_subscribe_and_vanish, broker.port, topic.name)
            await session.send_many(topic, [bytes(100)] * 100)
            described: list[dict[str, object]] = []

            async def look() -> None:
                described.append((await connection.request("destination.describe", {"name": topic.name})).result)

            await look()
            deadline = asyncio.get_running_loop().time() + WAIT_S
            while described[-1]["subscriptions"] or described[-1]["first_position"] != described[-1]["next_position"]:
                assert asyncio.get_running_loop().time() < deadline, described[-1]
                await asyncio.sleep(0.05)
                await look()
            status = (await connection.request("node.status", {})).result
            assert status["connections"] == 1

    with running(tmp_path, {"destination.resume_grace_s": 0.3}) as broker:
        asyncio.run(run())


def test_connections_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    def come_and_go(number: int) -> None:
        with RawClient(broker.port) as client:
            client.hello()
            client.open_session()
            identity = client.open_producer("visited")
            client.send(1, frames.Publish(1), batch(identity, 1, [bytes(100)]))
            client.send(1, frames.ConsumerOpen(1, "visited", frames.DestinationKind.QUEUE, credit=1))
            client.expect(frames.ConsumerOpened)
            if number % 2:
                client.send(0, frames.Goodbye("done"))
                while client.next() is not None:
                    pass
                assert client.is_closed

    async def look() -> tuple[dict[str, int], dict[str, int]]:
        async with angarium.connect(broker.address) as connection:
            described = (await connection.request("destination.describe", {"name": "visited"})).result
            return (await connection.request("node.status", {})).result, described

    with running(tmp_path, {"destination.resume_grace_s": 0.2}) as broker:
        for number in range(20):
            come_and_go(number)
        with RssWatch(broker.pid) as watch:
            for number in range(200):
                come_and_go(number)
        assert watch.highest_bytes - watch.first_bytes < 16 * MIB

        def is_alone() -> bool:
            status, described = asyncio.run(look())
            counts = (status["sessions"], described["producers"], described["consumers"], described["in_flight"])
            return status["connections"] == 1 and counts == (0, 0, 0, 0)

        until(is_alone, "sessions, producers and consumers are gone")
        assert asyncio.run(look())[1]["messages"] == 220
        assert broker.stop() == 0


def _subscribe_and_vanish(port: int, topic: str) -> None:
    with RawClient(port) as client:
        client.hello()
        client.open_session()
        client.send(1, frames.ConsumerOpen(1, topic, frames.DestinationKind.TOPIC, credit=1_000))
        client.expect(frames.ConsumerOpened)

"""Goal: what one broker does for whoever is slow, blocked, huge or looks for patterns, a cluster does, whichever client
managers those concerned are connected to, and whichever groups have the destinations.
Method: real processes with two client managers and two groups; primaries are killed in between."""
import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import MIB, WAIT_S, RssWatch, until_async
from tests.process.process_traffic import EAGER
from tests.process.process_wire import stalled_consumer

_MESSAGES_MAX = 10
_STREAM_PARTS = 100  # of a MiB
_SLOWEST_S_MAX = 3.0  # of a request and its reply, on two busy processors
_STALLED_BYTES_MAX = 16 * MIB  # of a client manager; its client has asked for 30 MB
_GROWTH_BYTES_MAX = 48 * MIB  # of a node, while more than twice as much goes through it


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("flow"), groups=2, copies=2) as cluster:
        yield cluster


async def _in_both_groups(cluster: Cluster, prefix: str, kind: str, **options: object) -> dict[str, str]:
    """By group, a destination that is there."""
    names: dict[str, str] = {}
    async with angarium.connect(cluster.addresses) as connection:
        for number in range(20):
            if len(names) == 2:
                break
            name = f"{prefix}.{number}"
            await cluster.asked(connection, "destination.create", name=name, kind=kind, **options)
            names.setdefault(await cluster.group_of(name), name)
    assert len(names) == 2, names
    return names


async def _kill_primary(cluster: Cluster, group: str) -> None:
    primary = await cluster.primary_of(group)
    cluster.kill(primary)
    cluster.start(primary)
    await cluster.until_in_sync(group, 2)


def test_a_full_queue_tells_producers_at_every_client_manager_also_after_its_primary_was_killed(
    cluster: Cluster,
) -> None:
    async def run() -> None:
        names = await _in_both_groups(cluster, "full", "queue", messages_max=_MESSAGES_MAX)
        name = names["b"]
        first, second = cluster.addresses
        async with (
            angarium.connect(first, reconnect=EAGER) as one,
            angarium.connect(second, reconnect=EAGER) as other,
            one.session() as filling,
            other.session() as waiting,
        ):
            await waiting.send(name, b"first")
            await filling.send_many(name, [b"x"] * (_MESSAGES_MAX - 1))
            for session in (filling, waiting):
                await until_async(lambda session=session: session.is_blocked(name), "producers are told")  # type: ignore[misc]
                assert f"messages_max is {_MESSAGES_MAX}" in session.blocked_reason(name)
                assert session.try_send(name, b"one more") is None
                await asyncio.wait_for(session.send(names["a"], b"goes on"), WAIT_S)
            await _kill_primary(cluster, "b")
            late = other.session()
            sending = late.send(name, b"late")
            await until_async(lambda: late.is_blocked(name), "whoever comes later is told as well")
            async with other.session() as emptying, emptying.consume(name) as consumer:
                for _ in range(5):
                    message = await consumer.receive(WAIT_S)
                    assert message is not None
                    await message.settle()
                for session in (filling, waiting, late):
                    await asyncio.wait_for(session.unblocked(name), WAIT_S)
                await asyncio.wait_for(filling.send(name, b"goes on"), WAIT_S)
                await asyncio.wait_for(sending, WAIT_S)
            await late.close()

    asyncio.run(run())


def test_who_does_not_read_is_passed_over_by_its_queue_and_delays_nobody(cluster: Cluster) -> None:
    """At one client manager; the others of its queue, and others there, go on. Nothing piles up for it there: what it
    does not take stays with the message manager, on disk."""

    async def run() -> None:
        async with angarium.connect(cluster.addresses[1]) as connection, connection.session() as session:
            managers = [node["pid"] for node in (await cluster.status())["nodes"] if node["role"] == "cm"]
            with ExitStack() as stack:
                watches = [stack.enter_context(RssWatch(pid)) for pid in managers]
                await session.send_many("shared", [bytes(1_000)] * 30_000)
                taken = 0
                described = {"messages": 30_000, "in_flight": 0}
                async with session.consume("shared") as consumer:
                    while described["messages"] > described["in_flight"]:
                        while (message := await consumer.receive(0.2)) is not None:
                            await message.settle()
                            taken += 1
                        await session.sync()
                        described = (await connection.request("destination.describe", {"name": "shared"})).result
                beside = await _round_trips(cluster.addresses[0], "beside.stalled", 50)
            assert taken >= 15_000, "what the stalled connection's buffers took, and no more"
            assert described["messages"] == described["in_flight"] == 30_000 - taken
            assert max(beside) < _SLOWEST_S_MAX, beside
            grown = [watch.highest_bytes - watch.first_bytes for watch in watches]
            assert max(grown) < _STALLED_BYTES_MAX, grown

    port = int(cluster.addresses[0].rpartition(":")[2])
    with stalled_consumer(port, "shared"):
        asyncio.run(run())


async def _round_trips(address: str, queue: str, count: int) -> list[float]:
    async with angarium.connect(address) as connection, connection.session() as session:
        consumer = session.consume(queue, prefetch=1)
        return [await _round_trip(session, consumer, queue) for _ in range(count)]


async def _round_trip(session: angarium.Session, consumer: angarium.Consumer, queue: str) -> float:
    began = time.monotonic()
    session.send(queue, b"request")
    message = await consumer.receive(WAIT_S)
    assert message is not None
    message.settle()
    return time.monotonic() - began


def test_a_pattern_finds_topics_of_all_groups_whoever_makes_them_and_whichever_primary_dies(cluster: Cluster) -> None:
    async def run() -> None:
        first, second = cluster.addresses
        async with (
            angarium.connect(first, reconnect=EAGER) as here,
            angarium.connect(second, reconnect=EAGER) as there,
            here.session() as session,
            there.session() as sender,
        ):
            for pattern in ("news.glob.**", angarium.Pattern("news[.]expression[.].*", "regex")):
                async with session.consume_matching(pattern, prefetch=10) as consumer:
                    await consumer.opened()
                    for round_ in ("before", "after"):
                        prefix = f"news.{'glob' if isinstance(pattern, str) else 'expression'}.{round_}"
                        names = await _in_both_groups(cluster, prefix, "topic")
                        await sender.send(angarium.Topic("other.topic"), b"not for us")
                        for name in names.values():
                            await until_async(lambda name=name: name in consumer.destinations, f"{name} is merged")  # type: ignore[misc]
                            await sender.send(angarium.Topic(name), name.encode())
                        found = {await _next(consumer) for _ in names}
                        assert found == {(name, name.encode()) for name in names.values()}
                        await _kill_primary(cluster, "b" if round_ == "before" else "a")

    asyncio.run(run())


def test_queues_of_all_groups_are_browsed_by_a_pattern(cluster: Cluster) -> None:
    async def run() -> None:
        names = await _in_both_groups(cluster, "shelf", "queue")
        async with angarium.connect(cluster.addresses[0]) as connection, connection.session() as session:
            for name in names.values():
                await session.send(name, name.encode())
            found = [(message.destination, message.body) async for message in session.browse_matching("shelf.*")]
            assert sorted(found) == sorted((name, name.encode()) for name in names.values())

    asyncio.run(run())


async def _next(consumer: angarium.PatternConsumer) -> tuple[str, bytes]:
    message = await consumer.receive(WAIT_S)
    assert message is not None
    message.settle()
    return message.destination, message.body


def test_a_huge_message_takes_little_memory_of_any_node_and_delays_nobody_on_its_connection(cluster: Cluster) -> None:
    part = random.Random(1).randbytes(MIB)
    wanted = hashlib.sha256(part * _STREAM_PARTS).hexdigest()

    async def content() -> AsyncIterator[bytes]:
        for _ in range(_STREAM_PARTS):
            yield part

    async def run() -> None:
        nodes = [node["pid"] for node in (await cluster.status())["nodes"]]
        async with angarium.connect(cluster.addresses[0]) as connection, connection.session() as session:
            asking, beside = connection.session(), connection.session()
            consumer = beside.consume("beside.huge", prefetch=1)
            with ExitStack() as stack:
                watches = [stack.enter_context(RssWatch(pid)) for pid in nodes]
                sending = asyncio.create_task(session.send_stream("huge", content()))
                trips = [await _round_trip(asking, consumer, "beside.huge")]
                while not sending.done():
                    trips.append(await _round_trip(asking, consumer, "beside.huge"))
                await (await sending)
                message = await session.receive("huge", WAIT_S)
                assert message is not None
                found = hashlib.sha256()
                async with message.open() as stream:
                    while data := await stream.read(MIB):
                        found.update(data)
                        trips.append(await _round_trip(asking, consumer, "beside.huge"))
            assert found.hexdigest() == wanted
            await message.settle()
            grown = {pid: watch.highest_bytes - watch.first_bytes for pid, watch in zip(nodes, watches, strict=True)}
            print(f"{len(trips)} round trips, slowest {max(trips):.3f} s; grown by {sorted(grown.values())}")
            assert len(trips) > _STREAM_PARTS and max(trips) < _SLOWEST_S_MAX
            assert max(grown.values()) < _GROWTH_BYTES_MAX, grown
            await asking.close()
            await beside.close()

    asyncio.run(run())

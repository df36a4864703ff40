"""Goal: batches follow the load, consumers share fairly, and flow can be changed while it flows.
Method: what the store counts (groups) and what browsing shows (batches) against what was sent."""
import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import angarium
from tests.process.process_broker import WAIT_S, Broker, running
from tests.process.process_ledger import assert_same, body_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("flow")) as broker:
        yield broker


async def groups(connection: angarium.Connection) -> int:
    return int((await connection.request("node.status", {})).result["store"]["groups"])


async def batches(connection: angarium.Connection, name: str) -> list[int]:
    """How many messages each stored batch holds."""
    counts: list[int] = []
    place, end = 0, 1
    while place < end:
        arguments = {"name": name, "place": place, "count": 1_000_000}
        result = (await connection.request("destination.browse", arguments)).result
        counts += [part["count"] for part in result["parts"]]
        place, end = result["next"], result["end"]
    return counts


def test_an_idle_producers_message_travels_alone_and_at_once(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send("idle", b"first")  # opens the producer
            before = await groups(connection)
            taken: list[float] = []
            for _ in range(50):
                began = time.monotonic()
                await session.send("idle", b"x")
                taken.append(time.monotonic() - began)
            assert await batches(connection, "idle") == [1] * 51
            assert await groups(connection) - before == 50
            # One write and one sync. Of a busy machine's only the fastest tell; a batch that waits, waits every time.
            assert sorted(taken)[5] < 0.02

    asyncio.run(run())


def test_under_load_batches_and_groups_are_large(broker: Broker) -> None:
    count = 50_000

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send("busy", b"first")
            before = await groups(connection)
            for number in range(count):  # the same call as above, only more often
                session.send("busy", b"%d" % number)
                if number % 1_000 == 0:
                    await asyncio.sleep(0)
            await session.flush()
            stored = await batches(connection, "busy")
            assert sum(stored) == count + 1
            assert count / len(stored) > 100, f"{len(stored)} batches for {count} messages"
            assert count / (await groups(connection) - before) > 100

    asyncio.run(run())


def test_many_producers_share_their_syncs(broker: Broker) -> None:
    """A group commit takes what has come from everybody."""

    async def run() -> None:
        async with angarium.connect(broker.address) as connection:
            sessions = [connection.session() for _ in range(20)]
            for number, session in enumerate(sessions):
                await session.send(f"shared.{number % 4}", b"first")
            before = await groups(connection)

            async def send(session: angarium.Session, name: str) -> None:
                for _ in range(50):
                    await session.send(name, b"x")

            await asyncio.gather(*(send(session, f"shared.{n % 4}") for n, session in enumerate(sessions)))
            assert await groups(connection) - before < 20 * 50 / 3

    asyncio.run(run())


def test_prefetch_can_be_changed_while_messages_flow(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("prefetch", [b"%d" % number for number in range(200)])
            consumer = session.consume("prefetch", prefetch=10)

            async def in_flight(expected: int) -> None:
                deadline = time.monotonic() + WAIT_S
                found: dict[str, Any] = {}
                while found.get("in_flight") != expected:
                    assert time.monotonic() < deadline, found
                    found = (await connection.request("destination.describe", {"name": "prefetch"})).result

            async def take(count: int) -> list[angarium.Message]:
                taken: list[angarium.Message] = []
                while len(taken) < count:
                    taken += await consumer.receive_batch(count - len(taken), timeout_s=WAIT_S)
                return taken

            held = await take(10)
            assert await consumer.receive(timeout_s=0.1) is None, "ten are held: no more until some are settled"
            consumer.set_prefetch(50)
            held += await take(40)
            await in_flight(50)
            consumer.set_prefetch(5)
            for message in held[:20]:
                message.settle()
            await session.sync()
            assert await consumer.receive(timeout_s=0.1) is None, "thirty are still held, five are allowed"
            await in_flight(30)
            for message in held[20:48]:
                message.settle()
            held = held[48:] + await take(3)
            await in_flight(5)
            assert [int(message.body) for message in held] == [48, 49, 50, 51, 52]
            for message in held:
                message.settle()

    asyncio.run(run())


def test_competing_consumers_share_fairly(broker: Broker) -> None:
    count = 10_000
    bodies = [body_of("p", number) for number in range(count)]

    async def run() -> None:
        got: dict[str, list[bytes]] = {"left": [], "right": []}
        ready = {name: asyncio.Event() for name in got}

        async def consume(name: str) -> None:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                consumer = session.consume("fair", prefetch=100)
                await consumer.opened()
                ready[name].set()
                async for message in consumer:
                    got[name].append(message.body)
                    await message.settle()
                    if sum(map(len, got.values())) == count:
                        await session.sync()
                        return

        async with angarium.connect(broker.address) as connection, connection.session() as session:
            tasks = [asyncio.create_task(consume(name)) for name in got]
            for event in ready.values():
                await asyncio.wait_for(event.wait(), WAIT_S)
            for first in range(0, count, 100):
                for body in bodies[first : first + 100]:
                    session.send("fair", body)
                await session.flush()
            await asyncio.wait_for(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED), WAIT_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert_same(got["left"] + got["right"], bodies)
        shares = {name: len(mine) / count for name, mine in got.items()}
        assert all(0.4 <= share <= 0.6 for share in shares.values()), shares

    asyncio.run(run())


def test_one_burst_is_shared_by_all_who_have_room(broker: Broker) -> None:
    count = 1_000

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            consumers = [session.consume("burst", prefetch=count) for _ in range(2)]
            for consumer in consumers:
                await consumer.opened()
            for number in range(count):
                session.send("burst", b"%d" % number)
            await session.flush()
            held = [0, 0]
            while sum(held) < count:
                for index, consumer in enumerate(consumers):
                    held[index] += len(await consumer.receive_batch(count, timeout_s=0.05))
            assert all(0.4 * count <= mine <= 0.6 * count for mine in held), held

    asyncio.run(run())


def test_a_consumer_with_its_hands_full_is_passed_over(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            full = session.consume("full", prefetch=3)
            await full.opened()
            await session.send_many("full", [b"%d" % number for number in range(3)])
            held = [await full.receive(timeout_s=WAIT_S) for _ in range(3)]
            free = session.consume("full", prefetch=10)
            await session.send_many("full", [b"%d" % number for number in range(3, 100)])
            got: list[bytes] = []
            while len(got) < 97:
                message = await free.receive(timeout_s=WAIT_S)
                assert message is not None
                got.append(message.body)
                message.settle()
            assert got == [b"%d" % number for number in range(3, 100)]
            assert [message.body for message in held if message is not None] == [b"0", b"1", b"2"]

    asyncio.run(run())


def test_released_messages_come_back_counted_and_rejected_ones_do_not(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("again", [b"%d" % number for number in range(10)])
            consumer = session.consume("again")
            seen: Counter[bytes] = Counter()
            rejected: set[bytes] = set()
            settled: set[bytes] = set()
            while len(settled) + len(rejected) < 10:
                message = await consumer.receive(timeout_s=WAIT_S)
                assert message is not None
                assert message.body not in settled | rejected
                assert message.redelivery_count == seen[message.body]
                assert message.redelivered == (seen[message.body] > 0)
                seen[message.body] += 1
                if int(message.body) == 7:
                    await message.reject()
                    rejected.add(message.body)
                elif seen[message.body] < 4 and int(message.body) % 2:
                    await message.release()
                else:
                    await message.settle()
                    settled.add(message.body)
            await session.sync()
            assert {int(body): count for body, count in seen.items()} == {
                number: 4 if number % 2 and number != 7 else 1 for number in range(10)
            }
            described = (await connection.request("destination.describe", {"name": "again"})).result
            assert described["rejected"] == 1
            assert described["messages"] == described["in_flight"] == 0

    asyncio.run(run())

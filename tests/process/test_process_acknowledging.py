"""Goal: acknowledgement modes and recovery hold against the real broker, and across its death.
Method: a broker in a process of its own; what it has left when everybody has gone tells what was settled."""
import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import angarium
from angarium.client.acknowledging import Acknowledge
from tests.process import process_drain
from tests.process.process_broker import Broker, running
from tests.process.process_traffic import PATIENT

_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("acknowledging")) as broker:
        yield broker


async def filled(connection: angarium.Connection, messages: int = 10) -> str:
    """A new queue with so many messages, numbered."""
    name = f"modes.{next(_numbers)}"
    async with connection.session() as session:
        await session.send_many(name, [b"%d" % n for n in range(messages)])
    return name


async def left(connection: angarium.Connection, name: str) -> list[tuple[bytes, bool]]:
    """What is still there, and whether it was delivered before."""
    return [(message.body, message.redelivered) for message in await process_drain.left(connection, name)]


def numbered(low: int, high: int, redelivered: bool = False) -> list[tuple[bytes, bool]]:
    return [(b"%d" % n, redelivered) for n in range(low, high)]


async def take(consumer: angarium.Consumer, messages: int) -> list[angarium.Message]:
    return [await asyncio.wait_for(anext(consumer), 20) for _ in range(messages)]


@pytest.mark.parametrize(
    ("acknowledge", "settled"), [("auto", 4), ("duplicates-ok", 4), ("client", 2), ("individual", 0)]
)
def test_each_mode_settles_what_it_should(broker: Broker, acknowledge: Acknowledge, settled: int) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection:
            name = await filled(connection)
            async with connection.session(acknowledge=acknowledge) as session:
                consumer = session.consume(name, prefetch=4)
                await take(consumer, 2)
                if acknowledge == "client":
                    session.acknowledge()
                await take(consumer, 2)
            expected = numbered(settled, 4, redelivered=True) + numbered(4, 10)  # unread ones were never delivered
            assert await left(connection, name) == expected

    asyncio.run(run())


def test_recovery_redelivers_in_order_with_the_right_counts(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection:
            name = await filled(connection)
            async with connection.session(acknowledge="client") as session:
                consumer = session.consume(name, prefetch=6)
                for round_count in range(3):
                    messages = await take(consumer, 4)
                    assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
                    assert [message.redelivery_count for message in messages] == [round_count] * 4
                    await session.recover()
                messages = await take(consumer, 10)
                assert [message.redelivery_count for message in messages] == [3] * 4 + [0] * 6
                session.acknowledge()
            assert await left(connection, name) == []

    asyncio.run(run())


def test_recovery_across_the_brokers_death(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def run(broker: Broker) -> None:
        async with angarium.connect(broker.address) as connection:
            name = await filled(connection)
            async with connection.session(acknowledge="client") as session:
                consumer = session.consume(name)
                await take(consumer, 3)
                broker.kill()
                recovery = asyncio.ensure_future(session.recover())
                await asyncio.sleep(0.1)
                assert not recovery.done()
                await asyncio.to_thread(broker.start)
                await recovery
                messages = await take(consumer, 10)
                assert [message.body for message in messages] == [b"%d" % n for n in range(10)]
                assert all(message.redelivered for message in messages[:3])
                session.acknowledge()
            assert await left(connection, name) == []

    with running(tmp_path_factory.mktemp("recovery"), PATIENT) as broker:
        asyncio.run(run(broker))


def test_every_field_and_body_survives_the_broker(broker: Broker) -> None:
    async def run() -> None:
        bodies: list[Any] = [b"\0", "text", {"a": 1, "b": 0.1}, [True, None, b"x"], None]
        fields: angarium.MessageFields = {
            "properties": {"n": 1}, "correlation_id": "c", "reply_to": angarium.Topic("r"), "type": "t", "group": "g",
            "group_sequence": 1,
        }  # fmt: skip
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            for body in bodies:
                await session.send("fields", body, priority=7, **fields)  # type: ignore[misc]
            async with session.consume("fields") as consumer:
                messages = await take(consumer, len(bodies))
            assert [message.value for message in messages] == bodies
            assert all(message.fields() == fields for message in messages)
            assert {message.priority for message in messages} == {7}

    asyncio.run(run())

"""Goal: a transacted session's commits are all or nothing at the real broker, also when it dies under them.
Method: messages are moved from one queue to another; afterwards each must be in exactly one of them, once."""
import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

import angarium
from tests.process import process_drain
from tests.process.process_broker import Broker, running
from tests.process.process_traffic import PATIENT

_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("transacted")) as broker:
        yield broker


async def filled(connection: angarium.Connection, messages: int = 10) -> tuple[str, str]:
    """A queue with so many messages, numbered, and an empty one."""
    number = next(_numbers)
    async with connection.session() as session:
        await session.send_many(f"from.{number}", [b"%d" % n for n in range(messages)])
    return f"from.{number}", f"to.{number}"


async def left(connection: angarium.Connection, name: str) -> list[bytes]:
    return [message.body for message in await process_drain.left(connection, name)]


def numbered(low: int, high: int) -> list[bytes]:
    return [b"%d" % n for n in range(low, high)]


async def take(consumer: angarium.Consumer, messages: int) -> list[angarium.Message]:
    return [await asyncio.wait_for(anext(consumer), 20) for _ in range(messages)]


def test_commit_and_rollback(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection:
            source, target = await filled(connection)
            async with connection.session(transacted=True) as session:
                consumer = session.consume(source, prefetch=5)
                async with session.transaction():
                    sendings = [session.send(target, message.body) for message in await take(consumer, 3)]
                assert len({await sending for sending in sendings}) == 3
                for message in await take(consumer, 4):
                    session.send(target, message.body)
                await session.rollback()
                again = await take(consumer, 7)
                assert [message.body for message in again] == numbered(3, 10)
                assert [message.redelivery_count for message in again] == [1] * 4 + [0] * 3
                session.send(target, again[0].body)
            assert await left(connection, target) == numbered(0, 3), "closing rolls back"
            assert await left(connection, source) == numbered(3, 10)

    asyncio.run(run())


def test_a_transaction_across_destinations_with_one_that_refuses(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection:
            source, target = await filled(connection)
            async with connection.session(transacted=True) as session:
                consumer = session.consume(source)
                await take(consumer, 2)
                session.send(target, b"x")
                session.send(angarium.Topic(source), b"x")
                with pytest.raises(angarium.Rejected) as caught:
                    await session.commit()
                assert caught.value.code == "wrong-kind"
                assert [message.body for message in await take(consumer, 2)] == numbered(0, 2)
                session.send(target, b"y")
                await session.commit()
            assert await left(connection, target) == [b"y"]
            assert await left(connection, source) == numbered(2, 10)

    asyncio.run(run())


def test_what_a_transaction_sends_stays_together_and_in_order(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session(transacted=True) as session:
            for first in range(0, 3_000, 1_000):
                for number in range(first, first + 1_000):
                    session.send("ordered", b"%d" % number + b"-" * 300)
                await session.commit()
            bodies = await left(connection, "ordered")
            assert [int(body.partition(b"-")[0]) for body in bodies] == list(range(3_000))

    asyncio.run(run())


def test_moving_while_the_broker_dies_again_and_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    messages = 420

    async def run(broker: Broker) -> None:
        async with angarium.connect(broker.address) as connection:
            source, target = await filled(connection, messages)
            moved = aborted = 0
            reached = {deaths: asyncio.Event() for deaths in range(1, 5)}

            async def move() -> None:
                nonlocal moved, aborted
                async with connection.session(transacted=True) as session, session.consume(source) as consumer:
                    while moved < messages:
                        message = await asyncio.wait_for(anext(consumer), 30)
                        session.send(target, message.body)
                        try:
                            await session.commit()
                            moved += 1
                            if moved % (messages // 6) == 0 and (deaths := moved * 6 // messages) in reached:
                                reached[deaths].set()
                        except angarium.Rejected:
                            aborted += 1

            moving = asyncio.ensure_future(move())
            for deaths in reached:
                await asyncio.wait_for(reached[deaths].wait(), 30)
                broker.kill()
                await asyncio.to_thread(broker.start)
            await moving
            assert moved == messages, f"{aborted} were aborted"
            assert await left(connection, target) == numbered(0, messages)
            assert await left(connection, source) == []

    with running(tmp_path_factory.mktemp("dying"), PATIENT) as broker:
        asyncio.run(run(broker))

"""Goal: whoever consumes from the dead message queue, or browses it, is told why each message is there.
Method: a real broker, in which messages die in every way that a client can bring about; read by both faces."""
import asyncio
import io
from collections.abc import Iterator

import pytest

import angarium
from angarium import blocking
from tests.process.process_broker import WAIT_S, Broker, running

WAYS: dict[str, dict[str, int | str]] = {
    "rejected": {},
    "expired": {},
    "redelivery-limit": {"redeliveries_max": 1},
    "limit-exceeded": {"messages_max": 1, "over_limit": "oldest"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("dead-letters")) as broker:
        yield broker


async def die(connection: angarium.Connection, reason: str) -> tuple[int, int]:
    """One message dies for that reason; how often it had been delivered, and when it was to expire."""
    name = f"ways.{reason}"
    await connection.request("destination.create", {"name": name, "kind": "queue", **WAYS[reason]})
    async with connection.session() as session:
        if reason == "expired":
            await session.send(name, reason, ttl_s=1.5)
            (browsed,) = [message async for message in session.browse(name)]
            return 0, browsed.expires_ms
        await session.send(name, reason)
        if reason == "limit-exceeded":
            await session.send(name, "the next one")
            return 0, 0
        deliveries = 1 if reason == "rejected" else 2
        async with session.consume(name, prefetch=1) as consumer:
            for _ in range(deliveries):
                message = await consumer.receive(WAIT_S)
                assert message is not None
                await (message.reject() if reason == "rejected" else message.release())
        return deliveries, 0


def test_a_dead_message_tells_where_why_when_and_how_often(broker: Broker) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            for reason in WAYS:
                deliveries, expiry_ms = await die(connection, reason)
                message = await session.receive("_DMQ", WAIT_S)
                assert message is not None
                letter = message.dead_letter
                assert letter is not None
                found = (letter.destination, letter.subscription, letter.reason, letter.deliveries, letter.expiry_ms)
                assert found == (f"ways.{reason}", "", reason, deliveries, expiry_ms)
                assert message.timestamp_ms <= letter.died_ms
                assert letter.died_ms >= expiry_ms
                await message.settle()

    asyncio.run(run())


def test_the_subscription_in_which_it_died_is_told_by_the_blocking_face_and_browsed(broker: Broker) -> None:
    with blocking.connect(broker.address) as connection, connection.session() as session:
        consumer = session.consume(angarium.Topic("dead.topic"), durable="ledger")
        session.send_stream("dead.topic", io.BytesIO(b"m" * 100_000)).result(WAIT_S)
        message = consumer.receive(WAIT_S)
        assert message is not None
        assert message.dead_letter is None
        message.reject()
        session.sync()
        (browsed,) = session.browse("_DMQ")
        received = session.receive("_DMQ", WAIT_S)
        assert received is not None
        assert received.dead_letter == browsed.dead_letter
        letter = received.dead_letter
        assert letter is not None
        assert (letter.destination, letter.subscription, letter.reason) == ("dead.topic", "ledger", "rejected")
        assert "dead_letter" not in received.fields()
        received.settle()

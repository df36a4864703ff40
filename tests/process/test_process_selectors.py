"""Goal: a selector of 10,000 terms, whatever their form, is accepted, selects what it says, survives a kill, and keeps
nobody waiting for long.
Method: consumers of a queue, browsers and a durable subscription on a real broker, beside somebody who pings."""
import asyncio
import threading
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import WAIT_S, Broker, running, until
from tests.process.test_process_limits import ping

TERMS = 10_000
PING_S_MAX = 0.25  # 20 ms on a quiet machine; 0.3 s if such a selector were read at one go
FORMS = {
    "or": " OR ".join(f"a = {n}" for n in range(TERMS)),
    "names": " OR ".join(f"p{n} = {n}" for n in range(TERMS)),
    "mixed": " OR ".join(f"a = {n} AND b > {n}" for n in range(TERMS // 2)),
    "brackets": "(" * TERMS + "a = 77" + ")" * TERMS,
    "not": "NOT " * TERMS + "(a = 77)",
    "sum": "a = 77 AND b - 7700 + " + " + ".join(["c"] * (TERMS - 2)) + f" = {TERMS - 2}",
}
HIT = {"a": 77, "b": 7_700, "c": 1, "p77": 77}


async def one_is_selected(broker: Broker) -> None:
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        for name, selector in FORMS.items():
            await session.send_many(name, [b"miss"] * 200, properties={"a": -1, "b": -1, "c": 0})
            await session.send(name, b"hit", properties=HIT)
            seen = [message.body async for message in session.browse(name, selector)]
            async with session.consume(name, selector=selector) as consumer:
                message = await consumer.receive(WAIT_S)
                assert message is not None and message.body == b"hit" and seen == [b"hit"], name
                await message.settle()
                assert await consumer.receive(0.2) is None, name


def test_ten_thousand_terms_of_every_form_and_nobody_waits_long(tmp_path: Path) -> None:
    taken: list[float] = []
    stop = threading.Event()
    with running(tmp_path) as broker:
        watch = threading.Thread(target=ping, args=(broker, taken, stop))
        watch.start()
        try:
            until(lambda: len(taken) > 10, "pings are answered")
            asyncio.run(asyncio.wait_for(one_is_selected(broker), 3 * WAIT_S))
        finally:
            stop.set()
            watch.join()
    assert max(taken) < PING_S_MAX, f"slowest {sorted(taken)[-3:]}"


@pytest.mark.parametrize("form", ["or", "names"])
def test_a_durable_subscription_keeps_such_a_selector_through_a_kill(tmp_path: Path, form: str) -> None:
    topic = angarium.Topic("t")

    async def subscribe() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            async with session.consume(topic, durable="d", selector=FORMS[form]):
                pass
            await session.send(topic, b"miss", properties={"a": -1})
            await session.send(topic, b"hit", properties=HIT)

    async def receive() -> list[bytes]:
        async with (
            angarium.connect(broker.address) as connection,
            connection.session() as session,
            session.consume(topic, durable="d", selector=FORMS[form]) as consumer,
        ):
            await session.send(topic, b"miss", properties={"a": -1})
            await session.send(topic, b"hit again", properties=HIT)
            return [message.body for _ in range(2) if (message := await consumer.receive(WAIT_S)) is not None]

    with running(tmp_path) as broker:
        asyncio.run(asyncio.wait_for(subscribe(), WAIT_S))
        broker.kill()
        broker.start()
        assert asyncio.run(asyncio.wait_for(receive(), WAIT_S)) == [b"hit", b"hit again"]


def test_what_is_no_text_is_refused_and_costs_nobody_the_connection(tmp_path: Path) -> None:
    """Once: no frame could carry it, and the connection failed over it again and again."""

    async def scene(broker: Broker) -> None:
        half = "a = '\ud800'"
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            with pytest.raises(angarium.Rejected, match="character 6 is half of a surrogate pair"):
                session.consume("q", selector=half)
            with pytest.raises(angarium.Rejected, match="half of a surrogate pair"):
                session.consume_matching("\ud800")
            with pytest.raises(angarium.Rejected) as caught:
                _ = [message async for message in session.browse("q", half)]
            assert caught.value.code == "bad-argument"
            await asyncio.wait_for(session.send("q", b"goes on").settled(), WAIT_S)

    with running(tmp_path) as broker:
        asyncio.run(scene(broker))

"""Goal: settlements that nobody waits for gather; whoever waits for one does not wait for company.
Method: the fake broker behind a real server; but for the first test, the moment after which they leave alone never
comes."""
import asyncio

import pytest

import angarium
from angarium.client import driver
from tests.unit.client.client_fake_server import FakeServer
from tests.unit.client.client_running import Runner, until, with_session


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LATER_S", 3_600.0)


async def two_settled(server: FakeServer, session: angarium.Session) -> angarium.Consumer:
    """Of a hundred that may be here, each alone."""
    consumer = session.consume("orders", prefetch=100)
    for body in (b"one", b"two"):
        await session.send("orders", body)
        (await anext(consumer)).settle()
        await asyncio.sleep(0.02)
    return consumer


def test_they_leave_by_themselves(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await two_settled(server, session)
        await until(lambda: server.broker.log("orders").subscriptions[""].durable.count == 2)

    with_session(run, scenario)


@pytest.mark.usefixtures("endless")
def test_they_leave_behind_what_is_sent_next(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await two_settled(server, session)
        assert server.broker.settles == 1, "the first left with the second message"
        await session.send("orders", b"three")
        assert server.broker.settles == 2

    with_session(run, scenario)


@pytest.mark.usefixtures("endless")
def test_whoever_asks_whether_they_are_durable_does_not_wait(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await two_settled(server, session)
        await session.sync()
        assert server.broker.log("orders").subscriptions[""].durable.count == 2

    with_session(run, scenario)


@pytest.mark.usefixtures("endless")
def test_what_goes_back_takes_them_with_it(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = await two_settled(server, session)
        await session.send("orders", b"three")
        message = await anext(consumer)
        settles = server.broker.settles
        message.release()
        await until(lambda: server.broker.settles == settles + 1)
        assert (await anext(consumer)).redelivered

    with_session(run, scenario)


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("prefetch", [1, 4, 20])
def test_a_consumer_that_can_take_little_more_gets_more_at_once(run: Runner, prefetch: int) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 200)
        consumer = session.consume("orders", prefetch=prefetch)
        for _ in range(200):
            (await anext(consumer)).settle()

    with_session(run, scenario)


@pytest.mark.usefixtures("endless")
def test_it_is_told_when_more_comes_than_it_had_when_it_settled(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=20)
        await session.send("orders", b"x")
        (await anext(consumer)).settle()
        async with angarium.connect(server.address) as other, other.session() as sender:
            await sender.send_many("orders", [b"x"] * 100)
        for _ in range(100):
            (await anext(consumer)).settle()

    with_session(run, scenario)

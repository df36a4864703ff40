"""Goal: what expires while it lies here is not handed out, and goes back to the broker, which buries it; nothing is
passed to and fro by clocks that differ.
Method: the fake broker behind a real server; a clock of the client's that is set by hand."""
import time
from collections.abc import Iterator

import pytest

import angarium
from angarium import blocking
from angarium.client import message as client_message
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.client_fake_log import Subscription
from tests.unit.client.client_fake_server import FakeServer
from tests.unit.client.client_running import Runner, until, with_session
from tests.unit.client.test_client_blocking import ServerThread


class Clock:
    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self.ahead_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(client_message, "now_ms", clock.now_ms)
    yield clock


async def fill(session: angarium.Session) -> None:
    """Every second one of ten expires in a minute."""
    for number in range(10):
        session.send("orders", b"%d" % number, ttl_s=60 if number % 2 else None)
    await session.flush()


def odd(server: FakeServer | ServerThread) -> bool:
    """Those that expire, and only they, have gone back, as if they had not been delivered."""
    subscription = server.broker.log("orders").subscriptions[""]
    returned = [number for low, high in subscription.waiting for number in range(low, high)]
    return returned == [1, 3, 5, 7, 9] and not any(subscription.redeliveries.values())


@pytest.mark.parametrize("how", ["one by one", "in batches", "after a look"])
def test_what_expired_while_it_lay_here_goes_back(run: Runner, clock: Clock, how: str) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await fill(session)
        consumer = session.consume("orders", prefetch=10)
        first = await consumer.receive(5)
        assert first is not None and first.body == b"0"
        await until(lambda: consumer.unsettled_count == 10)
        clock.ahead_ms = 61_000
        consumer.set_prefetch(1)  # what goes back shall not come again at once
        if how == "in batches":
            bodies = [message.body for message in await consumer.receive_batch(10, 5)]
        else:
            assert how == "one by one" or not consumer.is_empty
            bodies = [(await anext(consumer)).body for _ in range(4)]
            assert await consumer.receive(0.02) is None
        assert bodies == [b"2", b"4", b"6", b"8"]
        await until(lambda: odd(server))

    with_session(run, scenario)


def test_who_asks_for_what_is_there_gets_what_stands_behind_what_expired_here(
    run: Runner, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: None, for something had lain here, and so the broker was not asked."""

    def bury(subscription: Subscription, position: int, *, counted: bool = True) -> None:
        del subscription.held[position]

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        monkeypatch.setattr(Subscription, "give_back", bury)
        await session.send("orders", b"dying", ttl_s=60)
        await session.send("orders", b"living")
        consumer = session.consume("orders", prefetch=1)
        await until(lambda: not consumer.is_empty)
        clock.ahead_ms = 61_000
        message = await consumer.receive(0)
        assert message is not None and message.body == b"living"

    with_session(run, scenario)


def test_a_client_whose_clock_is_ahead_believes_the_broker(run: Runner, clock: Clock) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        clock.ahead_ms = 3_600_000
        await fill(session)
        consumer = session.consume("orders")
        assert [(await anext(consumer)).body for _ in range(10)] == [b"%d" % number for number in range(10)]

    with_session(run, scenario)


def test_what_came_again_is_handed_out(run: Runner, clock: Clock) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x", ttl_s=60)
        consumer = session.consume("orders")
        await until(lambda: consumer.unsettled_count == 1)
        clock.ahead_ms = 61_000
        message = await consumer.receive(5)
        assert message is not None, "the broker's clock says that it lives: it is passed on, not to and fro"

    with_session(run, scenario)


def test_a_recovery_and_a_close_give_back_what_has_expired_like_the_rest(run: Runner, clock: Clock) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await fill(session)
        consumer = session.consume("orders")
        await consumer.receive(5)
        await until(lambda: consumer.unsettled_count == 10)
        clock.ahead_ms = 61_000
        await session.recover()
        await consumer.close()
        assert list(server.broker.log("orders").subscriptions[""].waiting) == [(0, 10)]

    with_session(run, scenario)


def test_the_same_without_asyncio(clock: Clock) -> None:
    server = ServerThread(FakeBroker())
    try:
        with blocking.connect(server.address) as connection, connection.session() as session:
            for number in range(10):
                session.send("orders", b"%d" % number, ttl_s=60 if number % 2 else None)
            session.flush(5)
            consumer = session.consume("orders", prefetch=10)
            assert next(consumer).body == b"0"
            deadline = time.monotonic() + 5
            while len(consumer._ready) < 9 and time.monotonic() < deadline:
                consumer._ready.extend(consumer._thread.run(consumer._consumer.receive_batch(9, 0.1)))
            clock.ahead_ms = 61_000
            consumer.set_prefetch(1)
            assert [next(consumer).body for _ in range(4)] == [b"2", b"4", b"6", b"8"]
            assert consumer.receive(0.05) is None
            session.sync(5)
            assert odd(server)
    finally:
        server.stop()

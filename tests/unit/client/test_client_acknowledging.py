"""Goal: each acknowledgement mode settles what the specification says (Jakarta Messaging 3.1, 6.2.10), and when; and
recovery brings back the rest in order.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import angarium
from angarium.client import acknowledging
from angarium.client.acknowledging import LAZY_MESSAGES_MAX, Acknowledge
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until

Scenario = Callable[[FakeServer, angarium.Session], Awaitable[None]]


def with_mode(run: Runner, scenario: Scenario, acknowledge: Acknowledge, count: int = 10) -> None:
    """`count` messages lie in `orders`; the scenario's session acknowledges like this."""

    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            async with connection.session() as session:
                await session.send_many("orders", [b"%d" % n for n in range(count)])
            async with connection.session(acknowledge=acknowledge) as session:
                await scenario(server, session)

    run(main())


def settled(server: FakeServer, name: str = "orders") -> list[tuple[int, int]]:
    return list(server.broker.log(name).subscriptions[""].durable)


async def bodies(consumer: angarium.Consumer, count: int) -> list[bytes]:
    return [(await anext(consumer)).body for _ in range(count)]


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % n for n in range(low, high)]


# -- automatic ---------------------------------------------------------------------------------------


def test_auto_settles_a_message_when_the_next_is_asked_for(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await anext(consumer)
        await session.sync()
        assert settled(server) == []
        await anext(consumer)
        await session.sync()
        assert settled(server) == [(0, 1)]
        assert await consumer.receive_batch(3) is not None
        await session.sync()
        assert settled(server) == [(0, 2)]
        await consumer.close()
        assert settled(server) == [(0, 5)], "closed: the application is done with the last ones"

    with_mode(run, scenario, "auto")


def test_auto_gives_back_what_the_application_failed_with(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        with pytest.raises(ZeroDivisionError):
            async with session.consume("orders") as consumer:
                async for message in consumer:
                    _ = 1 / (message.position - 3)
        assert settled(server) == [(0, 3)]
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
            assert (message.body, message.redelivered) == (b"3", True)

    with_mode(run, scenario, "auto")


def test_auto_leaves_alone_what_the_application_answers_itself(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        (await anext(consumer)).release()
        second = await anext(consumer)
        second.acknowledge()  # as in JMS: it does nothing here
        third = await anext(consumer)
        assert [second.body, third.body] in ([b"1", b"0"], [b"1", b"2"])
        await session.sync()
        assert settled(server) == [(1, 2)]

    with_mode(run, scenario, "auto")


def test_a_session_that_closes_settles_what_auto_has_handed_out(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 4)
        await session.close()
        assert settled(server) == [(0, 4)]

    with_mode(run, scenario, "auto")


def test_receive_one_by_one_is_auto_too(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        for expected in numbers(0, 10):
            message = await session.receive("orders", timeout_s=5)
            assert message is not None and message.body == expected
        assert await session.receive("orders", timeout_s=0.01) is None
        await session.sync()
        assert settled(server) == [(0, 10)]

    with_mode(run, scenario, "auto")


# -- duplicates allowed ------------------------------------------------------------------------------


def test_duplicates_ok_settles_lazily_and_all_in_the_end(run: Runner) -> None:
    count = 3 * LAZY_MESSAGES_MAX

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=count)
        await bodies(consumer, LAZY_MESSAGES_MAX)
        await session.sync()
        assert settled(server) == []
        await bodies(consumer, 1)
        await session.sync()
        assert settled(server) == [(0, LAZY_MESSAGES_MAX)]
        await bodies(consumer, count - LAZY_MESSAGES_MAX - 1)
        assert await consumer.receive(timeout_s=0.01) is None
        await session.sync()
        assert settled(server) == [(0, count)], "nothing lies ready: settle before waiting"
        assert server.broker.settles < 10

    with_mode(run, scenario, "duplicates-ok", count)


def test_duplicates_ok_does_not_starve_with_a_small_prefetch(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        async with session.consume("orders", prefetch=1) as consumer:
            assert await asyncio.wait_for(bodies(consumer, 10), 5) == numbers(0, 10)
        assert settled(server) == [(0, 10)]

    with_mode(run, scenario, "duplicates-ok")


# -- by the client -----------------------------------------------------------------------------------


def test_acknowledging_one_message_acknowledges_all_so_far_in_the_session(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("other", [b"x"] * 3)
        consumer, other = session.consume("orders"), session.consume("other")
        messages = [await anext(consumer) for _ in range(3)]
        await anext(other)
        await session.sync()
        assert settled(server) == settled(server, "other") == []
        messages[0].acknowledge()
        await session.sync()
        assert (settled(server), settled(server, "other")) == ([(0, 3)], [(0, 1)])
        await anext(consumer)
        session.acknowledge()
        await session.sync()
        assert settled(server) == [(0, 4)]

    with_mode(run, scenario, "client")


def test_more_than_the_prefetch_may_be_taken_before_it_is_acknowledged(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        assert await asyncio.wait_for(bodies(consumer, 10), 5) == numbers(0, 10)
        session.acknowledge()
        await session.sync()
        assert settled(server) == [(0, 10)]
        assert consumer.prefetch == 2

    with_mode(run, scenario, "client")


def test_no_more_is_taken_unacknowledged_than_the_limit_and_acknowledging_goes_on(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledging, "PREFETCH_MAX", 5)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        assert await asyncio.wait_for(bodies(consumer, 5), 5) == numbers(0, 5)
        with pytest.raises(angarium.LocalProtocolError, match="5"):
            await consumer.receive(0.1)
        session.acknowledge()
        assert await asyncio.wait_for(bodies(consumer, 5), 5) == numbers(5, 10)
        session.acknowledge()
        await session.sync()
        assert settled(server) == [(0, 10)]

    with_mode(run, scenario, "client")


def test_what_the_client_never_acknowledges_goes_back(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        async with session.consume("orders") as consumer:
            await bodies(consumer, 3)
        assert settled(server) == []

    with_mode(run, scenario, "client")


def test_individual_settles_the_one_message(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        messages = [await anext(consumer) for _ in range(3)]
        messages[1].acknowledge()
        await session.sync()
        assert settled(server) == [(1, 2)]

    with_mode(run, scenario, "individual")


def test_other_modes_are_refused(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            wrong: Any = "sometimes"
            with pytest.raises(angarium.Rejected, match="duplicates-ok"):
                connection.session(acknowledge=wrong)
            with pytest.raises(angarium.LocalProtocolError, match="commit"):
                connection.session(acknowledge="auto", transacted=True)

    run(main())


@pytest.mark.parametrize("acknowledge", ["auto", "client", "individual", "duplicates-ok"])
def test_nothing_is_acknowledged_after_the_session_was_closed(run: Runner, acknowledge: Acknowledge) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        message = await anext(session.consume("orders"))
        await session.close()
        with pytest.raises(angarium.LocalProtocolError, match="closed"):
            message.acknowledge()
        assert (message.body, message.properties) == (b"0", {}), "it can still be read"

    with_mode(run, scenario, acknowledge)


@pytest.mark.parametrize("what", ["consumer", "session"])
def test_what_lay_unread_when_it_was_closed_does_not_count_as_delivered(run: Runner, what: str) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 3)
        await (consumer.close() if what == "consumer" else session.close())
        subscription = server.broker.log("orders").subscriptions[""]
        assert [subscription.redeliveries[position] for position in range(10)] == [1] * 3 + [0] * 7
        assert subscription.waiting.count == 10

    with_mode(run, scenario, "individual")


# -- recovery ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("acknowledge", ["client", "individual"])
def test_recovery_brings_all_unsettled_back_in_order(run: Runner, acknowledge: Acknowledge) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=8)
        messages = [await anext(consumer) for _ in range(5)]
        messages[1].settle()
        await session.recover()
        assert messages[0].lost, "void: it comes again"
        messages[0].settle()
        again = [await anext(consumer) for _ in range(8)]
        assert [message.body for message in again] == [b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]
        assert [message.redelivery_count for message in again] == [1, 1, 1, 1, 0, 0, 0, 0], "unread ones do not count"
        for message in again:
            message.settle()
        await session.sync()
        assert settled(server) == [(0, 9)]

    with_mode(run, scenario, acknowledge)


def test_recovery_in_auto_brings_back_what_is_in_hands(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 3)
        await session.recover()
        assert await bodies(consumer, 2) == [b"2", b"3"]

    with_mode(run, scenario, "auto")


def test_recovery_covers_every_consumer_and_survives_a_cut(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("other", [b"x", b"y"])
        consumer, other = session.consume("orders"), session.consume("other")
        await bodies(consumer, 2)
        await bodies(other, 1)
        server.is_mute = True
        recovery = asyncio.ensure_future(session.recover())
        redeliveries = server.broker.log("orders").subscriptions[""].redeliveries
        await until(lambda: redeliveries[0] > 0)
        assert not recovery.done()
        server.is_mute = False
        server.cut_all()
        await recovery
        assert await bodies(consumer, 10) == numbers(0, 10)
        assert await bodies(other, 2) == [b"x", b"y"]

    with_mode(run, scenario, "client")


def test_a_session_that_ends_ends_its_recovery(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 2)
        server.is_mute = True
        recovery = asyncio.ensure_future(session.recover())
        await asyncio.sleep(0)
        await server.stop()
        closing = asyncio.ensure_future(session.close())
        with pytest.raises(angarium.LocalProtocolError, match="closed"):
            await recovery
        await closing
        server.is_mute = False
        await server.start()

    with_mode(run, scenario, "client")

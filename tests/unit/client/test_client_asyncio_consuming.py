"""Goal: what was sent arrives with every field, as often as it should, and what is settled stays settled.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio

import pytest

import angarium
from angarium.client.fields import Property
from angarium.core.client.events import MessagesArrived
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until, with_session


def test_every_field_arrives(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        properties: dict[str, Property] = {"b": True, "i": -5, "f": 1.5, "s": "é", "y": b"\0", "n": None}
        identity = await session.send(
            "orders", "grüße", properties=properties, priority=9, ttl_s=60, correlation_id="c-1", reply_to="answers",
            type="greeting",
        )  # fmt: skip
        await session.send("orders", bytearray(b"plain"))
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
            plain = await anext(consumer)
        assert message.text == "grüße" and message.body == "grüße".encode()
        assert message.properties == properties
        assert (message.priority, message.content, message.type) == (9, "text", "greeting")
        assert (message.correlation_id, message.reply_to) == ("c-1", "answers")
        assert 0 < message.expires_ms - message.timestamp_ms <= 60_001
        assert (message.id, message.position, message.destination) == (identity, 0, "orders")
        assert not message.redelivered and message.redelivery_count == 0 and not message.lost
        assert (plain.body, plain.properties, plain.priority, plain.expires_ms) == (b"plain", {}, 4, 0)
        assert plain.correlation_id is plain.reply_to is plain.type is plain.content is None

    with_session(run, scenario)


def test_consume_and_settle(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", (b"%d" % n for n in range(5_000)))
        consumer = session.consume("orders", prefetch=300)
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            await message.settle()
            if len(bodies) == 5_000:
                break
        assert bodies == [b"%d" % n for n in range(5_000)]
        await session.sync()
        assert server.broker.log("orders").subscriptions[""].durable.count == 5_000
        assert server.broker.settles < 200  # in runs, not one by one

    with_session(run, scenario)


def test_never_more_than_the_prefetch_unsettled(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 100)
        consumer = session.consume("orders", prefetch=7)
        held = [await anext(consumer) for _ in range(7)]
        assert await consumer.receive(timeout_s=0.02) is None
        consumer.set_prefetch(10)
        held += [await anext(consumer) for _ in range(3)]
        assert await consumer.receive(timeout_s=0.02) is None
        await held[5].settle()
        assert (await anext(consumer)).position == 10

    with_session(run, scenario)


def test_outcomes(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"settle", b"reject", b"release"])
        async with session.consume("orders", prefetch=3) as consumer:
            messages = await consumer.receive_batch(3, timeout_s=5)
            messages[2].release()
            messages[0].settle()
            messages[1].reject()
            again = await anext(consumer)
            assert (again.body, again.redelivered, again.redelivery_count) == (b"release", True, 1)
            for message in messages:
                with pytest.raises(angarium.LocalProtocolError, match="settle each message once"):
                    message.settle()
        assert server.broker.log("orders").subscriptions[""].durable.count == 2
        with pytest.raises(angarium.LocalProtocolError, match="consumer is closed"):
            again.settle()

    with_session(run, scenario)


def test_settling_in_any_order(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 500)
        async with session.consume("orders") as consumer:
            messages: list[angarium.Message] = []
            while len(messages) < 500:
                messages += await consumer.receive_batch(500)
            for message in [*messages[::-3], *messages[0::3], *messages[2::3]]:
                message.settle()
        assert server.broker.log("orders").subscriptions[""].durable.count == 500

    with_session(run, scenario)


def test_settling_twice_is_noticed_at_once(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 6)
        messages = await session.consume("orders").receive_batch(6, timeout_s=5)
        for index in (5, 4, 3):
            messages[index].settle()
        for index in (4, 5, 3):  # 4 and 5 are where the run has its end now
            with pytest.raises(angarium.LocalProtocolError, match="settle each message once"):
                messages[index].settle()

    with_session(run, scenario)


def test_what_is_settled_in_the_last_moment_is_settled(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 10)
        message = await anext(session.consume("orders"))
        message.settle()
        await session.close()
        assert list(server.broker.log("orders").subscriptions[""].durable) == [(0, 1)]

    with_session(run, scenario)


def test_settlements_leave_before_input_is_looked_at(run: Runner) -> None:
    """Else a position could be lost by that input while its settlement is still being gathered."""

    async def main() -> None:
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session() as session,
        ):
            await session.send("orders", b"x")
            message = await anext(session.consume("orders"))
            session.driver._is_timed = True  # as if the moment in which it is flushed never came
            message.settle()
            await connection.request("echo")
            await until(lambda: server.broker.settles == 1)

    run(main())


def test_a_consumer_forgets_the_deliveries_that_nobody_refers_to(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        kept: list[angarium.Message] = []
        async with session.consume("orders") as consumer:
            for number in range(50):
                await session.send("orders", b"%d" % number)
                message = await anext(consumer)
                message.settle()
                if number == 7:
                    kept.append(message)
            assert {delivery.batch.body(0) for delivery in consumer._deliveries()} == {b"7", b"49"}
            assert len(consumer._alive) == 2

    with_session(run, scenario)


def test_a_wake_up_is_not_lost_with_the_task_it_was_for(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        first, second = (asyncio.create_task(consumer.receive()) for _ in range(2))
        await consumer.opened()
        on_arrived = consumer.on_arrived

        def on_arrived_and_cancel(command: MessagesArrived) -> None:
            on_arrived(command)
            first.cancel()

        consumer.on_arrived = on_arrived_and_cancel  # type: ignore[method-assign]
        await session.send("orders", b"x")
        message = await asyncio.wait_for(second, 5)
        assert message is not None and message.body == b"x"
        assert first.cancelled()

    with_session(run, scenario)


def test_receive_batch_and_its_limits(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        for size in (5, 10, 20):
            await session.send_many("orders", [b"%d" % size] * size)
        consumer = session.consume("orders")
        first = await consumer.receive_batch(8, timeout_s=5)
        rest: list[angarium.Message] = []
        while len(rest) < 27:
            rest += await consumer.receive_batch(1_000, timeout_s=5)
        assert len(first) <= 8 and [m.position for m in first + rest] == list(range(35))
        assert await consumer.receive_batch(10, timeout_s=0.01) == []

    with_session(run, scenario)


def test_receive_one_at_a_time(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        assert await session.receive("orders", timeout_s=0.02) is None
        await session.send_many("orders", [b"1", b"2", b"3"])
        got: list[angarium.Message] = []
        for _ in range(3):  # without settling in between
            message = await session.receive("orders", timeout_s=5)
            assert message is not None
            got.append(message)
            assert len(server.broker.log("orders").subscriptions[""].held) == len(got)
        assert [message.body for message in got] == [b"1", b"2", b"3"]
        for message in got:
            message.settle()
        assert await session.receive("orders", timeout_s=0.02) is None

    with_session(run, scenario)


def test_receive_fetches_nothing_in_advance(run: Runner) -> None:
    """Once: after a settlement, or a time that was over, the next message came here and stayed here."""

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"1", b"2", b"3"])
        subscription = None
        for body in (b"1", b"2"):
            message = await session.receive("orders", timeout_s=5)
            assert message is not None and message.body == body
            message.settle()
            await session.sync()
            subscription = server.broker.log("orders").subscriptions[""]
            assert subscription.held == {}
        other = session.consume("orders")  # finds the third
        assert (await anext(other)).body == b"3"
        assert await session.receive("orders", timeout_s=0.02) is None
        await session.send("orders", b"4")
        assert (await anext(other)).body == b"4"

    with_session(run, scenario)


def test_what_comes_after_the_time_of_a_receive_goes_back_as_if_it_had_not(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        assert await session.receive("orders", timeout_s=0.02) is None
        # As if the broker had not heard yet that nobody waits:
        session._receivers.by_destination["orders"].consumer.want(1)
        await session.send("orders", b"x")
        subscription = server.broker.log("orders").subscriptions[""]
        await until(lambda: subscription.held == {} and server.broker.settles == 1)
        assert subscription.waiting.count == 1
        message = await session.receive("orders", timeout_s=5)
        assert message is not None and (message.body, message.redelivered) == (b"x", False)

    with_session(run, scenario)


def test_what_comes_for_a_receive_that_is_cancelled_goes_back(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        waiting = asyncio.create_task(session.receive("orders", timeout_s=5))
        await until(lambda: "orders" in session._receivers.by_destination)
        consumer = session._receivers.by_destination["orders"].consumer
        on_arrived = consumer.on_arrived

        def on_arrived_and_cancel(command: MessagesArrived) -> None:
            on_arrived(command)
            waiting.cancel()

        consumer.on_arrived = on_arrived_and_cancel  # type: ignore[method-assign]
        await session.send("orders", b"x")
        await asyncio.wait([waiting])
        subscription = server.broker.log("orders").subscriptions[""]
        await until(lambda: subscription.held == {} and subscription.waiting.count == 1)

    with_session(run, scenario)


def test_several_tasks_receive_one_message_each(run: Runner) -> None:
    """Once: two waited, one message was fetched, and the second came only when the first was settled."""

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        tasks = [asyncio.create_task(session.receive("orders", timeout_s=5)) for _ in range(3)]
        await session.send_many("orders", [b"1", b"2", b"3", b"4"])
        messages = await asyncio.gather(*tasks)
        assert sorted(message.body for message in messages if message is not None) == [b"1", b"2", b"3"]
        subscription = server.broker.log("orders").subscriptions[""]
        await until(lambda: len(subscription.held) == 3)

    with_session(run, scenario)


def test_several_tasks_share_a_consumer(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=10)
        bodies: list[bytes] = []

        async def work() -> None:
            async for message in consumer:
                bodies.append(message.body)
                await message.settle()

        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await until(lambda: len(consumer._waiters) == 3)
        tasks[0].cancel()
        await session.send_many("orders", [b"%d" % n for n in range(200)])
        await until(lambda: len(bodies) == 200)
        await consumer.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(bodies) == sorted(b"%d" % n for n in range(200))

    with_session(run, scenario)


def test_a_slow_task_does_not_keep_messages_from_others(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=10)
        taken: list[angarium.Message] = []
        all_taken = asyncio.Event()

        async def work() -> None:
            taken.append(await anext(consumer))
            await all_taken.wait()

        tasks = [asyncio.create_task(work()) for _ in range(5)]
        await consumer.opened()
        await session.send_many("orders", [b"x"] * 5)  # they arrive as one
        await until(lambda: len(taken) == 5)
        all_taken.set()
        await asyncio.gather(*tasks)

    with_session(run, scenario)


def test_a_busy_consumer_lets_others_run(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 3_000)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        consumer = session.consume("orders", prefetch=3_000)
        await until(lambda: consumer._unsettled == 3_000)  # so that all lie ready
        task = asyncio.create_task(other())
        for _ in range(3_000):
            message = await anext(consumer)
            message.settle()
        assert turns >= 3, "one after each quarter of the prefetch"
        task.cancel()

    with_session(run, scenario)


def test_topics_and_durable_subscriptions(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        prices = angarium.Topic("prices")
        await session.send(prices, b"early")
        async with session.consume(prices, durable="archive", start="oldest") as archive:
            message = await anext(archive)
            assert message.body == b"early"
            message.settle()
            async with session.consume(prices) as live:
                await live.opened()
                await session.send(prices, b"late")
                assert (await anext(live)).body == b"late"
        async with session.consume("prices", durable="archive") as archive:
            assert (await anext(archive)).body == b"late"
        await session.unsubscribe("prices", "archive")
        assert "archive" not in server.broker.log("prices").subscriptions
        with pytest.raises(angarium.Rejected) as caught:
            await session.unsubscribe(prices, "archive")
        assert caught.value.code == "unknown-subscription"

    with_session(run, scenario)


def test_what_is_not_settled_goes_back_with_the_close(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"1", b"2"])
        async with session.consume("orders") as consumer:
            (await anext(consumer)).settle()
            await anext(consumer)
        assert await consumer.receive() is None
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
            assert (message.body, message.redelivered) == (b"2", True)

    with_session(run, scenario)

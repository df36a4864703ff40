"""Goal: a request gets its own reply, a listener its messages, and a producer hears when it is blocked.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio
from typing import Any

import pytest

import angarium
from angarium.client.acknowledging import Acknowledge
from angarium.client.buffer import SEND_BUFFER_BYTES_MAX
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, run_on, until, with_session

# -- requests ----------------------------------------------------------------------------------------


async def serve(session: angarium.Session, count: int) -> None:
    """Answer so many requests with what they said, the last one first."""
    async with session.consume("service") as consumer:
        messages = [await anext(consumer) for _ in range(count)]
        for message in reversed(messages):
            session.reply(message, message.body.upper(), type="reply")
            message.settle()


def test_each_request_gets_its_own_reply(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        serving_them = asyncio.ensure_future(serve(session, 3))
        replies = await asyncio.gather(*(session.request("service", b"%c" % letter) for letter in b"abc"))
        assert [(reply.body, reply.type) for reply in replies] == [(b"A", "reply"), (b"B", "reply"), (b"C", "reply")]
        await serving_them
        queues = [name for name in server.broker.logs if name.startswith("temporary.")]
        assert len(queues) == 1, "one for the session"
        await session.sync()
        assert server.broker.log(queues[0]).subscriptions[""].durable.count == 3, "replies are settled"

    with_session(run, scenario)


def test_a_request_without_a_reply_ends_in_time_and_a_late_one_harms_nobody(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        with pytest.raises(angarium.Unavailable, match=r"no reply within 0\.05 s"):
            await session.request("service", b"a", timeout_s=0.05)
        serving_them = asyncio.ensure_future(serve(session, 2))
        reply = await session.request("service", b"b", timeout_s=5)
        assert reply.body == b"B"
        await serving_them

    with_session(run, scenario)


def test_the_time_of_a_request_covers_the_sending(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("service", b"before")
        server.broker.block("service", True)
        server.write_all()
        await until(lambda: session.is_blocked("service"))
        with pytest.raises(angarium.Unavailable, match=r"no reply within 0\.05 s"):
            await asyncio.wait_for(session.request("service", b"a", timeout_s=0.05), 5)
        assert server.broker.log("service").end == 1, "it waits here"
        server.broker.block("service", False)
        server.write_all()
        await session.flush()

    with_session(run, scenario)


def test_the_time_of_a_request_covers_the_opening_of_its_reply_queue_and_a_cut(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session()
            server.is_mute = True
            with pytest.raises(angarium.Unavailable, match=r"no reply within 0\.05 s"):
                await asyncio.wait_for(session.request("service", b"a", timeout_s=0.05), 5)
            server.is_mute = False
            await server.stop()
            await until(lambda: not connection.is_connected)
            with pytest.raises(angarium.Unavailable):
                await asyncio.wait_for(session.request("service", b"b", timeout_s=0.05), 5)
            await server.start()
            await until(lambda: connection.is_connected)
            serving_them = asyncio.ensure_future(serve(session, 1))
            assert (await session.request("service", b"c", timeout_s=5)).body == b"C"
            await serving_them
            await session.close()

    run(main())


def test_a_session_that_closes_ends_its_requests(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session()
            request = asyncio.ensure_future(session.request("service", b"a"))
            await until(lambda: bool(server.broker.logs.get("service") and server.broker.log("service").end))
            await session.close()
            with pytest.raises(angarium.Unavailable, match="before the reply"):
                await request

    run(main())


def test_what_a_request_says_itself_cannot_be_said(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        with pytest.raises(angarium.LocalProtocolError, match="reply_to"):
            await session.request("service", b"a", reply_to="elsewhere")
        await session.send("orders", b"x")
        message = await session.receive("orders")
        assert message is not None
        with pytest.raises(angarium.LocalProtocolError, match="no reply_to"):
            session.reply(message, b"y")

    with_session(run, scenario)


def test_a_reply_to_a_message_without_a_correlation_id_has_the_messages_id(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x", reply_to="answers")
        message = await session.receive("orders")
        assert message is not None
        await session.reply(message, b"y")
        answer = await session.receive("answers")
        assert answer is not None and answer.correlation_id == message.id_text

    with_session(run, scenario)


def test_temporary_destinations_are_of_their_kind(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        queue, topic = await session.temporary_queue(), await session.temporary_topic()
        assert isinstance(queue, angarium.Queue) and isinstance(topic, angarium.Topic)
        await session.send(queue, b"x")
        await session.send(topic, b"x")

    with_session(run, scenario)


# -- listeners ---------------------------------------------------------------------------------------


def test_a_listener_settles_when_its_callback_has_returned(run: Runner) -> None:
    async def main() -> None:
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session(acknowledge="auto") as session,
        ):
            await session.send_many("orders", [b"%d" % n for n in range(5)])
            seen: list[bytes] = []

            async def callback(message: angarium.Message) -> None:
                await asyncio.sleep(0)
                seen.append(message.body)

            async with session.listen("orders", callback, prefetch=2):
                await until(lambda: len(seen) == 5)
            assert seen == [b"%d" % n for n in range(5)]
            assert server.broker.log("orders").subscriptions[""].durable.count == 5

    run(main())


@pytest.mark.parametrize("acknowledge", ["auto", "duplicates-ok", "client", "individual"])
def test_a_callback_that_raises_gets_the_message_again(acknowledge: Acknowledge) -> None:
    errors: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session(acknowledge=acknowledge) as session,
        ):
            await session.send("orders", b"x")
            counts: list[int] = []

            def callback(message: angarium.Message) -> None:
                counts.append(message.redelivery_count)
                if len(counts) < 3:
                    raise ValueError("not yet")
                message.acknowledge()  # where that is the callback's to do

            async with session.listen("orders", callback) as listener:
                await until(lambda: len(counts) == 3)
            assert (counts, listener.failures) == ([0, 1, 2], 2)
            assert server.broker.log("orders").subscriptions[""].durable.count == 1
        loop.set_exception_handler(before)

    run_on(asyncio.new_event_loop, main())
    assert [str(context["exception"]) for context in errors] == ["not yet", "not yet"]


def test_a_callback_that_waits_for_what_somebody_cancels_gets_the_message_again() -> None:
    errors: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        async with (
            serving() as server, angarium.connect(server.address) as connection, connection.session() as session,
        ):  # fmt: skip
            await session.send("orders", b"x")
            counts: list[int] = []

            async def callback(message: angarium.Message) -> None:
                counts.append(message.redelivery_count)
                if len(counts) == 1:
                    lookup = loop.create_future()
                    lookup.cancel()
                    await lookup
                message.settle()

            async with session.listen("orders", callback) as listener:
                await until(lambda: len(counts) == 2)
            assert (counts, listener.failures) == ([0, 1], 1)
        loop.set_exception_handler(before)

    run_on(asyncio.new_event_loop, main())
    assert [type(context["exception"]) for context in errors] == [asyncio.CancelledError]


def test_a_listener_that_is_cancelled_within_its_callback_ends(run: Runner) -> None:
    """As all tasks are when a loop is closed."""

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x")
        began = asyncio.Event()

        async def callback(message: angarium.Message) -> None:
            began.set()
            await asyncio.sleep(60)

        listener = session.listen("orders", callback)
        await began.wait()
        listener._task.cancel()
        await listener.close()
        assert listener._task.cancelled() and listener.failures == 0

    with_session(run, scenario)


def test_closing_a_listener_lets_the_callback_come_to_its_end(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x", b"y"])
        began, may_end, ended = asyncio.Event(), asyncio.Event(), []

        async def callback(message: angarium.Message) -> None:
            began.set()
            await may_end.wait()
            message.settle()
            ended.append(message.body)

        listener = session.listen("orders", callback)
        await began.wait()
        closing = asyncio.ensure_future(listener.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        may_end.set()
        await closing
        assert ended == [b"x"]
        assert server.broker.log("orders").subscriptions[""].durable.count == 1

    with_session(run, scenario)


def test_callbacks_of_one_session_do_not_run_at_the_same_time(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"x"] * 3)
        await session.send_many("other", [b"y"] * 3)
        running = most = seen = 0

        async def callback(message: angarium.Message) -> None:
            nonlocal running, most, seen
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.002)
            running -= 1
            seen += 1
            message.settle()

        session.listen("orders", callback)
        session.listen("other", callback)
        await until(lambda: seen == 6)
        assert most == 1

    with_session(run, scenario)


def test_a_session_that_closes_waits_for_the_callback_that_runs(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session(acknowledge="auto")
            await session.send_many("orders", [b"x", b"y"])
            began, ended = asyncio.Event(), []

            async def callback(message: angarium.Message) -> None:
                began.set()
                await asyncio.sleep(0.02)
                with pytest.raises(angarium.LocalProtocolError, match="wait for itself"):
                    await session.close()
                ended.append(message.body)

            session.listen("orders", callback)
            await began.wait()
            await session.close()
            assert ended == [b"x"]
            assert server.broker.log("orders").subscriptions[""].durable.count == 1

    run(main())


def test_a_listener_whose_consumer_is_refused_says_so_when_it_is_closed(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x")
        listener = session.listen(angarium.Topic("orders"), lambda message: None)
        await until(lambda: listener.consumer.is_ended)
        with pytest.raises(angarium.Rejected, match="QUEUE"):
            await listener.close()

    with_session(run, scenario)


# -- flow control ------------------------------------------------------------------------------------


def test_a_blocked_producer_hears_of_it_and_of_its_end(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        heard: list[tuple[str, str]] = []
        session.on_blocked(lambda destination, reason: heard.append((destination, reason)))
        await session.send("orders", b"x")
        await session.unblocked("orders")  # at once
        server.broker.block("orders", True)
        server.write_all()
        await until(lambda: session.is_blocked("orders"))
        assert session.blocked_reason("orders") == "destination-full: the fake is full"
        assert session.try_send("orders", b"y") is None
        assert session.try_send("other", b"y") is not None, "others are not blocked"
        waiting = asyncio.ensure_future(session.unblocked("orders"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        server.broker.block("orders", False)
        server.write_all()
        await waiting
        sending = session.try_send("orders", b"z")
        assert sending is not None
        await sending
        assert heard == [("orders", "destination-full: the fake is full"), ("orders", "")]
        assert server.broker.log("orders").bodies() == [b"x", b"z"]

    with_session(run, scenario)


def test_a_destination_is_blocked_however_it_is_spelt(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        queue, heard, later = angarium.Queue("orders"), list[tuple[str, str]](), list[str]()
        stop = session.on_blocked(lambda destination, reason: heard.append((destination, reason)))
        session.on_blocked(lambda destination, reason: later.append(reason))
        await session.send(queue, b"x")
        await session.send("orders", b"x")
        server.broker.block("orders", True)
        server.write_all()
        await until(lambda: session.is_blocked("orders"))
        assert session.is_blocked(queue) and session.blocked_reason(queue) == session.blocked_reason("orders")
        assert session.try_send(queue, b"y") is None and session.try_send("orders", b"y") is None
        await until(lambda: len(later) == 1)
        stop()
        stop()
        server.broker.block("orders", False)
        server.write_all()
        await session.unblocked(queue)
        assert not session.is_blocked("orders")
        await until(lambda: len(later) == 2)
        full = "destination-full: the fake is full"
        assert (heard, later) == ([("orders", full)], [full, ""]), "both are called, once for the name"

    with_session(run, scenario)


def test_a_destination_that_was_full_before_the_first_message_is_known_after_unblocked(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        server.broker.log("orders").blocked = True
        assert not session.is_blocked("orders"), "nothing is known of it"
        waiting = asyncio.ensure_future(session.unblocked("orders"))
        await until(lambda: session.is_blocked("orders"))
        assert session.try_send("orders", b"x") is None
        assert not waiting.done()
        server.broker.block("orders", False)
        server.write_all()
        await waiting
        with pytest.raises(angarium.Rejected, match="QUEUE"):
            await session.unblocked(angarium.Topic("orders"))

    with_session(run, scenario)


def test_try_send_does_not_wait_for_a_full_buffer(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        server.broker.commits_by_itself = False
        body, count = b"x" * 1_000_000, 0
        while session.try_send("orders", body) is not None:
            count += 1
            await asyncio.sleep(0)
            assert count <= SEND_BUFFER_BYTES_MAX // len(body) + 1
        assert count >= SEND_BUFFER_BYTES_MAX // len(body) - 1
        server.broker.commits_by_itself = True
        server.broker.commit()
        server.write_all()
        await session.flush()
        assert session.try_send("orders", body) is not None

    with_session(run, scenario)


def test_a_wait_for_unblocking_ends_with_the_session(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session()
            await session.send("orders", b"x")
            server.broker.block("orders", True)
            server.write_all()
            await until(lambda: session.is_blocked("orders"))
            waiting = asyncio.ensure_future(session.unblocked("orders"))
            await asyncio.sleep(0)
            await session.close()
            await asyncio.wait([waiting], timeout=5)
            assert waiting.done() and not waiting.cancelled()
            waiting.exception()

    run(main())

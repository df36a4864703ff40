"""Goal: what a transacted session sends and receives takes effect at its commit, all of it or nothing.
Method: the fake broker behind a real server, on stock asyncio and on uvloop (Jakarta Messaging 3.1, 6.2.7)."""
import asyncio
from collections.abc import Awaitable, Callable

import pytest

import angarium
from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from tests.unit.client.client_fake_broker import FakeBroker, FakePeer
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, until

Scenario = Callable[[FakeServer, angarium.Session], Awaitable[None]]


def with_transactions(run: Runner, scenario: Scenario, broker: FakeBroker | None = None) -> None:
    """Ten messages lie in `orders`."""

    async def main() -> None:
        async with serving(broker) as server, angarium.connect(server.address) as connection:
            async with connection.session() as session:
                await session.send_many("orders", [b"%d" % n for n in range(10)])
            async with connection.session(transacted=True) as session:
                await scenario(server, session)

    run(main())


def settled(server: FakeServer) -> list[tuple[int, int]]:
    return list(server.broker.log("orders").subscriptions[""].durable)


def stored(server: FakeServer, name: str) -> list[bytes]:
    return server.broker.logs[name].bodies() if name in server.broker.logs else []


async def bodies(consumer: angarium.Consumer, count: int) -> list[bytes]:
    return [(await anext(consumer)).body for _ in range(count)]


def test_sends_and_receipts_take_effect_together(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        sendings = []
        for _ in range(3):
            message = await anext(consumer)
            sendings.append(session.send("done", message.body + b"!", properties={"n": 1}))
            session.send("audit", b"x")
        await asyncio.sleep(0.01)
        assert (settled(server), stored(server, "done"), stored(server, "audit")) == ([], [], [])
        assert not sendings[0].done
        await session.commit()
        assert settled(server) == [(0, 3)]
        assert (stored(server, "done"), stored(server, "audit")) == ([b"0!", b"1!", b"2!"], [b"x"] * 3)
        assert await sendings[2] == sendings[2].message_id
        assert server.broker.settles == 0 and server.broker.publishes == 1, "the publish is that of the other session"
        await session.commit()  # nothing to do

    with_transactions(run, scenario)


def test_sequences_go_on_from_one_transaction_to_the_next(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        for number in range(3):
            sending = session.send("done", b"%d" % number)
            if number == 1:
                await session.rollback()
                with pytest.raises(angarium.Rejected, match="rolled back"):
                    await sending
            else:
                await session.commit()
                assert int.from_bytes((await sending)[16:], "big") == 1 + number // 2
        assert stored(server, "done") == [b"0", b"2"]

    with_transactions(run, scenario)


def test_rollback_redelivers_in_order_and_forgets_what_was_sent(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=6)
        await bodies(consumer, 4)
        session.send("done", b"x")
        await session.rollback()
        again = [await anext(consumer) for _ in range(10)]
        assert [message.body for message in again] == [b"%d" % n for n in range(10)]
        assert [message.redelivery_count for message in again] == [1] * 4 + [0] * 6
        await session.commit()
        assert (settled(server), stored(server, "done")) == ([(0, 10)], [])

    with_transactions(run, scenario)


def test_the_block_commits_or_rolls_back(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        async with session.transaction():
            session.send("done", (await anext(consumer)).body)
        with pytest.raises(ZeroDivisionError):
            async with session.transaction():
                session.send("done", (await anext(consumer)).body)
                _ = 1 / 0
        assert (settled(server), stored(server, "done")) == ([(0, 1)], [b"0"])
        message = await anext(consumer)
        assert (message.body, message.redelivered) == (b"1", True)

    with_transactions(run, scenario)


def test_an_aborted_commit_says_why_and_the_messages_come_again(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=3)
        await bodies(consumer, 2)
        sending = session.send("done", b"abort me")
        with pytest.raises(angarium.Rejected, match="the fake aborts this") as caught:
            await session.commit()
        assert caught.value.code == "commit-refused"
        with pytest.raises(angarium.Rejected):
            await sending
        assert (settled(server), stored(server, "done")) == ([], [])
        session.send("done", b"better")
        assert await bodies(consumer, 3) == [b"0", b"1", b"2"]
        await session.commit()
        assert (settled(server), stored(server, "done")) == ([(0, 3)], [b"better"])

    with_transactions(run, scenario)


def test_a_destination_that_refuses_aborts_before_anything_is_done(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 1)
        session.send("done", b"x")
        session.send(angarium.Topic("orders"), b"x")
        with pytest.raises(angarium.Rejected) as caught:
            await session.commit()
        assert caught.value.code == "wrong-kind"
        assert (settled(server), stored(server, "done")) == ([], [])
        session.send("done", b"y")
        await session.commit()
        assert stored(server, "done") == [b"y"]

    with_transactions(run, scenario)


@pytest.mark.parametrize("crash", [False, True], ids=["cut", "crash"])
def test_a_commit_whose_answer_was_lost_is_done_once(run: Runner, crash: bool) -> None:
    """Cut: it was durable, and only its answer is missing. Crash: it was not, and has to be done again."""

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 1)
        session.send("done", b"first")
        await session.commit()
        await bodies(consumer, 1)
        server.broker.commits_by_itself = not crash
        server.is_mute = True
        session.send("done", b"once")
        commit = asyncio.ensure_future(session.commit())
        await until(lambda: 2 in server.broker.commits_done.values())
        server.is_mute = False
        if crash:
            server.broker.crash()
        server.broker.commits_by_itself = True
        server.cut_all()
        await commit
        assert (settled(server), stored(server, "done")) == ([(0, 2)], [b"first", b"once"])
        assert server.broker.commits_repeated == (0 if crash else 1)
        assert await bodies(consumer, 1) == [b"2"]

    with_transactions(run, scenario)


def test_a_cancelled_commit_may_be_asked_about_again(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        server.broker.commits_by_itself = False
        session.send("done", b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.commit(), 0.05)
        with pytest.raises(angarium.LocalProtocolError, match="under way"):
            session.send("done", b"y")
        with pytest.raises(angarium.LocalProtocolError, match="under way"):
            await session.rollback()
        server.broker.commits_by_itself = True
        server.broker.commit()
        server.write_all()
        await session.commit()
        assert stored(server, "done") == [b"x"]
        session.send("done", b"y")
        await session.commit()

    with_transactions(run, scenario)


def test_more_than_the_prefetch_may_be_received_in_one_transaction(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        assert len(await asyncio.wait_for(bodies(consumer, 10), 5)) == 10
        await session.commit()
        assert settled(server) == [(0, 10)]

    with_transactions(run, scenario)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_a_consumer_closed_in_a_transaction_leaves_its_messages_in_it(run: Runner, commits: bool) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        async with session.consume("orders", prefetch=5) as consumer:
            await bodies(consumer, 3)
        await consumer.close()
        assert await consumer.receive() is None
        await (session.commit() if commits else session.rollback())
        assert settled(server) == ([(0, 3)] if commits else [])
        again = session.consume("orders")
        first = await anext(again)
        assert first.body == (b"3" if commits else b"0")

    with_transactions(run, scenario)


def test_closing_rolls_back(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await bodies(consumer, 3)
        sending = session.send("done", b"x")
        await session.close()
        assert (settled(server), stored(server, "done")) == ([], [])
        assert sending.done
        with pytest.raises(angarium.Unavailable, match="ended before"):
            await sending

    with_transactions(run, scenario)


def test_what_the_commit_decides_is_not_decided_otherwise(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        message = await anext(consumer)
        message.acknowledge()  # as in JMS: ignored
        for answer in (message.settle, message.reject, message.release):
            with pytest.raises(angarium.LocalProtocolError, match="commit"):
                answer()
        with pytest.raises(angarium.LocalProtocolError, match="commit"):
            session.acknowledge()
        with pytest.raises(angarium.LocalProtocolError, match="commit"):
            await session.recover()
        with pytest.raises(angarium.LocalProtocolError, match="commit"):
            await session.request("orders", b"x")
        with pytest.raises(angarium.LocalProtocolError, match="await that first"):
            await session.send("done", b"x")
        assert await session.send_many("done", [b"y", b"z"]) == 2
        await session.commit()
        assert stored(server, "done") == [b"x", b"y", b"z"]

    with_transactions(run, scenario)


def test_a_plain_session_has_no_transactions(run: Runner) -> None:
    async def main() -> None:
        async with (
            serving() as server,
            angarium.connect(server.address) as connection,
            connection.session() as session,
        ):
            for call in (session.commit, session.rollback):
                with pytest.raises(angarium.LocalProtocolError, match="transacted=True"):
                    await call()
            with pytest.raises(angarium.LocalProtocolError, match="transacted=True"):
                async with session.transaction():
                    pass

    run(main())


def test_a_transaction_is_no_longer_than_a_frame(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        body = b"x" * 1_000_000
        count = 0
        with pytest.raises(angarium.Rejected, match="transaction_bytes_max") as caught:
            while count < 100:
                session.send("done", body)
                count += 1
        assert caught.value.code == "transaction-too-long"
        assert count == 8, "of eight megabytes"
        await session.commit()
        assert len(stored(server, "done")) == count

    with_transactions(run, scenario)


def test_messages_that_were_lost_abort_the_transaction(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders", prefetch=2)
        await bodies(consumer, 2)
        session.send("done", b"x")
        await server.stop()
        server.broker.expire()
        server.broker.steal("orders", 1)
        await server.start()
        await until(lambda: consumer.taken is not None and any(message.lost for message in consumer.taken.messages))
        with pytest.raises(angarium.Rejected, match="no longer this session's") as caught:
            await session.commit()
        assert caught.value.code == "messages-lost"
        assert (settled(server), stored(server, "done")) == ([], [])

    with_transactions(run, scenario)


# -- blocked destinations ----------------------------------------------------------------------------


async def blocked(server: FakeServer, session: angarium.Session, is_blocked: bool) -> None:
    server.broker.block("out", is_blocked)
    server.write_all()
    await until(lambda: session.is_blocked("out") is is_blocked)


def test_a_blocked_destination_is_heard_of_and_the_commit_waits_for_it(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        heard: list[tuple[str, str]] = []
        session.on_blocked(lambda destination, reason: heard.append((destination, reason)))
        await session.unblocked("out")
        await blocked(server, session, True)
        assert session.blocked_reason(angarium.Queue("out")) == "destination-full: the fake is full"
        assert session.try_send("out", b"a") is None
        session.send("out", b"b")
        committing = asyncio.ensure_future(session.commit())
        await asyncio.sleep(0.02)
        assert not committing.done() and server.broker.log("out").bodies() == []
        with pytest.raises(angarium.LocalProtocolError, match="under way"):
            await session.rollback()
        await blocked(server, session, False)
        await committing
        assert server.broker.log("out").bodies() == [b"b"]
        assert session.try_send("out", b"c") is not None
        await session.commit()
        assert heard == [("out", "destination-full: the fake is full"), ("out", "")]

    with_transactions(run, scenario)


def test_a_commit_that_waits_for_a_blocked_destination_can_be_given_up_and_rolled_back(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.unblocked("out")
        await blocked(server, session, True)
        consumer = session.consume("orders")
        first = await anext(consumer)
        sending = session.send("out", b"a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.commit(), 0.02)
        await session.rollback()
        with pytest.raises(angarium.Rejected, match="withdrawn"):
            await sending
        again = await anext(consumer)
        assert (again.position, again.redelivered) == (first.position, True)
        await session.commit()
        await blocked(server, session, False)
        assert server.broker.log("out").bodies() == []

    with_transactions(run, scenario)


def test_a_consumer_that_is_closed_in_a_transaction_ends_with_a_rollback_that_nobody_waits_for(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it stayed with the broker, and kept others out if it was exclusive, until the next transaction was done."""
    receive = FakePeer.receive

    def receive_but_recover(peer: FakePeer, received: Received) -> None:
        if not isinstance(received.frame, frames.Recover):
            receive(peer, received)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        consumer = session.consume("orders")
        await anext(consumer)
        await consumer.close()
        monkeypatch.setattr(FakePeer, "receive", receive_but_recover)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.rollback(), 0.01)
        [peer] = server.broker.peers
        await until(lambda: not any(each.consumers for each in peer.sessions.values()))

    with_transactions(run, scenario)

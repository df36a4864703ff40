"""Goal: asking for what is there now gets it, and does not wait for what will not come; asking in very many places goes
on for ever.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio

import pytest

import angarium
from angarium.client import present, receiver
from angarium.client.acknowledging import Acknowledge
from angarium.client.present import PRESENT_S_MAX
from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from tests.unit.client.client_fake_broker import FakePeer
from tests.unit.client.client_fake_server import FakeServer, serving
from tests.unit.client.client_running import Runner, with_session


def test_a_fresh_consumer_gives_what_is_there_without_waiting(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"0", b"1"])
        consumer = session.consume("orders")
        for expected in (b"0", b"1"):
            message = await consumer.receive(0)
            assert message is not None and message.body == expected
            message.settle()
        assert await consumer.receive(0) is None
        other = session.consume("orders")
        assert await other.receive_batch(10, 0) == []

    with_session(run, scenario)


@pytest.mark.parametrize("acknowledge", ["individual", "auto", "duplicates-ok", "client"])
@pytest.mark.parametrize("prefetch", [1, 2, 100])
def test_a_queue_is_emptied_without_waiting(run: Runner, acknowledge: Acknowledge, prefetch: int) -> None:
    """Once: only the first time was the broker asked, and None came while it had more."""

    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session(acknowledge=acknowledge)
            bodies = [b"%d" % number for number in range(7)]
            await session.send_many("orders", bodies)
            consumer, found = session.consume("orders", prefetch=prefetch), list[bytes]()
            while (message := await consumer.receive(0)) is not None:
                found.append(message.body)
                if acknowledge == "individual":
                    message.settle()
            assert found == bodies
            await session.close()

    run(main())


def test_a_consumer_that_may_hold_no_more_is_not_waited_for(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"0", b"1"])
        consumer = session.consume("orders", prefetch=1)
        held = await consumer.receive(0)
        assert held is not None
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await consumer.receive(0) is None
        assert loop.time() - started < PRESENT_S_MAX / 2
        held.settle()
        assert await consumer.receive(0) is not None

    with_session(run, scenario)


def test_a_question_that_overtakes_what_was_granted_is_asked_again(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may answer a request before it handles frames of the same client that came first."""
    receive, late, overtaken = FakePeer.receive, list[Received](), list[Received]()

    def receive_credits_late(peer: FakePeer, received: Received) -> None:
        if isinstance(received.frame, frames.Credit):
            late.append(received)
            return
        if isinstance(received.frame, frames.Request):
            for credit in overtaken:
                receive(peer, credit)
            overtaken[:], late[:] = late, []
        receive(peer, received)

    monkeypatch.setattr(FakePeer, "receive", receive_credits_late)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"0", b"1", b"2"])
        for expected in (b"0", b"1", b"2"):
            message = await session.receive("orders", 0)
            assert message is not None and message.body == expected
            message.settle()
        assert await session.receive("orders", 0) is None

    with_session(run, scenario)


def test_what_others_hold_is_not_waited_for(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x")
        held = await session.consume("orders").receive()
        assert held is not None
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await session.consume("orders").receive(0) is None
        assert await session.receive("orders", 0) is None
        assert loop.time() - started < PRESENT_S_MAX / 2

    with_session(run, scenario)


# Once: a broker that took longer than a second to answer seemed to have nothing.
def test_a_slow_broker_does_not_look_empty(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(present, "PRESENT_S_MAX", 0.02)
    receive, late_s = FakePeer.receive, [0.0]

    def receive_late(peer: FakePeer, received: Received) -> None:
        asyncio.get_running_loop().call_later(late_s[0], receive, peer, received)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"0", b"1"])
        monkeypatch.setattr(FakePeer, "receive", receive_late)
        late_s[0] = 0.1
        consumed = await session.consume("orders", prefetch=1).receive(0)
        received = await session.receive("orders", 0)
        assert consumed is not None and received is not None
        assert {consumed.body, received.body} == {b"0", b"1"}
        assert await session.receive("orders", 0) is None
        late_s[0] = 0.0

    with_session(run, scenario)


def test_a_broker_that_does_not_answer_is_named_and_asked_again_next_time(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(present, "ANSWER_S_MAX", 0.1)
    receive, deaf = FakePeer.receive, [True]

    def receive_nothing(peer: FakePeer, received: Received) -> None:
        if not (deaf[0] and isinstance(received.frame, frames.Request)):
            receive(peer, received)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        monkeypatch.setattr(FakePeer, "receive", receive_nothing)
        consumer = session.consume("orders")
        for ask in (consumer.receive(0), session.receive("others", 0)):
            with pytest.raises(angarium.Unavailable, match="the broker has not said"):
                await ask
        deaf[0] = False
        assert await consumer.receive(0) is None

    with_session(run, scenario)


def test_a_connection_that_is_lost_while_asking_is_no_answer(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, cuts = FakePeer.receive, [2]

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        def cut(peer: FakePeer, received: Received) -> None:
            if isinstance(received.frame, frames.Request) and cuts[0]:
                cuts[0] -= 1
                server.cut_all()
            else:
                receive(peer, received)

        await session.send("orders", b"0")
        monkeypatch.setattr(FakePeer, "receive", cut)
        message = await session.receive("orders", 0)
        assert message is not None and message.body == b"0"
        assert cuts == [0]

    with_session(run, scenario)


def test_a_consumer_that_is_refused_says_so_also_without_waiting(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x")
        with pytest.raises(angarium.Rejected, match="QUEUE"):
            await session.consume(angarium.Topic("orders")).receive(0)

    with_session(run, scenario)


@pytest.mark.parametrize("acknowledge", ["individual", "auto"])
def test_messages_are_received_one_by_one_from_any_number_of_destinations(
    run: Runner, monkeypatch: pytest.MonkeyPatch, acknowledge: str
) -> None:
    monkeypatch.setattr(receiver, "RECEIVERS_MAX", 5)

    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection:
            session = connection.session(acknowledge=acknowledge)  # type: ignore[arg-type]
            names = [f"q{number}" for number in range(20)]
            for name in names:
                await session.send_many(name, [b"0", b"1"])
            kept = await session.receive("q0", timeout_s=5)
            assert kept is not None
            for round_ in (b"0", b"1"):
                for name in names[1:]:
                    message = await session.receive(name, timeout_s=5)
                    assert message is not None and (message.destination, message.body) == (name, round_)
                    if acknowledge == "individual":
                        message.settle()
                    [peer] = server.broker.peers
                    open_count = sum(len(each.consumers) for each in peer.sessions.values())
                    assert open_count <= 5 + 1, "one may be on its way"
            if acknowledge == "individual":
                assert not kept.lost
                kept.settle()  # its consumer is not closed while something of it is in our hands
            await session.close()
            assert list(server.broker.log("q0").subscriptions[""].durable) == [(0, 1)]
            assert all(list(server.broker.log(name).subscriptions[""].durable) == [(0, 2)] for name in names[1:])

    run(main())

"""Goal: a session that closes has lost nothing, or says what it may have lost.
Method: frames by hand against the machine."""
import pytest

from angarium.core.client import events
from angarium.core.errors import LocalProtocolError
from angarium.core.wire import frames
from tests.unit.client.client_bench import PRODUCER_ID, QUEUE, SESSION_ID, Bench, batch_of, gathered


@pytest.fixture
def bench() -> Bench:
    return Bench().ready().with_session().with_producer().with_consumer(prefetch=10)


def close(bench: Bench) -> None:
    bench.do(events.CloseSession(1, 30.0))


def test_closing_waits_for_confirms_and_settlements(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    bench.receive(frames.Deliver(1, 0), payload=batch_of(3))
    bench.do(events.Settle(1, 1, settled=[(0, 1)]))
    bench.clear()
    close(bench)
    assert bench.take_sent() == [frames.Credit(1, 3)]  # no more messages, please
    bench.receive(frames.Confirm(1, 1))
    assert bench.take_sent() == []
    bench.receive(frames.Settled(1, 1))
    assert bench.take_sent() == [frames.ConsumerClose(1, seen=[(1, 3)]), frames.SessionClose()]
    bench.clear().receive(frames.SessionClosed())
    assert bench.told == [events.SessionEnded(1, "", "")]
    bench.receive(frames.Confirm(1, 1))  # late frames of a session that is gone
    assert len(bench.told) == 1


def test_closing_resumes_until_it_is_done(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    close(bench)
    bench.reconnect()
    assert frames.ProducerOpen(1, "orders", QUEUE, PRODUCER_ID, 0) in bench.take_sent()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0), frames.ConsumerOpened(1), frames.Confirm(1, 1))
    assert bench.take_sent()[-1] == frames.SessionClose()
    bench.clear().do(events.Disconnected("cut"))  # nothing is owed any more
    assert bench.told[-1] == events.SessionEnded(1, "", "")


def test_a_session_that_owes_nothing_does_not_wait_for_a_connection(bench: Bench) -> None:
    bench.do(events.Disconnected("cut"))
    close(bench.clear())
    assert bench.told == [events.SessionEnded(1, "", "")]


def test_the_time_to_close_is_bounded_and_the_rest_is_named(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1", b"2")))
    bench.do(events.Disconnected("cut"))
    close(bench)
    bench.clear().tick_to(bench.now + 30.0)
    [ended] = bench.told_of(events.SessionEnded)
    assert ended.code == "close-timeout"
    assert "2 messages are not confirmed" in ended.reason and "not connected" in ended.reason


def test_a_closing_session_takes_nothing_more(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    close(bench)
    for event in (
        events.Publish(1, 1, gathered(b"2")),
        events.OpenProducer(1, 2, "other", QUEUE),
        events.OpenConsumer(1, 2, "other", QUEUE, 1),
        events.CloseSession(1, 1.0),
    ):
        with pytest.raises(LocalProtocolError, match="closing"):
            bench.do(event)


def test_a_session_taken_by_somebody_else_ends(bench: Bench) -> None:
    bench.receive(frames.Deliver(1, 0), payload=batch_of(1))
    bench.do(events.Settle(1, 1, settled=[(0, 1)]))
    bench.do(events.Sync(1, 7))
    bench.clear().receive(frames.SessionClosed("session-taken", "resumed elsewhere"))
    assert bench.told == [
        events.Synced(1, 7, "session-taken", "resumed elsewhere"),
        events.SessionEnded(1, "session-taken", "resumed elsewhere"),
    ]
    bench.do(events.OpenSession(2))
    assert bench.take_sent()[-1] == frames.SessionOpen()


def test_nothing_but_the_answer_may_come_before_the_session_is_open() -> None:
    bench = Bench().ready().with_session().with_producer()
    bench.do(events.Disconnected("cut"))
    bench.tick_to(1.0)
    bench.reach().clear()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_a_session_that_never_was_closes_at_once() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.OpenSession(1))
    bench.clear()
    close(bench)
    assert bench.told == [events.SessionEnded(1, "", "")]


def test_numbers_are_used_once(bench: Bench) -> None:
    for event in (
        events.OpenSession(1),
        events.OpenProducer(1, 1, "x", QUEUE),
        events.OpenConsumer(1, 1, "x", QUEUE, 1),
    ):
        with pytest.raises(LocalProtocolError, match="used before"):
            bench.do(event)


def test_a_resumed_session_may_get_another_identity(bench: Bench) -> None:
    bench.do(events.Disconnected("cut"))
    bench.tick_to(1.0)
    bench.reach().clear()
    bench.receive(frames.SessionOpened(b"t" * 16))
    assert bench.told == [events.SessionReady(1, b"t" * 16)]
    assert SESSION_ID != b"t" * 16


def test_nothing_follows_the_close_of_a_session() -> None:
    """Whatever was on its way: no credit, and nothing given back one by one."""
    bench = Bench().ready().with_session().with_consumer(prefetch=10)
    bench.receive(frames.Deliver(1, 0), payload=batch_of(2))
    bench.do(events.Settle(1, 1, returned=[(0, 2)]))
    bench.clear()
    bench.do(events.CloseSession(1, 30.0))
    assert [type(frame) for frame in bench.take_sent()] == [frames.Credit, frames.ConsumerClose, frames.SessionClose]
    bench.receive(frames.Deliver(1, 2), payload=batch_of(3, first=3))
    bench.receive(frames.Settled(1, 1))
    assert bench.take_sent() == []
    bench.receive(frames.SessionClosed())
    assert bench.told[-1] == events.SessionEnded(1, "", "")


def test_what_arrives_while_the_session_waits_to_close_goes_back_unseen() -> None:
    bench = Bench().ready().with_session().with_consumer(prefetch=10)
    bench.receive(frames.Deliver(1, 0), payload=batch_of(2))
    bench.do(events.Settle(1, 1, settled=[(0, 2)]))
    bench.do(events.CloseSession(1, 30.0))
    bench.clear()
    bench.receive(frames.Deliver(1, 2), payload=batch_of(3, first=3))
    assert bench.take_sent() == [frames.Settle(1, 2, frames.Outcome.RETURN, [(2, 5)], 5)]
    bench.receive(frames.Settled(1, 1))
    assert bench.take_sent() == [frames.ConsumerClose(1, seen=[]), frames.SessionClose()]


@pytest.mark.parametrize("is_consumer_first", [True, False])
def test_the_broker_hears_of_producers_and_consumers_as_the_application_opened_them(is_consumer_first: bool) -> None:
    bench = Bench().ready()
    bench.do(events.OpenSession(1))
    consumer = events.OpenConsumer(1, 1, "prices", frames.DestinationKind.TOPIC, 1)
    producer = events.OpenProducer(1, 1, "prices", frames.DestinationKind.ANY)
    for request in (consumer, producer) if is_consumer_first else (producer, consumer):
        bench.do(request)
    bench.clear().receive(frames.SessionOpened(SESSION_ID))
    kinds = [type(frame) for frame in bench.take_sent() if isinstance(frame, frames.ProducerOpen | frames.ConsumerOpen)]
    in_order = [frames.ConsumerOpen, frames.ProducerOpen]
    assert kinds == (in_order if is_consumer_first else in_order[::-1])

"""Goal: a session that the broker has detached is resumed over the same connection exactly as it is after a lost one,
and neither the application nor another session notices.
Method: twins: what is said after SessionDetached is compared with what is said after a reconnection, for random pasts;
and frames by hand. Replay one: pytest -k 'lost_connection[17]'."""
from collections.abc import Callable
from random import Random

import pytest

from angarium.core.client import events, stream_events
from angarium.core.client.connection import State
from angarium.core.errors import RemoteProtocolError
from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from angarium.core.wire.frames import PatternSyntax
from tests.unit.client.client_bench import PRODUCER_ID, QUEUE, SESSION_ID, Bench, batch_of, gathered

DETACHED = frames.SessionDetached("replica group 0 has another message manager")


@pytest.fixture
def bench() -> Bench:
    return Bench().ready().with_session().with_producer().with_consumer(prefetch=10)


def detach(bench: Bench) -> Bench:
    """Up to SessionOpened; what is sent and told since is kept."""
    bench.clear().receive(DETACHED)
    (opening,) = bench.take_sent()
    assert isinstance(opening, frames.SessionOpen)
    assert (opening.identity, opening.transacted) == (SESSION_ID, bench_is_transacted(bench))
    assert bench.take_told() == []
    bench.receive(frames.SessionOpened(SESSION_ID))
    return bench


def bench_is_transacted(bench: Bench) -> bool:
    return bench.machine._sessions[1]._transaction is not None


# -- twins ---------------------------------------------------------------------------------------------------------


def past(seed: int, *, transacted: bool) -> Bench:
    """A session with a history that the seed draws, in the middle of everything."""
    random = Random(seed)
    bench = Bench().ready()
    bench.do(events.OpenSession(1, transacted))
    bench.receive(frames.SessionOpened(SESSION_ID))
    bench.with_producer().with_consumer(prefetch=random.choice((3, 50)))
    bench.do(stream_events.OpenStream(1, 1, "orders", QUEUE))
    if random.random() < 0.8:
        bench.receive(frames.StreamOpened(1, b"f" * 16, 0, 0, 4, 9))
        bench.do(stream_events.PutFragment(1, 1, b"fragments", 1, False))
    bench.do(events.OpenWatch(1, 1, "orders.*", PatternSyntax.GLOB, QUEUE))
    at, sent, settled = 0, 0, 0
    for _ in range(random.randint(0, 12)):
        what = random.choice(("publish", "confirm", "deliver", "settle", "answer", "read", "prefetch", "recover"))
        consumer = bench.machine._sessions[1]._consumers[1]
        held = [low for low, _ in consumer.held]
        if what == "publish" and not transacted:
            bench.do(events.Publish(1, 1, gathered(*[b"x" * random.randint(1, 9)] * random.randint(1, 3))))
        elif what == "confirm" and not transacted:
            sent = bench.machine._sessions[1]._producers[1]._sequence_next - 1
            bench.receive(frames.Confirm(1, random.randint(0, sent)))
        elif what == "deliver" and consumer._limit_max > consumer._received and consumer._recalled is None:
            bench.receive(frames.Deliver(1, at), payload=batch_of(1, first=at + 1))
            at += 1
        elif what == "settle" and held and not transacted:
            low = random.choice(held)
            how = random.choice(("settled", "released", "returned", "rejected"))
            bench.do(events.Settle(1, 1, **{how: [(low, low + 1)]}))
            settled = consumer._settle_number
        elif what == "answer" and settled:
            bench.receive(frames.Settled(1, random.randint(0, settled)))
        elif what == "read" and held and not bench.machine._sessions[1]._streams._readers:
            number = bench.machine._sessions[1]._streams._reader_last + 1
            bench.do(stream_events.OpenReader(1, number, 1, random.choice(held)))
        elif what == "prefetch":
            bench.do(events.SetPrefetch(1, 1, random.choice((1, 4, 50))))
        elif what == "recover" and held and consumer._recalled is None and random.random() < 0.3:
            bench.do(events.Recover(1, 1))
    consumer = bench.machine._sessions[1]._consumers[1]
    if transacted and random.random() < 0.8:
        settles = [(1, [consumer.held.first()])] if consumer.held else []
        bench.do(events.Commit(1, [(1, [gathered(b"a", b"b")])], settles))  # type: ignore[arg-type]
    if random.random() < 0.2:
        bench.do(events.CloseConsumer(1, 1))
    elif random.random() < 0.2:
        bench.do(events.CloseSession(1, 60.0))
    return bench


def what_follows(bench: Bench) -> tuple[list[tuple[int, frames.Frame, bytes]], list[events.Command]]:
    """All that is said of and in the session from here on, answered as a broker would."""
    session = bench.machine._sessions.get(1)
    if session is not None and session._is_asked:
        bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
        if 1 in session._consumers:
            bench.receive(frames.ConsumerOpened(1, [(0, 1)]))
        bench.receive(frames.StreamOpened(1, b"f" * 16, 0, 0, 4, 9))
    sent = [(item.session, item.frame, item.payload) for item in bench.sent if item.session]
    link = (events.ConnectionLost, events.ConnectionReady, events.Connect)
    return sent, [command for command in bench.told if not isinstance(command, link)]


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "transacted"])
@pytest.mark.parametrize("seed", range(150))
def test_a_detached_session_says_what_it_says_after_a_lost_connection(seed: int, transacted: bool) -> None:
    cut, detached = past(seed, transacted=transacted).clear(), past(seed, transacted=transacted).clear()
    cut.do(events.Disconnected("cut"))
    cut._parser.feed(b"")
    cut.tick_to(cut.machine.deadline() or cut.now)
    cut.reach()
    detached.receive(DETACHED)
    for bench in (cut, detached):
        if 1 in bench.machine._sessions:
            bench.receive(frames.SessionOpened(SESSION_ID))
    assert what_follows(cut) == what_follows(detached)
    assert detached.machine.state is State.READY


# -- by hand -------------------------------------------------------------------------------------------------------


def test_everything_is_opened_again_in_order_with_what_is_held(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    bench.receive(frames.Deliver(1, 0), payload=batch_of(3))
    bench.do(events.Settle(1, 1, settled=[(1, 2)]))
    detach(bench)
    producer, consumer, settle = bench.take_sent()
    assert producer == frames.ProducerOpen(1, "orders", QUEUE, PRODUCER_ID, 0)
    assert isinstance(consumer, frames.ConsumerOpen)
    assert (consumer.resumed, consumer.held, consumer.credit, consumer.next_position) == (True, [(0, 3)], 0, 3)
    assert settle == frames.Settle(1, 1, frames.Outcome.SETTLE, [(1, 2)])
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0), frames.ConsumerOpened(1))
    assert frames.Credit(1, 8) in bench.sent_frames(), "counted anew: two of ten are held"
    (again,) = bench.take_batches()
    assert (again.first_sequence, list(again.bodies())) == (1, [b"1"])
    bench.receive(frames.Confirm(1, 1), frames.Settled(1, 1))
    told = [type(command) for command in bench.told]
    assert told == [events.SessionReady, events.ConsumerReady, events.Confirmed]


def test_other_sessions_and_requests_are_not_disturbed(bench: Bench) -> None:
    bench.do(events.OpenSession(2))
    bench.receive(frames.SessionOpened(b"t" * 16), session=2)
    bench.do(events.OpenProducer(2, 1, "other", QUEUE))
    bench.receive(frames.ProducerOpened(1, b"q" * 16, 0), session=2)
    bench.do(events.Request(1, "destination.list", {}))
    bench.clear().receive(DETACHED)
    assert [(item.session, type(item.frame)) for item in bench.sent] == [(1, frames.SessionOpen)]
    assert bench.told == []
    bench.clear().do(events.Publish(2, 1, gathered(b"1")))
    assert [(item.session, type(item.frame)) for item in bench.sent] == [(2, frames.Publish)]
    bench.receive(frames.Confirm(1, 1), session=2)
    bench.receive(frames.Reply(1, "", "", []), session=0)
    assert [type(command) for command in bench.told] == [events.Confirmed, events.RequestAnswered]


def test_what_the_application_does_meanwhile_waits_for_the_opening(bench: Bench) -> None:
    bench.receive(frames.Deliver(1, 0), payload=batch_of(2))
    bench.clear().receive(DETACHED)
    bench.take_sent()
    bench.do(events.Publish(1, 1, gathered(b"1")))
    bench.do(events.Settle(1, 1, settled=[(0, 1)]))
    bench.do(events.OpenProducer(1, 2, "other", QUEUE))
    bench.do(events.Sync(1, 7))
    assert bench.take_sent() == []
    bench.receive(frames.SessionOpened(SESSION_ID))
    kinds = [type(frame) for frame in bench.take_sent()]
    assert kinds == [frames.ProducerOpen, frames.ConsumerOpen, frames.Settle, frames.ProducerOpen]
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0), frames.ConsumerOpened(1), frames.Settled(1, 1))
    assert len(bench.take_batches()) == 1
    assert events.Synced(1, 7) in bench.told


def test_a_session_detached_again_and_again_comes_to_its_end(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    for _ in range(3):
        detach(bench)
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert len(bench.take_batches()) == 1
    detach(bench)
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 1), frames.Confirm(1, 1))
    assert bench.take_batches() == []
    assert bench.told_of(events.Confirmed) == [events.Confirmed(1, 1, 1, 17, 1)]


def test_a_closing_session_resumes_and_closes(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    bench.do(events.CloseSession(1, 30.0))
    detach(bench)
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 1), frames.ConsumerOpened(1), frames.Confirm(1, 1))
    assert bench.take_sent()[-1] == frames.SessionClose()
    bench.receive(frames.SessionClosed())
    assert bench.told[-1] == events.SessionEnded(1, "", "")


def test_a_session_that_has_sent_its_close_has_ended(bench: Bench) -> None:
    bench.do(events.CloseSession(1, 30.0))
    assert bench.take_sent()[-1] == frames.SessionClose()
    bench.clear().receive(DETACHED)
    assert bench.sent == []
    assert bench.told == [events.SessionEnded(1, "", "")]
    bench.clear().receive(frames.SessionClosed(), frames.SessionDetached())  # both for a session that is gone
    assert (bench.sent, bench.told) == ([], [])


def test_a_connection_lost_while_a_session_is_detached(bench: Bench) -> None:
    bench.do(events.Publish(1, 1, gathered(b"1")))
    bench.receive(DETACHED)
    bench.reconnect()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert len(bench.take_batches()) == 1


def test_a_session_taken_elsewhere_while_it_is_detached_ends(bench: Bench) -> None:
    bench.receive(DETACHED)
    bench.clear().receive(frames.SessionClosed("session-taken", "resumed elsewhere"))
    assert bench.told == [events.SessionEnded(1, "session-taken", "resumed elsewhere")]


def before_it_is_open(bench: Bench) -> None:
    bench.do(events.OpenSession(2))
    bench.receive(DETACHED, session=2)


def twice_in_a_row(bench: Bench) -> None:
    bench.receive(DETACHED, DETACHED)


def a_session_that_never_was(bench: Bench) -> None:
    bench.receive(DETACHED, session=9)


def the_connection_itself(bench: Bench) -> None:
    bench.receive(DETACHED, session=0)


def followed_by_a_delivery(bench: Bench) -> None:
    bench.do(events.FramesReceived([Received(1, DETACHED, b""), Received(1, frames.Deliver(1, 0), batch_of(1))]))


@pytest.mark.parametrize(
    "violate",
    [before_it_is_open, twice_in_a_row, a_session_that_never_was, the_connection_itself, followed_by_a_delivery],
    ids=lambda violate: violate.__name__,
)
def test_what_a_broker_must_not_do(bench: Bench, violate: Callable[[Bench], None]) -> None:
    violate(bench)
    (failed,) = bench.told_of(events.ConnectionFailed)
    assert isinstance(failed.error, RemoteProtocolError)
    assert failed.error.code in ("unexpected-frame", "unknown-session")

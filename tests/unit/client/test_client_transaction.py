"""Goal: a commit is one frame, sent until it is answered, and changes all or nothing on this side too.
Method: frames by hand against the machine."""
import pytest

from angarium.core.client import events
from angarium.core.errors import LocalProtocolError
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from tests.unit.client.client_bench import PRODUCER_ID, QUEUE, SESSION_ID, Bench, gathered
from tests.unit.client.test_client_consumer import arrived, deliver


@pytest.fixture
def bench() -> Bench:
    bench = Bench().ready()
    bench.do(events.OpenSession(1, transacted=True))
    bench.receive(frames.SessionOpened(SESSION_ID))
    assert bench.sent_frames()[-1] == frames.SessionOpen(b"", True)
    return bench.with_producer().with_consumer(prefetch=10)


def commit(bench: Bench, *bodies: bytes, settles: tuple[tuple[int, int], ...] = ()) -> None:
    publishes = [(1, [gathered(*bodies)])] if bodies else []
    bench.do(events.Commit(1, publishes, [(1, settles)] if settles else []))


def sent_commit(bench: Bench) -> tuple[frames.Commit, list[Batch]]:
    """The one commit that was sent since the last look."""
    [(frame, payload)] = [(r.frame, r.payload) for r in bench.sent if isinstance(r.frame, frames.Commit)]
    bench.sent.clear()
    batches, at = [], 0
    for _, size in frame.publishes:
        batches.append(Batch.parse(payload[at : at + size]))
        at += size
    assert at == len(payload)
    return frame, batches


def test_everything_goes_in_one_frame(bench: Bench) -> None:
    deliver(bench, 0, 5)
    parts = [gathered(b"a", b"b"), gathered(b"c")]
    bench.do(events.Commit(1, [(1, parts)], [(1, [(0, 2), (4, 5)])]))
    assert len(bench.sent) == 1
    frame, batches = sent_commit(bench)
    assert (frame.number, frame.settles) == (1, [(1, [(0, 2), (4, 5)])])
    assert [(batch.producer, batch.first_sequence, batch.bodies()) for batch in batches] == [
        (PRODUCER_ID, 1, [b"a", b"b"]), (PRODUCER_ID, 3, [b"c"]),
    ]  # fmt: skip
    bench.receive(frames.Committed(1))
    assert bench.told[-1] == events.Committed(1)
    assert bench.take_sent() == [frames.Credit(1, 13)], "three are settled now, two still held"
    commit(bench, b"d")
    frame, batches = sent_commit(bench)
    assert (frame.number, batches[0].first_sequence) == (2, 4)


def test_the_commit_waits_for_its_producers_and_consumers(bench: Bench) -> None:
    bench.do(events.OpenProducer(1, 2, "other", QUEUE))
    bench.clear()
    bench.do(events.Commit(1, [(2, [gathered(b"x")])], []))
    assert bench.take_sent() == []
    bench.receive(frames.ProducerOpened(2, b"q" * 16, 0))
    _, [batch] = sent_commit(bench)
    assert batch.producer == b"q" * 16


def test_an_aborted_commit_leaves_sequences_and_positions_as_they_were(bench: Bench) -> None:
    deliver(bench, 0, 3)
    commit(bench, b"a", b"b", settles=((0, 2),))
    bench.receive(frames.Aborted(1, "destination-full", "no room"))
    assert bench.told[-1] == events.Aborted(1, "destination-full", "no room")
    bench.clear()
    bench.do(events.Recover(1, 1, [(2, 3)]))
    assert bench.take_sent() == [frames.Recover(1, 1, [(0, 2)])]
    commit(bench, b"c")
    frame, [batch] = sent_commit(bench)
    assert (frame.number, batch.first_sequence) == (2, 1)


def test_an_unanswered_commit_goes_again_as_the_same_bytes_under_its_number(bench: Bench) -> None:
    deliver(bench, 0, 3)
    bench.clear()
    commit(bench, b"a", settles=((0, 2),))
    payload = bench.sent[0].payload
    bench.reconnect()
    kinds = [type(frame) for frame in bench.take_sent()]
    assert frames.Commit not in kinds, "not before producers and consumers are open again"
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 1))  # the log has the message: it was committed
    assert frames.Commit not in [type(frame) for frame in bench.take_sent()]
    bench.receive(frames.ConsumerOpened(1, lost=[(0, 2)]))
    assert bench.sent[-1].payload == payload
    frame, _ = sent_commit(bench)
    assert frame.number == 1
    assert not bench.told_of(events.PositionsLost), "they are gone because they are settled"
    bench.receive(frames.Committed(1))
    assert bench.told[-1] == events.Committed(1)
    commit(bench, b"b")
    _, [batch] = sent_commit(bench)
    assert batch.first_sequence == 2


def test_what_a_commit_settles_is_named_as_held_until_it_is_answered(bench: Bench) -> None:
    deliver(bench, 0, 3)
    commit(bench, settles=((0, 2),))
    bench.reconnect()
    [opened] = [frame for frame in bench.take_sent() if isinstance(frame, frames.ConsumerOpen)]
    assert opened.held == [(0, 3)]
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0), frames.ConsumerOpened(1, lost=[(1, 3)]))
    assert bench.told_of(events.PositionsLost) == [events.PositionsLost(1, 1, [(2, 3)])]


def test_a_link_that_ends_before_the_commit_was_sent_aborts_it(bench: Bench) -> None:
    bench.do(events.OpenProducer(1, 2, "prices", QUEUE))
    deliver(bench, 0, 1)
    bench.do(events.Commit(1, [(2, [gathered(b"x")])], [(1, [(0, 1)])]))
    bench.clear()
    bench.receive(frames.ProducerClosed(2, "wrong-kind", "prices is a topic"))
    assert bench.told[-1] == events.Aborted(1, "wrong-kind", "prices is a topic")
    assert bench.take_sent() == []
    commit(bench, settles=((0, 1),))
    frame, _ = sent_commit(bench)
    assert frame.number == 1, "the broker never heard of the other one"


def test_once_sent_only_the_broker_knows(bench: Bench) -> None:
    commit(bench, b"a")
    bench.reconnect()
    bench.clear()
    bench.receive(frames.ProducerClosed(1, "removed", "the destination was removed"))
    frame, _ = sent_commit(bench)
    assert frame.number == 1
    bench.receive(frames.Aborted(1, "not-open", "no such producer"))
    assert bench.told[-1] == events.Aborted(1, "not-open", "no such producer")


def test_a_closing_session_waits_for_its_commit(bench: Bench) -> None:
    commit(bench, b"a")
    bench.clear()
    bench.do(events.CloseSession(1, 30.0))
    assert bench.take_sent() == [frames.Credit(1, 0)]
    bench.receive(frames.Committed(1))
    assert bench.take_sent() == [frames.ConsumerClose(1, seen=[]), frames.SessionClose()]


def test_a_transaction_longer_than_a_frame_is_aborted_here() -> None:
    bench = Bench().ready(frame_bytes_max=4_000, body_bytes_max=1_000)
    bench.do(events.OpenSession(1, transacted=True))
    bench.receive(frames.SessionOpened(SESSION_ID))
    bench.with_producer()
    bench.do(events.Commit(1, [(1, [gathered(b"x" * 900) for _ in range(5)])], []))
    [aborted] = bench.told_of(events.Aborted)
    assert aborted.code == "transaction-too-long" and "4,000" in aborted.reason
    assert bench.take_sent() == []
    commit(bench, b"a")
    frame, [batch] = sent_commit(bench)
    assert (frame.number, batch.first_sequence) == (1, 1)


def test_what_breaks_the_rules_is_refused_and_changes_nothing(bench: Bench) -> None:
    deliver(bench, 0, 3)
    bench.clear()
    with pytest.raises(LocalProtocolError, match="is transacted"):
        bench.do(events.Publish(1, 1, gathered(b"x")))
    with pytest.raises(LocalProtocolError, match="is transacted"):
        bench.do(events.Settle(1, 1, settled=[(0, 1)]))
    with pytest.raises(LocalProtocolError, match="not all held"):
        commit(bench, settles=((2, 4),))
    with pytest.raises(LocalProtocolError, match="not open"):
        bench.do(events.Commit(1, [(7, [gathered(b"x")])], []))
    commit(bench, settles=((0, 1),))
    with pytest.raises(LocalProtocolError, match="not answered"):
        commit(bench, settles=((1, 2),))
    with pytest.raises(LocalProtocolError, match="not answered"):
        bench.do(events.Recover(1, 1))
    assert len(bench.sent) == 1
    plain = Bench().ready().with_session()
    with pytest.raises(LocalProtocolError, match="not transacted"):
        plain.do(events.Commit(1, [], []))


@pytest.mark.parametrize("answer", [frames.Committed(1), frames.Aborted(1, "x", "y"), frames.Committed(2)], ids=repr)
def test_an_answer_to_nothing_is_a_violation(bench: Bench, answer: frames.Frame) -> None:
    bench.receive(answer)
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_positions_committed_are_not_handed_out_again(bench: Bench) -> None:
    deliver(bench, 0, 2)
    commit(bench, settles=((0, 2),))
    arrived(bench)
    deliver(bench, 0, 2)
    assert arrived(bench) == []


def test_the_answer_to_an_earlier_sending_will_do_and_the_second_answer_is_ignored(bench: Bench) -> None:
    commit(bench, b"a")
    bench.reconnect()
    bench.receive(frames.Committed(1))  # before producers and consumers are open again
    assert bench.told[-1] == events.Committed(1)
    bench.receive(frames.Committed(1))
    assert len(bench.told_of(events.Committed)) == 1
    assert not bench.told_of(events.ConnectionFailed)


# -- blocked destinations ----------------------------------------------------------------------------

BLOCK = frames.Block(1, "destination-full", "the queue is full")


def test_a_commit_is_held_while_one_of_its_producers_is_blocked(bench: Bench) -> None:
    bench.do(events.OpenProducer(1, 2, "other", QUEUE))
    bench.receive(frames.ProducerOpened(2, b"q" * 16, 0), BLOCK)
    deliver(bench, 0, 1)
    bench.clear()
    bench.do(events.Commit(1, [(2, [gathered(b"x")]), (1, [gathered(b"y")])], [(1, [(0, 1)])]))
    assert bench.take_sent() == []
    bench.receive(frames.Unblock(1))
    frame, _ = sent_commit(bench)
    assert frame.number == 1
    assert not bench.told_of(events.Aborted)


def test_a_commit_that_publishes_nothing_there_is_not_held(bench: Bench) -> None:
    deliver(bench, 0, 1)
    bench.receive(BLOCK)
    bench.clear()
    commit(bench, settles=((0, 1),))
    sent_commit(bench)


def test_a_commit_that_was_sent_goes_again_also_to_a_blocked_destination(bench: Bench) -> None:
    deliver(bench, 0, 1)
    commit(bench, b"a", settles=((0, 1),))
    bench.reconnect()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 1), BLOCK)
    bench.clear()
    bench.receive(frames.ConsumerOpened(1))
    frame, _ = sent_commit(bench)
    assert frame.number == 1, "the broker may have done it: its answer is owed"


def test_a_held_commit_can_be_withdrawn_and_one_that_was_sent_cannot(bench: Bench) -> None:
    deliver(bench, 0, 1)
    bench.receive(BLOCK)
    bench.clear()
    commit(bench, b"a", settles=((0, 1),))
    bench.do(events.WithdrawCommit(1))
    [aborted] = bench.told_of(events.Aborted)
    assert aborted.code == "rolled-back"
    assert bench.take_sent() == []
    with pytest.raises(LocalProtocolError, match="nothing to withdraw"):
        bench.do(events.WithdrawCommit(1))
    bench.receive(frames.Unblock(1))
    assert bench.take_sent() == []
    commit(bench, b"b")
    frame, [batch] = sent_commit(bench)
    assert (frame.number, batch.first_sequence) == (1, 1), "the broker never heard of the other one"
    with pytest.raises(LocalProtocolError, match="was sent"):
        bench.do(events.WithdrawCommit(1))
    bench.receive(frames.Committed(1))
    assert bench.told[-1] == events.Committed(1)

"""Goal: batches grow with the load, no limit is passed, nothing is confirmed by guesswork, and resending is exact.
Method: frames by hand against the machine."""
import pytest

from angarium.core.client import events
from angarium.core.client.gathered import BATCH_COST_MAX, BATCH_MESSAGES_MAX, MESSAGE_COST, Options
from angarium.core.client.producer import IN_FLIGHT_MAX
from angarium.core.errors import LocalProtocolError
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from tests.unit.client.client_bench import PRODUCER_ID, QUEUE, SESSION_ID, Bench, gathered


@pytest.fixture
def bench() -> Bench:
    return Bench().ready().with_session().with_producer()


def publish(bench: Bench, *bodies: bytes, producer: int = 1) -> None:
    bench.do(events.Publish(1, producer, gathered(*bodies)))


def sequences(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.first_sequence, batch.last_sequence) for batch in batches]


def test_an_idle_producers_message_leaves_at_once(bench: Bench) -> None:
    publish(bench, b"one", b"two")
    [batch] = bench.take_batches()
    assert (batch.producer, batch.first_sequence, batch.bodies()) == (PRODUCER_ID, 1, [b"one", b"two"])


def test_what_piles_up_behind_four_batches_leaves_as_one(bench: Bench) -> None:
    for n in range(10):
        publish(bench, b"%d" % n)
    assert sequences(bench.take_batches()) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    bench.receive(frames.Confirm(1, 1))
    assert bench.told == [events.Confirmed(1, 1, 1, 1 + MESSAGE_COST, 1)]
    [batch] = bench.take_batches()
    assert batch.bodies() == [b"4", b"5", b"6", b"7", b"8", b"9"]
    assert batch.first_sequence == 5


def test_a_cumulative_confirm_opens_the_whole_window(bench: Bench) -> None:
    for n in range(6):
        publish(bench, b"%d" % n)
    bench.clear().receive(frames.Confirm(1, 4))
    assert bench.told == [events.Confirmed(1, 1, 4, 4 * (1 + MESSAGE_COST), 4)]
    assert sequences(bench.take_batches()) == [(5, 6)]


def test_a_batch_stays_within_its_limits(bench: Bench) -> None:
    half = b"x" * (BATCH_COST_MAX // 2 - MESSAGE_COST)
    for _ in range(IN_FLIGHT_MAX):
        publish(bench, b"-")
    for _ in range(3):
        publish(bench, half)
    bench.clear().receive(frames.Confirm(1, 4))
    assert [batch.count for batch in bench.take_batches()] == [2, 1]
    empty = gathered(*[b""] * BATCH_MESSAGES_MAX)
    bench.do(events.Publish(1, 1, empty))
    assert [batch.count for batch in bench.take_batches()] == [BATCH_MESSAGES_MAX]


def test_one_past_the_limit_of_a_batch_is_refused(bench: Bench) -> None:
    with pytest.raises(LocalProtocolError, match="publish at least one"):
        bench.do(events.Publish(1, 1, gathered(*[b""] * (BATCH_MESSAGES_MAX + 1))))
    with pytest.raises(LocalProtocolError, match="publish at least one"):
        bench.do(events.Publish(1, 1, gathered()))
    bench.do(events.Publish(1, 1, gathered(b"x" * (BATCH_COST_MAX * 2))))  # alone it may be long
    assert sequences(bench.take_batches()) == [(1, 1)]


def test_the_sessions_unconfirmed_bytes_are_bounded_and_fairly_shared() -> None:
    body_bytes = BATCH_COST_MAX // 2 + 1_000
    limit = 2 * body_bytes + 10_000
    bench = Bench().ready(unconfirmed_bytes_max=limit).with_session().with_producer()
    bench.do(events.OpenProducer(1, 2, "other", QUEUE))
    bench.receive(frames.ProducerOpened(2, b"q" * 16, 0))
    for producer in (1, 2):
        for _ in range(4):
            publish(bench, b"x" * body_bytes, producer=producer)  # two make a batch too large, and three too many bytes
    in_flight, served = bench.take_batches(), b""
    while in_flight:
        assert sum(len(batch.data) for batch in in_flight) <= limit
        batch = in_flight.pop(0)
        served += batch.producer[:1]
        bench.receive(frames.Confirm(1 if batch.producer == PRODUCER_ID else 2, batch.last_sequence))
        in_flight += bench.take_batches()
    assert served == b"pppqpqqq"  # the third p was in the row before the first q


def test_a_batch_above_the_sessions_limit_travels_alone() -> None:
    bench = Bench().ready(unconfirmed_bytes_max=1_000).with_session().with_producer()
    publish(bench, b"x" * 5_000)
    publish(bench, b"y")
    assert sequences(bench.take_batches()) == [(1, 1)]
    bench.receive(frames.Confirm(1, 1))
    assert sequences(bench.take_batches()) == [(2, 2)]


def test_a_full_transport_stops_new_batches(bench: Bench) -> None:
    bench.do(events.WritingPaused())
    publish(bench, b"1")
    publish(bench, b"2")
    assert bench.take_batches() == []
    bench.do(events.WritingResumed())
    assert sequences(bench.take_batches()) == [(1, 2)]


def test_sends_gather_while_the_producer_opens() -> None:
    bench = Bench().ready().with_session()
    bench.do(events.OpenProducer(1, 1, "orders", QUEUE))
    publish(bench, b"1")
    publish(bench, b"2")
    assert bench.take_batches() == []
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert sequences(bench.take_batches()) == [(1, 2)]
    assert bench.told_of(events.ProducerReady) == [events.ProducerReady(1, 1, PRODUCER_ID)]


def test_columns_exist_only_where_some_message_has_them(bench: Bench) -> None:
    options = Options(priority=7, expiry_ms=5, headers=b"\x80", properties=b"\x81\xa1a\x01")
    bench.do(events.Publish(1, 1, gathered(b"a", b"b", options={1: options})))
    bench.do(events.Publish(1, 1, gathered(b"c")))
    with_columns, plain = bench.take_batches()
    assert with_columns.priorities() == bytes([4, 7])
    assert list(with_columns.expiries_ms() or []) == [0, 5]
    assert with_columns.headers() == [b"", b"\x80"]
    assert with_columns.properties() == [b"", b"\x81\xa1a\x01"]
    assert plain.columns == 0


def test_merging_keeps_options_with_their_message(bench: Bench) -> None:
    for _ in range(IN_FLIGHT_MAX):
        publish(bench, b"-")
    publish(bench, b"a", b"b")
    bench.do(events.Publish(1, 1, gathered(b"c", b"d", options={1: Options(priority=9)})))
    bench.clear().receive(frames.Confirm(1, 4))
    [batch] = bench.take_batches()
    assert batch.bodies() == [b"a", b"b", b"c", b"d"]
    assert batch.priorities() == bytes([4, 4, 4, 9])
    assert batch.headers() is None


# -- reconnecting ----------------------------------------------------------------------------------


def test_unconfirmed_batches_are_resent_as_the_same_bytes(bench: Bench) -> None:
    for n in range(3):
        publish(bench, b"%d" % n)
    before = [received.payload for received in bench.sent]
    bench.receive(frames.Confirm(1, 1))
    bench.reconnect()
    assert bench.take_sent() == [frames.ProducerOpen(1, "orders", QUEUE, PRODUCER_ID, 1)]
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 1))
    assert [received.payload for received in bench.sent] == before[1:]


def test_what_the_log_has_accepted_is_not_resent_but_not_confirmed_either(bench: Bench) -> None:
    for n in range(3):
        publish(bench, b"%d" % n)
    bench.reconnect().clear()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 2))
    assert sequences(bench.take_batches()) == [(3, 3)]
    assert bench.told_of(events.Confirmed) == []
    bench.receive(frames.Confirm(1, 3))
    assert [command.sequence for command in bench.told_of(events.Confirmed)] == [3]


def test_nothing_is_sent_twice_on_one_connection(bench: Bench) -> None:
    for n in range(6):
        publish(bench, b"%d" % n)
    bench.reconnect()
    publish(bench, b"6")
    bench.clear().receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert sequences(bench.take_batches()) == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize("limits", [{"body_bytes_max": 150_000}, {"frame_bytes_max": 150_000, "body_bytes_max": 9}])
def test_what_no_longer_fits_the_broker_ends_the_producer_after_what_is_in_flight(
    bench: Bench, limits: dict[str, object]
) -> None:
    publish(bench, b"small")
    bench.do(events.Disconnected("cut"))
    publish(bench, b"x" * 200_000)
    publish(bench, b"y" * 200_000)
    bench.tick_to(1.0)
    bench.reach(**limits)
    bench.receive(frames.SessionOpened(SESSION_ID))
    bench.clear().receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert sequences(bench.take_batches()) == [(1, 1)]
    publish(bench, b"z")  # may not overtake
    assert bench.take_told() == [] and bench.take_sent() == []
    bench.receive(frames.Confirm(1, 1))
    confirmed, ended = bench.told
    assert isinstance(confirmed, events.Confirmed) and isinstance(ended, events.ProducerEnded)
    assert ended.code == "message-too-long" and "200,000 bytes" in ended.reason
    assert bench.take_sent() == [frames.ProducerClose(1)]


def test_with_nothing_in_flight_such_a_body_ends_the_producer_at_once() -> None:
    bench = Bench().ready(body_bytes_max=10, frame_bytes_max=1_000).with_session().with_producer()
    bench.do(events.Publish(1, 1, gathered(b"x" * 11)))
    (ended,) = bench.told_of(events.ProducerEnded)
    assert ended.code == "message-too-long"


def test_what_gathered_is_sent_in_parts_to_a_broker_of_shorter_frames() -> None:
    """Once: where `frame_bytes_max` was below 512 KiB, a burst of small messages ended the producer as too long."""
    bench = Bench().ready(body_bytes_max=500, frame_bytes_max=1_000).with_session().with_producer()
    bodies = [b"%d" % n * 150 for n in range(10)]
    bench.clear().do(events.Publish(1, 1, gathered(*bodies, options={7: Options(priority=9)})))
    sent = bench.take_batches()
    bench.receive(frames.Confirm(1, 5))
    sent += bench.take_batches()
    assert bench.told_of(events.ProducerEnded) == []
    assert max(len(batch.data) for batch in sent) < 1_000
    assert [body for batch in sent for body in batch.bodies()] == bodies
    priorities = [batch.priorities() or bytes([4]) * batch.count for batch in sent]
    assert b"".join(priorities) == bytes([4] * 7 + [9] + [4] * 2)


# -- refusals and blocks ---------------------------------------------------------------------------


def test_refused_messages_fail_and_later_ones_go_on(bench: Bench) -> None:
    for n in range(6):
        publish(bench, b"%d" % n)
    bench.clear().receive(frames.Refuse(1, 2, 3, "full", "no room"))
    assert bench.told == [events.Refused(1, 1, 2, 3, "full", "no room", 2 * (1 + MESSAGE_COST), 2)]
    assert sequences(bench.take_batches()) == [(5, 6)]
    bench.clear().receive(frames.Confirm(1, 6))
    assert bench.told == [events.Confirmed(1, 1, 6, 4 * (1 + MESSAGE_COST), 4)]


def test_nothing_is_remembered_of_refusals_that_are_over(bench: Bench) -> None:
    for first in range(1, 50, 2):
        publish(bench, b"no")
        publish(bench, b"yes")
        bench.receive(frames.Refuse(1, first, first, "full", "no room"))
        bench.receive(frames.Confirm(1, first + 1))
    assert len(bench.told_of(events.Refused)) == 25
    assert not bench.machine._sessions[1]._producers[1]._refused


def test_part_of_a_batch_may_be_refused(bench: Bench) -> None:
    publish(bench, b"1", b"2", b"3")
    bench.receive(frames.Refuse(1, 3, 3, "full", ""))
    assert [command.count for command in bench.told_of(events.Refused)] == [0]
    bench.receive(frames.Confirm(1, 2))
    assert [command.count for command in bench.told_of(events.Confirmed)] == [3]
    bench.reconnect().clear()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 2))
    assert bench.take_batches() == []


def test_refused_batches_are_not_resent(bench: Bench) -> None:
    publish(bench, b"1")
    publish(bench, b"2")
    bench.receive(frames.Refuse(1, 1, 1, "full", ""))
    bench.reconnect().clear()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert sequences(bench.take_batches()) == [(2, 2)]


def test_a_blocked_producer_waits_until_it_is_unblocked(bench: Bench) -> None:
    bench.receive(frames.Block(1, "destination-full", "1,000 of 1,000"))
    publish(bench, b"1")
    assert bench.take_batches() == []
    bench.receive(frames.Unblock(1))
    assert sequences(bench.take_batches()) == [(1, 1)]
    assert bench.told == [events.Blocked(1, 1, "destination-full", "1,000 of 1,000"), events.Unblocked(1, 1)]


def test_a_block_ends_with_the_connection_unless_it_is_said_again(bench: Bench) -> None:
    bench.receive(frames.Block(1, "destination-full", ""))
    publish(bench, b"1")
    bench.reconnect().clear()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert bench.told == [events.Unblocked(1, 1)]
    assert sequences(bench.take_batches()) == [(1, 1)]


def test_a_producer_that_is_blocked_from_the_start_publishes_nothing_before_it_is_told() -> None:
    bench = Bench().ready().with_session()
    bench.do(events.OpenProducer(1, 1, "orders", QUEUE))
    publish(bench, b"1")
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0, b"", True))
    assert bench.take_batches() == []
    bench.receive(frames.Block(1, "destination-full", "1,000 of 1,000"))
    assert bench.take_batches() == []
    bench.receive(frames.Unblock(1))
    assert sequences(bench.take_batches()) == [(1, 1)]


def test_a_producer_of_what_cannot_be_created_is_told_before_it_is_open() -> None:
    bench = Bench().ready().with_session()
    bench.do(events.OpenProducer(1, 1, "orders", QUEUE))
    publish(bench, b"1")
    bench.clear().receive(frames.Block(1, "disk-full", "no space left"))
    assert bench.told == [events.Blocked(1, 1, "disk-full", "no space left")]
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
    assert bench.told[-1] == events.Unblocked(1, 1)
    assert sequences(bench.take_batches()) == [(1, 1)]


def test_what_was_under_way_is_sent_again_to_a_destination_that_is_blocked_meanwhile(bench: Bench) -> None:
    publish(bench, b"1")
    bench.reconnect().clear()
    publish(bench, b"2")
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 0, b"", True), frames.Block(1, "destination-full", ""))
    assert sequences(bench.take_batches()) == [(1, 1)]
    bench.receive(frames.Unblock(1))
    assert sequences(bench.take_batches()) == [(2, 2)]


def test_a_producer_that_the_broker_ends_is_gone(bench: Bench) -> None:
    publish(bench, b"1")
    bench.clear().receive(frames.ProducerClosed(1, "removed", "no such queue"))
    assert bench.told == [events.ProducerEnded(1, 1, "removed", "no such queue")]
    bench.receive(frames.Confirm(1, 1))  # was on its way
    assert len(bench.told) == 1
    with pytest.raises(LocalProtocolError, match="not open"):
        publish(bench, b"2")
    bench.do(events.OpenProducer(1, 2, "orders", QUEUE))
    assert bench.take_sent() == [frames.ProducerOpen(2, "orders", QUEUE)]


def test_the_bytes_of_an_ended_producer_come_free() -> None:
    bench = Bench().ready(unconfirmed_bytes_max=150_000).with_session().with_producer()
    bench.do(events.OpenProducer(1, 2, "other", QUEUE))
    bench.receive(frames.ProducerOpened(2, b"q" * 16, 0))
    publish(bench, b"x" * 100_000)
    publish(bench, b"x" * 100_000, producer=2)
    bench.clear().receive(frames.ProducerClosed(1, "removed", ""))
    assert [batch.producer for batch in bench.take_batches()] == [b"q" * 16]


def test_only_an_idle_producer_may_be_closed(bench: Bench) -> None:
    publish(bench, b"1")
    with pytest.raises(LocalProtocolError, match="unconfirmed"):
        bench.do(events.CloseProducer(1, 1))
    bench.receive(frames.Confirm(1, 1))
    bench.clear().do(events.CloseProducer(1, 1))
    assert bench.take_sent() == [frames.ProducerClose(1)]


# -- violations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frames.Confirm(1, 3), "bad-sequence"),
        (frames.Refuse(1, 1, 1, "", ""), "bad-sequence"),  # confirmed
        (frames.Refuse(1, 2, 3, "", ""), "bad-sequence"),  # never sent
        (frames.Refuse(1, 2, 1, "", ""), "bad-sequence"),
        (frames.ProducerOpened(1, PRODUCER_ID, 0), "unexpected-frame"),
        (frames.Confirm(2, 1), "unknown-producer"),
    ],
    ids=str,
)
def test_what_a_broker_may_not_say(bench: Bench, frame: frames.Frame, code: str) -> None:
    publish(bench, b"1")
    publish(bench, b"2")
    bench.receive(frames.Confirm(1, 1))
    bench.clear().receive(frame)
    assert isinstance(bench.told[-1], events.ConnectionFailed)
    [failure] = bench.take_sent()
    assert isinstance(failure, frames.Failure) and failure.code == code


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frames.ProducerOpened(1, b"other identity..", 0), "bad-producer"),
        (frames.ProducerOpened(1, PRODUCER_ID, 2), "bad-sequence"),
        (frames.Confirm(1, 1), "unexpected-frame"),
        (frames.Unblock(1), "unexpected-frame"),
    ],
    ids=str,
)
def test_what_a_broker_may_not_say_to_a_producer_that_resumes(bench: Bench, frame: frames.Frame, code: str) -> None:
    publish(bench, b"1")
    bench.reconnect().clear()
    bench.receive(frame)
    [failure] = bench.take_sent()
    assert isinstance(failure, frames.Failure) and failure.code == code


def test_a_repeated_confirm_is_harmless(bench: Bench) -> None:
    publish(bench, b"1")
    bench.clear().receive(frames.Confirm(1, 1), frames.Confirm(1, 1))
    assert len(bench.told) == 1


def test_a_refusal_that_is_said_again_is_told_once() -> None:
    bench = Bench().ready().with_session().with_producer()
    bench.do(events.Publish(1, 1, gathered(b"a", b"b", b"c")))
    refusal = frames.Refuse(1, 2, 3, "destination-full", "no room")
    bench.receive(refusal)
    assert [(told.first, told.last) for told in bench.told_of(events.Refused)] == [(2, 3)]
    bench.reconnect()
    bench.receive(frames.ProducerOpened(1, PRODUCER_ID, 3))
    bench.receive(refusal)
    bench.receive(frames.Confirm(1, 3))
    assert bench.told_of(events.Refused) == []
    assert not bench.told_of(events.ConnectionFailed)

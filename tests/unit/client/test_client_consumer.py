"""Goal: never more than `prefetch` unsettled, nothing handed out twice, no settlement forgotten.
Method: frames by hand against the machine."""
import pytest

from angarium.core.client import events
from angarium.core.client.consumer import PREFETCH_MAX
from angarium.core.errors import LocalProtocolError
from angarium.core.wire import frames
from angarium.core.wire.frames import Outcome
from tests.unit.client.client_bench import QUEUE, SESSION_ID, Bench, batch_of


@pytest.fixture
def bench() -> Bench:
    return Bench().ready().with_session().with_consumer(prefetch=10)


def deliver(bench: Bench, position: int, count: int, redeliveries: list[int] | None = None) -> None:
    bench.receive(frames.Deliver(1, position, redeliveries or []), payload=batch_of(count, first=position + 1))


def settle(bench: Bench, *ranges: tuple[int, int]) -> None:
    bench.do(events.Settle(1, 1, settled=ranges))


def arrived(bench: Bench) -> list[tuple[int, int]]:
    """Positions handed out, as ranges, since the last look."""
    told = bench.take_told()
    return [(c.position + c.low, c.position + c.high) for c in told if isinstance(c, events.MessagesArrived)]


def test_opening_gives_credit_for_the_prefetch() -> None:
    bench = Bench().ready().with_session().clear()
    bench.do(events.OpenConsumer(1, 1, "prices", QUEUE, 10, "archive", frames.Start.OLDEST))
    assert bench.take_sent() == [
        frames.ConsumerOpen(1, "prices", QUEUE, "archive", frames.Start.OLDEST, 10, False, [], -1)
    ]


def test_credit_follows_what_is_settled(bench: Bench) -> None:
    deliver(bench, 0, 6)
    assert arrived(bench) == [(0, 6)]
    assert bench.take_sent() == []
    settle(bench, (0, 4))
    assert bench.take_sent() == [frames.Settle(1, 1, Outcome.SETTLE, [(0, 4)], 14)]
    deliver(bench, 6, 8)
    settle(bench, (4, 14))
    assert bench.take_sent() == [frames.Settle(1, 2, Outcome.SETTLE, [(4, 14)], 24)]


def test_each_outcome_has_its_frame_and_the_last_one_carries_credit(bench: Bench) -> None:
    deliver(bench, 0, 9)
    bench.do(events.Settle(1, 1, settled=[(0, 2), (4, 5)], rejected=[(2, 4)], released=[(8, 9)]))
    assert bench.take_sent() == [
        frames.Settle(1, 1, Outcome.SETTLE, [(0, 2), (4, 5)]),
        frames.Settle(1, 2, Outcome.REJECT, [(2, 4)]),
        frames.Settle(1, 3, Outcome.RELEASE, [(8, 9)], 16),
    ]


def test_prefetch_may_rise_and_fall(bench: Bench) -> None:
    deliver(bench, 0, 6)
    bench.clear().do(events.SetPrefetch(1, 1, 20))
    assert bench.take_sent() == [frames.Credit(1, 20)]
    bench.do(events.SetPrefetch(1, 1, 2))
    assert bench.take_sent() == [frames.Credit(1, 2)]
    settle(bench, (0, 5))
    assert bench.take_sent() == [frames.Settle(1, 1, Outcome.SETTLE, [(0, 5)], 7)]
    with pytest.raises(LocalProtocolError, match="outside"):
        bench.do(events.SetPrefetch(1, 1, PREFETCH_MAX + 1))


def test_more_than_the_credit_is_a_violation(bench: Bench) -> None:
    deliver(bench, 0, 11)
    assert isinstance(bench.told[-1], events.ConnectionFailed)


@pytest.mark.parametrize("count", [1, 3])
def test_redeliveries_of_other_than_all_messages_are_a_violation(bench: Bench, count: int) -> None:
    bench.receive(frames.Deliver(1, 0, [1] * count), payload=batch_of(2))
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_credit_lowered_late_excuses_what_was_on_its_way(bench: Bench) -> None:
    bench.do(events.SetPrefetch(1, 1, 1))
    deliver(bench, 0, 10)
    assert arrived(bench) == [(0, 10)]


def test_settling_what_is_not_held_is_our_callers_mistake(bench: Bench) -> None:
    deliver(bench, 0, 5)
    bench.clear()
    for ranges in ([(4, 6)], [(0, 1), (0, 1)], [(1, 1)], [(7, 8)]):
        with pytest.raises(LocalProtocolError, match="not all held"):
            settle(bench, *ranges)
    assert bench.sent == []
    settle(bench, (0, 5))
    with pytest.raises(LocalProtocolError, match="not all held"):
        settle(bench, (0, 1))


# -- positions that are not consecutive --------------------------------------------------------------


def deliver_scattered(bench: Bench, *ranges: tuple[int, int]) -> None:
    count = sum(high - low for low, high in ranges)
    bench.receive(frames.Deliver(1, ranges[0][0], [], list(ranges)), payload=batch_of(count))


def scattered(bench: Bench) -> list[list[int]]:
    told = [c for c in bench.take_told() if isinstance(c, events.MessagesArrived)]
    return [list(c.positions[c.low : c.high]) for c in told]


def test_messages_have_the_positions_of_their_ranges(bench: Bench) -> None:
    deliver_scattered(bench, (0, 2), (5, 6), (8, 9))
    assert scattered(bench) == [[0, 1, 5, 8]]
    settle(bench, (0, 2), (8, 9))
    assert bench.take_sent() == [frames.Settle(1, 1, Outcome.SETTLE, [(0, 2), (8, 9)], 13)]
    with pytest.raises(LocalProtocolError, match="not all held"):
        settle(bench, (5, 7))


def test_of_scattered_messages_only_those_not_here_are_handed_out(bench: Bench) -> None:
    deliver(bench, 4, 2)
    bench.clear()
    deliver_scattered(bench, (0, 2), (5, 7), (8, 9))
    assert scattered(bench) == [[0, 1], [6], [8]]
    bench.reconnect()
    assert bench.take_sent()[0] == frames.ConsumerOpen(
        1, "orders", QUEUE, resumed=True, held=[(0, 2), (4, 7), (8, 9)], next_position=9
    )


@pytest.mark.parametrize("ranges", [[(0, 1), (1, 1)], [(0, 1), (2, 4)], [(1, 3)], [(0, 1), (0, 1)], [(-1, 1)]], ids=str)
def test_ranges_that_do_not_name_each_message_once_are_a_violation(bench: Bench, ranges: list[tuple[int, int]]) -> None:
    bench.receive(frames.Deliver(1, 0, [], ranges), payload=batch_of(2))
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_what_was_returned_may_come_back(bench: Bench) -> None:
    deliver(bench, 0, 3)
    bench.clear().do(events.Settle(1, 1, returned=[(1, 3)]))
    assert bench.take_sent() == [frames.Settle(1, 1, Outcome.RETURN, [(1, 3)], 12)]
    deliver(bench, 1, 2)
    assert arrived(bench) == [(1, 3)]
    bench.reconnect()
    assert not [f for f in bench.take_sent() if isinstance(f, frames.Settle) and f.ranges], "their coming answered it"


# -- duplicates ------------------------------------------------------------------------------------


def test_what_is_held_is_not_handed_out_again(bench: Bench) -> None:
    deliver(bench, 2, 3)
    arrived(bench)
    deliver(bench, 0, 6)
    assert arrived(bench) == [(0, 2), (5, 6)]
    assert bench.take_sent() == [frames.Credit(1, 13)]  # three deliveries that take no room


def test_the_last_position_received_is_not_handed_out_again_and_the_next_one_is(bench: Bench) -> None:
    lane = 1 << frames.LANE_BITS
    deliver(bench, 0, 2)
    deliver(bench, lane, 1)
    arrived(bench)
    deliver(bench, 1, 1)  # the last
    assert arrived(bench) == []
    deliver(bench, 1, 2)  # and the one after it
    assert arrived(bench) == [(2, 3)]
    deliver(bench, 3, 1)
    assert arrived(bench) == [(3, 4)]
    deliver(bench, lane, 2)  # what was received in another lane says nothing of this one
    assert arrived(bench) == [(lane + 1, lane + 2)]


def test_a_delivery_across_lanes_is_a_violation(bench: Bench) -> None:
    lane = 1 << frames.LANE_BITS
    deliver_scattered(bench, (0, 1), (lane, lane + 1))
    assert isinstance(bench.take_sent()[-1], frames.Failure)


def test_what_is_settled_is_never_handed_out_again_but_settled_again(bench: Bench) -> None:
    deliver(bench, 0, 4)
    bench.do(events.Settle(1, 1, settled=[(0, 2)], rejected=[(2, 3)]))
    bench.clear()
    deliver(bench, 0, 4)
    assert arrived(bench) == []
    assert bench.take_sent() == [
        frames.Settle(1, 3, Outcome.SETTLE, [(0, 2)]),
        frames.Settle(1, 4, Outcome.REJECT, [(2, 3)], 17),
    ]
    bench.receive(frames.Settled(1, 2))
    deliver(bench, 0, 2)  # still owed by number 3
    assert arrived(bench) == []


def test_what_was_released_may_come_back(bench: Bench) -> None:
    deliver(bench, 0, 3)
    bench.do(events.Settle(1, 1, released=[(0, 3)]))
    arrived(bench)
    deliver(bench, 1, 1, [1])
    assert arrived(bench) == [(1, 2)]


def test_a_release_that_was_answered_by_redelivery_is_not_resent(bench: Bench) -> None:
    deliver(bench, 0, 3)
    bench.do(events.Settle(1, 1, released=[(0, 3)]))
    deliver(bench, 1, 1, [1])
    bench.reconnect()
    assert bench.take_sent()[:2] == [
        frames.ConsumerOpen(1, "orders", QUEUE, resumed=True, held=[(1, 2)], next_position=3),
        frames.Settle(1, 1, Outcome.RELEASE, [(0, 1), (2, 3)]),
    ]


def test_a_release_that_has_not_left_yet_is_not_overtaken_by_a_duplicate(bench: Bench) -> None:
    deliver(bench, 0, 3)
    bench.do(events.Disconnected("cut"))
    bench.do(events.Settle(1, 1, released=[(0, 3)]))
    bench.tick_to(1.0)
    bench.reach().clear()
    bench.receive(frames.SessionOpened(SESSION_ID))
    assert [type(frame) for frame in bench.take_sent()] == [frames.ConsumerOpen, frames.Settle]


# -- violations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "payload", "code"),
    [
        (frames.Deliver(1, 0), b"nonsense", "bad-batch"),
        (frames.Deliver(1, 0), batch_of(3)[:-1] + b"?", "bad-batch"),
        (frames.Deliver(1, -1), batch_of(1), "bad-delivery"),
        (frames.Deliver(1, 0, [1]), batch_of(2), "bad-delivery"),
        (frames.ConsumerOpened(1), b"", "unexpected-frame"),
        (frames.Settled(1, 1), b"", "bad-number"),
        (frames.Deliver(2, 0), batch_of(1), "unknown-consumer"),
    ],
    ids=lambda value: str(value) if not isinstance(value, bytes) else "",
)
def test_what_a_broker_may_not_say(bench: Bench, frame: frames.Frame, payload: bytes, code: str) -> None:
    bench.receive(frame, payload=payload)
    assert [type(command) for command in bench.told] == [events.CloseTransport, events.ConnectionFailed]
    [failure] = bench.take_sent()
    assert isinstance(failure, frames.Failure) and failure.code == code


def test_no_delivery_before_the_answer_to_resuming(bench: Bench) -> None:
    bench.reconnect().clear()
    deliver(bench, 0, 1)
    assert isinstance(bench.told[-1], events.ConnectionFailed)

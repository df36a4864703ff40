"""Goal: a consumer that is cut off, synchronised or closed forgets no settlement, and says what was lost.
Method: frames by hand against the machine."""
import pytest

from angarium.core.client import events
from angarium.core.client.consumer import UNANSWERED_MAX
from angarium.core.client.session import SYNCS_MAX
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


# -- reconnecting ----------------------------------------------------------------------------------


def test_resuming_names_what_is_held_then_settles_then_gives_credit(bench: Bench) -> None:
    deliver(bench, 0, 8)
    settle(bench, (0, 2))
    bench.receive(frames.Settled(1, 1))
    settle(bench, (2, 4))
    bench.do(events.Disconnected("cut"))
    settle(bench, (6, 7))  # while there is no connection
    bench.tick_to(1.0)
    bench.reach().clear()
    bench.receive(frames.SessionOpened(SESSION_ID))
    assert bench.take_sent() == [
        frames.ConsumerOpen(1, "orders", QUEUE, credit=0, resumed=True, held=[(2, 8)], next_position=8),
        frames.Settle(1, 2, Outcome.SETTLE, [(2, 4)]),
        frames.Settle(1, 3, Outcome.SETTLE, [(6, 7)]),
    ]
    bench.receive(frames.ConsumerOpened(1))
    assert bench.take_sent() == [frames.Credit(1, 7)]  # 10 - 3 held
    deliver(bench, 8, 7)
    assert arrived(bench) == [(8, 15)]


def test_credit_alone_follows_if_nothing_is_to_be_settled(bench: Bench) -> None:
    deliver(bench, 0, 4)
    bench.reconnect()
    assert bench.take_sent() == [
        frames.ConsumerOpen(1, "orders", QUEUE, credit=0, resumed=True, held=[(0, 4)], next_position=4)
    ]
    bench.receive(frames.ConsumerOpened(1))
    assert bench.take_sent() == [frames.Credit(1, 6)]


# Once: credit came first, the lost position was delivered again, and the release of its first delivery took it away.
def test_what_is_lost_is_not_released_after_it_may_have_come_again() -> None:
    bench = Bench().ready().with_session().with_consumer(prefetch=100)
    deliver(bench, 0, 100)
    for position in range(UNANSWERED_MAX):
        settle(bench, (position, position + 1))
    bench.do(events.Settle(1, 1, released=[(70, 71)]))  # gathers: too many are unanswered
    bench.reconnect().clear()
    bench.do(events.Settle(1, 1, released=[(71, 72)]))
    assert not any(isinstance(frame, frames.Credit) for frame in bench.take_sent())
    bench.receive(frames.ConsumerOpened(1, [(70, 73)]))
    bench.receive(frames.Settled(1, UNANSWERED_MAX))
    sent = bench.take_sent()
    assert not any(isinstance(frame, frames.Settle) for frame in sent)
    assert any(isinstance(frame, frames.Credit) for frame in sent)


def test_lost_positions_are_reported_and_make_room(bench: Bench) -> None:
    deliver(bench, 0, 6)
    bench.reconnect().clear()
    bench.receive(frames.ConsumerOpened(1, [(1, 3), (5, 9)]))
    assert bench.told == [events.PositionsLost(1, 1, [(1, 3), (5, 6)]), events.ConsumerReady(1, 1)]
    assert bench.take_sent() == [frames.Credit(1, 7)]
    with pytest.raises(LocalProtocolError, match="not all held"):
        settle(bench, (1, 2))
    deliver(bench, 1, 1, [1])  # it has come back
    assert arrived(bench) == [(1, 2)]


def test_a_consumer_that_was_never_answered_resumes_too() -> None:
    bench = Bench().ready().with_session()
    bench.do(events.OpenConsumer(1, 1, "orders", QUEUE, 5))
    bench.reconnect()
    assert bench.take_sent() == [
        frames.ConsumerOpen(1, "orders", QUEUE, credit=0, resumed=True, held=[], next_position=-1)
    ]
    bench.receive(frames.ConsumerOpened(1))
    assert bench.take_sent() == [frames.Credit(1, 5)]


# -- answers ---------------------------------------------------------------------------------------


def test_sync_waits_for_the_settlements_before_it(bench: Bench) -> None:
    deliver(bench, 0, 5)
    bench.clear().do(events.Sync(1, 1))
    assert bench.take_told() == [events.Synced(1, 1)]
    settle(bench, (0, 1))
    settle(bench, (1, 2))
    bench.do(events.Sync(1, 2))
    settle(bench, (2, 3))
    bench.receive(frames.Settled(1, 1))
    assert bench.told == []
    bench.receive(frames.Settled(1, 2))
    assert bench.take_told() == [events.Synced(1, 2)]


def test_sync_over_a_lost_connection(bench: Bench) -> None:
    deliver(bench, 0, 5)
    bench.do(events.Disconnected("cut"))
    settle(bench, (0, 2))
    bench.do(events.Sync(1, 1))
    bench.tick_to(1.0)
    bench.reach()
    bench.receive(frames.SessionOpened(SESSION_ID))
    bench.receive(frames.ConsumerOpened(1))
    assert bench.told_of(events.Synced) == []
    bench.receive(frames.Settled(1, 1))
    assert bench.told_of(events.Synced) == [events.Synced(1, 1)]


def test_syncs_that_wait_are_bounded(bench: Bench) -> None:
    deliver(bench, 0, 5)
    settle(bench, (0, 1))
    for token in range(SYNCS_MAX):
        bench.do(events.Sync(1, token))
    with pytest.raises(LocalProtocolError, match="syncs wait"):
        bench.do(events.Sync(1, SYNCS_MAX))
    bench.receive(frames.Settled(1, 1))
    assert len(bench.told_of(events.Synced)) == SYNCS_MAX
    bench.do(events.Sync(1, SYNCS_MAX))


def test_sync_of_a_consumer_that_the_broker_ends_says_so(bench: Bench) -> None:
    deliver(bench, 0, 5)
    settle(bench, (0, 1))
    bench.do(events.Sync(1, 1))
    bench.clear().receive(frames.ConsumerClosed(1, "removed", "gone"))
    assert bench.told == [events.Synced(1, 1, "removed", "gone"), events.ConsumerEnded(1, 1, "removed", "gone")]


def test_lost_settlements_are_reported(bench: Bench) -> None:
    deliver(bench, 0, 5)
    settle(bench, (0, 5))
    bench.clear().receive(frames.Settled(1, 1, [(1, 2)]))
    assert bench.told == [events.SettlementsLost(1, 1, [(1, 2)])]


def test_unanswered_settlements_are_bounded_and_then_gather_without_credit() -> None:
    bench = Bench().ready().with_session().with_consumer(prefetch=200)
    deliver(bench, 0, 200)
    for position in range(0, 200, 2):
        settle(bench, (position, position + 1))
    sent = [frame for frame in bench.take_sent() if isinstance(frame, frames.Settle)]
    assert len(sent) == UNANSWERED_MAX
    assert sent[-1].credit == 200 + UNANSWERED_MAX
    bench.do(events.Sync(1, 1))
    bench.receive(frames.Settled(1, 1))
    [more] = bench.take_sent()
    assert isinstance(more, frames.Settle)
    assert (more.number, len(more.ranges), more.credit) == (UNANSWERED_MAX + 1, 100 - UNANSWERED_MAX, 300)
    assert bench.told_of(events.Synced) == []
    bench.receive(frames.Settled(1, UNANSWERED_MAX + 1))
    assert bench.told_of(events.Synced) == [events.Synced(1, 1)]


# -- closing ---------------------------------------------------------------------------------------


def test_closing_settles_first_and_takes_no_more(bench: Bench) -> None:
    deliver(bench, 0, 5)
    settle(bench, (0, 2))
    bench.clear().do(events.CloseConsumer(1, 1))
    assert bench.take_sent() == [frames.Credit(1, 5), frames.ConsumerClose(1, seen=[(2, 5)])]
    deliver(bench, 5, 3)
    assert arrived(bench) == []
    bench.receive(frames.Settled(1, 1), frames.ConsumerClosed(1))
    assert bench.told == [events.ConsumerEnded(1, 1, "", "")]


def test_a_close_is_repeated_after_a_reconnection(bench: Bench) -> None:
    deliver(bench, 0, 5)
    settle(bench, (0, 2))
    bench.do(events.CloseConsumer(1, 1, unsubscribe=True))
    bench.reconnect()
    assert [type(frame) for frame in bench.sent_frames()] == [
        frames.ConsumerOpen, frames.Settle, frames.ConsumerClose,
    ]  # fmt: skip
    assert bench.take_sent()[-1] == frames.ConsumerClose(1, unsubscribe=True, seen=[(2, 5)])


def test_closing_without_a_connection_waits_only_for_settlements(bench: Bench) -> None:
    deliver(bench, 0, 5)
    bench.do(events.Disconnected("cut"))
    settle(bench, (0, 2))
    bench.clear().do(events.CloseConsumer(1, 1))
    assert bench.told == []
    bench.tick_to(1.0)
    bench.reach()
    bench.receive(frames.SessionOpened(SESSION_ID))
    bench.receive(frames.ConsumerOpened(1), frames.Settled(1, 1))
    bench.clear().do(events.Disconnected("cut"))
    assert bench.told[-1] == events.ConsumerEnded(1, 1, "", "")


def test_a_refused_consumer_ends_with_the_code() -> None:
    bench = Bench().ready().with_session()
    bench.do(events.OpenConsumer(1, 1, "orders", QUEUE, 5))
    bench.clear().receive(frames.ConsumerClosed(1, "wrong-kind", "it is a topic"))
    assert bench.told == [events.ConsumerEnded(1, 1, "wrong-kind", "it is a topic")]


def test_closing_what_was_never_asked_for_is_done_at_once() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.OpenSession(1))
    bench.do(events.OpenConsumer(1, 1, "orders", QUEUE, 5))
    bench.clear().do(events.CloseConsumer(1, 1))
    assert bench.told == [events.ConsumerEnded(1, 1, "", "")]


def test_what_was_returned_keeps_nobody_from_closing(bench: Bench) -> None:
    """It goes back by itself when the consumer is gone."""
    deliver(bench, 0, 3)
    bench.do(events.Disconnected("cut"))
    bench.do(events.Settle(1, 1, returned=[(0, 3)]))
    bench.clear()
    bench.do(events.CloseConsumer(1, 1))
    assert bench.told == [events.ConsumerEnded(1, 1, "", "")]

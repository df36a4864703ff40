"""Goal: a recovery gives back exactly what was held, and nothing that comes before its answer reaches the application.
Method: frames by hand against the machine."""
import pytest

from angarium.core.client import events
from angarium.core.errors import LocalProtocolError
from angarium.core.wire import frames
from angarium.core.wire.frames import Outcome
from tests.unit.client.client_bench import QUEUE, SESSION_ID, Bench, batch_of
from tests.unit.client.test_client_consumer import arrived, deliver, settle

RECOVERED = events.Recovered(1, 1)


@pytest.fixture
def bench() -> Bench:
    return Bench().ready().with_session().with_consumer(prefetch=10)


def recover(bench: Bench, *unseen: tuple[int, int]) -> None:
    bench.do(events.Recover(1, 1, unseen))


def test_what_was_seen_counts_and_what_was_not_does_not(bench: Bench) -> None:
    deliver(bench, 0, 8)
    settle(bench, (1, 2))
    bench.clear()
    recover(bench, (5, 8))
    assert bench.take_sent() == [frames.Recover(1, 1, [(0, 1), (2, 5)])]


def test_until_the_answer_what_arrives_is_void(bench: Bench) -> None:
    deliver(bench, 0, 4)
    recover(bench)
    bench.clear()
    deliver(bench, 4, 3)
    assert arrived(bench) == [] and bench.take_sent() == []
    bench.receive(frames.Recovered(1, 1))
    assert bench.take_told() == [RECOVERED]
    assert bench.take_sent() == [frames.Credit(1, 17)], "seven have come, ten may follow"
    deliver(bench, 0, 7, [1, 1, 1, 1, 0, 0, 0])
    assert arrived(bench) == [(0, 7)]


def test_what_was_recovered_cannot_be_settled_before_it_comes_again(bench: Bench) -> None:
    deliver(bench, 0, 4)
    recover(bench)
    with pytest.raises(LocalProtocolError, match="not all held"):
        settle(bench, (0, 1))
    with pytest.raises(LocalProtocolError, match="not answered"):
        recover(bench)
    bench.receive(frames.Recovered(1, 1))
    deliver(bench, 0, 4, [1] * 4)
    settle(bench, (0, 4))
    recover(bench)
    assert bench.take_sent()[-1] == frames.Recover(1, 2, [])


def test_settlements_made_before_go_out_before(bench: Bench) -> None:
    deliver(bench, 0, 4)
    bench.clear()
    settle(bench, (0, 2))
    recover(bench)
    assert [type(frame) for frame in bench.take_sent()] == [frames.Settle, frames.Recover]


def test_a_cut_recovery_is_asked_for_again_with_all_of_it_named_as_held(bench: Bench) -> None:
    deliver(bench, 0, 6)
    settle(bench, (0, 1))
    recover(bench, (4, 6))
    bench.reconnect()
    assert bench.take_sent() == [
        frames.ConsumerOpen(1, "orders", QUEUE, resumed=True, held=[(0, 6)], next_position=6),
        frames.Settle(1, 1, Outcome.SETTLE, [(0, 1)]),
        frames.Recover(1, 1, [(1, 4)]),
    ], "and no credit before the answer"
    bench.receive(frames.ConsumerOpened(1, lost=[(2, 3)]))
    bench.receive(frames.Recovered(1, 1))
    assert bench.take_told()[-2:] == [events.ConsumerReady(1, 1), RECOVERED]
    assert bench.take_sent() == [frames.Credit(1, 10)]


def test_a_recovery_asked_for_without_a_link_waits_for_it(bench: Bench) -> None:
    deliver(bench, 0, 2)
    bench.do(events.Disconnected("cut"))
    recover(bench)
    bench.clear()
    bench.tick_to(bench.machine.deadline() or 0.0)
    bench.reach()
    bench.receive(frames.SessionOpened(SESSION_ID))
    recoveries = [frame for frame in bench.take_sent() if isinstance(frame, frames.Recover)]
    assert recoveries == [frames.Recover(1, 1, [(0, 2)])]


def test_a_consumer_that_never_was_open_holds_nothing() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.OpenSession(1))
    bench.do(events.OpenConsumer(1, 1, "orders", QUEUE, 10))
    recover(bench)
    assert bench.told[-1] == RECOVERED


def test_a_consumer_that_closes_gives_back_with_the_close(bench: Bench) -> None:
    deliver(bench, 0, 2)
    bench.do(events.CloseConsumer(1, 1))
    bench.clear()
    recover(bench)
    assert bench.take_told() == [RECOVERED] and bench.take_sent() == []


def test_late_and_impossible_answers(bench: Bench) -> None:
    deliver(bench, 0, 2)
    recover(bench)
    bench.receive(frames.Recovered(1, 1))
    bench.clear()
    bench.receive(frames.Recovered(1, 1))
    assert bench.take_told() == []
    bench.receive(frames.Recovered(1, 2))
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_credit_is_checked_for_void_messages_too(bench: Bench) -> None:
    recover(bench)
    bench.receive(frames.Deliver(1, 0), payload=batch_of(11))
    assert isinstance(bench.told[-1], events.ConnectionFailed)

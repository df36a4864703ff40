"""A participant of a two-phase commit, step by step."""
import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.ids import ANYBODY
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_two_phase import DECIDER, GROUP, Participant, complete, decided


def test_what_is_prepared_is_stored_and_neither_visible_nor_settled() -> None:
    side = Participant()
    reader = side.world.consumer(side.producer.destination)
    side.prepare(1, b"a")
    assert side.told() == [frames.CommitReady(1, GROUP, b"")]
    assert side.counts() == (3, 0)
    assert reader.bodies == []
    side.final(1)
    assert side.told() == [complete(side, 1)]
    assert side.counts() == (1, 1)
    assert reader.bodies == [b"a"]
    assert not side.world.disk.tables[Table.PREPARED]


def test_it_is_ready_when_it_is_durable_and_not_before() -> None:
    side = Participant()
    side.world.auto = False
    side.prepare(1, b"a")
    assert side.told() == []
    side.world.auto = True
    side.world.run_disk()
    assert side.told() == [frames.CommitReady(1, GROUP, b"")]


@pytest.mark.parametrize("is_committed", [True, False])
def test_after_a_restart_it_can_still_do_either(is_committed: bool) -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.restart()
    other = side.world.consumer(side.consumer.destination)
    side.world.advance(3.0)  # the holder has not come back in time; what is locked is nobody else's
    assert other.positions == [2]
    (side.final if is_committed else side.roll_back)(1)
    assert side.told()[-1] == complete(side, 1)
    assert side.counts() == ((1, 1) if is_committed else (3, 0))
    assert other.positions == ([2] if is_committed else [2, 0, 1])


def test_a_rollback_gives_back_to_whoever_had_it_and_in_order() -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.roll_back(1)
    assert side.consumer.positions == [0, 1, 2], "nothing comes again to who still holds it"
    side.prepare(2, b"b", settles=(0, 3))
    side.final(2)
    assert side.counts() == (0, 1)
    other = Participant()
    other.prepare(1, b"a")
    other.world.end(other.session, closed=True)
    other.roll_back(1)
    assert other.world.consumer(other.consumer.destination).positions == [0, 1, 2]


def test_who_comes_back_has_not_lost_what_is_locked_for_it() -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.world.end(side.session, closed=False)
    side.consumer.resume([(0, 3)])
    assert side.world.last(side.session, frames.ConsumerOpened).lost == []
    side.roll_back(1)
    assert side.consumer.positions == [0, 1, 2]
    side.consumer.settle((0, 3))
    assert side.consumer.settled[-1].lost == []


def test_who_has_come_back_owns_what_is_locked_also_when_others_are_late() -> None:
    """Once: after a restart it had claimed it and not yet granted credit when the time for all was over. Seed 272 of
    the spanning world."""
    side = Participant()
    side.prepare(1, b"a")
    side.restart()
    other = side.world.consumer(side.consumer.destination)
    side.consumer.resume([(0, 3)], credit=None, world=side.world)
    side.world.advance(3.0)
    side.roll_back(1)
    assert 0 not in other.positions
    side.consumer.credit(1_000)
    side.consumer.settle((0, 2))
    assert side.consumer.settled[-1].lost == []


def test_a_late_word_touches_no_other_transaction() -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.roll_back(1)
    side.prepare(2, b"b")
    side.told()
    side.final(1)
    side.roll_back(1)
    assert side.told() == [complete(side, 1)] * 2
    assert side.counts() == (3, 0)
    side.final(2)
    assert side.counts() == (1, 1)
    side.roll_back(2)
    assert side.counts() == (1, 1), "it is done"


def test_what_waits_is_not_displaced_by_an_earlier_transaction_that_is_late() -> None:
    side = Participant()
    side.prepare(2, b"b")
    side.prepare(3, b"c")
    side.told()
    side.told(ANYBODY)
    side.prepare(1, b"a")
    assert side.told() == side.told(ANYBODY) == []
    side.roll_back(2)
    assert side.told() == [complete(side, 2), frames.CommitReady(3, GROUP, b"")]


def test_in_doubt_it_asks_until_it_knows() -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.world.advance(4.9)
    assert side.told(ANYBODY) == []
    side.world.advance(10.0)
    question = frames.CommitQuestion(side.session, 1, GROUP, DECIDER)
    assert side.told(ANYBODY) == [question] * 2
    side.restart()
    side.world.advance(5.0)
    assert side.told(ANYBODY) == [question]
    side.final(1, by=ANYBODY)
    assert side.told(ANYBODY) == [complete(side, 1)]
    side.world.advance(20.0)
    assert side.told(ANYBODY) == []


def test_what_the_session_wants_next_waits_for_the_one_in_doubt() -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.told()
    side.producer.sequence = 1  # its client was told that it is committed
    side.prepare(2, b"b", settles=(2, 3))
    assert side.told() == []
    assert side.told(ANYBODY) == [frames.CommitQuestion(side.session, 1, GROUP, DECIDER)], "it asks at once"
    side.final(1, by=ANYBODY)
    assert side.told() == [decided(side, 1), frames.CommitReady(2, GROUP, b"")]
    side.final(2)
    assert side.counts() == (0, 2)


def test_prepared_again_over_another_connection_it_is_taken_over() -> None:
    side = Participant()
    side.prepare(1, b"a")
    side.told()
    side.prepare(1, b"a")
    assert side.told() == [frames.CommitReady(1, GROUP, b"")]
    side.final(1)
    side.told()
    side.prepare(1, b"a")
    assert side.told() == [decided(side, 1)]
    assert side.counts() == (1, 1)


def test_prepared_again_while_it_is_being_committed_it_is_answered_when_that_is_durable() -> None:
    """By an earlier coordinator, or by the decider: this one would wait for ever."""
    side = Participant()
    side.prepare(1, b"a")
    side.told()
    side.world.auto = False
    side.final(1, by=ANYBODY)
    side.prepare(1, b"a")
    assert side.told() == []
    side.world.auto = True
    side.world.run_disk()
    assert side.told()[-1] == decided(side, 1)


def test_what_waits_is_bounded_too() -> None:
    side = Participant(settings=DestinationSettings(prepared_bytes_max=1_000))
    side.prepare(1, b"a")
    side.told()
    side.producer.sequence = 1
    side.prepare(2, b"x" * 2_000, settles=None)
    (failed,) = side.told()
    assert isinstance(failed, frames.CommitFail)
    assert failed.code == "too-many-prepared"
    side.prepare(2, b"b", settles=None)
    side.final(1)
    assert side.told()[-1] == frames.CommitReady(2, GROUP, b"")


def test_what_comes_from_an_earlier_connection_is_void() -> None:
    side = Participant()
    side.prepare(1, b"a", attachment=b"earlier")
    (failed,) = side.told()
    assert isinstance(failed, frames.CommitFail)
    assert failed.attachment == b"earlier"
    side.prepare(1, b"a")
    side.told()
    side.prepare(1, b"a", attachment=b"earlier")
    assert isinstance(side.told()[0], frames.CommitFail), "nor does it take over what is prepared"


@pytest.mark.parametrize(
    ("settings", "code"),
    [(DestinationSettings(prepared_max=1), "too-many-prepared"),
     (DestinationSettings(prepared_bytes_max=300), "too-many-prepared")],
)  # fmt: skip
def test_what_is_prepared_is_bounded(settings: DestinationSettings, code: str) -> None:
    side = Participant(settings=settings)
    other = side.world.session()
    producer = Producer(side.world, side.producer.destination, session=other)
    batch = pack(producer.identity, 1, side.world.wall_ms, (b"x" * 200,))
    side.prepare(1, b"a")
    publishes = [(producer.destination, producer.number, len(batch))]
    side.frame(frames.CommitPrepare(1, publishes, [], b"", DECIDER), batch, by=other)
    (failed,) = side.told(other)
    assert isinstance(failed, frames.CommitFail)
    assert failed.code == code


def test_a_full_queue_counts_what_is_prepared() -> None:
    side = Participant()
    side.world.request("destination.alter", name="out", messages_max=1, over_limit="refuse")
    side.prepare(1, b"a")
    other = side.world.producer(side.producer.destination)
    other.publish(b"x")
    assert side.world.received(other.session, frames.Refuse), "the place is taken"
    side.roll_back(1)
    other.publish(b"y")
    assert other.confirmed == 2


def test_explain_and_status_tell_which_transaction_has_locked_them() -> None:
    side = Participant()
    side.prepare(7, b"a", settles=(0, 3))
    told = side.world.request("destination.explain", name="in").result
    assert told["code"] == "locked"
    assert "all 3 messages are locked by transaction 7 of session ID:" in told["sentence"]
    assert "since 20" in told["sentence"]
    assert "replica group 1 decides" in told["sentence"]
    assert side.world.describe("in")["locked"] == 3
    assert side.world.describe("out")["prepared"] == 1
    listed = side.world.request("transaction.list").result
    assert listed["prepared_count"] == 1
    assert (listed["prepared"][0]["number"], listed["prepared"][0]["decider"]) == (7, DECIDER)

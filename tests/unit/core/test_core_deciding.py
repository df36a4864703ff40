"""The decider of a two-phase commit, step by step."""
from angarium.core.destination.events import DestinationSettings
from angarium.core.ids import ANYBODY
from angarium.core.storage import Table
from angarium.core.wire import frames
from tests.unit.core.core_two_phase import DECIDER, GROUP, Participant, decided


def test_a_decision_is_told_until_all_have_completed() -> None:
    side = Participant(DECIDER)
    side.decide(1, b"a", participants=(2, 3))
    assert side.told() == [decided(side, 1)]
    side.restart()
    side.world.advance(5.0)
    finals = [frames.CommitFinal(side.session, 1, group, DECIDER) for group in (2, 3)]
    assert side.told(ANYBODY) == finals
    side.frame(frames.CommitComplete(side.session, 1, 2, DECIDER))
    side.ask(1)
    assert side.told(ANYBODY) == [frames.CommitFinal(side.session, 1, GROUP, DECIDER)]
    side.world.advance(5.0)
    assert side.told(ANYBODY) == finals[1:]
    side.frame(frames.CommitComplete(side.session, 1, 3, DECIDER))
    assert not side.world.disk.tables[Table.DECISION]
    assert side.world.manager.deadline() is None


def test_to_ask_is_to_bind() -> None:
    side = Participant(DECIDER)
    side.world.auto = False
    side.ask(1)
    assert side.told(ANYBODY) == [], "not before it is durable"
    side.world.auto = True
    side.world.run_disk()
    assert side.told(ANYBODY) == [frames.CommitRollback(side.session, 1, GROUP, DECIDER)]
    side.decide(1, b"a")
    (aborted,) = side.told()
    assert isinstance(aborted, frames.Aborted)
    assert aborted.code == "transaction-refused"
    side.decide(2, b"a")
    assert side.told() == [decided(side, 2)], "the next one is another matter"


def test_what_is_refused_stays_so_across_a_restart_and_the_sessions_end() -> None:
    side = Participant(DECIDER)
    side.ask(1)
    side.frame(frames.SessionEnded(closed=True))
    side.restart()
    side.decide(1, b"a")
    (aborted,) = side.told()
    assert isinstance(aborted, frames.Aborted)
    assert aborted.code == "transaction-refused"


def test_a_question_while_the_decision_is_written_is_answered_later() -> None:
    side = Participant(DECIDER)
    side.world.auto = False
    side.decide(1, b"a")
    side.ask(1)
    assert side.told(ANYBODY) == []
    side.world.auto = True
    side.world.run_disk()
    side.ask(1)
    assert side.told(ANYBODY) == [frames.CommitFinal(side.session, 1, GROUP, DECIDER)]


def test_an_aborted_number_is_not_committed_because_a_later_one_is() -> None:
    side = Participant(DECIDER)
    side.decide(2, b"a")
    side.told()
    side.decide(1, b"a")
    assert isinstance(side.told()[0], frames.Aborted)
    side.ask(1)
    assert side.told(ANYBODY) == [frames.CommitRollback(side.session, 1, GROUP, DECIDER)]


def test_decisions_are_bounded() -> None:
    side = Participant(DECIDER, DestinationSettings(decisions_max=1))
    side.decide(1, b"a")
    side.producer.sequence += 1
    side.told()
    side.decide(2, b"b")
    (aborted,) = side.told()
    assert isinstance(aborted, frames.Aborted)
    assert aborted.code == "too-many-decisions"

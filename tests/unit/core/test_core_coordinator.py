"""The coordinator of a two-phase commit, between a session and its groups."""
import pytest

from angarium.core.ids import ANYBODY, destination_id
from angarium.core.session.events import ToBus
from angarium.core.transaction.coordinator import COORDINATOR, Coordinator, divide, passed_on
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame
from tests.unit.core.core_clients import Consumer
from tests.unit.core.core_manager import World
from tests.unit.core.core_two_phase import DECIDER, GROUP, SETTINGS, Participant

SESSION, HERE = b"s" * 16, b"h" * 16


def begun() -> tuple[Coordinator, list[ToBus]]:
    coordinator = Coordinator(SESSION, HERE)
    publishes = [(destination_id(group, 5), group, 3) for group in (3, 1, 2)]
    commit = frames.TransactionCommit(7, publishes, [(destination_id(2, 6), 1, [(0, 1)])], HERE)
    return coordinator, coordinator.begin(7, divide(commit, b"cccaaabbb"))


def ready(group: int, attachment: bytes = HERE, number: int = 7) -> frames.CommitReady:
    return frames.CommitReady(number, group, attachment)


def test_each_group_gets_its_part_and_the_lowest_is_asked_last() -> None:
    coordinator, posted = begun()
    assert [(post.destination, post.payload) for post in posted] == [
        (destination_id(2, 0), b"bbb"), (destination_id(3, 0), b"ccc")
    ]  # fmt: skip
    assert coordinator.frame(ready(3)) == ([], None)
    ((decide,), answer) = coordinator.frame(ready(2))
    assert (decide.destination, decide.payload, answer) == (destination_id(1, 0), b"aaa", None)
    assert isinstance(decide.frame, frames.TransactionCommit)
    assert decide.frame.participants == [2, 3]
    finals, answer = coordinator.frame(frames.CommitFinal(SESSION, 7, COORDINATOR, 1))
    assert [type(post.frame) for post in finals] == [frames.CommitFinal] * 2
    assert answer is None
    first, second = (frames.CommitComplete(SESSION, 7, group, 1) for group in (2, 3))
    assert coordinator.frame(first) == ([ToBus(SESSION, destination_id(1, 0), first)], None)
    assert coordinator.frame(second)[1] == frames.Committed(7)
    assert coordinator.is_idle


def test_what_is_not_of_this_transaction_or_connection_is_ignored() -> None:
    coordinator, _ = begun()
    others: list[Frame] = [
        ready(2, b"e" * 16), ready(2, number=6), ready(3, number=8),
        frames.CommitFail(6, 2, "x", "", HERE), frames.CommitFail(7, 2, "x", "", b"e" * 16),
        frames.CommitComplete(SESSION, 7, 2, 1), frames.CommitRollback(SESSION, 6, COORDINATOR, 1),
    ]  # fmt: skip
    for stale in others:
        assert coordinator.frame(stale) == ([], None)
    coordinator.frame(ready(2))
    ((decide,), _) = coordinator.frame(ready(3))
    assert isinstance(decide.frame, frames.TransactionCommit)


@pytest.mark.parametrize("is_committed", [False, True])
def test_what_fails_is_asked_for_and_the_answer_passed_on(is_committed: bool) -> None:
    """It may have been decided, by an earlier sending."""
    coordinator, _ = begun()
    ((asked,), _) = coordinator.frame(frames.CommitFail(7, 2, "destination-full", "no room", HERE))
    assert asked == ToBus(SESSION, destination_id(1, 0), frames.CommitQuestion(SESSION, 7, COORDINATOR, 1))
    kind = frames.CommitFinal if is_committed else frames.CommitRollback
    passed, _ = coordinator.frame(kind(SESSION, 7, COORDINATOR, 1))
    assert [type(post.frame) for post in passed] == [kind] * 2
    coordinator.frame(frames.CommitComplete(SESSION, 7, 2, 1))
    answer = coordinator.frame(frames.CommitComplete(SESSION, 7, 3, 1))[1]
    aborted = frames.Aborted(7, "destination-full", "no room", HERE)
    assert answer == (frames.Committed(7) if is_committed else aborted)


def test_the_answer_to_an_earlier_sending_is_not_the_end() -> None:
    """Once: the session was resumed, and before its client had sent the commit again it was told that it is done. It
    was decided, and not yet done everywhere. Seeds 32, 55 and 73 of the spanning world."""
    coordinator = Coordinator(SESSION, HERE)
    final = frames.CommitFinal(SESSION, 7, COORDINATOR, 1)
    assert coordinator.is_concerned(final)
    assert coordinator.frame(final) == ([], None)
    coordinator, _ = begun()
    finals, answer = coordinator.frame(final)
    assert [type(post.frame) for post in finals] == [frames.CommitFinal] * 2, "they were prepared then"
    assert answer is None


def test_if_something_of_it_is_gone_all_groups_are_asked() -> None:
    coordinator = Coordinator(SESSION, HERE)
    posted = coordinator.ask_all(7, [1, 2])
    assert [post.frame for post in posted] == [frames.CommitQuestion(SESSION, 7, COORDINATOR, g) for g in (1, 2)]
    assert coordinator.frame(frames.CommitRollback(SESSION, 7, COORDINATOR, 1)) == ([], None)
    assert coordinator.frame(frames.CommitFinal(SESSION, 7, COORDINATOR, 2))[1] == frames.Committed(7)
    coordinator.ask_all(8, [1])
    answer = coordinator.frame(frames.CommitRollback(SESSION, 8, COORDINATOR, 1))[1]
    assert isinstance(answer, frames.Aborted)
    assert answer.code == "destination-removed"


def test_anybody_passes_on_what_groups_say_to_each_other() -> None:
    question = frames.CommitQuestion(SESSION, 7, GROUP, DECIDER)
    assert passed_on(question) == ToBus(ANYBODY, destination_id(DECIDER, 0), question)
    final = frames.CommitFinal(SESSION, 7, GROUP, DECIDER)
    assert passed_on(final) == ToBus(ANYBODY, destination_id(GROUP, 0), final)
    assert passed_on(frames.Ping(1)) is None


def test_consumers_are_told_apart_by_their_numbers() -> None:
    """Two consumers of one session on one queue: each gets its own back."""
    world = World(SETTINGS, number=GROUP)
    session, queue = world.session(), world.queue_with(2, 2)
    first = Consumer(world, queue, session=session, number=1, credit=2)
    second = Consumer(world, queue, session=session, number=2, credit=2)
    settles = [(queue, 1, [(0, 2)]), (queue, 2, [(2, 4)])]
    world.frame(session, destination_id(GROUP, 0), frames.CommitPrepare(1, [], settles, b"", DECIDER))
    world.frame(session, destination_id(GROUP, 0), frames.CommitRollback(session, 1, GROUP, DECIDER))
    first.settle((0, 2))
    second.settle((2, 4))
    assert [answer.lost for answer in (first.settled[-1], second.settled[-1])] == [[], []]


def test_the_coordinator_hears_what_somebody_else_has_told() -> None:
    """Once: two questions were answered, and the second answer met a part that had been prepared again meanwhile. It
    was undone, and its coordinator waited for ever. Seed 105 of the spanning world."""
    side = Participant()
    side.world.auto = False
    side.prepare(1, b"a")
    side.frame(frames.CommitRollback(side.session, 1, GROUP, DECIDER), by=ANYBODY)
    side.world.auto = True
    side.world.run_disk()
    assert side.told() == [frames.CommitRollback(side.session, 1, COORDINATOR, DECIDER)]
    coordinator, _ = begun()
    passed, answer = coordinator.frame(frames.CommitRollback(SESSION, 7, COORDINATOR, 1))
    assert [type(post.frame) for post in passed] == [frames.CommitRollback] * 2
    assert answer is None
    coordinator.frame(frames.CommitComplete(SESSION, 7, 2, 1))
    aborted = coordinator.frame(frames.CommitComplete(SESSION, 7, 3, 1))[1]
    assert isinstance(aborted, frames.Aborted)
    assert aborted.code == "transaction-refused"
    assert coordinator.is_idle

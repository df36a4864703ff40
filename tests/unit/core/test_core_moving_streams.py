"""Goal: a destination that holds very large messages is moved with all of their content, whoever dies in between; no
file is where the destination is not, and none is deleted at the source before the move is decided; whoever sends or
reads one goes on at the target. Method: two message managers with files, and decisions, step by step."""

import pytest

from angarium.core.destination.events import DecideMove, ToSession
from angarium.core.groups import decisions as d
from angarium.core.moving.files import WINDOW_FRAGMENTS
from angarium.core.storage import Table
from angarium.core.stream.events import StreamSettings
from angarium.core.wire import frames
from tests.unit.core.core_moving import SOURCE, TARGET, Pair
from tests.unit.core.core_moving_streams import CONTENT, STREAM, Sender, content_of, files_of, holding, read


def test_its_content_goes_along_and_nothing_of_it_stays() -> None:
    pair, _ = holding()
    pair.move()
    assert pair.has(TARGET) and not pair.has(SOURCE) and not files_of(pair.source)
    assert read(pair.target, 1) == CONTENT
    consumer = pair.target.consumer(pair.target.locate("q"))
    consumer.settle((0, 3))
    assert not files_of(pair.target) and not pair.target.disk.tables[Table.STREAM], "settled there, it goes"
    assert not len(pair.target.manager.moves.arrivals.files)


def test_one_that_is_not_yet_due_goes_along() -> None:
    pair, _ = holding(due_ms=1_700_000_000_000 + 1_060_000)
    pair.move()
    assert not files_of(pair.source) and content_of(pair.target) == CONTENT
    consumer = pair.target.consumer(pair.target.locate("q"))
    assert consumer.bodies == [b"before", b"after"]
    pair.target.advance(61)
    assert consumer.bodies[-1] == b"large" and read(pair.target, consumer.positions[-1]) == CONTENT


def test_the_source_keeps_its_files_until_it_is_decided_and_the_target_has_all_by_then() -> None:
    pair, _ = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: any(isinstance(command, DecideMove) for command in pair.source.moving))
    assert content_of(pair.source) == content_of(pair.target) == CONTENT
    assert pair.target.files is not None and pair.target.files.synced[STREAM] == len(CONTENT)
    assert pair.target.disk.tables[Table.STREAM]


def test_no_row_says_that_there_is_content_before_it_is_durable() -> None:
    pair, _ = holding()
    pair.target.auto = False
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    seen = 0
    for _ in range(2_000):
        pair.step(SOURCE) or pair.step(TARGET) or pair.target.complete_file() or pair.target.complete_write() \
            or pair.target.complete_read()  # fmt: skip
        if pair.target.disk.tables[Table.STREAM] or any(
            operation.table == Table.STREAM and hasattr(operation, "value")
            for write in pair.target.disk.waiting for operation in write.operations
        ):  # fmt: skip
            assert pair.target.files is not None and pair.target.files.synced[STREAM] == len(CONTENT)
            seen += 1
    assert seen and not pair.placement.moves


def test_no_more_is_on_its_way_than_a_window() -> None:
    pair, _ = holding()
    pair.target.auto = False
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    for _ in range(500):
        pair.step(SOURCE) or pair.step(TARGET) or pair.target.complete_write()
    assert pair.target.files is not None and len(pair.target.files.waiting) == WINDOW_FRAGMENTS
    assert not pair.source.moving and not pair.target.moving, "and nothing is said as long as nothing is written"


def test_a_move_that_is_given_up_leaves_no_file() -> None:
    pair, queue = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: 0 < len(content_of(pair.target)) < len(CONTENT))
    assert 0 < len(content_of(pair.target)) < len(CONTENT)
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(TARGET)
    pair.hear(SOURCE)
    pair.run()
    assert not files_of(pair.target) and not len(pair.target.manager.moves.arrivals.files)
    assert pair.source.locate("q") == queue and read(pair.source, 1) == CONTENT


def test_one_that_was_copied_whole_and_is_given_up_leaves_no_file() -> None:
    pair, _ = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: any(isinstance(command, DecideMove) for command in pair.source.moving))
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(TARGET)
    pair.hear(SOURCE)
    assert not files_of(pair.target) and not pair.target.disk.tables[Table.STREAM]
    assert read(pair.source, 1) == CONTENT
    pair.move()
    assert read(pair.target, 1) == CONTENT and not files_of(pair.source), "and it can be moved again"


@pytest.mark.parametrize("victim", [SOURCE, TARGET])
@pytest.mark.parametrize("at", range(0, 90, 5))
def test_whoever_dies_at_whatever_step_its_content_is_in_one_group_in_the_end(at: int, victim: int) -> None:
    pair, _ = holding()
    pair.crash_at(at, victim, then_s=90)
    assert pair.placement.group_of("q") == TARGET and not pair.placement.moves
    assert read(pair.target, 1) == CONTENT and not files_of(pair.source) and list(files_of(pair.target)) == [STREAM]


def test_a_new_primary_of_the_target_goes_on_where_its_file_ends() -> None:
    pair, _ = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: len(content_of(pair.target)) > 17)
    pair.crash(TARGET)
    pair.source.moving.clear()
    kept = len(content_of(pair.target))
    assert 0 < kept < len(CONTENT)
    asked: list[int] = []
    for _ in range(30):
        pair.source.advance(1.0)
        while pair.source.moving or pair.target.moving:
            asked += [
                command.frame.fragment for command in pair.source.moving
                if isinstance(command, ToSession) and isinstance(command.frame, frames.MoveBlock)
            ]  # fmt: skip
            pair.step(SOURCE) or pair.step(TARGET)
    assert asked and min(asked) == kept
    pair.hear(TARGET)
    pair.hear(SOURCE)
    assert read(pair.target, 1) == CONTENT


def test_messages_that_are_lost_repeated_or_late_change_nothing() -> None:
    pair, _ = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    late: list[ToSession] = []
    steps = 0
    while pair.placement.moves and steps < 3_000:
        steps += 1
        for number in (SOURCE, TARGET):
            if pair.worlds[number].moving:
                command = pair.worlds[number].moving[0]
                pair.step(number, is_lost=steps % 7 == 0)
                if isinstance(command, ToSession):
                    late.append(command)
                    if steps % 3 == 1:
                        pair.pass_on(command)
            else:
                pair.worlds[number].advance(0.3)
    assert not pair.placement.moves and pair.placement.group_of("q") == TARGET
    pair.hear(SOURCE)
    pair.hear(TARGET)
    for command in late:
        pair.pass_on(command)
    assert read(pair.target, 1) == CONTENT and list(files_of(pair.target)) == [STREAM] and not files_of(pair.source)
    fragments = sum(isinstance(command.frame, frames.MoveBlock) for command in late)
    assert fragments < 3 * len(CONTENT), "one that is repeated is not answered by a repetition"


def test_fragments_that_overtake_each_other_are_asked_for_once() -> None:
    """Any client manager passes them on, another one each time."""
    pair, _ = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    fragments = 0
    while pair.source.moving or pair.target.moving:
        pair.source.moving.reverse()
        fragments += sum(
            isinstance(command, ToSession) and isinstance(command.frame, frames.MoveBlock)
            for command in list(pair.source.moving)[:1]
        )  # fmt: skip
        pair.step(SOURCE) or pair.step(TARGET)
    assert fragments == len(CONTENT) and not pair.placement.moves
    pair.hear(SOURCE)
    pair.hear(TARGET)
    assert read(pair.target, 1) == CONTENT


def test_a_sender_goes_on_at_the_target() -> None:
    pair = Pair()
    sender = Sender(pair.source, pair.source.locate("q"))
    sender.send(0, 18)
    assert pair.source.last(sender.session, frames.StreamStored).stored == 16
    pair.move()
    assert pair.source.received(sender.session, frames.SessionDetached)
    assert not files_of(pair.source) and len(content_of(pair.target)) == 16, "as much as it was told"
    sender.world, sender.destination = pair.target, pair.target.locate("q")
    sender.begin(resumed=True)
    assert (sender.opened.stored, sender.opened.following) == (16, 16)
    sender.send(16, len(CONTENT))
    sender.publish(pair.target.producer(sender.destination))
    assert read(pair.target, 0) == CONTENT


def test_one_whose_message_is_still_to_come_is_there_for_it() -> None:
    """All of it was sent, and the message that is to hold it, perhaps of a transaction, was not."""
    pair = Pair()
    queue = pair.source.locate("q")
    sender = Sender(pair.source, queue)
    sender.send(0, len(CONTENT))
    pair.move()
    sender.publish(pair.target.producer(pair.target.locate("q")))
    assert read(pair.target, 0) == CONTENT and not files_of(pair.source)


def test_a_sender_that_never_comes_back_leaves_nothing_at_the_target() -> None:
    pair = Pair()
    sender = Sender(pair.source, pair.source.locate("q"))
    sender.send(0, 18)
    pair.move()
    pair.target.advance(StreamSettings().unfinished_keep_s + 1)
    assert not files_of(pair.target)


def test_a_sender_goes_on_where_it_was_if_the_move_is_given_up() -> None:
    pair = Pair()
    queue = pair.source.locate("q")
    sender = Sender(pair.source, queue)
    sender.send(0, 12)
    pair.source.auto = False
    sender.send(12, 16)  # with which a sync goes; and the disk is slow
    pair.begin()
    pair.hear(SOURCE)
    while pair.source.complete_write() or pair.source.complete_read():
        pass
    assert not pair.has(SOURCE)
    pair.source.auto = True
    pair.source.run_disk()
    pair.hear(TARGET)
    pair.source.advance(StreamSettings().unfinished_keep_s / 8)
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(SOURCE)
    pair.hear(TARGET)
    sender.begin(resumed=True)
    assert (sender.opened.stored, sender.opened.following) == (16, 16), "what became durable meanwhile counts"
    sender.send(16, len(CONTENT))
    sender.publish(pair.source.producer(queue))
    assert read(pair.source, 0) == CONTENT and not files_of(pair.target)

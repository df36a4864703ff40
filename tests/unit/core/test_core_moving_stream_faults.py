"""Goal: what stands in the way of a move of very large messages is met without loss: files that others have as well,
damaged content, disks that fail or are full, too many streams, small windows. Method: as in
test_core_moving_streams.py."""
from collections.abc import Callable

import msgspec
import pytest

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.ids import ANYBODY
from angarium.core.moving import files
from angarium.core.moving.departures import PATIENCE_S
from angarium.core.storage import Table
from angarium.core.stream.events import FileFailed, StreamSettings
from angarium.core.wire import frames
from tests.unit.core.core_moving import SOURCE, TARGET
from tests.unit.core.core_moving_streams import CONTENT, STREAM, content_of, files_of, holding, read


def test_a_file_that_another_destination_of_the_source_has_stays() -> None:
    pair, queue = holding()
    table = pair.source.manager.streams.table
    other = pair.source.locate("other")
    record = table.at(queue, 1)
    assert record is not None
    table.bind(other, 5, record)
    pair.move()
    assert content_of(pair.source) == content_of(pair.target) == CONTENT
    table.forget(other)
    assert table.take_gone() == [STREAM]


@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_file_that_the_target_has_is_not_copied(is_leaving: bool) -> None:
    """Of a message that died there, perhaps; also one that is settled in this very moment."""
    pair, _ = holding()
    pair.move()
    copy = pair.target.manager.streams.table.at(pair.target.locate("q"), 1)
    assert copy is not None
    table = pair.target.manager.streams.table
    table.bind(77, 5, copy)
    pair.move("q", SOURCE)
    assert content_of(pair.source) == content_of(pair.target) == CONTENT
    before = len(pair.source.sent[ANYBODY])
    pair.begin()
    for number in (SOURCE, TARGET):
        pair.hear(number)
    pair.run(lambda: any(
        isinstance(command, ToSession) and isinstance(command.frame, frames.MoveRows)
        and command.frame.table == Table.STREAM for command in pair.source.moving
    ))  # fmt: skip
    if is_leaving:
        table.forget(77)  # and the write that says so is not durable yet
    for _ in range(2):
        pair.run()
        for number in (SOURCE, TARGET):
            pair.hear(number)
    assert not any(isinstance(frame, frames.MoveBlock) for frame, _ in pair.source.sent[ANYBODY][before:])
    assert read(pair.target, 1) == CONTENT


def test_damaged_content_stays() -> None:
    pair, queue = holding()
    assert pair.source.files is not None
    pair.source.files.damaged.add((STREAM, 11))
    pair.move()
    assert pair.placement.moves_ended["q"].code == "damaged" and "fragment 11" in pair.placement.moves_ended["q"].reason
    assert pair.source.locate("q") == queue and not files_of(pair.target)


def test_content_that_arrives_damaged_is_not_taken() -> None:
    pair, _ = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: any(
        isinstance(command, ToSession) and isinstance(command.frame, frames.MoveBlock) for command in pair.source.moving
    ))  # fmt: skip
    command = pair.source.moving[0]
    assert isinstance(command, ToSession)
    pair.target.tell(FromSession(ANYBODY, 0, command.frame, command.payload[:-1] + b"!"))
    assert pair.target.last(ANYBODY, frames.Failure).code == "bad-fragment" and not content_of(pair.target)


def test_a_target_whose_disk_fails_refuses() -> None:
    pair, queue = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: bool(content_of(pair.target)))
    pair.target.tell(FileFailed(STREAM, "input/output error"))
    pair.run()
    assert pair.placement.moves_ended["q"].code == "stream-failed"
    for number in (SOURCE, TARGET):
        pair.hear(number)
    assert pair.source.locate("q") == queue and not files_of(pair.target)


def test_a_target_with_too_many_streams_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, queue = holding()
    pair.target.manager.streams.change_settings(StreamSettings(streams_max=0))
    pair.move()
    assert pair.placement.moves_ended["q"].code == "too-many-streams" and pair.source.locate("q") == queue


def test_a_target_whose_disk_is_full_is_given_up() -> None:
    pair, queue = holding()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: bool(content_of(pair.target)))
    pair.target.auto = False
    for _ in range(int(PATIENCE_S) + 6):
        pair.run()
        pair.source.advance(1.0)
    assert pair.placement.moves_ended["q"].code == "no-primary"
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.target.auto = True
    pair.target.run_disk()
    assert pair.source.locate("q") == queue and not files_of(pair.target)


def test_whoever_reads_by_name_asks_again_where_it_is() -> None:
    pair, _ = holding()
    session = pair.source.session()
    reading = frames.StreamRead(1, -1, 1, 0, 4, "q", b"attached")
    pair.source.frame(session, 0, reading)
    assert len(pair.source.received(session, frames.StreamData)) == 4
    pair.begin()
    pair.hear(SOURCE)
    assert pair.source.received(session, frames.SessionDetached) and not pair.source.manager.streams.reader_count
    late = pair.source.session()
    pair.source.frame(late, 0, reading)
    assert late not in pair.source.sent, "it is not said that there is no such message"
    pair.hear(TARGET)
    early = pair.target.session()
    pair.run()
    pair.target.frame(early, 0, reading)
    assert early not in pair.target.sent
    pair.hear(TARGET)
    assert pair.target.received(early, frames.SessionDetached), "it asks again, with what it has used up by then"
    pair.target.frame(early, 0, msgspec.structs.replace(reading, first=4, limit=100))
    got = [payload for frame, payload in pair.target.sent[early] if isinstance(frame, frames.StreamData)]
    assert got == CONTENT[4:]


def test_two_that_share_a_file_come_at_the_same_time() -> None:
    pair, queue = holding()
    world = pair.source
    twin = world.locate("twin")
    record = world.manager.streams.table.at(queue, 1)
    assert record is not None
    world.disk.apply([world.manager.streams.table.bind(twin, 0, record)])
    pair.begin("q")
    pair.begin("twin")
    for _ in range(3):
        for number in (SOURCE, TARGET):
            pair.hear(number)
        pair.run()
        for number in (SOURCE, TARGET):
            pair.worlds[number].advance(1.0)
    assert pair.has(TARGET, "q") and pair.has(TARGET, "twin") and not files_of(pair.source)
    assert read(pair.target, 1) == CONTENT
    assert pair.target.manager.streams.table.at(pair.target.locate("twin"), 0) == record


def _small_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "WINDOW_FRAGMENTS", 1)


@pytest.mark.parametrize("change", [_small_windows])
def test_any_window(change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch)
    pair, _ = holding()
    pair.move()
    assert read(pair.target, 1) == CONTENT

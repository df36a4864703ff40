"""Goal: a stream is stored in order within its window, is held by exactly the messages that say so, and leaves nothing
behind.
Method: the machine on fake files, step by step."""
import msgspec
import pytest

from angarium.core.errors import RemoteProtocolError
from angarium.core.stream.blocks import FRAGMENT_BYTES
from angarium.core.stream.events import FileFailed, FilesBlocked, FileSynced, StreamSettings, SyncFile
from angarium.core.stream.streams import Command
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_streams import FULL, QUEUE, SENDER, World, message

# -- writing -----------------------------------------------------------------------------------------


def test_the_window_moves_with_what_is_written_and_stored_with_what_is_synced() -> None:
    world = World()
    world.open(1)
    assert world.received(frames.StreamOpened)[-1].limit == 2
    world.send(1, FULL, FULL)
    with pytest.raises(RemoteProtocolError, match="limit 2"):
        world.send(1, FULL, first=2)
    world.run_files()
    last = world.received(frames.StreamStored)[-1]
    assert (last.stored, last.limit) == (0, 4), "written, and not yet synced"
    world.send(1, FULL, first=2)
    world.run_files()
    last = world.received(frames.StreamStored)[-1]
    assert (last.stored, last.limit) == (3, 5), "synced after three"


@pytest.mark.parametrize(
    ("number", "payload", "last"),
    [(1, FULL, False), (0, b"short", False), (0, FULL + b"x", False), (0, FULL + b"x", True)],
)
def test_a_fragment_out_of_turn_or_of_wrong_length_is_the_peers_error(number: int, payload: bytes, last: bool) -> None:
    world = World()
    world.open(1)
    with pytest.raises(RemoteProtocolError) as caught:
        world.send(1, payload, first=number, last=last)
    assert caught.value.code == "bad-fragment"


def test_nothing_may_follow_the_last_fragment() -> None:
    world = World()
    world.open(1)
    world.send(1, b"all", last=True)
    with pytest.raises(RemoteProtocolError):
        world.send(1, b"more", first=1, last=True)


def test_a_cut_off_sender_goes_on_where_the_broker_is() -> None:
    world = World()
    identity = world.open(1)
    world.send(1, FULL, FULL)
    world.run_files()
    world.send(1, FULL, FULL, first=2)
    world.run_files()
    world.perform(world.streams.session_ended(SENDER, QUEUE, closed=False, now=world.now))
    assert world.open(1, resume=identity) == identity
    opened = world.received(frames.StreamOpened)[-1]
    assert (opened.stored, opened.following) == (3, 4)
    world.send(1, FULL, first=3)  # again: the sender could not know
    world.send(1, b"end", first=4, last=True)
    world.run_files()
    assert world.received(frames.StreamStored)[-1].stored == 5
    assert world.streams.deadline() is None


def test_a_crash_loses_what_was_not_synced_and_the_sender_sends_it_again() -> None:
    world = World()
    identity = world.open(1)
    for at in range(4):
        world.send(1, FULL, first=at)
        world.run_files()
    world = world.restarted()
    world.open(1, resume=identity)
    world.run_files()
    [opened] = world.received(frames.StreamOpened)
    assert (opened.identity, opened.stored, opened.following) == (identity, 3, 3)


def found() -> tuple[World, bytes]:
    """The successor of a broker to which three fragments of a stream were sent, and its sender is back."""
    world = World()
    identity = world.open(1)
    for at in range(3):
        world.send(1, FULL, first=at)
        world.run_files()
    world = world.restarted()
    world.open(1, resume=identity)
    return world, identity


def told(world: World, identity: bytes, blocks: int) -> None:
    commands, _ = world.streams.file_event(FileSynced(identity, blocks))
    world.perform(commands)


def test_what_is_found_at_the_start_is_told_when_every_copy_has_it() -> None:
    """The sender keeps nothing of what it is told, and the copy that becomes primary next may have less."""
    world, identity = found()
    assert list(world.files.waiting) == [SyncFile(identity, 3)] and not world.sent
    told(world, identity, 2)
    assert not world.sent, "as much as one that is new has got so far"
    told(world, identity, 3)
    [(opened, _)] = world.sent[SENDER]
    assert isinstance(opened, frames.StreamOpened) and (opened.stored, opened.following) == (3, 3)
    world.files.waiting.clear()
    world.send(1, b"end", first=3, last=True)
    world.run_files()
    assert world.received(frames.StreamStored)[-1].stored == 4


def test_who_waits_for_what_was_found_hears_nothing_else_and_may_come_again_or_give_up() -> None:
    world, identity = found()
    world.perform([*world.streams.destination_blocked(QUEUE, "full", "it is"), *blocked(world, "no space left")])
    assert not world.sent, "no word of a stream that is not open"
    world.perform(world.streams.session_ended(SENDER, QUEUE, closed=False, now=world.now))
    assert world.open(4, resume=identity) == b"" and len(world.files.waiting) == 1, "it was asked for"
    told(world, identity, 3)
    assert [type(frame) for frame, _ in world.sent[SENDER]] == [frames.StreamOpened, frames.StreamStored]
    assert world.received(frames.StreamOpened)[0].stream == 4
    assert world.received(frames.StreamStored)[0].code == "disk-full"

    world, identity = found()
    world.perform(world.streams.session_ended(SENDER, QUEUE, closed=False, now=world.now))
    told(world, identity, 3)
    assert not world.sent and world.open(1, resume=identity) == identity, "it is settled by now"

    world, identity = found()
    world.perform(world.streams.frame(SENDER, QUEUE, frames.StreamClose(1), b""))
    world.run_files()
    assert not world.sent and not world.files.blocks


def test_what_was_found_and_cannot_be_made_durable_is_given_up() -> None:
    world, identity = found()
    commands, _ = world.streams.file_event(FileFailed(identity, "input/output error"))
    world.perform(commands)
    assert world.received(frames.StreamClosed)[-1].code == "stream-failed"


def blocked(world: World, reason: str) -> list[Command]:
    return world.streams.file_event(FilesBlocked(reason))[0]


def test_an_abandoned_stream_is_deleted_in_time_and_cannot_be_resumed() -> None:
    world = World()
    identity = world.open(1)
    world.send(1, FULL)
    world.run_files()
    world.perform(world.streams.session_ended(SENDER, QUEUE, closed=False, now=world.now))
    world.advance(9.0)
    assert identity in world.files.blocks
    world.advance(1.0)
    assert not world.files.blocks
    assert world.reports[-1].code == "stream-abandoned"
    assert world.open(1, resume=identity) == b""
    assert world.received(frames.StreamClosed)[-1].code == "unknown-stream"


@pytest.mark.parametrize("how", ["closed", "session"])
def test_a_stream_that_is_given_up_leaves_nothing(how: str) -> None:
    world = World()
    world.open(1)
    world.send(1, FULL, FULL)
    if how == "closed":
        world.perform(world.streams.frame(SENDER, QUEUE, frames.StreamClose(1), b""))
    else:
        world.perform(world.streams.session_ended(SENDER, QUEUE, closed=True, now=world.now))
    world.run_files()
    assert not world.files.blocks
    assert world.streams.open_count == 0
    world.send(1, FULL, first=2)  # sent before the sender knew: ignored


def test_limits_refuse_one_stream_and_nothing_else() -> None:
    world = World()
    assert all(world.open(number) for number in (1, 2, 3))
    assert world.open(4) == b""
    assert world.received(frames.StreamClosed)[-1] == frames.StreamClosed(
        4, "too-many-streams", "session writes session_max 3 streams; end some"
    )
    small = World(StreamSettings(open_max=1))
    assert small.open(1) and not small.open(1, session=b"other")
    full = World(StreamSettings(streams_max=1))
    full.published(0, b"all")
    assert not full.open(2)


def test_a_stream_that_is_too_long_is_ended_with_the_reason() -> None:
    world = World(StreamSettings(stream_bytes_max=FRAGMENT_BYTES))
    world.open(1)
    world.send(1, FULL)
    world.send(1, b"x", first=1, last=True)
    world.run_files()
    assert world.received(frames.StreamClosed)[-1].code == "stream-too-long"
    assert not world.files.blocks


def test_a_full_disk_is_told_to_every_sender_also_to_new_ones_and_passes() -> None:
    world = World()
    world.open(1)
    commands, _ = world.streams.file_event(FilesBlocked("no space left"))
    world.perform(commands)
    world.open(2)
    told = world.received(frames.StreamStored)
    assert [(frame.stream, frame.code, frame.reason) for frame in told] == [
        (1, "disk-full", "no space left"), (2, "disk-full", "no space left"),
    ]  # fmt: skip
    commands, _ = world.streams.file_event(FilesBlocked(""))
    world.perform(commands)
    assert [frame.code for frame in world.received(frames.StreamStored)[2:]] == ["", ""]


def test_no_stream_grows_while_its_destination_is_blocked() -> None:
    """Once: all of it was stored, however long, and only its message waited: streams passed any limit."""
    world = World()
    world.open(1)
    world.send(1, FULL)
    world.perform(world.streams.destination_blocked(QUEUE, "destination-full", "10 of messages_max 10"))
    world.open(2)
    assert world.received(frames.StreamOpened)[-1].limit == 0
    world.send(1, FULL, first=1)  # was on its way
    world.run_files()
    last = world.received(frames.StreamStored)[-1]
    assert (last.stream, last.stored, last.limit) == (1, 2, 2), "durable, and not one more may come"
    with pytest.raises(RemoteProtocolError, match="limit 2"):
        world.send(1, FULL, first=2)
    world.perform(world.streams.destination_blocked(QUEUE, "", ""))
    assert [(frame.stream, frame.limit) for frame in world.received(frames.StreamStored)[-2:]] == [(1, 4), (2, 2)]


def test_what_blocks_a_destination_is_told_to_those_who_stream_to_it_with_its_own_code() -> None:
    world = World()
    world.open(1)
    world.perform(world.streams.destination_blocked(QUEUE + 1, "destination-full", "another"))
    assert not world.received(frames.StreamStored)
    world.perform(world.streams.destination_blocked(QUEUE, "destination-full", "10 of messages_max 10"))
    world.open(2)
    commands, _ = world.streams.file_event(FilesBlocked("no space left"))
    world.perform(commands)
    commands, _ = world.streams.file_event(FilesBlocked(""))
    world.perform(commands)
    world.perform(world.streams.destination_blocked(QUEUE, "", ""))
    full, disk = ("destination-full", "10 of messages_max 10"), ("disk-full", "no space left")
    told = [(frame.stream, frame.code, frame.reason) for frame in world.received(frames.StreamStored)]
    assert told == [
        (1, *full), (2, *full), (1, *disk), (2, *disk), (1, *full), (2, *full), (1, "", ""), (2, "", ""),
    ]  # fmt: skip


def test_a_failed_sync_ends_the_stream_instead_of_pretending() -> None:
    world = World()
    identity = world.open(1)
    world.send(1, FULL)
    commands, _ = world.streams.file_event(FileFailed(identity, "input/output error"))
    world.perform(commands)
    assert world.received(frames.StreamClosed)[-1].code == "stream-failed"
    assert world.reports[-1].code == "stream-failed"
    world.run_files()
    assert not world.files.blocks


# -- held by messages ----------------------------------------------------------------------------------


def refused(world: World, batch: Batch, destination: int = QUEUE) -> str:
    refusal = world.streams.refusal(destination, batch)
    return refusal[0] if refusal is not None else ""


def test_a_message_binds_only_what_is_complete_durable_and_written_for_its_destination() -> None:
    world = World()
    assert refused(world, message(bytes(16), 3)) == "unknown-stream"
    identity = world.open(1)
    world.send(1, b"all", last=True)
    assert refused(world, message(identity, 3)) == "stream-incomplete"
    world.run_files()
    assert refused(world, message(identity, 4)) == "bad-stream"
    assert refused(world, message(identity, 3), destination=8) == "unknown-stream"
    assert refused(world, message(identity, 3)) == ""


@pytest.mark.parametrize("header", [1, {}, {"identity": b"short", "bytes": 1}, {"identity": bytes(16), "bytes": "x"}])
def test_a_malformed_header_is_refused(header: object) -> None:
    columns = MessageColumns(headers=[msgspec.msgpack.encode({"stream": header})], announcements=int(Columns.STREAM))
    batch = Batch.parse(pack(b"producer 16 byte", 1, 0, [b""], columns))
    assert refused(World(), batch) == "bad-stream"


def test_a_bound_stream_outlives_its_sender_and_a_restart() -> None:
    world = World()
    identity = world.published(5, FULL, b"end")
    world.perform(world.streams.frame(SENDER, QUEUE, frames.StreamClose(1), b""))
    world.perform(world.streams.session_ended(SENDER, QUEUE, closed=True, now=world.now))
    world.run_files()
    world = world.restarted()
    assert world.damages == []
    world.advance(1_000.0)
    world.read(5)
    assert world.content() == [FULL, b"end"]
    assert identity in world.files.blocks


def test_a_publish_that_a_crash_lost_can_be_sent_again_before_the_stream_is_resumed() -> None:
    world = World()
    identity = world.stored(1, FULL, b"end")
    world = world.restarted()
    batch = message(identity, FRAGMENT_BYTES + 3)
    assert refused(world, batch) == ""
    world.apply(world.streams.bind(QUEUE, batch, 0))
    world.advance(1_000.0)
    assert identity in world.files.blocks


def test_the_file_goes_once_the_release_is_durable() -> None:
    world = World()
    world.published(3, b"one", number=1)
    world.published(4, b"two", number=2)
    operations = world.streams.release(QUEUE, [(0, 4)], lambda position: False)
    assert len(world.files.blocks) == 2, "not before"
    world.apply(operations)
    assert len(world.files.blocks) == len(world.records) == 1
    world.apply(world.streams.release_all(QUEUE, 0, 5))
    assert not world.files.blocks and not world.records and not len(world.streams.table)
    assert world.streams.release_all(QUEUE, 0, 9) == []


def test_what_some_subscription_needs_is_not_released() -> None:
    world = World()
    world.published(3, b"one")
    assert world.streams.release(QUEUE, [(0, 9)], lambda position: position == 3) == []
    world.read(3)
    assert world.content() == [b"one"]


def test_a_copy_of_the_message_keeps_the_stream() -> None:
    world = World()
    identity = world.published(3, b"one")
    moved = world.streams.bind(99, message(identity, 3), 0)
    world.apply(moved + world.streams.release(QUEUE, [(3, 4)], lambda position: False))
    world.read(0, destination=99)
    assert world.content() == [b"one"]
    world.apply(world.streams.release_all(99, 0, 1))
    assert not world.files.blocks


def test_a_removed_destination_takes_its_streams_and_its_senders_along() -> None:
    world = World()
    world.published(3, b"one", number=1)
    world.open(2)
    world.send(2, FULL)
    world.perform(world.streams.forget(QUEUE, "destination-removed", "gone"))
    world.apply([])
    assert not world.files.blocks
    assert world.received(frames.StreamClosed)[-1] == frames.StreamClosed(2, "destination-removed", "gone")


def test_a_record_without_its_file_or_with_half_of_it_is_damage() -> None:
    world = World()
    whole, half, gone = (world.published(position, FULL, b"end", number=position) for position in (1, 2, 3))
    del world.files.blocks[gone]
    world.files.synced[half] = 1
    world = world.restarted()
    assert [(d.destination, d.position) for d in world.damages] == [(QUEUE, 2), (QUEUE, 3)]
    assert whole in world.files.blocks


# -- messages that are not yet due -------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_that_is_not_yet_due_holds_its_stream(restarts: bool) -> None:
    world = World()
    identity = world.stored(1, FULL, b"end")
    batch = message(identity, len(FULL) + 3)
    assert world.streams.refusal(QUEUE, batch) is None
    world.apply(world.streams.hold(QUEUE, batch))
    world.perform(world.streams.session_ended(SENDER, QUEUE, closed=True, now=world.now))
    if restarts:
        world = world.restarted()
    world.advance(world.settings.unfinished_keep_s + 1)
    assert identity in world.files.blocks, "its sender has gone, and it waits"
    world.apply([*world.streams.bind(QUEUE, batch, 5), *world.streams.let_go(QUEUE, batch)])
    world.read(5)
    assert world.content() == [FULL, b"end"]
    world.apply(world.streams.release(QUEUE, [(5, 6)], lambda position: False))
    assert not world.files.blocks and not world.records and len(world.streams.table) == 0


def test_a_stream_whose_message_nobody_wants_when_it_is_due_is_gone() -> None:
    world = World()
    identity = world.stored(1, b"all")
    batch = message(identity, 3, copies=1)
    world.apply(world.streams.hold(QUEUE, batch))
    world.apply(world.streams.let_go(QUEUE, batch))
    assert not world.files.blocks and not world.records

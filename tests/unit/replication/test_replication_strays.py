"""Goal: files of large messages that were deleted while a replica was away go when it is back in sync; no file goes
that a message may hold, here or there. Method: one machine, told what it would hear."""
import pytest

from angarium.core.groups.configuration import EMPTY
from angarium.core.replication import messages as m
from angarium.core.replication.events import LocalFile, MessageReceived, ReplicationSettings, SendOrder, Tick
from angarium.core.replication.history import StoredReplica
from angarium.core.replication.replication import Replication
from angarium.core.stream.events import DeleteFile
from tests.unit.replication.replication_parts import A, B, C, Told, configuration, messages, of

STREAM, OTHER = b"s" * 16, b"t" * 16


def backup_with(*streams: bytes, blocks: int = 2) -> Told:
    machine = Replication(
        B, b"start of " + B.store, "g", StoredReplica(EMPTY, []), ReplicationSettings(), dict.fromkeys(streams, blocks),
        lambda stream: False,
    )  # fmt: skip
    return Told(machine)


def primary_with(*streams: bytes, held: tuple[bytes, ...] = ()) -> Told:
    machine = Replication(
        A, b"start of " + A.store, "g", StoredReplica(EMPTY, []), ReplicationSettings(), dict.fromkeys(streams, 2),
        lambda stream: stream in held,
    )  # fmt: skip
    told = Told(machine)
    told.configured(configuration(1, A, B))
    told.tell(MessageReceived(B, m.Hello("g", 1, EMPTY)))
    return told


def asked(told: Told, until: float) -> list[m.FilesAsk]:
    """All that is asked of the primary as time passes."""
    found: list[m.FilesAsk] = []
    while (due := told.machine.deadline()) is not None and due <= until:
        sent = messages(told.tell(Tick(), due))
        found += [message for message in sent if isinstance(message, m.FilesAsk)]
        following = told.machine.deadline()
        if following is not None and following <= due:
            break
    return found


def welcome(told: Told, *in_sync: object) -> None:
    told.configured(configuration(1, A, *in_sync))  # type: ignore[arg-type]
    told.tell(MessageReceived(A, m.Welcome("g", 1, 0, 0)))


def test_a_backup_that_is_in_sync_tells_what_it_has_and_deletes_what_it_is_told() -> None:
    backup = backup_with(STREAM, OTHER)
    welcome(backup, B)
    assert asked(backup, 10.0) == [m.FilesAsk("g", 1, [STREAM, OTHER])]
    deleted = backup.tell(MessageReceived(A, m.FileDelete("g", 1, OTHER)), 10.0)
    assert of(LocalFile, deleted) == [LocalFile(DeleteFile(OTHER))]
    assert asked(backup, 25.0) == [m.FilesAsk("g", 1, [STREAM])], "and once in a while"


def test_a_file_without_a_block_is_told_of_as_well() -> None:
    """It was made, and a crash has left nothing in it."""
    backup = backup_with(STREAM, blocks=0)
    welcome(backup, B)
    assert asked(backup, 10.0) == [m.FilesAsk("g", 1, [STREAM])]


def test_one_that_is_not_in_sync_asks_for_nothing() -> None:
    """It may have records that later orders delete; the primary's word counts when those are durable here."""
    backup = backup_with(STREAM)
    welcome(backup, C)
    assert asked(backup, 400.0) == []


def test_many_files_are_told_of_some_at_a_time() -> None:
    streams = [number.to_bytes(16, "big") for number in range(2_500)]
    backup = backup_with(*streams)
    welcome(backup, B)
    told = asked(backup, 10.0)
    assert [len(each.streams) for each in told] == [1_000, 1_000, 500]
    assert [stream for each in told for stream in each.streams] == streams


@pytest.mark.parametrize(
    ("primary", "strays"),
    [
        (primary_with(STREAM), [OTHER]),
        (primary_with(STREAM, OTHER), []),
        (primary_with(STREAM, held=(OTHER,)), []),  # its own file is lost: the only whole one may be the backup's
    ],
)
def test_a_primary_gives_up_what_neither_it_nor_a_message_has(primary: Told, strays: list[bytes]) -> None:
    answered = primary.tell(MessageReceived(B, m.FilesAsk("g", 1, [STREAM, OTHER])))
    # In one line with blocks and orders: one that comes back with a destination is not deleted by a word from before.
    assert answered == [SendOrder(m.FileDelete("g", 1, stream)) for stream in strays]


def test_a_stream_that_a_primary_had_only_heard_of_is_none_of_its_files() -> None:
    """Another one began it, and died: whoever has its first blocks is told to delete them."""
    told = backup_with()
    welcome(told, B, C)
    told.tell(MessageReceived(A, m.FileSync("g", 1, STREAM, 1, 1)))
    told.configured(configuration(2, B, C))
    told.tell(MessageReceived(C, m.Hello("g", 2, EMPTY)))
    answered = told.tell(MessageReceived(C, m.FilesAsk("g", 2, [STREAM])))
    assert answered == [SendOrder(m.FileDelete("g", 2, STREAM))]


def test_nothing_is_said_where_nobody_knows_what_messages_hold() -> None:
    """As at a node whose message manager has not started yet."""
    machine = Replication(A, b"start of " + A.store, "g", StoredReplica(EMPTY, []), ReplicationSettings())
    told = Told(machine)
    told.configured(configuration(1, A, B))
    assert told.tell(MessageReceived(B, m.FilesAsk("g", 1, [STREAM]))) == []
    told.tell(MessageReceived(B, m.Hello("g", 1, EMPTY)))
    assert told.tell(MessageReceived(B, m.FilesAsk("g", 1, [STREAM]))) == []


def test_a_word_of_an_earlier_epoch_deletes_nothing() -> None:
    backup = backup_with(STREAM)
    welcome(backup, B)
    backup.configured(configuration(3, A, B))
    assert not of(LocalFile, backup.tell(MessageReceived(A, m.FileDelete("g", 1, STREAM))))

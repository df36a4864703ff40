"""Who copies asks his host for the content of very large messages, and the primary if nothing comes of it."""
import msgspec
import pytest

from angarium.core.checksum import crc32
from angarium.core.errors import RemoteProtocolError
from angarium.core.groups.configuration import EMPTY, Position
from angarium.core.replication import messages as m
from angarium.core.replication.backup import Backup
from angarium.core.replication.events import (
    Command,
    FilesAsked,
    LocalFile,
    LocallyWritten,
    MessageReceived,
    RangeRead,
    ReadRange,
    ReplicationSettings,
    SendTo,
    Tick,
    WriteLocal,
)
from angarium.core.replication.files import SOURCE_ASKS_MAX, SOURCE_FILES_MAX
from angarium.core.replication.ranges import pack_items
from angarium.core.report import Level, Report
from angarium.core.storage import Put, Table
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import AppendBlock, BlocksRead, FileFailed, FileSynced, FileWritten, ReadBlocks
from angarium.core.stream.packing import pack_block
from angarium.core.stream.table import StreamRecord
from tests.unit.replication.replication_parts import A, B, C, Told, configuration, messages, of, replica

STREAM = b"s" * 16
AGAIN_S = ReplicationSettings().ask_again_s
ASK = m.BlocksAsk("g", 1, STREAM, 0, 2)


def rows_of(*streams: bytes) -> bytes:
    return pack_items([(stream, msgspec.msgpack.encode(StreamRecord(stream, 2, 10))) for stream in streams])


def guest_of_c(*streams: bytes) -> tuple[Told, list[Command]]:
    """It has copied from c all before the table of streams, and is told of some there; what it asks for then."""
    guest = Told(replica(B))
    guest.configured(configuration(1, A, C))
    [begun] = of(WriteLocal, guest.tell(MessageReceived(A, m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], ""))))
    token = getattr(begun, "token", 0)
    while True:
        [read] = of(ReadRange, guest.tell(LocallyWritten(token)))
        assert isinstance(read, ReadRange)
        [ask] = messages(guest.tell(RangeRead(read.token, read.high, b"d", 0, 0, None)))
        assert isinstance(ask, m.RangeAsk)
        if ask.table == Table.STREAM:
            part = m.RangePart("g", 1, ask.request, ask.high, 9, 9)
            return guest, guest.tell(MessageReceived(C, part, rows_of(*(streams or (STREAM,)))))
        same = m.RangeSame("g", 1, ask.request, 9, 9)
        [local] = of(WriteLocal, guest.tell(MessageReceived(C, same)))
        token = getattr(local, "token", 0)


def block(number: int, stream: bytes = STREAM) -> m.FileBlock:
    return m.FileBlock("g", 1, stream, number, 1, number == 1)


def appended(commands: list[Command]) -> list[int]:
    files = [command.command for command in commands if isinstance(command, LocalFile)]
    return [command.number for command in files if isinstance(command, AppendBlock)]


def test_content_comes_from_the_host_and_what_names_it_is_written_then() -> None:
    guest, asked = guest_of_c()
    assert asked == [SendTo(C, ASK)]
    assert [appended(guest.tell(MessageReceived(C, block(number), b"content"))) for number in (0, 1)] == [[0], [1]]
    assert not of(WriteLocal, guest.tell(FileWritten(STREAM, 2)))
    assert of(WriteLocal, guest.tell(FileSynced(STREAM, 2)))


def test_a_copy_that_cannot_make_content_durable_says_so() -> None:
    guest, _ = guest_of_c()
    for number in (0, 1):
        guest.tell(MessageReceived(C, block(number), b"content"))
    guest.tell(FileWritten(STREAM, 2))
    [said] = guest.tell(FileFailed(STREAM, "could not be made durable: Input/output error"))
    assert isinstance(said, Report) and said.level is Level.ERROR
    assert "Input/output error" in said.text and "restart" in said.text


def test_a_host_that_does_not_answer_is_asked_again_and_then_given_up_for_the_primary() -> None:
    guest, _ = guest_of_c()
    rest = m.BlocksAsk("g", 1, STREAM, 1, 2)
    now = AGAIN_S - 0.1
    guest.tell(MessageReceived(C, block(0), b"content"), now)
    assert of(SendTo, guest.tell(Tick(), now=AGAIN_S)) == [], "something has come: more may"
    for _ in range(SOURCE_ASKS_MAX):
        assert guest.machine.deadline() == now + AGAIN_S
        now += AGAIN_S
        assert of(SendTo, guest.tell(Tick(), now=now)) == [SendTo(C, rest)]
    assert SendTo(A, rest) in guest.tell(Tick(), now=now + AGAIN_S)
    assert appended(guest.tell(MessageReceived(C, block(1), b"content"))) == [], "it is not waited for any more"
    assert appended(guest.tell(MessageReceived(A, block(1), b"content"))) == [1]


def test_blocks_that_come_twice_are_written_once() -> None:
    guest, _ = guest_of_c()
    guest.tell(Tick(), now=AGAIN_S)  # asked twice
    written = [appended(guest.tell(MessageReceived(C, block(number), b"content"))) for number in (0, 1, 0, 1)]
    assert written == [[0], [1], [], []]
    assert of(WriteLocal, guest.tell(FileSynced(STREAM, 2)))


def test_a_range_that_comes_twice_while_its_files_are_awaited_is_written_once() -> None:
    guest, _ = guest_of_c()
    role = guest.machine.role
    assert isinstance(role, Backup) and role.guest is not None and role.guest._asked is not None
    asked = role.guest._asked
    again = m.RangePart("g", 1, asked.request, asked.high, 9, 9)
    assert guest.tell(MessageReceived(C, again, rows_of())) == []
    assert guest.tell(MessageReceived(C, m.RangeLater("g", 1, asked.request, "busy"))) == []
    for number in (0, 1):
        guest.tell(MessageReceived(C, block(number), b"content"))
    guest.tell(FileWritten(STREAM, 2))
    [local] = of(WriteLocal, guest.tell(FileSynced(STREAM, 2)))
    assert any(isinstance(operation, Put) for operation in getattr(local, "operations", []))
    assert guest.tell(MessageReceived(C, again, rows_of())) == []


def test_files_come_from_the_host_some_at_a_time() -> None:
    """All at once are more than it reads at once: the primary would be asked for those that it passes over."""
    streams = [bytes([number]) * 16 for number in range(5)]
    guest, asked = guest_of_c(*streams)
    asks = [SendTo(C, m.BlocksAsk("g", 1, stream, 0, 2)) for stream in streams]
    assert asked == asks[:SOURCE_FILES_MAX]
    now = 0.0
    for done in range(len(streams)):
        now += AGAIN_S / 3  # each takes a while: who waits for its turn is not late
        assert of(SendTo, guest.tell(Tick(), now=now)) == []
        for number in (0, 1):
            sent = of(SendTo, guest.tell(MessageReceived(C, block(number, streams[done]), b"content"), now))
        started = done + SOURCE_FILES_MAX
        assert sent == asks[started : started + 1]
        guest.tell(FileWritten(streams[done], 2), now)
        guest.tell(FileSynced(streams[done], 2), now)
    assert of(WriteLocal, guest.commands)


def test_a_host_that_is_given_up_is_so_for_all_files() -> None:
    streams = [bytes([number]) * 16 for number in range(5)]
    guest, _ = guest_of_c(*streams)
    now = 0.0
    for _ in range(SOURCE_ASKS_MAX):
        now += AGAIN_S
        guest.tell(Tick(), now=now)
    now += AGAIN_S
    sent = of(SendTo, guest.tell(Tick(), now=now))
    assert sent == [SendTo(A, m.BlocksAsk("g", 1, stream, 0, 2)) for stream in streams]


def test_only_the_primary_can_tell_that_there_is_no_such_file() -> None:
    """That of a backup may be lost: its message would have no content here, for ever."""
    guest, _ = guest_of_c()
    assert guest.tell(MessageReceived(C, m.FileGone("g", 1, STREAM))) == [SendTo(A, ASK)]
    assert of(WriteLocal, guest.tell(MessageReceived(A, m.FileGone("g", 1, STREAM))))


def test_blocks_that_nobody_has_asked_a_backup_for_are_not_taken() -> None:
    guest, _ = guest_of_c()
    other = m.FileBlock("g", 1, b"t" * 16, 0, 1, True)
    assert appended(guest.tell(MessageReceived(C, other, b"content"))) == []


def test_one_that_is_new_copies_if_there_is_content() -> None:
    primary = Told(replica(A))
    primary.configured(configuration(1, A, C))
    primary.tell(MessageReceived(C, m.Hello("g", 1, EMPTY)))
    primary.tell(FilesAsked([AppendBlock(STREAM, 0, Block(1, True, b"content"))]))
    [copy] = messages(primary.tell(MessageReceived(B, m.Hello("g", 1, EMPTY))))
    assert isinstance(copy, m.MustCopy) and copy.host == C


def test_a_backup_serves_blocks_if_it_is_in_sync() -> None:
    for in_sync, is_able in ((True, True), (False, False)):
        host = Told(replica(C))
        host.configured(configuration(1, A, C) if in_sync else configuration(1, A))
        host.tell(MessageReceived(A, m.Welcome("g", 1, 0, EMPTY.number)))
        reads = of(LocalFile, host.tell(MessageReceived(B, ASK)))
        assert bool(reads) == is_able
        for read in reads:
            assert isinstance(read, LocalFile) and isinstance(read.command, ReadBlocks)
            assert read.command.packed
            short, long = Block(1, False, b"x"), Block(crc32(bytes(1_000)), True, bytes(1_000))
            sent = host.tell(BlocksRead(read.command.token, [short, pack_block(long)]))
            packed = m.FileBlock("g", 1, STREAM, 1, long.crc, True, is_packed=True)
            assert sent == [SendTo(B, block(0), b"x"), SendTo(B, packed, pack_block(long).payload)]


def test_nobody_is_told_that_there_is_no_file_while_its_block_is_on_its_way_to_the_disk() -> None:
    """Who hears of a block asks for it before it is written here. A backup that believed that it is gone would write
    the message that holds the stream, and be admitted, without its content."""
    primary = Told(replica(A))
    primary.configured(configuration(1, A, B))
    primary.tell(FilesAsked([AppendBlock(STREAM, 0, Block(1, True, b"content"))]))
    assert primary.tell(MessageReceived(C, ASK)) == [], "it asks again"
    primary.tell(FileWritten(STREAM, 1))
    [read] = of(LocalFile, primary.tell(MessageReceived(C, ASK)))
    assert isinstance(read, LocalFile) and isinstance(read.command, ReadBlocks)
    gone = primary.tell(BlocksRead(read.command.token, [], "fails its checksum"))
    assert gone == [SendTo(C, m.FileGone("g", 1, STREAM))], "what was written and cannot be read is lost"


def test_content_is_stored_as_it_was_before_it_was_packed() -> None:
    guest, _ = guest_of_c()
    content = Block(crc32(bytes(1_000)), False, bytes(1_000))
    sent = MessageReceived(C, packed_block(content.crc), pack_block(content).payload)
    assert guest.tell(sent) == [LocalFile(AppendBlock(STREAM, 0, content))]
    assert guest.tell(sent) == [], "it may come twice"


def test_a_block_that_does_not_unpack_changes_nothing() -> None:
    guest, _ = guest_of_c()
    content = Block(crc32(bytes(1_000)), False, bytes(1_000))
    packed = pack_block(content).payload
    for message, payload in ((packed_block(content.crc + 1), packed), (packed_block(content.crc), packed[:-1])):
        with pytest.raises(RemoteProtocolError, match="a packed block"):
            guest.tell(MessageReceived(C, message, payload))
    assert guest.tell(Tick(), now=AGAIN_S) == [SendTo(C, ASK)], "it is asked for again"
    assert appended(guest.tell(MessageReceived(C, packed_block(content.crc), packed), now=AGAIN_S)) == [0]


def packed_block(crc: int) -> m.FileBlock:
    return m.FileBlock("g", 1, STREAM, 0, crc, False, is_packed=True)

"""Content of very large messages that comes to a replica group with a destination: files, not rows.

    rows that name a stream --> lacking --MoveWants, MoveBlock, ... in order--> durable --> the rows are taken
                                   └─ the move is over, or another attempt begins: the file is deleted

The target asks, a window at a time, and what it has not asked for it does not take: so memory is bounded, and whoever
becomes primary there goes on where its file ends. That is safe, for a fragment of a stream has one content for ever.
A file that some message of this group holds already is not copied. Nothing is said twice of itself: if a question or an
answer is lost the source repeats the rows, and is asked again.

Files go through the group's own replication, as if a client sent them: durable means on every copy in sync.
"""
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from angarium.core.checksum import crc32
from angarium.core.errors import RemoteProtocolError
from angarium.core.malformed import MALFORMED
from angarium.core.replication.ranges import Item
from angarium.core.storage import Table
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block
from angarium.core.stream.events import AppendBlock, DeleteFile, FileSynced, FileWritten, StoredFile, SyncFile
from angarium.core.stream.streams import Streams
from angarium.core.stream.table import StreamRecord
from angarium.core.wire.frames import MoveBlock

UNFINISHED = Table.MOVE  # in place of a table, of a message whose items are streams that are being sent
WINDOW_FRAGMENTS = 8  # received and not yet written, or asked for
SYNC_FRAGMENTS = 16  # between two syncs, as of what clients send
_record = msgspec.msgpack.Decoder(StreamRecord)
_file = msgspec.msgpack.Decoder(StoredFile)
FileCommand = AppendBlock | SyncFile | DeleteFile


@dataclass(slots=True, eq=False)
class Copy:
    stream: bytes
    fragments: int  # that are wanted
    received: int = 0
    written: int = 0
    synced: int = 0
    sync_asked: int = 0
    asked: int = 0  # fragments before this one were asked for
    users: dict[str, None] = field(default_factory=dict)  # names of destinations that come with it
    early: dict[int, Block] = field(default_factory=dict)  # of those that were asked for: one before them is missing

    @property
    def is_complete(self) -> bool:
        return self.synced >= self.fragments


def streams_of(table: int, items: Iterable[Item]) -> dict[bytes, int]:
    """How many fragments these rows name of which streams; raises RemoteProtocolError."""
    try:
        if table == Table.STREAM:
            records = [_record.decode(value) for _, value in items]
            return {record.identity: record.fragments for record in records}
        return {key: _file.decode(value).fragments for key, value in items} if table == UNFINISHED else {}
    except MALFORMED as error:
        raise RemoteProtocolError("bad-message", f"streams of a destination that is moved: {error}") from None


def unfinished_items(streams: Iterable[tuple[bytes, StoredFile]]) -> list[Item]:
    return sorted((identity, msgspec.msgpack.encode(file)) for identity, file in streams)


def unfinished_of(items: Iterable[Item]) -> dict[bytes, StoredFile]:
    return {key: _file.decode(value) for key, value in items}


class ArrivingFiles:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._copies: dict[bytes, Copy] = {}

    def __contains__(self, stream: bytes) -> bool:
        return stream in self._copies

    def __len__(self) -> int:
        return len(self._copies)

    def users(self, stream: bytes) -> Iterator[str]:
        return iter(list(self._copies[stream].users))

    def lacking(self, name: str, wanted: dict[bytes, int]) -> Copy | None:
        """The first of these that is not durable here; raises Rejected if there is no room for one more."""
        for stream, fragments in wanted.items():
            if stream not in self._copies and self._streams.table.is_stored(stream):
                continue
            copy = self._copies.get(stream) or self._begin(stream, fragments)
            copy.users[name] = None
            if not copy.is_complete:
                return copy
        return None

    def _begin(self, stream: bytes, fragments: int) -> Copy:
        self._streams.check_room(len(self._copies))
        found = self._streams.adopt(stream)
        count = 0 if found is None else found.fragments
        copy = self._copies[stream] = Copy(stream, fragments, count, count)
        return copy

    def settle(self, copy: Copy) -> list[FileCommand]:
        """Of what was found at the start other copies may have less: that it is durable on all is to be heard."""
        if copy.sync_asked or copy.received < copy.fragments:
            return []  # asked for, or to be asked for with the last that comes
        copy.sync_asked = copy.received
        return [SyncFile(copy.stream, copy.received)]

    def wanted(self, copy: Copy, *, again: bool) -> tuple[int, int] | None:
        """Which fragments to ask for now: from the first, to before the second; None: what was asked for is still to
        come (unless it is to be asked for `again`), or to be written."""
        end = min(copy.written + WINDOW_FRAGMENTS, copy.fragments)
        is_little = end < copy.fragments and end - copy.received < WINDOW_FRAGMENTS // 2  # more is to be written soon
        if copy.received >= end or (not again and (is_little or copy.received < copy.asked)):
            return None
        copy.asked = end
        return copy.received, end

    def block(self, message: MoveBlock, payload: bytes) -> list[FileCommand]:
        """Raises RemoteProtocolError if it is not what it says."""
        copy = self._copies.get(message.stream)
        if copy is None or message.name not in copy.users or not copy.received <= message.fragment < copy.asked:
            return []  # asked for twice, or of an earlier attempt
        is_short = len(payload) < FRAGMENT_BYTES and not message.last
        if is_short or len(payload) > FRAGMENT_BYTES or crc32(payload) != message.crc:
            what = f"stream {message.stream.hex()}, fragment {message.fragment} of {len(payload):,} bytes"
            raise RemoteProtocolError("bad-fragment", f"{message.name!r} is moved here: {what} is damaged")
        # Whoever passes them on is another one each time: they need not come in order.
        copy.early[message.fragment] = Block(message.crc, message.last, payload)
        commands: list[FileCommand] = []
        while (block := copy.early.pop(copy.received, None)) is not None:
            commands.append(AppendBlock(message.stream, copy.received, block))
            copy.received += 1
        if copy.received == copy.fragments or copy.received - copy.sync_asked >= SYNC_FRAGMENTS:
            copy.sync_asked = copy.received
            commands.append(SyncFile(message.stream, copy.received))
        return commands

    def answered(self, event: FileWritten | FileSynced) -> Copy:
        copy = self._copies[event.stream]
        if isinstance(event, FileWritten):
            copy.written = max(copy.written, event.blocks)
        else:
            copy.synced = max(copy.synced, event.blocks)
        return copy

    def taken(self, stream: bytes) -> None:
        """A message of this group holds it from now on, or its sender may come back."""
        self._copies.pop(stream, None)

    def drop(self, name: str) -> list[FileCommand]:
        """That destination does not come, or begins anew: files that no other one waits for go."""
        commands: list[FileCommand] = []
        for stream, copy in list(self._copies.items()):
            if copy.users.pop(name, name) is None and not copy.users:
                commands += self.failed(stream)
        return commands

    def failed(self, stream: bytes) -> list[FileCommand]:
        del self._copies[stream]
        return [DeleteFile(stream)]

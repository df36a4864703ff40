"""The streams of one message manager: written by senders, held by messages, read by consumers.

    sender --fragments--> file --Publish with the header `stream`--> held by a message --> read, any number of times
                                                                          └─ message settled everywhere: deleted

A stream's content never passes through journal and tables: those hold only which message has which stream. The calls
that the message manager and its destinations make, and when:

    publish        `refusal` before it is accepted, `bind` for what is to be written in the same group
    not yet due    `hold` instead; `let_go` after the `bind` when it is; the same for what is prepared, and not decided
    settled        `release` with the ranges, `release_all` when the log is trimmed: for the same group, too
    removed        `forget`
    any write      `take_gone` when it is asked for, `delete` with that when it is durable
    session ended  `session_ended`, for each destination, also 0: the session may be back at another one already

This machine knows nothing of consumers: whether a reader may read is the destination's to say.
"""
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from angarium.core.destination.events import ToSession
from angarium.core.errors import LocalProtocolError, Rejected
from angarium.core.ids import GLOBAL_ID_BYTES, format_id
from angarium.core.malformed import MALFORMED
from angarium.core.ranges import Range
from angarium.core.report import Report
from angarium.core.storage import Operation
from angarium.core.stream.events import (
    BlocksRead,
    DeleteFile,
    FileCommand,
    FileEvent,
    FileFailed,
    FilesBlocked,
    FileSynced,
    FileWritten,
    ReadBlocks,
    StoredFile,
    StreamSettings,
)
from angarium.core.stream.reading import Damage, ReadingStreams, refused
from angarium.core.stream.table import StreamRecord, StreamTable
from angarium.core.stream.writing import WritingStreams
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns

Command = ToSession | Report | FileCommand
_STREAM = int(Columns.STREAM)
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode
FRAMES = (
    frames.StreamOpen, frames.StreamFragment, frames.StreamClose, frames.StreamCredit, frames.StreamReadEnd,
)  # fmt: skip


class Streams:
    def __init__(self, settings: StreamSettings) -> None:
        self.table = StreamTable()
        self._writing = WritingStreams(settings)
        self._reading = ReadingStreams(settings)

    def change_settings(self, settings: StreamSettings) -> None:
        self._writing.settings = self._reading.settings = settings

    @property
    def open_count(self) -> int:
        return len(self._writing)

    @property
    def reader_count(self) -> int:
        return len(self._reading)

    def unknown_since(self) -> float | None:
        """Some were found at the start that may be for any destination, for all that is known; when that was."""
        return self._writing.unknown_since()

    def deadline(self) -> float | None:
        return self._writing.deadline()

    def restore(self, records: dict[bytes, bytes], files: dict[bytes, StoredFile], *, now: float) -> list[Damage]:
        """Take up what was stored; to be called once. Returns the messages whose stream is missing or cut short."""
        damages: list[Damage] = []
        loose = dict(files)
        for key in sorted(records):
            destination, position, record = self.table.restore(key, records[key])
            file = files.get(record.identity)
            loose.pop(record.identity, None)
            if file is None or file.bytes != record.bytes:
                found = "has no file" if file is None else f"has {file.bytes:,} bytes of {record.bytes:,}"
                damages.append(Damage(destination, position, f"stream {format_id(record.identity)} {found}"))
        self._writing.restore(loose, now=now)
        return damages

    # -- frames --------------------------------------------------------------------------------------

    def frame(self, session: bytes, destination: int, frame: frames.Frame, payload: bytes) -> list[Command]:
        """What a session sends for a stream, but for StreamRead; raises RemoteProtocolError if it may not."""
        match frame:
            case frames.StreamFragment():
                return list(self._writing.fragment(session, frame, payload))
            case frames.StreamOpen():
                return list(self._writing.open(session, destination, frame, stored=len(self.table)))
            case frames.StreamClose(number):
                return list(self._writing.close(session, number))
            case frames.StreamCredit():
                return list(self._reading.credit(session, frame))
            case frames.StreamReadEnd(number):
                self._reading.close(session, number)
                return []
        raise LocalProtocolError(f"{type(frame).__name__} is not of a stream")

    def read(self, session: bytes, destination: int, frame: frames.StreamRead, *, allowed: bool) -> list[Command]:
        """`allowed`: the consumer holds the message, or anybody may look at it."""
        record = self.table.at(destination, frame.position)
        if not allowed:
            reason = f"position {frame.position} is not held by consumer {frame.consumer} (any more)"
            return [refused(session, frame, "not-held", reason)]
        if record is None:
            return [refused(session, frame, "no-stream", f"the message at position {frame.position} has no stream")]
        return list(self._reading.open(session, frame, destination, record))

    def session_ended(self, session: bytes, destination: int, *, closed: bool, now: float) -> list[Command]:
        self._reading.session_ended(session, destination)
        return list(self._writing.session_ended(session, destination, closed=closed, now=now))

    # -- the disk ------------------------------------------------------------------------------------

    def file_event(self, event: FileEvent) -> tuple[list[Command], Damage | None]:
        """Commands, and the message that has turned out to be damaged, if one has."""
        match event:
            case FileWritten(identity, blocks):
                return list(self._writing.written(identity, blocks)), None
            case FileSynced(identity, blocks):
                return list(self._writing.synced(identity, blocks)), None
            case BlocksRead():
                commands, damage = self._reading.blocks_read(event)
                return list(commands), damage
            case FileFailed(identity, reason):
                return list(self._writing.failed(identity, reason)), None
            case FilesBlocked(reason):
                return list(self._writing.files_blocked(reason)), None

    def tick(self, now: float) -> list[Command]:
        return list(self._writing.tick(now))

    # -- with messages -------------------------------------------------------------------------------

    def refusal(self, destination: int, batch: Batch) -> tuple[str, str] | None:
        """Code and reason why the batch cannot be accepted as published by a client; None if it can."""
        if not batch.columns & _STREAM:
            return None
        try:
            for _, identity, size in stream_headers(batch):
                record = self._writing.find_complete(identity, destination)
                if size != record.bytes:
                    reason = f"stream {format_id(identity)} has {record.bytes:,} bytes, not {size:,}"
                    raise Rejected("bad-stream", reason)
        except Rejected as refusal:
            return refusal.code, refusal.reason
        return None

    def bind(self, destination: int, batch: Batch, first_position: int) -> list[Operation]:
        """The messages of the batch, which get these positions, hold their streams from now on. A batch of a client has
        passed `refusal`; one that the broker makes may also hold streams that other messages hold."""
        if not batch.columns & _STREAM:
            return []
        operations: list[Operation] = []
        for index, identity, _ in stream_headers(batch):
            record = self.table.known(identity) or self._complete(identity, destination)
            if record is not None:  # else it is damaged and gone, and was reported
                operations.append(self.table.bind(destination, first_position + index, record))
                self._writing.bound(identity)
        return operations

    def hold(self, destination: int, batch: Batch) -> list[Operation]:
        """The messages of the batch are not yet due, or prepared: they hold their streams until they are published."""
        operations: list[Operation] = []
        for _, identity, _ in stream_headers(batch):
            record = self.table.known(identity) or self._complete(identity, destination)
            if record is not None:
                operations.append(self.table.bind_waiting(destination, record))
                self._writing.bound(identity)
        return operations

    def let_go(self, destination: int, batch: Batch) -> list[Operation]:
        """They are due, and have been bound to where they are now; or they will never be published."""
        found = stream_headers(batch)
        return [each for _, identity, _ in found for each in self.table.release_waiting(destination, identity)]

    def _complete(self, identity: bytes, destination: int) -> StreamRecord | None:
        try:
            return self._writing.find_complete(identity, destination)
        except Rejected:
            return None

    def release(self, destination: int, ranges: Iterable[Range], is_needed: Callable[[int], bool]) -> list[Operation]:
        return self.table.release(destination, ranges, is_needed)

    def release_all(self, destination: int, low: int, high: int) -> list[Operation]:
        return self.table.release_all(destination, low, high)

    def destination_blocked(self, destination: int, code: str, reason: str) -> list[Command]:
        """Its producers are blocked, or (empty code) no longer."""
        return list(self._writing.destination_blocked(destination, code, reason))

    def destination_gone(self, destination: int) -> None:
        """Removed, or at another group from now on: what blocked it blocks nobody here."""
        self._writing.destination_blocked(destination, "", "")

    def forget(self, destination: int, code: str, reason: str) -> list[Command]:
        """The destination is removed, its records with it."""
        self.table.forget(destination)
        return list(self._writing.destination_removed(destination, code, reason))

    # -- of a destination that is moved (core/moving) --------------------------------------------------

    def take_out(self, destination: int) -> list[bytes]:
        """Nobody reads or writes there any more; what there is stays. The sessions that did."""
        return [*self._writing.hold(destination), *self._reading.end_all(destination)]

    def stay(self, destination: int, now: float) -> None:
        """It is opened again: who has sent something may come back."""
        self._writing.stay(destination, now)

    def leave(self, destination: int) -> list[Command]:
        """It is elsewhere: files go when their records have, those of unfinished streams at once."""
        self.table.forget(destination)
        return list(self._writing.leave(destination))

    def unfinished(self, destination: int) -> list[tuple[bytes, StoredFile]]:
        """Those that are being sent there, as far as it was told that they are durable; those that have begun."""
        return self._writing.unfinished(destination)

    def copy(self, identity: bytes, first: int, count: int, then: Callable[[BlocksRead], list[Any]]) -> ReadBlocks:
        return self._reading.copy(identity, first, count, then)

    def check_room(self, more: int) -> None:
        """Raise Rejected if there are too many streams for one more beside these."""
        self._writing.check_room(len(self.table) + more)

    def adopt(self, identity: bytes) -> StoredFile | None:
        """A file that was found at the start, and that nobody has asked for since; from now on it is the caller's."""
        return self._writing.adopt(identity)

    def arrived(self, destination: int, identity: bytes, file: StoredFile, now: float) -> None:
        """It was being sent there: its sender may come back."""
        self._writing.take_up(destination, identity, file, now)

    def take_gone(self) -> list[bytes]:
        return self.table.take_gone()

    def delete(self, gone: Iterable[bytes]) -> list[Command]:
        """Their records are durably gone."""
        commands: list[Command] = []
        for identity in gone:
            if self.table.left(identity):
                commands += [*self._reading.stream_gone(identity), DeleteFile(identity)]
        return commands


def stream_headers(batch: Batch) -> list[tuple[int, bytes, int]]:
    """Index, stream's identity and bytes of each message that holds one; raises `Rejected` for what is none."""
    if not batch.columns & _STREAM:
        return []
    found: list[tuple[int, bytes, int]] = []
    for index, encoded in enumerate(batch.headers() or ()):
        try:
            header = _decode(encoded).get("stream") if encoded else None
        except MALFORMED as error:
            raise Rejected("bad-stream", f"headers of message {index}: {error}") from None
        if header is None:
            continue
        identity, size = (header.get("identity"), header.get("bytes")) if isinstance(header, dict) else (None, None)
        if not isinstance(identity, bytes) or len(identity) != GLOBAL_ID_BYTES or not isinstance(size, int):
            raise Rejected("bad-stream", f"message {index}: `stream` is a map with `identity` and `bytes`")
        found.append((index, identity, size))
    return found

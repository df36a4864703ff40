"""Streams that are being read: a pure machine.

A reader asks for fragments up to a limit that it raises as it uses them up: so at most a window of them is on its way,
however slow it is, and small messages of the same connection wait behind no more than that. Any number of readers
may read one stream, each at its own pace. A reader ends with the last fragment, with its session, when its client
says so, or when the stream is gone or damaged; a client that has lost its connection reads on from where it was.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from angarium.core.destination.events import ToSession
from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import format_id
from angarium.core.stream.events import BlocksRead, FileCommand, ReadBlocks, StreamSettings
from angarium.core.stream.table import StreamRecord
from angarium.core.wire import frames

Command = ToSession | FileCommand
READ_FRAGMENTS_MAX = 4  # in one trip to the disk's thread


@dataclass(frozen=True, slots=True)
class Damage:
    """A message whose stream cannot be read."""

    destination: int
    position: int
    reason: str


@dataclass(slots=True, eq=False)
class Reader:
    session: bytes
    number: int
    attachment: bytes
    destination: int
    position: int
    record: StreamRecord
    following: int  # the next fragment to be sent
    limit: int
    route: int  # the destination over which it was asked for; 0: it is found by name
    is_reading: bool = False


class ReadingStreams:
    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self._readers: dict[bytes, dict[int, Reader]] = {}  # session -> number -> reader
        self._by_stream: dict[bytes, dict[Reader, None]] = {}
        self._reads: dict[int, Reader] = {}  # by token
        self._copies: dict[int, Callable[[BlocksRead], list[Any]]] = {}  # by token: of files that go to another group
        self._token = 0

    def __len__(self) -> int:
        return sum(map(len, self._readers.values()))

    def open(self, session: bytes, frame: frames.StreamRead, destination: int, record: StreamRecord) -> list[Command]:
        numbers = self._readers.get(session, {})
        if frame.reader in numbers:
            raise RemoteProtocolError("number-in-use", f"reader {frame.reader} is open already")
        if len(numbers) >= self.settings.session_max:
            reason = f"session reads session_max {len(numbers)} streams; close some"
            return [refused(session, frame, "too-many-streams", reason)]
        if not 0 <= frame.first < record.fragments:
            raise RemoteProtocolError("bad-fragment", f"fragment {frame.first} of {record.fragments}")
        reader = Reader(
            session, frame.reader, frame.attachment, destination, frame.position, record, frame.first, frame.limit,
            route=destination if frame.consumer >= 0 else 0,
        )  # fmt: skip
        self._readers.setdefault(session, numbers)[frame.reader] = reader
        self._by_stream.setdefault(record.identity, {})[reader] = None
        return self._pump(reader)

    def credit(self, session: bytes, frame: frames.StreamCredit) -> list[Command]:
        reader = self._readers.get(session, {}).get(frame.reader)
        if reader is None:
            return []  # it has just ended
        reader.limit = max(reader.limit, frame.limit)
        return self._pump(reader)

    def close(self, session: bytes, number: int) -> None:
        reader = self._readers.get(session, {}).get(number)
        if reader is not None:
            self._end(reader)

    def session_ended(self, session: bytes, destination: int) -> None:
        for reader in list(self._readers.get(session, {}).values()):
            if reader.route == destination:
                self._end(reader)

    def end_all(self, destination: int) -> list[bytes]:
        """Of that destination, which is moved. The sessions that read there: they are not told here."""
        readers = [
            reader for numbers in self._readers.values() for reader in numbers.values()
            if reader.destination == destination
        ]  # fmt: skip
        for reader in readers:
            self._end(reader)
        return [reader.session for reader in readers]

    def copy(self, identity: bytes, first: int, count: int, then: Callable[[BlocksRead], list[Any]]) -> ReadBlocks:
        self._token += 1
        self._copies[self._token] = then
        return ReadBlocks(self._token, identity, first, count)

    def stream_gone(self, identity: bytes) -> list[Command]:
        """The message that held it is settled: who still reads is told so."""
        commands: list[Command] = []
        for reader in list(self._by_stream.get(identity, {})):
            self._end(reader)
            commands.append(_ended(reader, "stream-gone", "the message was settled, and its stream deleted"))
        return commands

    def blocks_read(self, event: BlocksRead) -> tuple[list[Command], Damage | None]:
        if (then := self._copies.pop(event.token, None)) is not None:
            return then(event), None
        reader = self._reads.pop(event.token, None)
        if reader is None or self._readers.get(reader.session, {}).get(reader.number) is not reader:
            return [], None
        reader.is_reading = False
        commands: list[Command] = []
        damage = event.damage
        for crc, is_last, payload in event.blocks:
            if is_last != (reader.following == reader.record.fragments - 1):
                damage = "is wrongly marked as the last, or not"
                break
            data = frames.StreamData(reader.number, reader.following, crc, is_last, reader.attachment)
            commands.append(ToSession(reader.session, data, payload))
            reader.following += 1
        if reader.following == reader.record.fragments:
            self._end(reader)
            return commands, None
        if not damage:
            return commands + self._pump(reader), None
        self._end(reader)
        reason = f"stream {format_id(reader.record.identity)}, fragment {reader.following}: {damage}"
        commands.append(_ended(reader, "stream-damaged", reason))
        return commands, Damage(reader.destination, reader.position, reason)

    def _pump(self, reader: Reader) -> list[Command]:
        count = min(reader.limit, reader.record.fragments, reader.following + READ_FRAGMENTS_MAX) - reader.following
        if reader.is_reading or count <= 0:
            return []
        reader.is_reading = True
        self._token += 1
        self._reads[self._token] = reader
        return [ReadBlocks(self._token, reader.record.identity, reader.following, count)]

    def _end(self, reader: Reader) -> None:
        numbers = self._readers[reader.session]
        del numbers[reader.number]
        if not numbers:
            del self._readers[reader.session]
        readers = self._by_stream[reader.record.identity]
        del readers[reader]
        if not readers:
            del self._by_stream[reader.record.identity]


def _ended(reader: Reader, code: str, reason: str) -> ToSession:
    return ToSession(reader.session, frames.StreamReadEnd(reader.number, code, reason, reader.attachment))


def refused(session: bytes, frame: frames.StreamRead, code: str, reason: str) -> ToSession:
    return ToSession(session, frames.StreamReadEnd(frame.reader, code, reason, frame.attachment))

"""The streams of a message manager on fake files: what a sender, a message and a reader make of them."""
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from angarium.core.destination.events import Report, ToSession
from angarium.core.storage import DeleteRange, Operation, Put
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block, content_bytes
from angarium.core.stream.events import (
    AppendBlock,
    BlocksRead,
    DeleteFile,
    FileEvent,
    FileSynced,
    FileWritten,
    ReadBlocks,
    StoredFile,
    StreamSettings,
    SyncFile,
)
from angarium.core.stream.reading import Damage
from angarium.core.stream.streams import Command, Streams
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, Frame
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack

_F = TypeVar("_F", bound=Frame)
SENDER, CONSUMER = b"sender", b"consumer"
QUEUE = 7
FULL = b"x" * FRAGMENT_BYTES
SMALL = StreamSettings(window_fragments=2, sync_fragments=3, unfinished_keep_s=10.0, session_max=3)


@dataclass
class FakeFiles:
    """Blocks by file; what is not synced is lost in a crash. Commands wait until `World.run_files`."""

    blocks: dict[bytes, list[Block]] = field(default_factory=dict)
    synced: dict[bytes, int] = field(default_factory=dict)
    damaged: set[tuple[bytes, int]] = field(default_factory=set)
    waiting: deque[AppendBlock | SyncFile | DeleteFile | ReadBlocks] = field(default_factory=deque)

    def do_next(self) -> list[FileEvent]:
        match command := self.waiting.popleft():
            case AppendBlock(stream, number, block):
                blocks = self.blocks.setdefault(stream, [])
                assert len(blocks) == number, "appended in order"
                blocks.append(block)
                return [FileWritten(stream, number + 1)]
            case SyncFile(stream, count):
                assert len(self.blocks[stream]) == count
                self.synced[stream] = count
                return [FileSynced(stream, count)]
            case DeleteFile(stream):
                self.blocks.pop(stream, None)
                self.synced.pop(stream, None)
                return []
            case ReadBlocks():
                return [self._read(command)]

    def _read(self, command: ReadBlocks) -> BlocksRead:
        found: list[Block] = []
        for number in range(command.first, command.first + command.count):
            blocks = self.blocks.get(command.stream, [])
            if number >= len(blocks) or (command.stream, number) in self.damaged:
                return BlocksRead(command.token, found, f"block {number} is bad")
            found.append(blocks[number])
        return BlocksRead(command.token, found)

    def crash(self) -> dict[bytes, StoredFile]:
        self.waiting.clear()
        for stream, blocks in self.blocks.items():
            del blocks[self.synced.get(stream, 0) :]
        return {
            stream: StoredFile(
                len(blocks), content_bytes(len(blocks), len(blocks[-1].payload)) if blocks else 0,
                bool(blocks) and blocks[-1].is_last,
            )
            for stream, blocks in self.blocks.items()
        }  # fmt: skip


class World:
    def __init__(self, settings: StreamSettings = SMALL) -> None:
        self.settings = settings
        self.streams = Streams(settings)
        self.files = FakeFiles()
        self.records: dict[bytes, bytes] = {}
        self.sent: dict[bytes, list[tuple[Frame, bytes]]] = {}
        self.reports: list[Report] = []
        self.damages: list[Damage] = []
        self.now = 100.0
        self._identities = 0

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case ToSession(session, frame, payload):
                    self.sent.setdefault(session, []).append((frame, payload))
                case Report():
                    self.reports.append(command)
                case _:
                    self.files.waiting.append(command)

    def run_files(self) -> None:
        while self.files.waiting:
            self.step_files()

    def step_files(self) -> None:
        for event in self.files.do_next():
            commands, damage = self.streams.file_event(event)
            self.perform(commands)
            if damage is not None:
                self.damages.append(damage)

    def apply(self, operations: list[Operation]) -> None:
        """A write becomes durable, and the files of streams that it releases go."""
        gone = self.streams.take_gone()
        for operation in operations:
            match operation:
                case Put():
                    self.records[operation.key] = operation.value
                case DeleteRange(low=low, high=high):
                    self.records = {k: v for k, v in self.records.items() if not low <= k < high}
        self.perform(self.streams.delete(gone))
        self.run_files()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.streams.deadline()
        if deadline is not None and deadline <= self.now:
            self.perform(self.streams.tick(self.now))
        self.run_files()

    def restarted(self) -> "World":
        successor = World(self.settings)
        successor.files, successor.records, successor.now = self.files, self.records, self.now
        successor._identities = self._identities
        successor.damages = successor.streams.restore(self.records, self.files.crash(), now=self.now)
        return successor

    # -- senders ---------------------------------------------------------------------------------

    def open(
        self, number: int = 1, *, session: bytes = SENDER, resume: bytes = b"", destination: int = QUEUE
    ) -> bytes:
        """The stream's identity; empty if it was refused."""
        self._identities += 1
        identity = resume or self._identities.to_bytes(16, "big")
        frame = frames.StreamOpen(number, "q", DestinationKind.ANY, identity, bool(resume))
        before = len(self.received(frames.StreamOpened, session))
        self.perform(self.streams.frame(session, destination, frame, b""))
        opened = self.received(frames.StreamOpened, session)[before:]
        return opened[0].identity if opened else b""

    def send(self, number: int, *payloads: bytes, first: int = 0, last: bool = False, session: bytes = SENDER) -> None:
        for at, payload in enumerate(payloads, first):
            is_last = last and at == first + len(payloads) - 1
            frame = frames.StreamFragment(number, at, zlib.crc32(payload), is_last)
            self.perform(self.streams.frame(session, QUEUE, frame, payload))

    def stored(self, number: int, *payloads: bytes) -> bytes:
        """A stream of these fragments, sent as fast as the window lets."""
        identity = self.open(number)
        for at, payload in enumerate(payloads):
            self.send(number, payload, first=at, last=at == len(payloads) - 1)
            self.run_files()
        return identity

    def published(self, position: int, *payloads: bytes, number: int = 1, destination: int = QUEUE) -> bytes:
        """A message that holds such a stream, durable."""
        identity = self.stored(number, *payloads)
        batch = message(identity, sum(map(len, payloads)))
        assert self.streams.refusal(destination, batch) is None
        self.apply(self.streams.bind(destination, batch, position))
        return identity

    # -- readers ---------------------------------------------------------------------------------

    def read(
        self, position: int, *, reader: int = 1, first: int = 0, limit: int = 100, allowed: bool = True,
        session: bytes = CONSUMER, destination: int = QUEUE,
    ) -> None:  # fmt: skip
        frame = frames.StreamRead(reader, 1, position, first, limit, "", b"attached")
        self.perform(self.streams.read(session, destination, frame, allowed=allowed))
        self.run_files()

    def content(self, reader: int = 1, session: bytes = CONSUMER) -> list[bytes]:
        return [p for f, p in self.sent.get(session, []) if isinstance(f, frames.StreamData) and f.reader == reader]

    def received(self, kind: type[_F], session: bytes = SENDER) -> list[_F]:
        return [frame for frame, _ in self.sent.get(session, []) if isinstance(frame, kind)]


def message(identity: bytes, size: int, *, copies: int = 1) -> Batch:
    header = msgspec.msgpack.encode({"stream": {"identity": identity, "bytes": size}})
    columns = MessageColumns(headers=[header] * copies, announcements=int(Columns.STREAM))
    return Batch.parse(pack(b"producer 16 byte", 1, 0, [b""] * copies, columns))

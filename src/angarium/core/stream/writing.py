"""Streams that are being written: a pure machine.

    StreamOpen --> OPEN --fragments--> ENDED, durable --bind: a message holds it--> (the table's)
                     │ session cut off ──> KEPT for `unfinished_keep_s`, or until StreamOpen resumes it
                     └ StreamClose, session closed, time over ──> deleted

    found at the start --StreamOpen: SyncFile--> WAITING --all that was found is durable--> StreamOpened: OPEN

A sender may be `window_fragments` ahead of what is written, and keeps what is not yet durable: so after any failure it
goes on from the last durable fragment. Fragments arrive in order; one that was there before is dropped. Nothing is
read back here, and nobody reads a stream before a message holds it.

What is found at the start lies on this disk. Other copies may have less, and its sender drops what it is told to be
stored: so it is told how far the stream is when that is durable everywhere. By then it is no less than whoever was
primary before has told: that was durable on every copy in sync, this one among them.

While the producers of its destination are blocked the window stays where it is: else what is above a limit would
grow by whole streams. What has come by then is synced at once, so that its sender has nothing on the way meanwhile, and
streams to elsewhere in the same connection go on.
"""
from dataclasses import dataclass

from angarium.core.destination.events import ToSession
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import format_id
from angarium.core.report import Level, Report
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block, content_bytes
from angarium.core.stream.events import AppendBlock, DeleteFile, FileCommand, StoredFile, StreamSettings, SyncFile
from angarium.core.stream.table import StreamRecord
from angarium.core.wire import frames

Command = ToSession | Report | FileCommand


@dataclass(slots=True, eq=False)
class Stream:
    identity: bytes
    destination: int  # 0: found at the start, and not yet resumed
    session: bytes = b""  # empty: cut off, or found at the start
    number: int = 0
    received: int = 0  # fragments
    written: int = 0
    synced: int = 0
    sync_asked: int = 0
    last_bytes: int = 0  # length of the last fragment received
    is_ended: bool = False  # the last fragment has been received
    until: float = 0.0  # cut off: when it is deleted
    since: float = 0.0  # cut off: when that was
    granted: int = 0  # the limit that its sender was told
    is_settled: bool = True  # what was there at the start is durable everywhere
    is_settling: bool = False  # that was asked for
    asked: frames.StreamOpen | None = None  # of `session`, which is answered when it is settled

    @property
    def bytes(self) -> int:
        return content_bytes(self.received, self.last_bytes)

    @property
    def is_complete(self) -> bool:
        return self.is_ended and self.synced == self.received

    @property
    def is_open(self) -> bool:
        """Somebody writes it, and was told so."""
        return bool(self.session) and self.asked is None


class WritingStreams:
    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self._streams: dict[bytes, Stream] = {}
        self._by_number: dict[bytes, dict[int, Stream]] = {}  # session -> number -> stream
        self._cut: dict[bytes, Stream] = {}  # those with a time to be deleted at, in that order
        self._full = ""  # why no file can be written
        self._destinations_blocked: dict[int, tuple[str, str]] = {}  # code and reason why they take nothing

    def __len__(self) -> int:
        return len(self._streams)

    def unknown_since(self) -> float | None:
        """There are streams that were found at the start, and for all that is known may be for any destination: when
        the last of them was found."""
        return max((stream.since for stream in self._streams.values() if not stream.destination), default=None)

    def deadline(self) -> float | None:
        for stream in self._cut.values():
            return stream.until
        return None

    def restore(self, files: dict[bytes, StoredFile], *, now: float) -> None:
        """Files that no message holds: their senders may come back."""
        for identity, file in files.items():
            self.take_up(0, identity, file, now, is_settled=not file.fragments)

    def take_up(
        self, destination: int, identity: bytes, file: StoredFile, now: float, *, is_settled: bool = True
    ) -> None:
        count = file.fragments
        last_bytes = file.bytes - content_bytes(count, 0)
        stream = Stream(identity, destination, b"", 0, count, count, count, count, last_bytes, file.is_ended)
        stream.is_settled = is_settled
        self._streams[identity] = stream
        self._cut_off(stream, now)

    # -- of a destination that is moved ----------------------------------------------------------------

    def _of(self, destination: int) -> list[Stream]:
        return [stream for stream in self._streams.values() if stream.destination == destination]

    def hold(self, destination: int) -> list[bytes]:
        """From now on nobody writes them, and none goes for want of a sender. The sessions that had them open."""
        streams = self._of(destination)
        sessions = [stream.session for stream in streams if stream.session]
        for stream in streams:
            self._detach(stream)
        return sessions

    def stay(self, destination: int, now: float) -> None:
        for stream in self._of(destination):
            self._cut_off(stream, now)

    def leave(self, destination: int) -> list[Command]:
        return [command for stream in self._of(destination) for command in self._leave(stream)]

    def unfinished(self, destination: int) -> list[tuple[bytes, StoredFile]]:
        found = [(stream, stream.synced == stream.received) for stream in self._of(destination) if stream.synced]
        return [
            (stream.identity, StoredFile(stream.synced, stream.bytes, stream.is_ended) if is_all
             else StoredFile(stream.synced, content_bytes(stream.synced, FRAGMENT_BYTES), False))
            for stream, is_all in found
        ]  # fmt: skip

    def adopt(self, identity: bytes) -> StoredFile | None:
        stream = self._streams.get(identity)
        if stream is None or stream.destination or stream.session:
            return None
        self._detach(stream)
        del self._streams[identity]
        return StoredFile(stream.synced, stream.bytes, stream.is_ended)

    def check_room(self, stored: int) -> None:
        if len(self._streams) + stored >= self.settings.streams_max:
            reason = f"the node has streams_max {self.settings.streams_max} streams; consume some first"
            raise Rejected("too-many-streams", reason)

    # -- frames --------------------------------------------------------------------------------------

    def open(self, session: bytes, destination: int, frame: frames.StreamOpen, *, stored: int) -> list[Command]:
        """`stored`: how many streams messages hold."""
        numbers = self._by_number.setdefault(session, {})
        try:
            if len(numbers) >= self.settings.session_max:
                reason = f"session writes session_max {self.settings.session_max} streams; end some"
                raise Rejected("too-many-streams", reason)
            stream = self._resumed(session, frame) if frame.resumed else self._new(frame.identity, stored)
        except Rejected as refusal:
            if not numbers:
                del self._by_number[session]
            return [ToSession(session, frames.StreamClosed(frame.stream, refusal.code, refusal.reason))]
        stream.destination, stream.session, stream.number = destination, session, frame.stream
        numbers[frame.stream] = stream
        if stream.is_settled:
            return self._opened(stream, frame)
        stream.asked = frame
        if stream.is_settling:
            return []
        stream.is_settling = True
        return [SyncFile(stream.identity, stream.received)]

    def _opened(self, stream: Stream, frame: frames.StreamOpen) -> list[Command]:
        opened = frames.StreamOpened(
            frame.stream, stream.identity, stream.synced, stream.received, self._limit(stream), FRAGMENT_BYTES,
            frame.attachment,
        )  # fmt: skip
        commands: list[Command] = [ToSession(stream.session, opened)]
        if self._block(stream)[0]:
            commands.append(self._progress(stream))
        return commands

    def _new(self, identity: bytes, stored: int) -> Stream:
        if len(self._streams) >= self.settings.open_max or identity in self._streams:
            reason = f"{len(self._streams)} streams are being written: the most is open_max; try again later"
            raise Rejected("too-many-streams", reason)
        self.check_room(stored)
        stream = self._streams[identity] = Stream(identity, 0)
        return stream

    def _resumed(self, session: bytes, frame: frames.StreamOpen) -> Stream:
        stream = self._streams.get(frame.identity)
        if stream is None or stream.session not in (b"", session):
            reason = f"there is no stream {format_id(frame.identity)} to resume; it was kept for unfinished_keep_s"
            raise Rejected("unknown-stream", reason)
        self._detach(stream)
        return stream

    def fragment(self, session: bytes, frame: frames.StreamFragment, payload: bytes) -> list[Command]:
        stream = self._by_number.get(session, {}).get(frame.stream)
        if stream is None:
            return []  # it was given up, and its client told so
        number = frame.number
        if number < stream.received:
            return []  # sent again after a reconnection
        if number > stream.received or stream.is_ended or number >= self._limit(stream):
            reason = f"stream {frame.stream}: fragment {number} after {stream.received}, limit {self._limit(stream)}"
            raise RemoteProtocolError("bad-fragment", reason)
        if len(payload) > FRAGMENT_BYTES or (len(payload) < FRAGMENT_BYTES and not frame.last):
            reason = f"stream {frame.stream}: fragment {number} of {len(payload):,} bytes, not {FRAGMENT_BYTES:,}"
            raise RemoteProtocolError("bad-fragment", reason)
        if content_bytes(number + 1, len(payload)) > self.settings.stream_bytes_max:
            reason = f"the stream exceeds stream_bytes_max {self.settings.stream_bytes_max:,}"
            return self._give_up(stream, "stream-too-long", reason)
        stream.received += 1
        stream.last_bytes = len(payload)
        stream.is_ended = frame.last
        commands: list[Command] = [AppendBlock(stream.identity, number, Block(frame.crc, frame.last, payload))]
        is_blocked = stream.destination in self._destinations_blocked
        if frame.last or is_blocked or stream.received - stream.sync_asked >= self.settings.sync_fragments:
            commands += self._sync(stream)
        return commands

    def _sync(self, stream: Stream) -> list[Command]:
        if stream.sync_asked == stream.received:
            return []
        stream.sync_asked = stream.received
        return [SyncFile(stream.identity, stream.received)]

    def close(self, session: bytes, number: int) -> list[Command]:
        stream = self._by_number.get(session, {}).get(number)
        return [] if stream is None else self._leave(stream)

    def session_ended(self, session: bytes, destination: int, *, closed: bool, now: float) -> list[Command]:
        commands: list[Command] = []
        for stream in list(self._by_number.get(session, {}).values()):
            if stream.destination != destination:
                continue
            if closed:
                commands += self._leave(stream)
            else:
                self._cut_off(stream, now)
        return commands

    def destination_removed(self, destination: int, code: str, reason: str) -> list[Command]:
        streams = [stream for stream in self._streams.values() if stream.destination == destination]
        return [command for stream in streams for command in self._give_up(stream, code, reason)]

    # -- the disk ------------------------------------------------------------------------------------

    def written(self, identity: bytes, blocks: int) -> list[Command]:
        stream = self._streams.get(identity)
        if stream is None:
            return []
        stream.written = blocks
        # Said with each part of the window that has come free, not with each fragment.
        return [self._progress(stream)] if stream.is_open and not stream.is_ended else []

    def synced(self, identity: bytes, blocks: int) -> list[Command]:
        stream = self._streams.get(identity)
        if stream is None:
            return []
        # While what was found is not settled, fewer may be: a copy that is new has yet to get them.
        stream.synced = max(stream.synced, blocks)
        stream.is_settled |= blocks >= stream.received
        if stream.asked is None:
            return [self._progress(stream)] if stream.session else []
        if not stream.is_settled:
            return []
        frame, stream.asked = stream.asked, None
        return self._opened(stream, frame)

    def failed(self, identity: bytes, reason: str) -> list[Command]:
        stream = self._streams.get(identity)
        if stream is None:
            return []
        text = f"stream {format_id(identity)}: {reason}"
        return [Report(Level.ERROR, "stream-failed", text), *self._give_up(stream, "stream-failed", text)]

    def files_blocked(self, reason: str) -> list[Command]:
        self._full = reason
        return [self._progress(stream) for stream in self._streams.values() if stream.is_open]

    def destination_blocked(self, destination: int, code: str, reason: str) -> list[Command]:
        """Its producers are blocked, or (empty code) no longer: no stream grows there, or becomes a message."""
        self._destinations_blocked.pop(destination, None)
        if code:
            self._destinations_blocked[destination] = (code, reason)
        streams = [each for each in self._streams.values() if each.is_open and each.destination == destination]
        synced = [command for stream in streams for command in self._sync(stream)] if code else []
        return [*(self._progress(stream) for stream in streams), *synced]

    def tick(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for stream in [stream for stream in self._cut.values() if stream.until <= now]:
            text = f"stream {format_id(stream.identity)}: its sender did not come back; {stream.bytes:,} bytes deleted"
            commands += [Report(Level.INFO, "stream-abandoned", text), *self._leave(stream)]
        return commands

    # -- publishing ----------------------------------------------------------------------------------

    def find_complete(self, identity: bytes, destination: int) -> StreamRecord:
        """What a message that is to hold the stream binds; raises `Rejected` if it may not."""
        stream = self._streams.get(identity)
        if stream is None or stream.destination not in (0, destination):
            raise Rejected("unknown-stream", f"stream {format_id(identity)} was not written for this destination")
        if not stream.is_complete:
            reason = f"stream {format_id(identity)}: {stream.synced} fragments are stored, and not the last"
            raise Rejected("stream-incomplete", reason)
        return StreamRecord(identity, stream.received, stream.bytes)

    def bound(self, identity: bytes) -> None:
        """A message holds it from now on."""
        stream = self._streams.pop(identity, None)
        if stream is not None:
            self._detach(stream)

    # -- inside --------------------------------------------------------------------------------------

    def _limit(self, stream: Stream) -> int:
        if stream.destination not in self._destinations_blocked:
            stream.granted = stream.written + self.settings.window_fragments
        return stream.granted

    def _progress(self, stream: Stream) -> ToSession:
        stored = frames.StreamStored(stream.number, stream.synced, self._limit(stream), *self._block(stream))
        return ToSession(stream.session, stored)

    def _block(self, stream: Stream) -> tuple[str, str]:
        """Code and reason why it waits; empty: it need not."""
        if self._full:
            return "disk-full", self._full
        return self._destinations_blocked.get(stream.destination, ("", ""))

    def _detach(self, stream: Stream) -> None:
        """From its session, and from its time to be deleted at."""
        self._cut.pop(stream.identity, None)
        numbers = self._by_number.get(stream.session)
        if numbers is not None and numbers.get(stream.number) is stream:
            del numbers[stream.number]
            if not numbers:
                del self._by_number[stream.session]
        stream.session, stream.asked = b"", None

    def _cut_off(self, stream: Stream, now: float) -> None:
        self._detach(stream)
        stream.since, stream.until = now, now + self.settings.unfinished_keep_s
        self._cut[stream.identity] = stream

    def _leave(self, stream: Stream) -> list[Command]:
        self._detach(stream)
        del self._streams[stream.identity]
        return [DeleteFile(stream.identity)]

    def _give_up(self, stream: Stream, code: str, reason: str) -> list[Command]:
        session, number = stream.session, stream.number
        commands = self._leave(stream)
        return [ToSession(session, frames.StreamClosed(number, code, reason)), *commands] if session else commands

"""Sending a body of any length: from a file, an iterable, an asynchronous stream, or piece by piece.

Nothing is held but what the broker has not yet made durable, some two megabytes. A file is read in a thread. The
message appears when the last fragment is durable, all at once; until then a stream that is given up leaves nothing.
"""
import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import msgspec

from angarium.client.ended import ended_error
from angarium.client.fields import decode_map
from angarium.client.sending import Sending
from angarium.core.checksum import crc32
from angarium.core.client import stream_events
from angarium.core.client.gathered import Options
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected
from angarium.core.wire.layout import Columns

if TYPE_CHECKING:
    from angarium.client.stream_desk import StreamDesk

AHEAD_FRAGMENTS = 4  # put beyond what may be sent, so that something lies ready when it may
READ_FRAGMENTS_MAX = 4  # in one trip to the thread
_encode = msgspec.msgpack.Encoder().encode


class Readable(Protocol):
    """A file, or whatever else is read like one."""

    def read(self, size: int, /) -> bytes: ...


class AsyncReadable(Protocol):
    async def read(self, size: int, /) -> bytes: ...


Source = Readable | AsyncReadable | Iterable[bytes] | AsyncIterable[bytes]


def stream_options(options: Options | None, identity: bytes, size: int) -> Options:
    """Of the message that holds the stream."""
    options = options or Options()
    headers = decode_map(options.headers) | {"stream": {"identity": identity, "bytes": size}}
    announcements = options.announcements | int(Columns.STREAM)
    return options._replace(headers=_encode(headers), announcements=announcements)


class OutgoingStream:
    """Made by `Session.open_stream`. `write` what there is, then `finish`; or use it with `async with`, which finishes,
    or aborts if the block raises."""

    def __init__(self, desk: "StreamDesk", number: int, destination: str) -> None:
        self.destination = destination
        self.bytes = 0  # written so far
        self.blocked_reason = ""  # why nothing is stored for now; empty: it is
        self.number = number
        self.sending: Sending | None = None  # once it is finished
        self._desk = desk
        self._identity = b""
        self._fragment_bytes = 0
        self._rest = bytearray()
        self._put = 0  # fragments
        self._stored = 0
        self._limit = 0
        self._is_last_put = False
        self._is_over = False
        self._error: AngariumError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def stored_bytes(self) -> int:
        """How much of it the broker has made durable."""
        return min(self.bytes, self._stored * self._fragment_bytes)

    # -- writing ---------------------------------------------------------------------------------

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add to the body; waits while the broker takes no more. If that is cancelled, `bytes` says whether the data is
        part of the body: all of it is, or nothing."""
        self._check_unfinished()
        await self._until(lambda: self._fragment_bytes > 0)
        await self._put_whole_fragments()  # of a write that was cancelled: else what waits here had no bound
        self.bytes += len(data)
        self._rest += data
        await self._put_whole_fragments()

    async def _put_whole_fragments(self) -> None:
        rest, size = self._rest, self._fragment_bytes
        while len(rest) >= size:
            await self._room()
            payload = bytes(memoryview(rest)[:size])
            del rest[:size]  # in the same turn: whoever waits here may be cancelled
            self._put_fragment(payload, crc32(payload), is_last=False)

    async def write_from(self, source: Source) -> None:
        """Everything that the source has. If that is cancelled the stream is given up: what was read is not known."""
        self._check_unfinished()
        try:
            await self._write_all(source)
        except asyncio.CancelledError:
            reason = f"the stream to '{self.destination}': reading its source was given up half-way; send it anew"
            self._error = self._error or LocalProtocolError(reason)
            raise

    async def _write_all(self, source: Source) -> None:
        read = getattr(source, "read", None)
        if read is None:
            async for piece in _pieces(source):
                await self.write(piece)
        elif inspect.iscoroutinefunction(read):
            await self._until(lambda: self._fragment_bytes > 0)
            while piece := await read(self._fragment_bytes):
                await self.write(piece)
        else:
            await self._write_file(source)  # type: ignore[arg-type]

    async def _write_file(self, file: Readable) -> None:
        await self._until(lambda: self._fragment_bytes > 0)
        loop, size = self._desk.loop, self._fragment_bytes
        if self._rest:
            raise LocalProtocolError("write_from a file cannot follow a write that left part of a fragment")
        while True:
            await self._room()
            count = max(1, min(READ_FRAGMENTS_MAX, self._limit + AHEAD_FRAGMENTS - self._put))
            pieces = await loop.run_in_executor(None, _read_fragments, file, size, count)
            self._check()
            for payload, crc in pieces:
                self.bytes += len(payload)
                if len(payload) < size:
                    self._rest += payload
                    return
                self._put_fragment(payload, crc, is_last=False)

    def _put_fragment(self, payload: bytes, crc: int, *, is_last: bool) -> None:
        self._put += 1
        self._desk.handle(stream_events.PutFragment(self._desk.session, self.number, payload, crc, is_last))

    async def finish(self, options: Callable[[], Options | None] = lambda: None) -> Sending:
        """Wait until all of it is durable, and publish the message; `await` the result for its confirm."""
        self._check()
        if not self._is_last_put:  # else an earlier call was cancelled
            await self._until(lambda: self._fragment_bytes > 0)
            await self._put_whole_fragments()
            await self._room()
            payload = bytes(self._rest)
            self._rest.clear()
            self._is_last_put = True
            self._put_fragment(payload, crc32(payload), is_last=True)
        await self._until(lambda: self._stored == self._put)
        self._is_over = True
        self.sending = self._desk.publish(self, stream_options(options(), self._identity, self.bytes))
        return self.sending

    def abort(self) -> None:
        """Give it up: nothing of it is left anywhere."""
        if not self._is_over:
            self._is_over = True
            self._desk.close_writer(self.number)

    # -- waiting ---------------------------------------------------------------------------------

    async def _room(self) -> None:
        await self._until(lambda: self._put < self._limit + AHEAD_FRAGMENTS)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._check()
            self._waiter = self._desk.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._check()

    def _check_unfinished(self) -> None:
        self._check()
        if self._is_last_put:
            raise LocalProtocolError(f"the stream to '{self.destination}' is being finished: nothing may follow")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_over:
            raise LocalProtocolError(f"the stream to '{self.destination}' is finished or given up; open another one")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- notifications ---------------------------------------------------------------------------

    def on_ready(self, identity: bytes, fragment_bytes: int) -> None:
        if self._fragment_bytes not in (0, fragment_bytes):
            self.on_ended(Rejected("stream-lost", "the broker cuts streams differently since the reconnection"))
            return
        self._identity, self._fragment_bytes = identity, fragment_bytes
        self._wake()

    def on_advanced(self, command: stream_events.StreamAdvanced) -> None:
        self._stored, self._limit = command.stored, command.limit
        self.blocked_reason = f"{command.code}: {command.reason}" if command.code else ""
        self._wake()

    def on_ended(self, error: AngariumError) -> None:
        self._error = self._error or error
        self._wake()

    def on_broker_ended(self, code: str, reason: str) -> None:
        error = ended_error(f"stream to '{self.destination}'", code, reason)
        assert error is not None
        self.on_ended(error)


class StreamContext:
    """`async with session.open_stream(...) as stream`: finished at the end, given up if the block raises."""

    def __init__(self, stream: OutgoingStream, options: Callable[[], Options | None]) -> None:
        self._stream = stream
        self._options = options

    async def __aenter__(self) -> OutgoingStream:
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stream.abort()
        elif self._stream.sending is None:
            try:
                await self._stream.finish(self._options)
            except BaseException:
                self._stream.abort()
                raise


def _read_fragments(file: Readable, size: int, count: int) -> list[tuple[bytes, int]]:
    """Up to `count` fragments; one that is shorter than `size` is the last, and may be empty."""
    fragments: list[tuple[bytes, int]] = []
    while len(fragments) < count:
        payload = file.read(size)
        while 0 < len(payload) < size:  # a pipe gives what it has
            piece = file.read(size - len(payload))
            if not piece:
                break
            payload += piece
        fragments.append((payload, crc32(payload)))
        if len(payload) < size:
            break
    return fragments


async def _pieces(source: object) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
    elif isinstance(source, Iterable) and not isinstance(source, bytes | str):
        for piece in source:
            yield piece
    else:
        raise Rejected("bad-body", f"a stream comes from a file or an iterable of bytes, not {type(source).__name__}")



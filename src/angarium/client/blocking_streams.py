"""Streams without async: a body that is read like a file, or written piece by piece."""
import asyncio
import io
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from angarium.client import stream_reading, stream_sending
from angarium.client.blocking_loop import LoopThread
from angarium.client.blocking_sending import Sender, Sending
from angarium.core.errors import LocalProtocolError
from angarium.core.stream.blocks import FRAGMENT_BYTES

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class IncomingStream(io.RawIOBase):
    """The body of a message, for one reader at a time; `Message.open` puts a buffer in front of it."""

    def __init__(self, stream: stream_reading.IncomingStream, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._stream = stream
        self._loop = loop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        with memoryview(buffer).cast("B") as room:
            piece = asyncio.run_coroutine_threadsafe(self._stream.read(len(room)), self._loop).result()
            room[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stream.close_now)


def open_file(
    open_stream: Callable[[], stream_reading.IncomingStream], loop: asyncio.AbstractEventLoop
) -> io.BufferedReader:
    """Open it in the loop, for any other thread to read."""

    async def open_in_loop() -> stream_reading.IncomingStream:
        return open_stream()

    stream = asyncio.run_coroutine_threadsafe(open_in_loop(), loop).result()
    return io.BufferedReader(IncomingStream(stream, loop), FRAGMENT_BYTES)


class OutgoingStream:
    """Made by `Session.open_stream`. `write` what there is; the message is published when the block of `with` ends, and
    given up if that raises. `sending` is what `Session.send` would have returned."""

    def __init__(self, thread: LoopThread, sender: Sender, context: stream_sending.StreamContext) -> None:
        self.sending: Sending | None = None
        self._thread = thread
        self._sender = sender
        self._context = context
        self._stream: stream_sending.OutgoingStream | None = None

    def write(self, data: bytes | bytearray | memoryview, timeout_s: float | None = None) -> int:
        """Add to the body; waits while the broker takes no more. Returns how many bytes it was."""
        if self._stream is None:
            raise LocalProtocolError("use it with `with session.open_stream(...) as stream`")
        self._thread.run(self._stream.write(data), timeout_s, what="storing a part of the stream")
        return len(data)

    def __enter__(self) -> Self:
        self._stream = self._thread.run(self._context.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._context.__aexit__(kind, error, trace))
        if self._stream is not None and self._stream.sending is not None:
            self.sending = Sending(self._sender, self._stream.sending)

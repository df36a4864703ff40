"""Reading a body of any length: the stream of a message that was received, from its first byte to its last.

At most half a megabyte lies ready here, however slow the application is. A lost connection is not noticed but by
the pause: reading goes on where it was. It ends with an error if the message is no longer ours: settled, or given to
somebody else after a long disconnection.
"""
import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from angarium.client.ended import ended_error
from angarium.core.client import stream_events
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected

if TYPE_CHECKING:
    from angarium.client.stream_desk import StreamDesk


class IncomingStream:
    """Made by `Message.open`. `read` it, or iterate over its pieces; use it with `async with`, or `close` it."""

    def __init__(self, desk: "StreamDesk | None", number: int, size: int, ready: bytes = b"") -> None:
        self.bytes = size  # in all
        self.number = number
        self._desk = desk
        self._ready: deque[bytes] = deque([ready] if ready else [])
        self._rest = memoryview(b"")  # of the fragment that is being taken
        self._is_complete = desk is None  # everything has arrived
        self._arrived = 0  # bytes
        self._is_closed = False
        self._error: AngariumError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, or (negative) all that follow: only for what fits into memory. Empty at the end.
        If it is cancelled, or fails, the next one goes on where the last one ended that did not."""
        if size < 0:
            return await self._read_all()
        if not self._rest:
            self._rest = memoryview(await self._next())
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)

    async def _read_all(self) -> bytes:
        taken: list[bytes] = []
        try:
            async for piece in self:
                taken.append(piece)  # kept if this is cancelled
        except BaseException:
            self._rest = memoryview(b"".join(taken))  # nothing follows what waits for the next fragment
            raise
        return b"".join(taken)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = bytes(self._rest) or await self._next()
        self._rest = memoryview(b"")
        if not piece:
            raise StopAsyncIteration
        return piece

    async def _next(self) -> bytes:
        while True:
            if self._is_closed:
                raise LocalProtocolError("the stream is closed; open its message again")
            while self._ready:
                piece = self._ready.popleft()
                if self._desk is not None and not self._is_complete:
                    self._desk.handle(stream_events.UseFragment(self._desk.session, self.number))
                if piece:
                    return piece
            if self._is_complete:
                return b""
            if self._error is not None:
                raise self._error
            assert self._desk is not None
            self._waiter = self._desk.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._ready.clear()
            if self._desk is not None:
                self._desk.close_reader(self.number)
            self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_now()

    # -- notifications ---------------------------------------------------------------------------

    def on_fragment(self, payload: bytes, *, is_last: bool) -> None:
        self._ready.append(payload)
        self._arrived += len(payload)
        self._is_complete = is_last
        if is_last and self._arrived != self.bytes:
            self._is_complete = False
            reason = f"the stream ends after {self._arrived:,} of {self.bytes:,} bytes"
            self.on_ended(Rejected("stream-damaged", reason))
        self._wake()

    def on_ended(self, error: AngariumError) -> None:
        self._error = self._error or error
        self._wake()

    def on_broker_ended(self, code: str, reason: str) -> None:
        error = ended_error("stream", code, reason)
        assert error is not None
        self.on_ended(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

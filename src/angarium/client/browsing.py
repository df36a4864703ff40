"""Looking at the messages of a queue without taking them.

They are asked for in pages, one at a time, each up to `PAGE_MESSAGES` and `PAGE_BYTES`. Reading changes nothing, so a
page whose answer was lost is asked for again. They come in the order in which they would be received: the most urgent
priority first, within a priority in order. A browser ends where the queue ended when it began: what arrives meanwhile,
of whatever priority, is not shown. What is taken meanwhile may still be shown, what is not yet due is not.

A `Message` that was browsed is read like any other, and cannot be settled: it is nobody's.
"""
import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import msgspec

from angarium.client.log import Request, asked
from angarium.client.message import Delivery, Message
from angarium.client.stream_reading import IncomingStream
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire.batch import Batch

if TYPE_CHECKING:
    from angarium.client.consumer import Consumer

PAGE_MESSAGES = 1_000
PAGE_BYTES = 1 << 20
OpenStream = Callable[[int, int], IncomingStream]  # of the message at that position, of that length


class _Part(msgspec.Struct, frozen=True):
    position: int
    count: int
    bytes: int


class _Page(msgspec.Struct, frozen=True):
    parts: Sequence[_Part]
    next: int
    end: int
    ends: Sequence[int] = ()


class Browser:
    """Made by `Session.browse`: an asynchronous iterator. There is nothing to close."""

    message_type: type[Message] = Message
    run_high = -1  # to a message this is its consumer, which it has none of: nothing is being settled
    error = None

    def __init__(self, request: Request, destination: str, selector: str, open_stream: OpenStream) -> None:
        self.destination = destination
        self.open_stream = open_stream
        self._request = request
        self._selector = selector
        self._ready: deque[Message] = deque()
        self._place = 0
        self._end: int | None = None  # the place where the queue ended when the first page was read
        self._ends: Sequence[int] = ()  # and where each priority did
        self._asking = asyncio.Lock()  # several tasks may share it

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if not self._ready:
            await self._refill()
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def next_page(self) -> list[Message]:
        """What is left of the page at hand, or the next one; empty at the end."""
        if not self._ready:
            await self._refill()
        page = list(self._ready)
        self._ready.clear()
        return page

    async def _refill(self) -> None:
        async with self._asking:
            while not self._ready and (self._end is None or self._place < self._end):
                await self._fetch()

    async def _fetch(self) -> None:
        arguments: dict[str, Any] = {
            "name": self.destination, "place": self._place, "count": PAGE_MESSAGES, "bytes_max": PAGE_BYTES,
        }  # fmt: skip
        if self._selector:
            arguments["selector"] = self._selector
        if self._ends:
            arguments["ends"] = self._ends
        answer = await asked(self._request, "destination.browse", arguments)
        try:
            page = msgspec.convert(answer.result, _Page)
        except msgspec.ValidationError as error:
            raise RemoteProtocolError("bad-reply", f"browsing '{self.destination}': {error}") from None
        if self._end is None:
            self._end, self._ends = page.end, page.ends
        if page.next <= self._place < self._end:
            raise RemoteProtocolError("bad-reply", f"browsing '{self.destination}' stays at place {page.next}")
        self._ready.extend(self._messages(page.parts, answer.payload))
        self._place = page.next

    def _messages(self, parts: Sequence[_Part], payload: bytes) -> list[Message]:
        messages: list[Message] = []
        at = 0
        for part in parts:
            batch = Batch.parse(payload[at : at + part.bytes])
            at += part.bytes
            if batch.count != part.count:
                reason = f"browsing '{self.destination}': a part of {part.count} messages holds {batch.count}"
                raise RemoteProtocolError("bad-reply", reason)
            positions = range(part.position, part.position + part.count)
            delivery = Delivery(cast("Consumer", self), batch, positions, [], 0, batch.count)
            messages += delivery.messages(self.message_type)
        return messages

    # -- in the place of the consumer that such a message has not ------------------------------------

    def settle(self, message: Message, outcome: int) -> Awaitable[None]:
        self._refuse(message)

    def acknowledge(self, message: Message) -> None:
        self._refuse(message)

    def _refuse(self, message: Message) -> NoReturn:
        raise LocalProtocolError(f"{message} was only browsed, and is not yours to settle; consume it instead")

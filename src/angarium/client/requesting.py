"""Requests and their replies, over one temporary queue for each session.

A reply is known by its correlation id, which is the request's. Replies nobody waits for any more are settled and
forgotten.
"""
import asyncio
from itertools import count
from typing import TYPE_CHECKING

from angarium.client.consumer import Consumer
from angarium.client.destination import Destination, Queue, name_of
from angarium.client.fields import Body, MessageFields
from angarium.client.message import Delivery, Message
from angarium.core.client import events
from angarium.core.errors import AngariumError, LocalProtocolError, Unavailable

if TYPE_CHECKING:
    from angarium.client.session import Session

PREFETCH = 1_000
REQUESTS_MAX = 100_000  # that wait for their reply, in one session


class Replies(Consumer):
    """Hands each reply to whoever waits for it, as it arrives."""

    def __init__(self, session: "Session", number: int, destination: str, prefetch: int) -> None:
        super().__init__(session, number, destination, prefetch)
        self.waiting: dict[str | bytes, asyncio.Future[Message]] = {}  # by correlation id

    def on_arrived(self, command: events.MessagesArrived) -> None:
        positions = command.positions or range(command.position, command.position + command.batch.count)
        delivery = Delivery(self, command.batch, positions, command.redeliveries, command.low, command.high)
        self._unsettled += command.high - command.low
        for message in delivery.messages(self.message_type):
            message.settle()
            future = self.waiting.pop(message.correlation_id or "", None)
            if future is not None and not future.done():
                future.set_result(message)

    def on_ended(self, error: AngariumError | None) -> None:
        super().on_ended(error)
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(error or Unavailable("the session was closed before the reply came"))
                future.exception()  # whether anybody still asks or not
        self.waiting.clear()


class Requester:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._replies: Replies | None = None
        self._opening: asyncio.Lock = asyncio.Lock()
        self._queue: Queue | None = None
        self._numbers = count(1)

    async def request(
        self, destination: Destination, body: Body, timeout_s: float | None, fields: MessageFields
    ) -> Message:
        for name in ("reply_to", "correlation_id"):
            if name in fields:
                raise LocalProtocolError(f"request to '{name_of(destination)}': {name} is the request's own to choose")
        try:
            async with asyncio.timeout(timeout_s):  # all of it: opening the queue and sending may have to wait as well
                return await self._answered(destination, body, fields)
        except TimeoutError:
            raise Unavailable(
                f"request to '{name_of(destination)}': no reply within {timeout_s:g} s; it may have been done or not"
            ) from None

    async def _answered(self, destination: Destination, body: Body, fields: MessageFields) -> Message:
        replies = await self._open()
        if len(replies.waiting) >= REQUESTS_MAX:
            raise Unavailable(f"{REQUESTS_MAX:,} requests of this session wait for their reply; await some first")
        assert self._queue is not None
        correlation = f"{self._queue.name}:{next(self._numbers)}"
        future: asyncio.Future[Message] = self._session.loop.create_future()
        replies.waiting[correlation] = future
        whole: MessageFields = {**fields, "reply_to": self._queue, "correlation_id": correlation}
        try:
            await self._session.send(destination, body, **whole)
            return await future
        finally:
            replies.waiting.pop(correlation, None)

    async def _open(self) -> Replies:
        async with self._opening:
            if self._replies is None or self._replies.is_ended:
                self._queue = await self._session.temporary_queue()
                self._replies = self._session.consume_replies(self._queue, PREFETCH)
                await self._replies.opened()
        return self._replies


def reply_fields(request: Message, fields: MessageFields) -> tuple[Destination, MessageFields]:
    """Where an answer to the request goes, and with which fields."""
    if request.reply_to is None:
        raise LocalProtocolError(f"{request} has no reply_to: its sender waits for no answer")
    whole: MessageFields = {"correlation_id": request.correlation_id or request.id_text, **fields}
    return request.reply_to, whole

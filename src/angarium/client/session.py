"""A session as the application sees it: sending, consuming, and the waiting that goes with them."""
import asyncio
import time
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Literal, Self, Unpack

from angarium.client.buffer import SendBuffer, SendCommand
from angarium.client.consumer import Consumer
from angarium.client.destination import Destination, Topic, resolve
from angarium.client.ended import LEAVING_TIMEOUT_S, ended_error, note_unfinished
from angarium.client.fields import Body, MessageFields, encode_body, make_options
from angarium.client.message import Message
from angarium.client.receiver import Receiver
from angarium.client.sending import Sending
from angarium.client.stream_desk import StreamDesk
from angarium.client.stream_sending import Source, StreamContext
from angarium.core.client import events
from angarium.core.client.gathered import MESSAGE_COST, Options
from angarium.core.client.stream_events import StreamNotice
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected, Unavailable
from angarium.core.names import check_name
from angarium.core.wire.frames import Start

if TYPE_CHECKING:
    from angarium.client.connection import Connection

PREFETCH_DEFAULT = 1_000
_TURN_MESSAGES = 1_024  # sent by `send_many` before others may run
_STARTS = {"next": Start.NEXT, "oldest": Start.OLDEST}


class Session:
    """Made by `Connection.session`. For one event loop, not for several threads. What one session sends to one
    destination stays in order."""

    def __init__(
        self, connection: "Connection", number: int, *, close_timeout_s: float, consumer_type: type[Consumer] = Consumer
    ) -> None:
        self.number = number
        self.loop = connection.loop
        self.driver = connection.driver
        self._connection = connection
        self._close_timeout_s = close_timeout_s
        self._consumer_type = consumer_type
        self._buffer = SendBuffer(number, self.driver, connection.limits)
        self._outboxes = self._buffer.outboxes
        self._consumers: dict[int, Consumer] = {}
        self._consumer_last = 0
        self._receivers: dict[Destination, Receiver] = {}  # behind `receive`
        self._receivers_by_number: dict[int, Receiver] = {}
        self._syncs: dict[int, asyncio.Future[events.Synced]] = {}
        self._sync_last = 0
        self.streams = StreamDesk(self)
        self._is_closing = False
        self._error: AngariumError | None = None
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self.driver.handle(events.OpenSession(number))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            await self.close(None if error is None else LEAVING_TIMEOUT_S)
        except AngariumError as unfinished:
            if error is None:
                raise
            note_unfinished(error, unfinished)

    # -- sending ---------------------------------------------------------------------------------

    def send(self, destination: Destination, body: Body, **fields: Unpack[MessageFields]) -> Sending:
        """Queue one message and return at once; `await` the result for the confirm.

        `body` is bytes, str (text), a dict (map), a list or tuple (stream) or None (plain); `MessageFields` says what
        else it may have. Raises `Rejected` for what can never be sent, and `Unavailable` when 64 MiB or 1,000,000
        messages wait already: then await something first, such as `flush`.
        """
        outbox = self._outboxes.get(destination)
        if outbox is None:
            outbox = self._buffer.open(destination)
        if fields or not isinstance(body, bytes):
            packed, content = encode_body(body)
            options = make_options(content, now_ms=int(time.time() * 1000), **fields)
            return self.send_with(destination, packed, options)
        cost = len(body) + MESSAGE_COST
        outbox.room -= cost
        if outbox.room < 0:
            outbox.room += cost
            self._buffer.make_room(outbox, len(body))
            outbox.room -= cost
        outbox.append(body)
        outbox.sequence = sequence = outbox.sequence + 1
        return Sending(outbox, sequence)

    def send_with(self, destination: Destination, body: bytes, options: Options | None) -> Sending:
        """`send` for what is in the form of the wire already."""
        outbox = self._outboxes.get(destination) or self._buffer.open(destination)
        extra = len(options.headers) + len(options.properties) if options is not None else 0
        cost = len(body) + MESSAGE_COST + extra
        if outbox.room < cost:
            self._buffer.make_room(outbox, len(body), extra)
        outbox.room -= cost
        if options is not None:
            outbox.put_options(options)
        outbox.append(body)
        outbox.sequence += 1
        return Sending(outbox, outbox.sequence)

    async def send_many(
        self, destination: Destination, bodies: Iterable[Body] | AsyncIterable[Body], **fields: Unpack[MessageFields]
    ) -> int:
        """Send all, in bounded memory, and wait for all confirms; returns how many. Raises the first failure."""
        count = 0
        if isinstance(bodies, AsyncIterable):
            async for body in bodies:
                await self.room()
                self.send(destination, body, **fields)
                count += 1
        else:
            for body in bodies:
                try:
                    self.send(destination, body, **fields)
                except Unavailable:
                    await self.room()
                    self.send(destination, body, **fields)
                count += 1
                if count % _TURN_MESSAGES == 0:
                    await asyncio.sleep(0)
        await self.flush()
        return count

    async def send_stream(self, destination: Destination, source: Source, **fields: Unpack[MessageFields]) -> Sending:
        """Send one message whose body is all that `source` has, of any length, in little memory.

        `source` is a file, anything with such a `read`, or an iterable of bytes; each may be asynchronous. Returns when
        all of it is durable and the message is published; `await` the result for the confirm. If it raises or is
        cancelled, nothing is left of it.
        """
        async with self.open_stream(destination, **fields) as stream:
            await stream.write_from(source)
        assert stream.sending is not None
        return stream.sending

    def open_stream(self, destination: Destination, **fields: Unpack[MessageFields]) -> StreamContext:
        """For a body that comes piece by piece: `async with session.open_stream(name) as stream:`, and in there
        `await stream.write(piece)`. The message is published when the block ends, and given up if that raises."""
        self.check_usable()

        def options() -> Options | None:  # the time to live begins with the publishing
            return make_options(None, now_ms=int(time.time() * 1000), **fields)

        options()
        return StreamContext(self.streams.open_writer(destination), options)

    def send_alone(self, destination: Destination, body: bytes, options: Options) -> Sending:
        """`send_with`, in a batch of its own: should it be refused, nothing else is."""
        self._buffer.flush_now()
        sending = self.send_with(destination, body, options)
        if sending.outbox.gathered is not None:
            sending.outbox.gathered.is_alone = True
            self._buffer.flush_now()
        return sending

    async def room(self) -> None:
        """Wait until the send buffer is half empty."""
        await self._buffer.room()

    async def flush(self) -> None:
        """Wait until everything sent so far has its outcome; raise the first failure that nobody has awaited."""
        await self._buffer.settled()

    def is_blocked(self, destination: Destination) -> bool:
        """The broker cannot take more for this destination now: what is sent waits."""
        return self.blocked_reason(destination) != ""

    def blocked_reason(self, destination: Destination) -> str:
        """Why what is sent to this destination waits; empty if it does not."""
        outbox = self._outboxes.get(destination)
        return ": ".join(outbox.blocked) if outbox is not None and outbox.blocked else ""

    # -- consuming -------------------------------------------------------------------------------

    def consume(
        self,
        destination: Destination,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        durable: str | None = None,
        start: Literal["next", "oldest"] = "next",
    ) -> Consumer:
        """Open a consumer. A refusal is raised where it is first used.

        `prefetch` messages at most are here unsettled. `durable` names a subscription of a topic that outlives the
        consumer; `start` says where a new subscription begins.
        """
        self.check_usable()
        if prefetch < 1:
            raise LocalProtocolError(f"prefetch {prefetch}: at least 1, else nothing ever arrives")
        return self._open_consumer(destination, prefetch, durable, start)

    async def receive(self, destination: Destination, timeout_s: float | None = None) -> Message | None:
        """One message, or None if there was none within the time. Nothing beyond it is fetched in advance."""
        self.check_usable()
        receiver = self._receivers.get(destination)
        if receiver is None or receiver.consumer.is_ended:
            receiver = Receiver(self._open_consumer(destination, 1, None, "next"))
            self._receivers[destination] = self._receivers_by_number[receiver.consumer.number] = receiver
        return await receiver.receive(timeout_s)

    async def unsubscribe(self, destination: Destination, durable_name: str) -> None:
        """End a durable subscription; what it has not settled is gone."""
        self.check_usable()
        consumer = self._open_consumer(destination, 0, durable_name, "next")
        await consumer.opened()
        await consumer.close(unsubscribe=True)
        if consumer.error is not None:
            raise consumer.error

    async def sync(self) -> None:
        """Wait until every settlement so far is durable."""
        self.check_usable()
        for consumer in self._consumers.values():
            consumer.flush_now()
        token = self._sync_last = self._sync_last + 1
        future = self._syncs[token] = self.loop.create_future()
        try:
            self.driver.handle(events.Sync(self.number, token))
            synced = await future
        finally:
            del self._syncs[token]
        error = ended_error("settlements of unknown outcome", synced.code, synced.reason)
        if error is not None:
            raise error

    def _open_consumer(
        self, destination: Destination, prefetch: int, durable: str | None, start: str
    ) -> Consumer:
        if durable is not None:
            check_name(durable, what="subscription")
            if isinstance(destination, str):  # only topics have subscriptions
                destination = Topic(destination)
        if start not in _STARTS:
            raise Rejected("bad-start", f"start {start!r}: use 'next' or 'oldest'")
        name, kind = resolve(destination)
        number = self._consumer_last + 1
        request = events.OpenConsumer(self.number, number, name, kind, prefetch, durable or "", _STARTS[start])
        consumer = self._consumer_type(self, number, name, prefetch)
        self._consumer_last = number
        self._consumers[number] = consumer
        try:
            self.driver.handle(request)
        except LocalProtocolError:
            del self._consumers[number]
            raise
        return consumer

    # -- the end ---------------------------------------------------------------------------------

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait until what was sent is confirmed and what was settled is durable, then end the session.

        Unsettled messages go back. Raises `Unavailable` after `timeout_s`, or else the connection's `close_timeout_s`,
        and a send's failure that nobody saw.
        """
        limit_s = self._close_timeout_s if timeout_s is None else timeout_s
        if not self._is_closing and self._error is None:
            self._is_closing = True
            self._buffer.flush_now()
            for consumer in self._consumers.values():
                consumer.flush_now()
            self.driver.handle(events.CloseSession(self.number, limit_s))
            await asyncio.wait([self._ended])
        elif not (await asyncio.wait([self._ended], timeout=limit_s))[0]:
            raise Unavailable(f"session {self.number} is still closing after {limit_s:g} s")
        self._buffer.raise_unseen()
        if isinstance(self._error, Unavailable):
            raise self._error

    @property
    def unconfirmed_count(self) -> int:
        """Messages that were sent and have no outcome yet."""
        return self._buffer.unconfirmed_count

    @property
    def is_usable(self) -> bool:
        return self._error is None and not self._is_closing

    def check_usable(self) -> None:
        """Raise why the session takes no more requests, if so."""
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise LocalProtocolError(f"session {self.number} is closed; open another one with connection.session()")

    # -- notifications ---------------------------------------------------------------------------

    def notify_sending(self, command: SendCommand) -> None:
        self._buffer.notify(command)

    def notify(self, command: "SessionCommand") -> None:
        match command:
            case events.SessionReady():
                pass
            case events.SessionEnded():
                self.on_ended(ended_error(f"session {self.number}", command.code, command.reason))
            case events.Synced():
                future = self._syncs.get(command.token)
                if future is not None and not future.done():
                    future.set_result(command)
            case events.MessagesArrived():
                self._consumers[command.consumer].on_arrived(command)
                receiver = self._receivers_by_number.get(command.consumer)
                if receiver is not None and receiver.is_idle:
                    self.loop.call_soon(receiver.adjust)  # the machine is being listened to just now
            case events.ConsumerReady():
                self._consumers[command.consumer].on_ready()
            case events.PositionsLost():
                self._consumers[command.consumer].on_lost(command.ranges)
            case events.SettlementsLost():
                self._consumers[command.consumer].on_settlements_lost(command.ranges)
            case events.ConsumerEnded():
                consumer = self._consumers.pop(command.consumer)
                self._receivers_by_number.pop(command.consumer, None)
                what = f"consumer of '{consumer.destination}'"
                consumer.on_ended(ended_error(what, command.code, command.reason))
            case _:
                self.streams.notify(command)

    def on_ended(self, error: AngariumError | None) -> None:
        """For whatever reason; None: as asked."""
        closed = LocalProtocolError(f"session {self.number} is closed; open another one with connection.session()")
        self._error = error or closed
        self._buffer.on_ended(self._error)
        self.streams.on_ended(self._error)
        for consumer in self._consumers.values():
            consumer.on_ended(error)
        self._consumers.clear()
        for future in self._syncs.values():
            if not future.done():
                future.set_exception(self._error)
        if not self._ended.done():
            self._ended.set_result(None)
        self._connection.forget_session(self)


SessionCommand = (
    events.SessionReady | events.SessionEnded | events.Synced | events.MessagesArrived | events.ConsumerReady
    | events.PositionsLost | events.SettlementsLost | events.ConsumerEnded | StreamNotice
)  # fmt: skip

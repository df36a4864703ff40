"""The sending half of a session."""
import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Protocol, Unpack

from angarium.client.buffer import SendBuffer, SendCommand
from angarium.client.destination import Destination, name_of
from angarium.client.fields import Body, MessageFields, encode_body, make_options
from angarium.client.sending import Sending
from angarium.client.session_part import SessionPart
from angarium.client.stream_sending import Source, StreamContext
from angarium.core.client.gathered import MESSAGE_COST, Options, options_cost
from angarium.core.errors import AngariumError, Unavailable

_TURN_MESSAGES = 1_024  # sent by `send_many` before others may run


class Reached(Protocol):
    """A destination that the session sends to, or is about to."""

    @property
    def identity(self) -> bytes: ...  # empty: the broker has not answered yet

    @property
    def error(self) -> AngariumError | None: ...


class Sends(SessionPart):
    def __init__(self, buffer: SendBuffer) -> None:
        self._buffer = buffer
        self._outboxes = buffer.outboxes

    @property
    def buffer(self) -> SendBuffer:
        return self._buffer

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
        cost = len(body) + MESSAGE_COST + (options_cost(options) if options is not None else 0)
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
        self._reach(destination)  # it is told there whether it blocks: nothing of a stream is stored meanwhile
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

    def confirmed_count(self, destination: Destination) -> int:
        """How many of the messages that this session sent there are confirmed by now."""
        outbox = self._outboxes.get(destination)
        return 0 if outbox is None else outbox.confirmed_count

    # -- flow control ----------------------------------------------------------------------------

    def try_send(self, destination: Destination, body: Body, **fields: Unpack[MessageFields]) -> Sending | None:
        """`send`, unless the message would have to wait because the destination is blocked or the send buffer full:
        then None, and nothing is sent. Of a destination that the session has not sent to, nothing is known yet: such a
        message is taken, unless `unblocked` was awaited before."""
        if self.is_blocked(destination):
            return None
        try:
            return self.send(destination, body, **fields)
        except Unavailable:
            if self._buffer.error is not None:
                raise
            return None

    def is_blocked(self, destination: Destination) -> bool:
        """The broker cannot take more for this destination now: what is sent waits."""
        return self.blocked_reason(destination) != ""

    def blocked_reason(self, destination: Destination) -> str:
        """Why what is sent to this destination waits; empty if it does not, or the session has not sent to it."""
        return self._buffer.flow.reason(name_of(destination))

    async def unblocked(self, destination: Destination) -> None:
        """Wait until the destination takes messages; returns at once if it does. One that the session has not sent to
        is opened for that."""
        self.check_usable()
        await self._answered(destination)
        while self.is_blocked(destination):
            await self._buffer.flow.change()

    def _reach(self, destination: Destination) -> Reached:
        return self._outboxes.get(destination) or self._buffer.open(destination)

    async def _answered(self, destination: Destination) -> None:
        """Until the broker has said what it thinks of our sending there; raises what it refuses it with."""
        outbox = self._reach(destination)
        while not outbox.identity and outbox.error is None:
            await self._buffer.flow.change()
        if outbox.error is not None:
            raise outbox.error

    def on_blocked(self, callback: Callable[[str, str], None]) -> Callable[[], None]:
        """From now on call it in the event loop with destination and reason when one blocks, and with an empty reason
        when it takes messages again. Several may be registered; what is returned ends it."""
        return self._buffer.flow.on_blocked(callback)

    def notify_sending(self, command: SendCommand) -> None:
        self._buffer.notify(command)

"""asyncio under the client's machine: turns input into events, performs commands in order, keeps one timer.

Nothing here decides anything. Whoever has gathered something (an outbox, a consumer) registers with `soon` and
is flushed once in the next turn of the loop; all that a turn produces leaves in one write. What nobody waits for is
registered with `later`: it goes behind whatever leaves next, and alone after a moment.
"""
import asyncio
import os
import socket
from typing import Protocol, cast

from angarium.core.client import events
from angarium.core.client.connection import ConnectionMachine, State
from angarium.core.client.events import Command, Event
from angarium.core.errors import RemoteProtocolError
from angarium.core.wire.codec import FrameParser
from angarium.core.wire.frames import Confirm, Deliver, Settled

FRAME_BYTES_MAX = 256 * 1024 * 1024  # a frame longer than this is not a broker's
READ_BYTES = 512 * 1024
BUFFER_KEPT_BYTES = 2 << 20  # a reader of logs receives one page after the other, each of a megabyte or more
LATER_S = 0.005  # what nobody waits for may wait so long for company
START_BYTES = 16  # enough to recognise other protocols
CLOSE_TIMEOUT_S = 2.0  # for the last bytes to leave after Goodbye
_KEEPALIVE = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 300_000),  # milliseconds: a broker that is only busy keeps its client
)


_KEEPS_HOLDINGS = frozenset({Confirm, Deliver, Settled})  # whatever was settled before they came


class Flushable(Protocol):
    def flush_now(self) -> None: ...


class Audience(Protocol):
    """Who is told about notifications: the connection that the application sees."""

    def notify(self, command: Command) -> None: ...


class Link(asyncio.BufferedProtocol):
    """One transport. Once the driver has dropped it, it is deaf."""

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver
        self._parser = FrameParser(frame_bytes_max=FRAME_BYTES_MAX, buffer_kept_bytes=BUFFER_KEPT_BYTES)
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = driver.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.transport = transport
        if self._driver.link is not self:
            transport.abort()
            return
        connection = transport.get_extra_info("socket")
        for level, name, value in _KEEPALIVE:
            option = getattr(socket, name, None)  # not every system has all of them
            if option is not None:
                connection.setsockopt(level, option, value)
        self._driver.handle(events.Connected())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if self._driver.link is self:
            self._driver.link = None
            self._driver.handle(events.Disconnected(reason_of(exc) if exc else "the broker closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        driver = self._driver
        if driver.link is not self:
            return
        try:
            frames = self._parser.feed(self._view[:nbytes])
        except RemoteProtocolError as error:
            driver.handle(events.InputViolated(error.code, error.reason, bytes(self._view[: min(nbytes, START_BYTES)])))
            return
        if frames:
            for received in frames:
                if type(received.frame) not in _KEEPS_HOLDINGS:
                    driver.flush_now()  # what was settled before this input is told before it
                    break
            if driver.link is self:
                driver.handle(events.FramesReceived(frames))

    def pause_writing(self) -> None:
        if self._driver.link is self:
            self._driver.handle(events.WritingPaused())

    def resume_writing(self) -> None:
        if self._driver.link is self:
            self._driver.handle(events.WritingResumed())


def reason_of(error: Exception) -> str:
    """asyncio and uvloop word the same error differently; the system's own words are the clearest."""
    if isinstance(error, OSError) and error.errno is not None:
        # Numbers below 0 are those of the resolver, which words them itself.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or type(error).__name__


class Driver:
    def __init__(
        self, machine: ConnectionMachine, audience: Audience, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.loop = loop
        self.link: Link | None = None
        self._machine = machine
        self._audience = audience
        self._attempt: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._dirty: list[Flushable] = []
        self._unhurried: list[Flushable] = []
        self._is_scheduled = self._is_timed = False
        self._outgoing: list[bytes] = []
        self._is_corked = False
        self._closing: Link | None = None  # the last one that was told to close

    @property
    def is_ended(self) -> bool:
        return self._machine.state is State.ENDED

    def handle(self, event: Event) -> None:
        """Feed the machine. Raises what the machine raises, for requests that break a rule."""
        commands = self._machine.handle(event, now=self.loop.time())
        for command in commands:
            if isinstance(command, events.SendBytes):
                self._outgoing += command.buffers
            elif isinstance(command, events.Connect):
                self.link = Link(self)
                self._attempt = self.loop.create_task(self._connect(self.link, command.host, command.port))
            elif isinstance(command, events.CloseTransport):
                self._close_link(command.abort)
            else:
                self._audience.notify(command)
        if self._outgoing and not self._is_corked:
            self._write()
        deadline = self._machine.deadline()
        if deadline is None:
            self._cancel_timer()
        elif self._timer is None or deadline < self._timer_at:
            self._arm(deadline)

    def soon(self, flushable: Flushable) -> None:
        """Call its `flush_now` in the next turn of the loop."""
        self._dirty.append(flushable)
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._flush_scheduled)

    def later(self, flushable: Flushable) -> None:
        """Call its `flush_now` behind the next that is flushed, at the latest after `LATER_S`."""
        self._unhurried.append(flushable)
        if not self._is_timed:
            self._is_timed = True
            self.loop.call_later(LATER_S, self._flush_later)

    def _flush_later(self) -> None:
        """Behind what the loop has just read: somebody waits for that."""
        self._is_timed = False
        self.loop.call_soon(self.flush_now)

    def flush_now(self) -> None:
        """Flush whoever has gathered something; everything leaves in one write."""
        dirty = self._dirty + self._unhurried
        if not dirty:
            return
        self._dirty, self._unhurried = [], []
        self._is_corked = True
        try:
            for flushable in dirty:
                flushable.flush_now()
        finally:
            self._is_corked = False
            if self._outgoing:
                self._write()

    async def closed(self) -> None:
        """The machine has ended: wait until the transport has, too."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
            await asyncio.wait([attempt])
        if self._closing is not None:
            await asyncio.wait([self._closing.lost], timeout=CLOSE_TIMEOUT_S)
            if not self._closing.lost.done() and self._closing.transport is not None:
                self._closing.transport.abort()
                await asyncio.wait([self._closing.lost], timeout=CLOSE_TIMEOUT_S)

    # -- commands --------------------------------------------------------------------------------

    def _write(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if self.link is not None and self.link.transport is not None:
            self.link.transport.writelines(outgoing)

    async def _connect(self, link: Link, host: str, port: int) -> None:
        try:
            await self.loop.create_connection(lambda: link, host, port)
        except (OSError, ValueError) as error:
            if self.link is link:
                self.link = None
                # The resolver takes it for a wrong argument: an empty or too long part, for one.
                reason = reason_of(error) if isinstance(error, OSError) else "no host can have that name"
                self.handle(events.Disconnected(reason))

    def _close_link(self, abort: bool) -> None:
        if self._outgoing:
            self._write()  # Goodbye or Failure
        link, self.link = self.link, None
        if self._attempt is not None and not self._attempt.done():
            self._attempt.cancel()
        if link is not None and link.transport is not None:
            self._closing = link
            if abort:
                link.transport.abort()
            else:
                link.transport.close()

    # -- time ------------------------------------------------------------------------------------

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush_now()

    def _arm(self, deadline: float) -> None:
        self._cancel_timer()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        """The deadline may have moved on since the timer was set: re-arming it at each event would cost more."""
        self._timer = None
        deadline = self._machine.deadline()
        if deadline is not None and deadline > self.loop.time():
            self._arm(deadline)
        elif deadline is not None:
            self.handle(events.Tick())

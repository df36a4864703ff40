"""Client connections: bytes to frames and back. Decides nothing but what a socket can take.

All connections share one receive buffer: its content is parsed before the next read. They take turns: one that filled
the buffer is not read from again, and of very many frames not all are handed on, before the others had theirs (left to
itself the event loop would read dozens of buffers from one connection in a row). A connection whose output piles
up beyond `output_bytes_high` is reported as stalled, so that its consumers are passed over; one that goes on asking
without reading is not read from either, until it has drained. One whose host does not answer any more (`peer_host.py`)
is cut; one whose host does stays, whatever its application is doing.
"""
import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from angarium.core.errors import ConfigError, RemoteProtocolError
from angarium.core.session.events import (
    ConnectionLost,
    ConnectionOpened,
    ConnectionStalled,
    Event,
    FramesReceived,
    InputRefused,
)
from angarium.core.wire.codec import FrameParser, Received, encode_head
from angarium.core.wire.frames import Frame
from angarium.runtime.peer_host import is_gone, watch_over

_RECEIVE_BYTES = 1 << 18
_FRAMES_PER_TURN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    # Output waiting in one connection at which its consumers are passed over.
    output_bytes_high: int = 1 << 20
    # Output waiting in one connection at which its consumers are served again.
    output_bytes_low: int = 1 << 18
    # Output waiting at which we stop reading from the client: it asks more than it reads.
    output_bytes_max: int = 8 << 20
    # A client that has not said Hello by then is disconnected.
    greeting_s_max: float = 10.0
    # A connection that we close has so long to take what was sent before; then it is cut.
    closing_s_max: float = 10.0
    # A client whose host acknowledges nothing for so long, though it is asked, is gone: noticed within a third more, or
    # some seconds if this is less than 3.
    silence_s_max: float = 15.0

    def __post_init__(self) -> None:
        if not self.output_bytes_low < self.output_bytes_high < self.output_bytes_max:
            given = f"{self.output_bytes_low:,}, {self.output_bytes_high:,}, {self.output_bytes_max:,}"
            what = "listener.output_bytes_low, listener.output_bytes_high, listener.output_bytes_max"
            raise ConfigError(f"{what} {given}: output_bytes_low < output_bytes_high < output_bytes_max")
        if self.silence_s_max < 1:
            raise ConfigError(f"listener.silence_s_max {self.silence_s_max:g}: at least 1")


class ClientTransport(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, listener: "Listener", number: int) -> None:
        self._listener = listener
        self._number = number
        self._parser = FrameParser(frame_bytes_max=listener.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._deaf = False  # we do not read from it
        self._held = False  # somebody asked for that
        self._resting = False  # until the others had their turn
        self._received: list[Received] = []  # not yet handed on
        self._greeting: asyncio.TimerHandle | None = None
        self._cut: asyncio.TimerHandle | None = None  # once we have closed it
        self._output: list[bytes] = []
        self._heard = True  # since the listener asked last

    # -- from the event loop -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport = transport
        settings = self._listener.settings
        transport.set_write_buffer_limits(high=settings.output_bytes_high, low=settings.output_bytes_low)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            watch_over(sock, settings.silence_s_max)
        peer = transport.get_extra_info("peername")
        self._greeting = asyncio.get_running_loop().call_later(settings.greeting_s_max, self._no_greeting)
        self._listener.connected(self._number, self, f"{peer[0]}:{peer[1]}" if peer else "?")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        try:
            received = self._parser.feed(self._listener.receive_buffer[:nbytes])
        except RemoteProtocolError as error:
            self._stop_reading()
            self._listener.tell(InputRefused(self._number, error.code, error.reason))
            return
        if received and self._greeting is not None:
            self._greeting.cancel()
            self._greeting = None
        self._hand_on(self._received + received if self._received else received)
        if self._received or nbytes == _RECEIVE_BYTES:
            self._rest()

    def _hand_on(self, received: list[Received]) -> None:
        self._received = received[_FRAMES_PER_TURN_MAX:]
        if received:
            self._listener.tell(FramesReceived(self._number, received[:_FRAMES_PER_TURN_MAX]))

    def _rest(self) -> None:
        self._resting = True
        self._update_reading()
        asyncio.get_running_loop().call_soon(self._rested)

    def _rested(self) -> None:
        if not self._held:
            self._hand_on(self._received)
        if not self._received:
            self._resting = False
            self._update_reading()
        elif not self._held:  # else it goes on when it is let go
            asyncio.get_running_loop().call_soon(self._rested)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
        if self._cut is not None:
            self._cut.cancel()
        while self._received:  # said before it went
            self._hand_on(self._received)
        self._listener.disconnected(self._number)

    def pause_writing(self) -> None:
        self._listener.tell(ConnectionStalled(self._number, True))

    def resume_writing(self) -> None:
        self._update_reading()
        self._listener.tell(ConnectionStalled(self._number, False))

    def _no_greeting(self) -> None:
        self._greeting = None
        seconds = self._listener.settings.greeting_s_max
        self._listener.tell(InputRefused(self._number, "no-greeting", f"no Hello within {seconds:g} s"))

    # -- from the node -----------------------------------------------------------------------------------

    def send(self, session: int, frame: Frame, payload: bytes) -> None:
        self._output.append(encode_head(session, frame, len(payload)))
        if payload:
            self._output.append(payload)

    def flush(self) -> None:
        """Write what was sent since the last time, in one call."""
        output, self._output = self._output, []
        transport = self._transport
        if transport is None or transport.is_closing() or not output:
            return
        if len(output) == 1:
            transport.write(output[0])
        else:
            transport.writelines(output)
        if not self._deaf and transport.get_write_buffer_size() > self._listener.settings.output_bytes_max:
            self._update_reading()

    def hold(self, held: bool) -> None:
        """Stop reading and handing on, or go on: the node has as much waiting or unwritten as it may."""
        if self._held and not held and self._received:
            asyncio.get_running_loop().call_soon(self._rested)
        self._held = held
        self._update_reading()

    def close(self) -> None:
        self.flush()
        if self._transport is not None and self._cut is None:
            self._transport.close()
            self._cut = asyncio.get_running_loop().call_later(self._listener.settings.closing_s_max, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def cut_if_gone(self) -> None:
        """To be called now and then. The kernel is asked only of who has not said anything since."""
        heard, self._heard = self._heard, False
        transport = self._transport
        if heard or transport is None or transport.is_closing():
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and is_gone(sock, self._listener.settings.silence_s_max):
            transport.abort()

    def _stop_reading(self) -> None:
        self._held = True
        self._update_reading()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        full = transport.get_write_buffer_size() > self._listener.settings.output_bytes_max
        deaf = self._held or self._resting or full
        if deaf and not self._deaf:
            transport.pause_reading()
        elif self._deaf and not deaf:
            transport.resume_reading()
        self._deaf = deaf


class Listener:
    def __init__(self, settings: ListenerSettings, *, frame_bytes_max: int, tell: Callable[[Event], None]) -> None:
        self.settings = settings
        self.frame_bytes_max = frame_bytes_max
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.tell = tell
        self._transports: dict[int, ClientTransport] = {}
        self._unflushed: dict[ClientTransport, None] = {}
        self._numbers = 0
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()
        self._look: asyncio.TimerHandle | None = None  # at who is still there; while there is somebody

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen; return the addresses, with the port that the system chose if 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=1024, reuse_address=True)
        return [sock.getsockname()[:2] for sock in self._server.sockets]

    def _accept(self) -> ClientTransport:
        self._numbers += 1
        return ClientTransport(self, self._numbers)

    def connected(self, number: int, transport: ClientTransport, peer: str) -> None:
        self._transports[number] = transport
        if self._look is None:
            self._look_later()
        self.tell(ConnectionOpened(number, peer))

    def disconnected(self, number: int) -> None:
        if self._transports.pop(number, None) is not None:
            self.tell(ConnectionLost(number))
        if not self._transports:
            self._all_gone.set()
            if self._look is not None:
                self._look.cancel()
                self._look = None

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(self.settings.silence_s_max / 3, self._look_at_all)

    def _look_at_all(self) -> None:
        for transport in list(self._transports.values()):
            transport.cut_if_gone()
        self._look_later()

    def send(self, connection: int, session: int, frame: Frame, payload: bytes) -> None:
        transport = self._transports.get(connection)
        if transport is not None:
            transport.send(session, frame, payload)
            self._unflushed[transport] = None

    def flush(self) -> None:
        """To be called at the end of whatever may have sent something."""
        if self._unflushed:
            unflushed, self._unflushed = self._unflushed, {}
            for transport in unflushed:
                transport.flush()

    def hold(self, connection: int, held: bool) -> None:
        transport = self._transports.get(connection)
        if transport is not None:
            transport.hold(held)

    def close_connection(self, connection: int) -> None:
        transport = self._transports.get(connection)
        if transport is not None:
            transport.close()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    async def close(self, *, drain_s_max: float) -> None:
        """Give connections a moment to take what was sent, then cut them."""
        self.stop_accepting()
        if self._transports:
            self._all_gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), drain_s_max)
        for transport in list(self._transports.values()):
            transport.abort()


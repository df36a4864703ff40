"""A client process in virtual time: the client library's real machine over a simulated socket.

`SimClient` is the driver: bytes to frames, commands in order, one timer; notifications go to its sessions. A crash
takes all of it: the sessions never come back.
"""
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.client import events
from angarium.core.client.connection import ConnectionMachine, State
from angarium.core.client.reconnect import Address, ReconnectPolicy
from angarium.core.errors import RemoteProtocolError
from angarium.core.wire.codec import FrameParser
from angarium.sim.checkers import Ledger
from angarium.sim.clock import Clock, Timer
from angarium.sim.messages import Violation
from angarium.sim.network import Link, Network
from angarium.sim.sessions import SimSession
from angarium.sim.trace import Trace

BROKER = (Address("broker", 4560),)
FRAME_BYTES_MAX = 256 << 20
_NEVER_S = 1e9
_RECONNECT_S_MAX = 0.5  # quick, so that sessions resume within the grace time more often than not


class Surroundings(Protocol):
    """What a client needs of the world."""

    clock: Clock
    trace: Trace
    network: Network
    ledger: Ledger


class Socket:
    """One attempt to connect, and the connection that it becomes. Dropped by its client, it is deaf."""

    def __init__(self, client: "SimClient") -> None:
        self.link: Link | None = None
        self._client: SimClient | None = client
        self._parser = FrameParser(frame_bytes_max=FRAME_BYTES_MAX)

    def opened(self, link: Link) -> None:
        if self._client is None:
            link.close(1, "the client no longer wants to connect", abort=True)
            return
        self.link = link
        self._client.handle(events.Connected())

    def refused(self) -> None:
        self._end("connection refused")

    def lost(self, link: Link, reason: str) -> None:
        self._end(reason)

    def _end(self, reason: str) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.handle(events.Disconnected(reason))

    def received(self, link: Link, data: bytes) -> None:
        client = self._client
        if client is None:
            return
        try:
            received = self._parser.feed(data)
        except RemoteProtocolError as error:
            client.handle(events.InputViolated(error.code, error.reason))
            return
        if received:
            client.handle(events.FramesReceived(received))

    def paused(self, link: Link, paused: bool) -> None:
        if self._client is not None:
            self._client.clock.after(0.0, partial(self._paused, paused))

    def _paused(self, paused: bool) -> None:
        if self._client is not None:
            self._client.handle(events.WritingPaused() if paused else events.WritingResumed())

    def drop(self, *, abort: bool) -> None:
        self._client = None
        if self.link is not None:
            self.link.close(1, "the client closed the connection", abort=abort)


class SimClient:
    def __init__(
        self, world: Surroundings, name: str, chance: Random, addresses: Sequence[Address] = BROKER
    ) -> None:
        self.clock = world.clock
        self.name = name
        self.ledger = world.ledger
        self.is_alive = True
        self.sessions: dict[int, SimSession] = {}
        self.on_answer: Callable[[events.RequestAnswered], None] | None = None
        self.on_loss: Callable[[events.RequestLost], None] | None = None
        self._trace = world.trace
        self._network = world.network
        self._socket: Socket | None = None
        self._timer: Timer | None = None
        self._session_last = 0
        self._request_last = 0
        self._unplugged_until = 0.0
        self._machine = ConnectionMachine(
            addresses=list(addresses), name=name, chance=chance,
            connect_timeout_s=_NEVER_S, policy=ReconnectPolicy(delay_max_s=_RECONNECT_S_MAX),
        )  # fmt: skip
        self.handle(events.OpenConnection())

    @property
    def link(self) -> Link | None:
        return self._socket.link if self._socket is not None else None

    @property
    def is_ready(self) -> bool:
        return self._machine.state is State.READY

    def open_session(self, *, transacted: bool = False) -> SimSession:
        self._session_last += 1
        session = self.sessions[self._session_last] = SimSession(self, self._session_last)
        self.handle(events.OpenSession(session.number, transacted))
        return session

    def request(self, command: str, **arguments: object) -> int:
        self._request_last += 1
        self.handle(events.Request(self._request_last, command, arguments))
        return self._request_last

    def close(self) -> None:
        """Leave at once, with a goodbye. Sessions should be closed before."""
        if self.is_alive:
            self.handle(events.CloseConnection("done"))

    def unplug(self, seconds: float) -> None:
        """Cut off, both sides notice at once; attempts to come back are refused for so long."""
        self._unplugged_until = self.clock.now + seconds
        if self.link is not None:
            self.link.cut(f"{self.name} is unplugged")

    def crash(self, *, broker_after_s: float = 0.0) -> None:
        """The process is gone; the broker notices after so long."""
        if not self.is_alive:
            return
        self._trace.note(self.name, "crashes")
        self._end()
        if self._socket is not None:
            link = self._socket.link
            self._socket.drop(abort=False)
            if link is not None:
                link.cut("the client is gone", broker_after_s=broker_after_s)

    def say(self, text: str) -> None:
        if self._trace.is_read:
            self._trace.say(self.name, text)

    # -- the driver ----------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> None:
        if not self.is_alive:
            return
        for command in self._machine.handle(event, now=self.clock.now):
            match command:
                case events.SendBytes(buffers=buffers):
                    if self._socket is not None and self._socket.link is not None:
                        self._socket.link.to_broker.write(b"".join(buffers))
                case events.Connect(host, port):
                    self._socket = Socket(self)
                    if self.clock.now < self._unplugged_until:
                        self.clock.after(0.001, self._socket.refused)
                    else:
                        self._network.connect(self._socket, self._socket.refused, Address(host, port))
                case events.CloseTransport(abort=abort):
                    if self._socket is not None:
                        self._socket.drop(abort=abort)
                        self._socket = None
                case _:
                    self._notify(command)
        self._arm()

    def _arm(self) -> None:
        deadline = self._machine.deadline()
        if deadline is None or not self.is_alive:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None or deadline < self._timer.at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.clock.at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        deadline = self._machine.deadline()
        if deadline is not None and deadline <= self.clock.now:
            self.handle(events.Tick())
        else:
            self._arm()

    def _notify(self, command: events.Command) -> None:
        name = type(command).__name__
        self._trace.mix(4, f"{self.name} {name}".encode())
        if self._trace.is_read:
            self._trace.say(self.name, describe(command))
        if isinstance(command, events.ConnectionFailed):
            raise Violation("a client that keeps the protocol is served", f"{self.name}: {command.error}")
        if isinstance(command, events.ConnectionClosed):
            self._end()
        if isinstance(command, events.RequestAnswered) and self.on_answer is not None:
            self.on_answer(command)
        if isinstance(command, events.RequestLost) and self.on_loss is not None:
            self.on_loss(command)
        session = self.sessions.get(getattr(command, "session", 0))
        if session is not None:
            session.notify(command)

    def _end(self) -> None:
        self.is_alive = False
        for session in list(self.sessions.values()):
            session.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def describe(command: events.Command) -> str:
    """A notification on one line, for people."""
    if isinstance(command, events.MessagesArrived):
        low, high = command.position + command.low, command.position + command.high
        told = f", delivered {command.redeliveries} times before" if command.redeliveries else ""
        return f"session {command.session} consumer {command.consumer}: positions {low} to {high - 1} arrive{told}"
    return repr(command)

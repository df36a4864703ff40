"""The client's side of one connection: a pure state machine that owns sessions, producers and consumers.

    NEW --OpenConnection--> CONNECTING --Connected--> GREETING --Welcome--> READY
                               ▲  └──────────┬───────────┘                    │
                               └─back-off─ WAITING <────lost, silent, Goodbye─┘
    any --CloseConnection, Failure, violation, out of time--> ENDED (final)

Guarantees, whatever happens to the link, the broker or the order of events:
- a message is reported confirmed only by the broker's Confirm; unconfirmed ones are resent as the same bytes, under
  the same sequences, until they are confirmed, refused, or their session ends;
- a position is handed out once, unless it was released or reported lost in between;
- a violation of the protocol changes nothing, is answered with Failure, and ends the connection for good with
  RemoteProtocolError: it is a bug on one of the sides and not to be hidden by trying again.

Interface (`core.client.events` defines events and commands):
- `handle(event, now=...)` returns the commands to perform, in order. A request that breaks a rule raises
  LocalProtocolError and changes nothing.
- `deadline()` is when a `Tick` is due.

Silence: the broker promises to send something every `heartbeat_s`. After three times that the link is taken for
dead, but only by a driver that was on time: one that comes back late has not read what lies waiting for it,
so it gets one more heartbeat to do so. We send a Ping when we were idle for a heartbeat.

It knows nothing of sockets, clocks and applications; a random factor for the back-off comes from `chance`.
"""
from collections.abc import Sequence
from enum import Enum
from typing import assert_never

from angarium.core.client import events, stream_events
from angarium.core.client.events import Command, Event
from angarium.core.client.outlet import Outlet
from angarium.core.client.reconnect import Address, Chance, ReconnectPolicy, Route
from angarium.core.client.requests import Requests
from angarium.core.client.session import SessionWindow
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected, RemoteProtocolError, Unavailable
from angarium.core.wire import frames
from angarium.core.wire.codec import Received

PRODUCT = "angarium-python"
SILENT_HEARTBEATS_MAX = 3
SESSIONS_MAX = 1_000
RETRY_CODES = frozenset({"unavailable", "too-many-connections", "no-greeting"})  # of a Failure; others are final


class State(Enum):
    NEW = "new"
    WAITING = "waiting"
    CONNECTING = "connecting"
    GREETING = "greeting"
    READY = "ready"
    ENDED = "ended"


_LINKED = frozenset({State.CONNECTING, State.GREETING, State.READY})


class ConnectionMachine:
    def __init__(
        self,
        *,
        addresses: Sequence[Address],
        name: str,
        chance: Chance,
        connect_timeout_s: float,
        policy: ReconnectPolicy,
    ) -> None:
        self.state = State.NEW
        self._name = name
        self._identity = b""  # of the connection, as the broker told it
        self._route = Route(addresses, policy, chance)
        self._policy = policy
        self._connect_timeout_s = connect_timeout_s
        self._outlet = Outlet()
        self._sessions: dict[int, SessionWindow] = {}
        self._session_last = 0
        self._requests = Requests(self._outlet)
        self._give_up_at: float | None = None  # no connection until then: fail
        self._tries_until = 0.0  # for the first connection no attempt begins later
        self._was_ready = False
        self._attempt_at = 0.0  # WAITING: when to connect
        self._attempt_s = 0.0  # CONNECTING, GREETING: how long the attempt may take
        self._attempt_until = 0.0  # ... and until when
        self._ready_at = 0.0
        self._heartbeat_s = 0.0
        self._sent_at = 0.0
        self._silent_until = 0.0  # READY: the link is dead if nothing arrives before
        self._ping_number = 0
        self._due: float | None = None  # the deadline that the driver knows

    def deadline(self) -> float | None:
        """When the driver owes us a `Tick`; None means no timer is needed."""
        return self._due

    def handle(self, event: Event, *, now: float) -> list[Command]:
        if self.state is State.ENDED:
            raise LocalProtocolError(f"{type(event).__name__} after the connection ended")
        if self._due is not None and now > self._due:
            self._forgive_lateness(now - self._due, now)
        self._dispatch(event, now)
        commands = self._outlet.take()
        if commands and isinstance(commands[0], events.SendBytes):
            self._sent_at = now
        self._due = self._next_deadline()
        return commands

    def _dispatch(self, event: Event, now: float) -> None:
        outlet = self._outlet
        match event:
            case events.FramesReceived(frames=received):
                self._on_frames(received, now)
            case events.Publish():
                self._session(event.session).publish(event, outlet)
            case events.Settle():
                self._session(event.session).settle(event, outlet)
            case events.Commit() | events.WithdrawCommit():
                self._session(event.session).commit(event, outlet)
            case events.Recover():
                self._session(event.session).recover(event, outlet)
            case events.Tick():
                self._on_tick(now)
            case events.OpenSession() | events.CloseSession():
                self._open_or_close(event, now)
            case events.OpenProducer():
                self._session(event.session).open_producer(event, outlet)
            case events.CloseProducer():
                self._session(event.session).close_producer(event, outlet)
            case events.OpenConsumer():
                self._session(event.session).open_consumer(event, outlet)
            case events.OpenWatch() | events.CloseWatch():
                self._session(event.session).watch_request(event, outlet)
            case events.SetPrefetch():
                self._session(event.session).set_prefetch(event, outlet)
            case events.CloseConsumer():
                self._session(event.session).close_consumer(event, outlet)
            case events.Sync():
                self._session(event.session).sync(event, outlet)
            case events.Request():
                self._requests.add(event)
                if self.state is State.READY:
                    self._requests.send()
            case (
                stream_events.PutFragment() | stream_events.UseFragment() | stream_events.OpenStream()
                | stream_events.OpenReader() | stream_events.CloseStream() | stream_events.CloseReader()
            ):  # fmt: skip
                self._session(event.session).stream_request(event, outlet)
            case (
                events.OpenConnection() | events.CloseConnection() | events.Connected() | events.Disconnected()
                | events.InputViolated() | events.WritingPaused() | events.WritingResumed()
            ):  # fmt: skip
                self._on_link(event, now)
            case _:
                assert_never(event)

    def _on_link(
        self,
        event: events.OpenConnection | events.CloseConnection | events.Connected | events.Disconnected
        | events.InputViolated | events.WritingPaused | events.WritingResumed,
        now: float,
    ) -> None:  # fmt: skip
        match event:
            case events.OpenConnection():
                self._require(event, State.NEW)
                self._give_up_at = now + self._connect_timeout_s
                self._tries_until = now + self._policy.tries_s_max
                self._connect(now)
            case events.Connected():
                self._require(event, State.CONNECTING)
                self.state = State.GREETING
                self._outlet.is_writable = True
                self._outlet.send(0, frames.Hello(frames.PROTOCOL_VERSION, self._name, PRODUCT, self._identity))
            case events.Disconnected(reason=reason):
                self._require(event, *_LINKED)
                self._lose(reason, now)
            case events.WritingPaused():
                self._outlet.is_writable = False
            case events.WritingResumed():
                self._outlet.is_writable = True
                for session in self._sessions.values():
                    session.pump(self._outlet)
            case events.InputViolated():
                self._require(event, State.GREETING, State.READY)
                self._on_garbled(event, now)
            case events.CloseConnection(reason=reason):
                if self.state in (State.GREETING, State.READY):
                    self._outlet.send(0, frames.Goodbye(reason))
                self._end(reason)
                self._outlet.tell(events.ConnectionClosed())

    # -- requests --------------------------------------------------------------------------------

    def _open_or_close(self, event: events.OpenSession | events.CloseSession, now: float) -> None:
        if isinstance(event, events.CloseSession):
            session = self._session(event.session)
            session.close(now + event.timeout_s, self._outlet)
            self._forget_if_ended(session)
            return
        if event.session <= self._session_last:
            raise LocalProtocolError(f"session number {event.session} was used before")
        if len(self._sessions) >= SESSIONS_MAX:
            raise LocalProtocolError(f"more than {SESSIONS_MAX:,} sessions in one connection; close some")
        self._session_last = event.session
        session = self._sessions[event.session] = SessionWindow(
            event.session, transacted=event.transacted
        )
        if self.state is State.READY:
            session.open(self._outlet)

    def _session(self, number: int) -> SessionWindow:
        try:
            return self._sessions[number]
        except KeyError:
            raise LocalProtocolError(f"session {number} is not open") from None

    def _forget_if_ended(self, session: SessionWindow) -> None:
        if session.is_ended:
            del self._sessions[session.number]

    # -- the link --------------------------------------------------------------------------------

    def _require(self, event: Event, *states: State) -> None:
        if self.state not in states:
            raise LocalProtocolError(f"{type(event).__name__} while {self.state.value}")

    def _connect(self, now: float) -> None:
        self.state = State.CONNECTING
        self._attempt_s = self._route.attempt_s(None if self._give_up_at is None else self._give_up_at - now)
        self._attempt_until = now + self._attempt_s
        address = self._route.current()
        self._outlet.tell(events.Connect(address.host, address.port))

    def _lose(self, reason: str, now: float, *, going: bool = False) -> None:
        """The transport is gone or given up: clean up after it, and plan the next attempt."""
        loss = f"{self._route.current()}: {reason}"
        self._outlet.forget_buffers()
        if self.state is State.READY:
            delay_s = self._route.lost(reason, lasted_s=now - self._ready_at, going=going)
            self._outlet.tell(events.ConnectionLost(loss))
            for session in list(self._sessions.values()):
                session.disconnected(self._outlet)
                self._forget_if_ended(session)
            self._requests.lose(loss)
            if self._policy.give_up_after_s is not None:
                self._give_up_at = now + self._policy.give_up_after_s
        else:
            delay_s = self._route.failed(reason)
        self.state = State.WAITING
        self._attempt_at = now + delay_s
        if not self._was_ready:
            self._attempt_at = max(now, min(self._attempt_at, self._tries_until))
            if self._route.is_tried and now >= self._tries_until:
                self._give_up_at = now

    def _end(self, reason: str, *, abort: bool = False) -> None:
        if self.state in _LINKED:
            self._outlet.tell(events.CloseTransport(reason, abort))
        self.state = State.ENDED
        self._sessions.clear()

    def _fail(self, error: AngariumError) -> None:
        self._end(str(error))
        self._outlet.tell(events.ConnectionFailed(error))

    def _silence(self) -> str:
        what = "no answer" if self.state is State.CONNECTING else "no greeting"
        return f"{what} within {self._attempt_s:.3g} s"

    def _on_garbled(self, event: events.InputViolated, now: float) -> None:
        """Before Welcome the peer may be no broker at all, and another address may have one. One that was there before
        may be hidden by a proxy, which answers in its own words while the broker restarts."""
        if self.state is State.READY:
            self._violated(RemoteProtocolError(event.code, event.reason))
            return
        reason = self._route.note_foreign(event.start)
        if self._route.is_foreign and not self._was_ready:
            self._fail(RemoteProtocolError("not-a-broker", f"no broker at {self._route}"))
            return
        self._lose(reason, now)
        self._outlet.tell(events.CloseTransport(reason, abort=True))

    def _violated(self, error: RemoteProtocolError) -> None:
        self._outlet.send(0, frames.Failure(error.code, error.reason))
        self._fail(error)

    # -- time ------------------------------------------------------------------------------------

    def _next_deadline(self) -> float | None:
        match self.state:
            case State.READY:  # the commonest comes first
                due = self._sent_at + self._heartbeat_s
                if self._silent_until < due:
                    due = self._silent_until
            case State.NEW | State.ENDED:
                return None
            case State.WAITING:
                due = self._attempt_at
            case State.CONNECTING | State.GREETING:
                due = self._attempt_until
        if self._give_up_at is not None and self._give_up_at < due:
            due = self._give_up_at
        for session in self._sessions.values():
            if session.closes_at is not None and session.closes_at < due:
                due = session.closes_at
        return due

    def _forgive_lateness(self, late_s: float, now: float) -> None:
        """A driver that is late has not read its input either: it must not take its own delay for the broker's."""
        if self._heartbeat_s == 0 or late_s <= self._heartbeat_s / 2:
            return
        self._silent_until = max(self._silent_until, now + self._heartbeat_s)
        self._attempt_until = max(self._attempt_until, now + self._heartbeat_s)

    def _on_tick(self, now: float) -> None:
        for session in [s for s in self._sessions.values() if s.closes_at is not None and s.closes_at <= now]:
            session.give_up(self._outlet)
            del self._sessions[session.number]
        if self._give_up_at is not None and now >= self._give_up_at:
            if self.state in (State.CONNECTING, State.GREETING):
                self._route.note(self._silence())
            what = "no broker answered at" if not self._was_ready else "no broker came back at"
            self._fail(Unavailable(f"{what} {self._route}"))
        elif self.state is State.WAITING and now >= self._attempt_at:
            self._connect(now)
        elif self.state in (State.CONNECTING, State.GREETING) and now >= self._attempt_until:
            reason = self._silence()
            self._lose(reason, now)
            self._outlet.tell(events.CloseTransport(reason, abort=True))
        elif self.state is State.READY and now >= self._silent_until:
            reason = f"nothing received for {SILENT_HEARTBEATS_MAX} heartbeats of {self._heartbeat_s:g} s"
            self._lose(reason, now)
            self._outlet.tell(events.CloseTransport(reason, abort=True))
        elif self.state is State.READY and now >= self._sent_at + self._heartbeat_s:
            self._ping_number += 1
            self._outlet.send(0, frames.Ping(self._ping_number))

    # -- from the broker -------------------------------------------------------------------------

    def _on_frames(self, received: list[Received], now: float) -> None:
        if self.state not in (State.GREETING, State.READY):
            raise LocalProtocolError(f"frames received while {self.state.value}")
        self._silent_until = now + SILENT_HEARTBEATS_MAX * self._heartbeat_s
        try:
            for number, frame, payload, _ in received:
                if number:
                    self._on_session_frame(number, frame, payload)
                elif self._on_own_frame(frame, payload, now):
                    break  # the link is given up: what follows is lost with it
        except RemoteProtocolError as error:
            self._violated(error)

    def _on_session_frame(self, number: int, frame: frames.Frame, payload: bytes) -> None:
        session = self._sessions.get(number)
        if session is not None and self.state is State.READY:
            session.receive(frame, payload, self._outlet)
            self._forget_if_ended(session)
        elif number > self._session_last or self.state is not State.READY:
            reason = f"{type(frame).__name__} for session {number}, which is not open"
            raise RemoteProtocolError("unknown-session", reason)

    def _on_own_frame(self, frame: frames.Frame, payload: bytes, now: float) -> bool:
        """True if the link has been given up."""
        match frame:
            case frames.Welcome():
                self._on_welcome(frame, now)
            case frames.Failure(code=code, reason=reason) if code in RETRY_CODES:
                self._lose(f"{code}: {reason}", now, going=True)
                self._outlet.tell(events.CloseTransport(reason))
                return True
            case frames.Failure(code=code, reason=reason):
                self._fail(Rejected(code, f"the broker at {self._route.current()} closed the connection: {reason}"))
                return True
            case frames.Goodbye(reason=reason):
                self._lose(f"the broker said goodbye: {reason}", now, going=True)
                self._outlet.tell(events.CloseTransport(reason))
                return True
            case frames.Ping(number=number):
                self._outlet.send(0, frames.Pong(number))
            case frames.Pong(number=number):
                if number > self._ping_number:
                    raise RemoteProtocolError("bad-number", f"Pong {number}; the last Ping was {self._ping_number}")
            case frames.Reply():
                self._requests.answered(frame, payload)
            case _:
                raise RemoteProtocolError("unexpected-frame", f"{type(frame).__name__} is not for a client")
        return False

    def _on_welcome(self, frame: frames.Welcome, now: float) -> None:
        if self.state is not State.GREETING:
            raise RemoteProtocolError("unexpected-frame", "Welcome a second time")
        if frame.version != frames.PROTOCOL_VERSION:
            reason = f"the broker speaks version {frame.version}, this client {frames.PROTOCOL_VERSION}"
            raise RemoteProtocolError("version-unsupported", reason)
        if frame.heartbeat_s <= 0 or frame.body_bytes_max <= 0 or frame.frame_bytes_max < frame.body_bytes_max:
            raise RemoteProtocolError("bad-frame", f"Welcome with impossible limits: {frame}")
        self.state = State.READY
        self._identity = frame.identity
        self._was_ready, self._ready_at, self._give_up_at = True, now, None
        self._heartbeat_s = frame.heartbeat_s
        self._silent_until = now + SILENT_HEARTBEATS_MAX * frame.heartbeat_s
        self._route.learn(frame.addresses)
        outlet = self._outlet
        outlet.frame_bytes_max = frame.frame_bytes_max
        outlet.body_bytes_max = frame.body_bytes_max
        outlet.unconfirmed_bytes_max = frame.unconfirmed_bytes_max
        outlet.tell(events.ConnectionReady(frame.node, frame.frame_bytes_max, frame.body_bytes_max))
        for session in self._sessions.values():
            session.open(outlet)
        self._requests.send()

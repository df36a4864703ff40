"""A client manager: connections, the sessions on them, and the way between them and the bus.

    connection:  GREETING --Hello--> OPEN --Goodbye, Failure, lost--> (gone)

A connection carries many sessions; session 0 is the connection itself and takes only requests. A peer that breaks the
protocol gets a Failure frame with a stable code, its connection is closed, its sessions are cut off as after a lost
connection, and nobody else notices. Sessions are known by identity: a session resumed on a new connection is taken away
from an older one.

A connection has an identity of its own, which its client repeats when it connects again: temporary destinations belong
to it. A link that is still there under the same identity is taken for dead, and closed.

When a replica group gets another message manager, the sessions that have to do with it are detached (`detached.py`):
their clients open them again over the same connection, and nobody else is disturbed.

The node publishes through a session of its own (`own_session.py`); commands may be messages (`administration_desk.py`).
"""
from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import ANYBODY, GLOBAL_ID_BYTES, GlobalIds, destination_id, format_id, group_of
from angarium.core.report import Level, Report
from angarium.core.session.administration_desk import AdministrationDesk
from angarium.core.session.connection import Connection, checked_hello, taken_from, welcome_of
from angarium.core.session.detached import Detached, DetachedSessions
from angarium.core.session.events import (
    AskManager,
    CloseConnection,
    Command,
    ConnectionLost,
    ConnectionOpened,
    ConnectionStalled,
    DestinationsMoved,
    Event,
    FramesReceived,
    FromBus,
    GroupLost,
    GroupsKnown,
    GroupsStranded,
    InputRefused,
    PublishOwn,
    SendFrame,
    SessionSettings,
    SettingsChanged,
    ShutDown,
    Tick,
    ToBus,
)
from angarium.core.session.own_session import OwnSession
from angarium.core.session.seldom import Seldom
from angarium.core.session.session import Session
from angarium.core.session.stranded import SentAway
from angarium.core.session.waiting import WaitingBytes
from angarium.core.transaction.coordinator import passed_on
from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from angarium.core.wire.envelope import TURN_MAX

_OF_CONNECTION = frozenset(
    {frames.SessionOpen, frames.SessionClose, frames.Ping, frames.Pong, frames.Failure, frames.Goodbye}
)


class ClientManager:
    def __init__(
        self, settings: SessionSettings, ids: GlobalIds, *, node: str, incarnation: bytes, wall_ms_at_zero: float = 0.0
    ) -> None:
        self._settings = settings
        self._ids = ids
        self._node = node
        self._incarnation = incarnation
        self._groups = [0]  # replica groups, by number
        self._connections: dict[int, Connection] = {}
        self._sessions: dict[bytes, Session] = {}
        self._identities: dict[bytes, Connection] = {}
        self._detached = DetachedSessions()
        self._own = OwnSession(ids, wall_ms_at_zero=wall_ms_at_zero)
        self._desk = AdministrationDesk(self._own, ids)
        self._heartbeat_at: float | None = None
        self._pings = 0
        self._turned_away = Seldom(
            Level.WARNING, "too-many-connections", "client turned away", "clients turned away"
        )
        self._resumed = Seldom(Level.INFO, "session-resumed", "session goes on here", "sessions go on here")
        self._sent_away = SentAway()
        self._now = 0.0  # of the event that is handled

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def session_count(self) -> int:
        return len(self._sessions) - len(self._connections) + len(self._detached)

    def turn_of(self, session: bytes) -> int:
        """To be told with whatever is said of it to a message manager: see `core/destination/attendance.py`."""
        known = self._sessions.get(session)
        return 0 if known is None else known.turn

    def deadline(self) -> float | None:
        return self._heartbeat_at

    def handle(self, event: Event, *, now: float) -> list[Command]:
        self._now = now
        match event:
            case FramesReceived(number, received):
                return self._frames(number, received, now)
            case FromBus(identity, frame, payload):
                if identity == ANYBODY:  # one message manager has something to say to another
                    return [] if (command := passed_on(frame, payload)) is None else [command]
                if identity == self._own.identity:
                    return self._desk.bus_frame(frame, now=now)
                session = self._sessions.get(identity)
                if session is None:
                    return []  # it has just gone, and its destinations are being told
                if isinstance(frame, frames.SessionDetached):  # a destination of it is being moved
                    return self._sent(self._detach(self._connections[session.connection], session, frame.reason), now)
                if isinstance(frame, frames.Failure):
                    return self._fail(self._connections[session.connection], frame.code, frame.reason)
                return self._sent(session.bus_frame(frame, payload), now)
            case ConnectionStalled(number, stalled):
                return self._stalled(number, stalled)
            case ConnectionOpened(number, peer):
                return self._opened(number, peer, now)
            case ConnectionLost(number):
                return self._lost(number)
            case InputRefused(number, code, reason):
                connection = self._connections.get(number)
                return [] if connection is None else self._fail(connection, code, reason)
            case GroupLost(group):
                return self._sent([*self._group_lost(group), *self._own.way_lost()], now)
            case GroupsKnown(groups):
                self._groups[:] = groups  # sessions share it
                return []
            case DestinationsMoved(groups, is_unsure):
                return self._sent(self._destinations_moved(groups, is_unsure), now)
            case PublishOwn() | AskManager():
                return self._own.handle(event, now=now)
            case SettingsChanged(settings):
                self._settings = settings
                for session in self._sessions.values():
                    session.settings = settings
                return []
            case Tick():
                return self._heartbeat(now)
            case GroupsStranded(groups):
                return self._send_away(groups, now)
            case ShutDown(reason):
                return [c for connection in list(self._connections.values()) for c in self._dismiss(connection, reason)]

    # -- connections -----------------------------------------------------------------------------------

    def _opened(self, number: int, peer: str, now: float) -> list[Command]:
        if len(self._connections) >= self._settings.connections_max:
            return self._turn_away(number, peer, now)
        waiting = WaitingBytes(self._settings.waiting_bytes_max)
        connection = Connection(number, peer, waiting, sent_at=now, opened_at=now)
        self._connections[number] = connection
        self._add_session(connection, 0, self._ids.next())
        if self._heartbeat_at is None:
            self._heartbeat_at = now + self._settings.heartbeat_s / 2
        return []

    def _turn_away(self, number: int, peer: str, now: float) -> list[Command]:
        code, limit = "too-many-connections", self._settings.connections_max
        reason = f"this node has connections_max {limit:,} connections; try another"
        text = (
            f"the last from {peer}: there are connections_max {limit:,} connections; close some, or raise it and the "
            "system's limit of open files"
        )
        told = self._turned_away.report(text, now=now)
        return [SendFrame(number, 0, frames.Failure(code, reason)), CloseConnection(number), *told]

    def _add_session(self, connection: Connection, number: int, identity: bytes) -> Session:
        session = Session(
            connection.number, number, identity, connection.identity, self._settings, self._ids, connection.waiting,
            self._groups, self._desk,
        )  # fmt: skip
        connection.sessions[number] = session
        self._sessions[identity] = session
        return session

    def _frames(self, number: int, received: list[Received], now: float) -> list[Command]:
        connection = self._connections.get(number)
        if connection is None:
            return []
        commands: list[Command] = []
        try:
            for item in received:
                commands += self._frame(connection, item)
                if number not in self._connections:
                    break
        except RemoteProtocolError as error:
            commands += self._fail(connection, error.code, error.reason)
        return self._sent(commands, now)

    def _frame(self, connection: Connection, received: Received) -> list[Command]:
        number, frame, payload, size_bytes = received
        if not connection.greeted:
            return self._greet(connection, frame)
        if type(frame) in _OF_CONNECTION:
            return self._connection_frame(connection, number, frame)
        session = connection.sessions.get(number)
        if session is None:
            if number in connection.taken or self._detached.has(connection.number, number):
                self._detached.drop(frame)
                return []
            raise RemoteProtocolError("not-open", f"session {number} is not open")
        if number == 0 and not isinstance(frame, frames.Request):
            raise RemoteProtocolError("unexpected-frame", f"{type(frame).__name__} needs a session")
        return session.client_frame(frame, payload, size_bytes)

    def _connection_frame(self, connection: Connection, number: int, frame: frames.Frame) -> list[Command]:
        match frame:
            case frames.SessionOpen():
                return self._open_session(connection, number, frame)
            case frames.SessionClose():
                return self._close_session(connection, number)
            case frames.Ping(ping):
                return [SendFrame(connection.number, 0, frames.Pong(ping))]
            case frames.Pong():
                return []
            case frames.Failure(code, reason):
                text = f"client {connection.client!r} at {connection.peer} says that we broke the protocol: {reason}"
                ended = self._end(connection, closed=False)
                return [Report(Level.ERROR, code, text), *ended, CloseConnection(connection.number)]
            case _:
                return [*self._end(connection, closed=True), CloseConnection(connection.number)]  # Goodbye

    def _greet(self, connection: Connection, frame: frames.Frame) -> list[Command]:
        frame = checked_hello(frame)
        commands = self._take_up(connection, frame.identity)
        connection.greeted = True
        connection.client = frame.client
        welcome = welcome_of(connection, self._settings, node=self._node, incarnation=self._incarnation)
        return [*commands, SendFrame(connection.number, 0, welcome)]

    def _take_up(self, connection: Connection, identity: bytes) -> list[Command]:
        older = self._identities.get(identity)
        commands: list[Command] = []
        if older is not None:
            commands += self._dismiss(older, "the client goes on over another connection")
        session = connection.sessions[0]
        connection.identity = session.client = identity or self._ids.next()
        self._identities[connection.identity] = connection
        if identity:
            commands.append(ToBus(session.identity, 0, frames.ClientHere(identity)))
        return commands

    def _fail(self, connection: Connection, code: str, reason: str) -> list[Command]:
        text = f"connection from {connection.peer} closed: {code}: {reason}"
        return [
            Report(Level.WARNING, code, text),
            SendFrame(connection.number, 0, frames.Failure(code, reason)),
            *self._end(connection, closed=False),
            CloseConnection(connection.number),
        ]

    def _lost(self, number: int) -> list[Command]:
        connection = self._connections.get(number)
        return [] if connection is None else self._end(connection, closed=False)

    def _end(self, connection: Connection, *, closed: bool) -> list[Command]:
        commands: list[Command] = []
        del self._connections[connection.number]
        for session in connection.sessions.values():
            del self._sessions[session.identity]
            commands += session.ended(closed=closed)
        for detached in self._detached.take_all(connection.number):
            commands += detached.closed() if closed else []
        if connection.identity:
            del self._identities[connection.identity]
            ended = frames.ClientEnded(connection.identity, closed)
            commands.append(ToBus(connection.sessions[0].identity, 0, ended))
        if not self._connections:
            self._heartbeat_at = None
        return commands

    def _stalled(self, number: int, stalled: bool) -> list[Command]:
        connection = self._connections.get(number)
        if connection is None or connection.stalled == stalled:
            return []
        connection.stalled = stalled
        return [command for session in connection.sessions.values() for command in session.stall(stalled)]

    def _dismiss(self, connection: Connection, reason: str) -> list[Command]:
        goodbye = SendFrame(connection.number, 0, frames.Goodbye(reason))
        return [goodbye, *self._end(connection, closed=False), CloseConnection(connection.number)]

    def _is_patient_no_more(self, connection: Connection, now: float) -> bool:
        return now - connection.opened_at >= self._sent_away.patience_s(connection.identity, now=now)

    def _send_away(self, groups: list[int], now: float) -> list[Command]:
        """Dismiss the clients that need one of these groups: another client manager may reach it (`stranded.py`)."""
        away = [c for c in self._connections.values() if self._is_patient_no_more(c, now) and c.needs(groups)]
        for each in away:
            self._sent_away.note(each.identity, now=now)
        where = f"replica group {', '.join(map(str, groups))} cannot be reached from node {self._node}"
        told = [Report(Level.WARNING, "clients-sent-away", f"{len(away)}, to another client manager: {where}")]
        return [*told[: len(away)], *(c for each in away for c in self._dismiss(each, f"{where}; another may"))]

    # -- sessions --------------------------------------------------------------------------------------

    def _open_session(self, connection: Connection, number: int, frame: frames.SessionOpen) -> list[Command]:
        identity = frame.identity
        if number in connection.sessions:
            raise RemoteProtocolError("number-in-use", f"session {number} is open already")
        others = self._detached.count(connection.number) - self._detached.has(connection.number, number)
        if len(connection.sessions) + others > self._settings.sessions_max:
            raise RemoteProtocolError("too-many-sessions", f"connection has sessions_max {self._settings.sessions_max}")
        if identity and len(identity) != GLOBAL_ID_BYTES:
            raise RemoteProtocolError("bad-frame", f"session identity of {len(identity)} bytes")
        if not 0 <= frame.turn <= TURN_MAX:
            raise RemoteProtocolError("bad-frame", f"turn {frame.turn} of a session: 0 to {TURN_MAX:,}")
        if identity in self._sessions and frame.turn < self._sessions[identity].turn:
            return [self._taken_from(connection.number, number, identity)]  # late: its client has gone on since
        commands = self._take_over(identity) if identity in self._sessions else []
        was_here = self._detached.take(connection.number, number) is not None
        if (elsewhere := self._detached.find(identity)) is not None:
            self._detached.take(elsewhere.connection, elsewhere.number)
            commands.append(self._taken_from(elsewhere.connection, elsewhere.number, identity))
        if identity and not commands and not was_here:  # it was cut off, or is with another client manager no more
            text = f"the last {format_id(identity)} of client {connection.client!r} at {connection.peer}"
            commands += self._resumed.report(text, now=self._now)
        connection.taken.pop(number, None)
        session = self._add_session(connection, number, identity or self._ids.next())
        session.is_transacted, session.turn = frame.transacted, frame.turn
        session.stall(connection.stalled)
        commands.append(SendFrame(connection.number, number, frames.SessionOpened(session.identity)))
        return commands

    def _take_over(self, identity: bytes) -> list[Command]:
        session = self._sessions.pop(identity)
        if session.number == 0:
            self._sessions[identity] = session
            raise RemoteProtocolError("bad-frame", "the identity is that of a connection")
        session.forget_waiting()
        del self._connections[session.connection].sessions[session.number]
        return [self._taken_from(session.connection, session.number, identity), *session.ended(closed=False)]

    def _taken_from(self, connection: int, number: int, identity: bytes) -> SendFrame:
        return taken_from(self._connections[connection], number, identity, sessions_max=self._settings.sessions_max)

    def _close_session(self, connection: Connection, number: int) -> list[Command]:
        closed = SendFrame(connection.number, number, frames.SessionClosed())
        if (detached := self._detached.take(connection.number, number)) is not None:
            return [*detached.closed(), closed]
        if number in connection.taken:
            del connection.taken[number]
            return [closed]
        session = connection.sessions.get(number)
        if session is None or number == 0:
            raise RemoteProtocolError("not-open", f"session {number} is not open")
        session.forget_waiting()
        del connection.sessions[number], self._sessions[session.identity]
        return [*session.ended(closed=True), closed]

    # -- replica groups ----------------------------------------------------------------------------------

    def _group_lost(self, group: int) -> list[Command]:
        commands: list[Command] = []
        for connection in self._connections.values():
            own, *sessions = connection.sessions.values()
            if connection.identity:  # its temporary destinations there wait for it
                here = frames.ClientHere(connection.identity)
                commands.append(ToBus(own.identity, destination_id(group, 0), here))
            commands += own.lose_request()
            for session in sessions:
                if session.depends_on(group):
                    reason = f"replica group {group} has another message manager"
                    commands += self._detach(connection, session, reason, group)
        return commands

    def _destinations_moved(self, groups: dict[str, int], is_unsure: bool) -> list[Command]:
        commands: list[Command] = []
        for connection in self._connections.values():
            _, *sessions = connection.sessions.values()
            for session in sessions:
                if (name := session.misplaced(groups, is_unsure)) is not None:
                    to = f"has been moved to replica group {groups[name]}" if name in groups else "may have been moved"
                    reason = f"{name!r} {to}"
                    commands += self._detach(connection, session, reason)
        return commands

    def _detach(
        self, connection: Connection, session: Session, reason: str, group: int | None = None
    ) -> list[Command]:
        """Cut the session off from its client. Its destinations are told, except those of `group`, which are gone."""
        number, identity, destinations = session.number, session.identity, session.known_to()
        session.forget_waiting()
        del connection.sessions[number], self._sessions[identity]
        self._detached.add(Detached(connection.number, number, identity, destinations))
        ended = frames.SessionEnded(closed=False)
        return [
            SendFrame(connection.number, number, frames.SessionDetached(reason)),
            *(ToBus(identity, d, ended) for d in destinations if d == 0 or group_of(d) != group),
        ]

    # -- heartbeat -------------------------------------------------------------------------------------

    def _sent(self, commands: list[Command], now: float) -> list[Command]:
        for command in commands:
            if isinstance(command, SendFrame):
                connection = self._connections.get(command.connection)
                if connection is not None:
                    connection.sent_at = now
        return commands

    def _heartbeat(self, now: float) -> list[Command]:
        """Twice in each heartbeat time, say something on every connection that was silent for half of it."""
        if self._heartbeat_at is None or now < self._heartbeat_at:
            return []
        half = self._settings.heartbeat_s / 2
        self._heartbeat_at = now + half
        self._pings += 1
        silent = [c for c in self._connections.values() if c.greeted and now - c.sent_at >= half]
        return self._sent([SendFrame(c.number, 0, frames.Ping(self._pings)) for c in silent], now)

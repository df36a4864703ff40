"""A client's connection, as its client manager knows it: how it is greeted, and what is on it."""
from collections.abc import Collection
from dataclasses import dataclass, field

from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import GLOBAL_ID_BYTES, format_id
from angarium.core.session.events import SendFrame, SessionSettings
from angarium.core.session.session import Session
from angarium.core.session.waiting import WaitingBytes
from angarium.core.wire import frames

CLIENT_CHARACTERS_MAX = 1_000  # of what a client calls itself


@dataclass(slots=True)
class Connection:
    number: int
    peer: str
    waiting: WaitingBytes
    greeted: bool = False
    stalled: bool = False
    sent_at: float = 0.0
    opened_at: float = 0.0
    client: str = ""
    identity: bytes = b""  # given, or taken up, with the greeting
    sessions: dict[int, Session] = field(default_factory=dict)
    # Numbers of those that went on over another one, the latest: what was under way in them is dropped.
    taken: dict[int, None] = field(default_factory=dict)

    def needs(self, groups: Collection[int]) -> bool:
        """Some session on it has to do with one of these replica groups."""
        _, *sessions = self.sessions.values()
        return any(session.depends_on(group) for session in sessions for group in groups)


def checked_hello(frame: frames.Frame) -> frames.Hello:
    """The first frame of a connection; raises RemoteProtocolError if it may not be."""
    if not isinstance(frame, frames.Hello):
        raise RemoteProtocolError("unexpected-frame", f"{type(frame).__name__} before Hello")
    if frame.version != frames.PROTOCOL_VERSION:
        reason = f"protocol version {frame.version}: this node speaks {frames.PROTOCOL_VERSION}"
        raise RemoteProtocolError("version-unsupported", reason)
    if len(frame.client) > CLIENT_CHARACTERS_MAX:
        reason = f"client of {len(frame.client):,} characters: the most is {CLIENT_CHARACTERS_MAX:,}"
        raise RemoteProtocolError("bad-frame", reason)
    if frame.identity and len(frame.identity) != GLOBAL_ID_BYTES:
        raise RemoteProtocolError("bad-frame", f"connection identity of {len(frame.identity)} bytes")
    return frame


def welcome_of(
    connection: Connection, settings: SessionSettings, *, node: str, incarnation: bytes
) -> frames.Welcome:
    return frames.Welcome(
        frames.PROTOCOL_VERSION,
        node,
        incarnation,
        settings.frame_bytes_max,
        settings.body_bytes_max,
        settings.unconfirmed_bytes_max,
        settings.heartbeat_s,
        identity=connection.identity,
    )


def taken_from(connection: Connection, number: int, identity: bytes, *, sessions_max: int) -> SendFrame:
    """The session goes on over another connection; what its client sends before it hears of that is not held against
    this one."""
    connection.taken[number] = None
    if len(connection.taken) > sessions_max:
        del connection.taken[next(iter(connection.taken))]
    reason = f"session {format_id(identity)} goes on over another connection"
    return SendFrame(connection.number, number, frames.SessionClosed("session-taken", reason))

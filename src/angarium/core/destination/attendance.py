"""Which sessions, through which client manager, a message manager has heard of: for the day that one is gone.

A client manager tells every destination when one of its sessions ends. One that is dead tells nobody: then this says
it in its place, as of a connection that was cut off, so that what those sessions hold is kept for them for the grace
time, and their temporary destinations too.

One that was missed and lives has said things that are still on their way, about what is no longer open. All of it is
void until the client manager says that it begins anew: it does, as soon as it is heard again.

What is remembered goes with the session that it is about, or with its client manager. A session that another client
manager has taken over belongs to that one, whatever the old one still says. Both may live, and what they say arrives in
any order: the client counts its turns, and who comes with an earlier one comes late.
"""
from dataclasses import dataclass, field

from angarium.core.destination.events import FromSession
from angarium.core.ids import destination_id, group_of
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame

_OPENING = (
    frames.Locate, frames.Request, frames.Watch, frames.ClientHere, frames.ProducerOpen, frames.ConsumerOpen,
    frames.StreamOpen, frames.CommitQuestion,
)  # fmt: skip
MISSED_MAX = 1_000  # each start of a client manager is another one: the oldest have come to their end


@dataclass(slots=True)
class _Attending:
    client_manager: bytes
    turn: int  # with which it was opened there
    destinations: dict[int, None] = field(default_factory=dict)
    clients: dict[bytes, None] = field(default_factory=dict)  # connections that have said who they are in this session
    is_stalled: bool = False  # as its client manager says


class Attendance:
    def __init__(self) -> None:
        self._sessions: dict[bytes, _Attending] = {}
        self._missed: dict[bytes, None] = {}  # client managers that were spoken for, and have not begun anew

    def __len__(self) -> int:
        return len(self._sessions)

    def client_manager_of(self, session: bytes) -> bytes | None:
        attending = self._sessions.get(session)
        return None if attending is None else attending.client_manager

    def stall(self, client_manager: bytes, stalled: bool) -> list[FromSession]:
        """Of all its sessions, except those that it has stalled itself."""
        return [
            FromSession(session, destination, frames.Stall(stalled))
            for session, attending in self._sessions.items()
            if attending.client_manager == client_manager and not attending.is_stalled
            for destination in attending.destinations
            if destination != destination_id(group_of(destination), 0)  # that is the message manager itself
        ]

    def heard(
        self, client_manager: bytes, session: bytes, destination: int, frame: Frame, *, turn: int = 0
    ) -> list[FromSession] | None:
        """To be called with every frame: what the message manager has to be told before it. None: it is from a client
        manager that has lost the session to another, or was missed, and void."""
        if client_manager in self._missed:
            return None
        attending = self._sessions.get(session)
        before: list[FromSession] = []
        if attending is not None and attending.client_manager != client_manager:
            if not isinstance(frame, _OPENING) or turn < attending.turn:
                return None
            before = self._ended(session)  # its client has come back elsewhere, before anybody missed it
            attending = None
        if attending is None:
            attending = self._sessions[session] = _Attending(client_manager, turn)
        attending.turn = max(attending.turn, turn)
        if isinstance(frame, frames.SessionEnded) and not destination:
            attending.destinations.clear()  # told last: whatever it has closed before is over, too
        elif isinstance(frame, frames.SessionEnded):
            attending.destinations.pop(destination, None)
        else:
            if not isinstance(frame, frames.ClientHere | frames.ClientEnded):  # those are of the connection
                attending.destinations[destination] = None
            self._note(attending, frame)
        if not attending.destinations and not attending.clients:
            del self._sessions[session]
        return before

    @staticmethod
    def _note(attending: _Attending, frame: Frame) -> None:
        match frame:
            case frames.Stall(stalled):
                attending.is_stalled = stalled
            case frames.ClientHere(client):
                attending.clients[client] = None
            case frames.ClientEnded(client):
                attending.clients.pop(client, None)
            case frames.Request(client=client) if client:
                attending.clients[client] = None

    def gone(self, client_manager: bytes) -> list[FromSession]:
        """What the client manager would have said of its sessions."""
        sessions = [s for s, attending in self._sessions.items() if attending.client_manager == client_manager]
        if sessions:  # else it has nothing to begin anew with, and may not know that it was missed
            self._missed[client_manager] = None
            if len(self._missed) > MISSED_MAX:
                del self._missed[next(iter(self._missed))]
        return [event for session in sessions for event in self._ended(session)]

    def begins_anew(self, client_manager: bytes) -> list[FromSession]:
        """It says so itself: what it said before is over, and what it says from now on counts."""
        events = self.gone(client_manager)
        self._missed.pop(client_manager, None)
        return events

    def _ended(self, session: bytes) -> list[FromSession]:
        attending = self._sessions.pop(session)
        ended = [FromSession(session, identity, frames.SessionEnded(False)) for identity in attending.destinations]
        return ended + [FromSession(session, 0, frames.ClientEnded(client, False)) for client in attending.clients]

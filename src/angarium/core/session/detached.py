"""Sessions whose way to a message manager was lost, until their clients have opened them again.

    open --its replica group is lost--> DETACHED --SessionOpen--> open, with a fresh attachment
                                            └──SessionClose, the connection's end, taken up elsewhere--> (gone)

Of a detached session only its place is kept, and where it is known: what its client has sent before it heard of it is
dropped, and so is what was sent to it. A client that never answers keeps that, up to `sessions_max`, and nothing else;
what its consumers hold goes to others after the grace time.
"""
from dataclasses import dataclass

from angarium.core.errors import RemoteProtocolError
from angarium.core.session.events import ToBus
from angarium.core.wire import frames

_FROM_CLIENT = (
    frames.Publish, frames.Settle, frames.Credit, frames.Recover, frames.ProducerOpen, frames.ConsumerOpen,
    frames.ProducerClose, frames.ConsumerClose, frames.Request, frames.Commit, frames.Watch, frames.WatchClose,
    frames.StreamFragment, frames.StreamOpen, frames.StreamClose, frames.StreamRead, frames.StreamCredit,
    frames.StreamReadEnd,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Detached:
    connection: int
    number: int
    identity: bytes
    destinations: list[int]  # that have heard of it

    def closed(self) -> list[ToBus]:
        """It will not come back, and nobody has to wait for that."""
        ended = frames.SessionEnded(closed=True)
        return [ToBus(self.identity, destination, ended) for destination in self.destinations]


class DetachedSessions:
    def __init__(self) -> None:
        self._places: dict[int, dict[int, Detached]] = {}  # by connection, and by number there
        self._identities: dict[bytes, Detached] = {}

    def __len__(self) -> int:
        return len(self._identities)

    def add(self, detached: Detached) -> None:
        self._places.setdefault(detached.connection, {})[detached.number] = detached
        self._identities[detached.identity] = detached

    def count(self, connection: int) -> int:
        return len(self._places.get(connection, ()))

    def drop(self, frame: frames.Frame) -> None:
        """For a session that is detached, of which its client may not know; raises RemoteProtocolError if no session
        takes such a frame."""
        if not isinstance(frame, _FROM_CLIENT):
            raise RemoteProtocolError("unexpected-frame", f"{type(frame).__name__} is not for a client to send here")

    def has(self, connection: int, number: int) -> bool:
        return connection in self._places and number in self._places[connection]

    def find(self, identity: bytes) -> Detached | None:
        return self._identities.get(identity)

    def take(self, connection: int, number: int) -> Detached | None:
        """The session of that place; it is detached no longer."""
        places = self._places.get(connection, {})
        detached = places.pop(number, None)
        if detached is not None:
            del self._identities[detached.identity]
            if not places:
                del self._places[connection]
        return detached

    def take_all(self, connection: int) -> list[Detached]:
        found = list(self._places.pop(connection, {}).values())
        for detached in found:
            del self._identities[detached.identity]
        return found

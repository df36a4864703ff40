"""The readers of streams in one session: where what they ask for goes, and which answers are still theirs.

A reader is opened without an answer: the first data is one. After a resume, data meant for the session's earlier
connection may still come from the bus; it does not repeat this connection's attachment, and is dropped.
"""
from angarium.core.errors import RemoteProtocolError
from angarium.core.session.events import ToBus
from angarium.core.wire import frames

_NUMBER_MAX = (1 << 32) - 1
_FRAGMENT_MAX = (1 << 40) - 1


class Readers:
    def __init__(self, session: bytes, attachment: bytes, *, readers_max: int) -> None:
        self._session = session
        self._attachment = attachment
        self._readers_max = readers_max
        self._destinations: dict[int, int] = {}  # reader -> destination; 0: the message manager finds it by name
        self._names: dict[int, str] = {}  # of those that are found by name

    def destinations(self) -> list[int]:
        return list(self._destinations.values())

    def misplaced(self, groups: dict[str, int], is_unsure: bool) -> str | None:
        """Of those that are found by name: one that is read elsewhere now, or may be."""
        return next((name for name in self._names.values() if is_unsure or name in groups), None)

    def open(self, frame: frames.StreamRead, destination: int) -> list[ToBus]:
        number = frame.reader
        if number in self._destinations:
            raise RemoteProtocolError("number-in-use", f"reader {number} is open already")
        if len(self._destinations) >= self._readers_max:
            raise RemoteProtocolError("too-many-links", f"session reads {self._readers_max:,} streams; close some")
        if not 0 <= number <= _NUMBER_MAX or not 0 <= frame.first <= _FRAGMENT_MAX or frame.position < 0:
            raise RemoteProtocolError("bad-frame", f"reader {number}: a number is out of range")
        self._destinations[number] = destination
        if not destination:
            self._names[number] = frame.destination
        return [ToBus(self._session, destination, frame)]

    def client_frame(self, frame: frames.StreamCredit | frames.StreamReadEnd) -> list[ToBus]:
        destination = self._destinations.get(frame.reader)
        if destination is None:
            return []  # it has ended, and the client could not know
        if isinstance(frame, frames.StreamReadEnd):
            self._forget(frame.reader)
        return [ToBus(self._session, destination, frame)]

    def bus_frame(self, frame: frames.StreamData | frames.StreamReadEnd) -> bool:
        """Whether it is for the client."""
        if frame.attachment != self._attachment or frame.reader not in self._destinations:
            return False
        if isinstance(frame, frames.StreamReadEnd) or frame.last:
            self._forget(frame.reader)
        return True

    def _forget(self, reader: int) -> None:
        del self._destinations[reader]
        self._names.pop(reader, None)

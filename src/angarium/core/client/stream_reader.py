"""One stream that is being read: which fragment comes next, and how many may be on their way.

At most `WINDOW_FRAGMENTS` are asked for beyond what the application has used, so a slow one costs no more memory than
that. After a reconnection it is asked for again from the next fragment on, once the consumer that holds the message has
resumed.
"""

from angarium.core.checksum import crc32
from angarium.core.client import stream_events
from angarium.core.client.outlet import Outlet
from angarium.core.errors import RemoteProtocolError
from angarium.core.wire import frames

WINDOW_FRAGMENTS = 8


class StreamReader:
    def __init__(self, request: stream_events.OpenReader, outlet: Outlet) -> None:
        self.session = request.session
        self.number = request.reader
        self.consumer = request.consumer
        self._request = request
        self._outlet = outlet
        self._expected = 0  # the next fragment
        self._used = 0
        self._limit = 0
        self._is_asked = False  # on the present connection

    def open(self) -> None:
        if self._is_asked:
            return
        self._is_asked = True
        self._limit = self._used + WINDOW_FRAGMENTS
        request = self._request
        frame = frames.StreamRead(
            self.number, request.consumer, request.position, self._expected, self._limit, request.destination
        )
        self._outlet.send(self.session, frame)

    def disconnected(self) -> None:
        self._is_asked = False

    def use(self) -> None:
        """The application has taken one fragment."""
        self._used += 1
        if self._is_asked and self._used + WINDOW_FRAGMENTS >= self._limit + WINDOW_FRAGMENTS // 2:
            self._limit = self._used + WINDOW_FRAGMENTS
            self._outlet.send(self.session, frames.StreamCredit(self.number, self._limit))

    def close(self) -> None:
        if self._is_asked:
            self._outlet.send(self.session, frames.StreamReadEnd(self.number))

    def on_data(self, frame: frames.StreamData, payload: bytes) -> bool:
        """False: it does not carry what it says, and the reader has to end."""
        if not self._is_asked or frame.number != self._expected or frame.number >= self._limit:
            reason = f"fragment {frame.number} instead of {self._expected}, limit {self._limit}"
            raise RemoteProtocolError("bad-fragment", f"session {self.session}, reader {self.number}: {reason}")
        if crc32(payload) != frame.crc:
            return False
        self._expected += 1
        self._outlet.tell(stream_events.FragmentArrived(self.session, self.number, payload, frame.last))
        return True

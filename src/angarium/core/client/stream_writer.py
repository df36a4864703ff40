"""One stream that is being sent: what the broker does not have yet, and how far it lets us go.

    put --> kept --sent, up to the broker's limit--> on its way --StreamStored: durable--> forgotten

A fragment is kept until it is durable. After a reconnection the broker says from where to go on; what it lacks is sent
again from what is kept. The application puts no more than the limit lets go, so that little is kept.
"""
from collections import deque
from typing import NamedTuple

from angarium.core.client import stream_events
from angarium.core.client.outlet import Outlet
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.wire import frames


class Fragment(NamedTuple):
    crc: int
    is_last: bool
    payload: bytes


class StreamWriter:
    def __init__(self, request: stream_events.OpenStream, outlet: Outlet) -> None:
        self.session = request.session
        self.number = request.stream
        self.identity = b""
        self._request = request
        self._outlet = outlet
        self._kept: deque[Fragment] = deque()
        self._stored = 0  # fragments: the first one kept has this number
        self._following = 0  # the next one to be sent
        self._limit = 0
        self._in_flight = 0
        self._is_asked = False  # StreamOpen was sent on the present connection, and not answered
        self._is_open = False
        self._is_ended = False  # the last fragment was put

    # -- from our side ---------------------------------------------------------------------------

    def open(self) -> None:
        self._is_asked = True
        request = self._request
        frame = frames.StreamOpen(self.number, request.destination, request.destination_kind, self.identity)
        self._outlet.send(self.session, frame)

    def disconnected(self) -> None:
        self._is_asked = self._is_open = False
        self._leave_flight()

    def put(self, event: stream_events.PutFragment) -> None:
        if self._is_ended:
            raise LocalProtocolError(f"session {self.session}: stream {self.number} has its last fragment already")
        self._is_ended = event.is_last
        self._kept.append(Fragment(event.crc, event.is_last, event.payload))
        self.pump()

    def close(self) -> None:
        self._leave_flight()
        if self._is_open or self._is_asked:
            self._outlet.send(self.session, frames.StreamClose(self.number))
        self._is_open = False

    def pump(self) -> None:
        if self._can_send():
            self._outlet.flight.offer(self)

    def send_one(self) -> bool:
        if not self._can_send():
            return False
        crc, is_last, payload = self._kept[self._following - self._stored]
        frame = frames.StreamFragment(self.number, self._following, crc, is_last)
        self._outlet.send_with(self.session, frame, payload)
        self._following += 1
        self._in_flight += 1
        return True

    def _can_send(self) -> bool:
        end = min(self._limit, self._stored + len(self._kept))
        return self._is_open and self._following < end and self._outlet.is_writable

    def _leave_flight(self) -> None:
        count, self._in_flight = self._in_flight, 0
        self._outlet.flight.leave(self, count)

    # -- from the broker -------------------------------------------------------------------------

    def on_opened(self, frame: frames.StreamOpened) -> str:
        """Empty, or why the broker's stream is not ours any more."""
        if not self._is_asked or len(frame.identity) != GLOBAL_ID_BYTES:
            raise self._violation("unexpected-frame", "opened, and did not ask to be")
        end = self._stored + len(self._kept)
        if frame.following > end or frame.stored > frame.following:
            raise self._violation("bad-number", f"stored {frame.stored}, goes on with {frame.following} of {end}")
        self._is_asked = False
        if frame.stored < self._stored:
            return f"the broker has {frame.stored} fragments of the {self._stored} that it had stored"
        self._is_open = True
        self.identity = frame.identity
        self._forget(frame.stored)
        self._following = frame.following
        self._limit = frame.limit
        self._outlet.tell(stream_events.StreamReady(self.session, self.number, frame.identity, frame.fragment_bytes))
        self._tell("", "")
        self.pump()
        return ""

    def begin_anew(self) -> bool:
        """The broker does not know the stream that we would resume: if none of it was durable, all of it is here."""
        if not self.identity or self._stored:
            return False
        self.identity = b""
        self._following = 0
        self._leave_flight()
        self._outlet.send(self.session, frames.StreamClose(self.number))  # the number is free again
        self.open()
        return True

    def on_stored(self, frame: frames.StreamStored) -> None:
        if not self._is_open or not self._stored <= frame.stored <= self._following:
            raise self._violation("bad-number", f"stored {frame.stored} of {self._following}, before {self._stored}")
        self._forget(frame.stored)
        landed = min(self._in_flight, max(0, frame.limit - self._limit))
        if self._following == frame.stored:
            landed = self._in_flight
        self._limit = frame.limit
        self._in_flight -= landed
        self._outlet.flight.landed(landed)
        self._tell(frame.code, frame.reason)
        self.pump()

    def _forget(self, stored: int) -> None:
        for _ in range(stored - self._stored):
            self._kept.popleft()
        self._stored = stored

    def _tell(self, code: str, reason: str) -> None:
        progress = stream_events.StreamAdvanced(self.session, self.number, self._stored, self._limit, code, reason)
        self._outlet.tell(progress)

    def _violation(self, code: str, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(code, f"session {self.session}, stream {self.number}: broker {what}")

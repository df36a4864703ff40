"""The watches of one session: asked again after each reconnection, for as long as the application wants them."""
from angarium.core.client import events
from angarium.core.client.outlet import Outlet
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire import frames

WATCHES_MAX = 100


class SessionWatches:
    def __init__(self, session: int) -> None:
        self._session = session
        self._open: dict[int, events.OpenWatch] = {}
        self._last = 0

    def request(self, event: events.OpenWatch | events.CloseWatch, outlet: Outlet, *, is_open: bool) -> None:
        if isinstance(event, events.OpenWatch):
            if event.watch <= self._last:
                raise LocalProtocolError(f"session {self._session}: watch number {event.watch} was used before")
            if len(self._open) >= WATCHES_MAX:
                raise LocalProtocolError(f"session {self._session}: more than {WATCHES_MAX} watches; close some")
            self._last = event.watch
            self._open[event.watch] = event
            if is_open:
                self._send(event, outlet)
        elif self._open.pop(event.watch, None) is not None and is_open:
            outlet.send(self._session, frames.WatchClose(event.watch))

    def session_opened(self, outlet: Outlet) -> None:
        for event in self._open.values():
            self._send(event, outlet)

    def _send(self, event: events.OpenWatch, outlet: Outlet) -> None:
        frame = frames.Watch(event.watch, event.pattern, event.syntax, event.destination_kind)
        outlet.send(self._session, frame)

    def receive(self, frame: frames.WatchFound | frames.WatchClosed, outlet: Outlet) -> None:
        number = frame.watch
        if number > self._last:
            reason = f"session {self._session}: {type(frame).__name__} for watch {number}, which never was"
            raise RemoteProtocolError("unknown-watch", reason)
        if number not in self._open:
            return
        if isinstance(frame, frames.WatchClosed):
            del self._open[number]
            outlet.tell(events.WatchEnded(self._session, number, frame.code, frame.reason))
        else:
            found = events.WatchFound(
                self._session, number, frame.destination_kind, frame.names, frame.created, frame.complete
            )
            outlet.tell(found)

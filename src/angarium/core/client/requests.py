"""Administrative requests of one connection: each is sent when there is a link, and then answered, or lost with it."""
from angarium.core.client import events
from angarium.core.client.outlet import Outlet
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire import frames
from angarium.core.wire.codec import encode_head

REQUESTS_MAX = 1_000
NO_REPLY = ("request-lost", "no-primary", "moving")  # codes of a Reply that says that there will be none


class Requests:
    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._last = 0
        self._unsent: dict[int, bytes] = {}
        self._asked: set[int] = set()  # they wait for their reply

    def add(self, event: events.Request) -> None:
        if event.number <= self._last:
            raise LocalProtocolError(f"request number {event.number} was used before")
        if len(self._unsent) + len(self._asked) >= REQUESTS_MAX:
            raise LocalProtocolError(f"more than {REQUESTS_MAX:,} requests wait for their reply; await some")
        encoded = encode_head(0, frames.Request(event.number, event.command, event.arguments))
        self._last = event.number
        self._unsent[event.number] = encoded

    def send(self) -> None:
        """There is a link: what waits for one leaves."""
        for number, encoded in self._unsent.items():
            self._outlet.send_encoded(encoded)
            self._asked.add(number)
        self._unsent.clear()

    def lose(self, loss: str) -> None:
        """The link is gone: what was asked may have been done or not."""
        for number in sorted(self._asked):
            self._outlet.tell(events.RequestLost(number, f"the connection was lost before the reply came: {loss}"))
        self._asked.clear()

    def answered(self, frame: frames.Reply, payload: bytes) -> None:
        if frame.number not in self._asked:
            raise RemoteProtocolError("bad-number", f"Reply to request {frame.number}, which was not asked")
        self._asked.remove(frame.number)
        if frame.code in NO_REPLY:
            self._outlet.tell(events.RequestLost(frame.number, frame.reason))
            return
        self._outlet.tell(events.RequestAnswered(frame.number, frame.code, frame.reason, frame.result, payload))

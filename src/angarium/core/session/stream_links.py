"""The streams of one session, as its client manager sees them: on their way to destinations and back.

    StreamOpen --> LOCATING --Located--> OPENING --StreamOpened--> OPEN --StreamClosed--> CLOSED --StreamClose--> (gone)
                       |                    |                                               ^
                       +------refused-------+-----------------------------------------------+

A stream that is written goes to the destination that its message will go to; one that is read, to where its consumer
has the message from. What a client sends before it can know that the broker gave a stream up is ignored. Also of one
that was refused it says that it is done with it, and until then the number is taken.
"""
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import GLOBAL_ID_BYTES, GlobalIds, group_of
from angarium.core.names import check_name
from angarium.core.session.events import ToBus
from angarium.core.session.readers import Readers
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame

FROM_CLIENT = (
    frames.StreamFragment, frames.StreamOpen, frames.StreamClose,
    frames.StreamRead, frames.StreamCredit, frames.StreamReadEnd,
)  # fmt: skip
FROM_BUS = (
    frames.StreamData, frames.StreamStored, frames.StreamOpened, frames.StreamClosed, frames.StreamReadEnd,
)  # fmt: skip
STREAMS_MAX = 1_000  # written in one session, or waiting for that; those that it reads besides
_NUMBER_MAX = (1 << 32) - 1


class State(Enum):
    LOCATING = "locating"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"  # by the broker: the client may not know yet


@dataclass(slots=True)
class Link:
    open: frames.StreamOpen
    state: State = State.LOCATING
    destination: int = 0


class StreamLinks:
    def __init__(self, session: bytes, attachment: bytes, ids: GlobalIds) -> None:
        self._session = session
        self._attachment = attachment
        self._ids = ids
        self._links: dict[int, Link] = {}
        self._readers = Readers(session, attachment, readers_max=STREAMS_MAX)

    def destinations(self) -> list[int]:
        """Where this session has streams; 0 is the message manager itself."""
        found = [link.destination for link in self._links.values() if link.destination]
        return [*found, *self._readers.destinations()]

    def depend_on(self, group: int) -> bool:
        """Whether a stream is at that replica group, or may be."""
        at_group = (
            link.state is State.LOCATING or (link.state is not State.CLOSED and group_of(link.destination) == group)
            for link in self._links.values()
        )
        return any(at_group) or any(d == 0 or group_of(d) == group for d in self._readers.destinations())

    def misplaced(self, groups: dict[str, int], is_unsure: bool) -> str | None:
        """As of a session."""
        for link in self._links.values():
            name = link.open.destination
            if link.state is State.LOCATING and (is_unsure or name in groups):
                return name
            is_open = link.state not in (State.LOCATING, State.CLOSED)
            if is_open and name in groups and group_of(link.destination) != groups[name]:
                return name
        return self._readers.misplaced(groups, is_unsure)

    # -- from the client -----------------------------------------------------------------------------

    def client_frame(
        self, frame: Frame, payload: bytes, destination_of: Callable[[int], int]
    ) -> tuple[list[ToBus], list[Frame]]:
        """What goes to the bus, and what to answer at once; `destination_of` knows where a consumer has its messages
        from, or 0."""
        match frame:
            case frames.StreamFragment(number):
                link = self._link(number)
                if link.state is State.CLOSED:
                    return [], []
                if link.state is not State.OPEN:
                    raise RemoteProtocolError("not-open", f"stream {number} is not open yet")
                return [ToBus(self._session, link.destination, frame, payload)], []
            case frames.StreamOpen():
                return self._open(frame)
            case frames.StreamClose(number):
                link = self._link(number)
                del self._links[number]
                is_known = link.state in (State.OPENING, State.OPEN)
                return [ToBus(self._session, link.destination, frame)] if is_known else [], []
            case frames.StreamRead(consumer=consumer):
                destination = destination_of(consumer) if consumer >= 0 else 0
                if consumer >= 0 and not destination:  # it was closed meanwhile: the client may not know
                    reason = f"consumer {consumer} is not open"
                    return [], [frames.StreamReadEnd(frame.reader, "not-held", reason)]
                return self._readers.open(replace(frame, attachment=self._attachment), destination), []
            case frames.StreamCredit() | frames.StreamReadEnd():
                return self._readers.client_frame(frame), []
        raise AssertionError(f"{type(frame).__name__} is not of a stream")

    def _link(self, number: int) -> Link:
        link = self._links.get(number)
        if link is None:
            raise RemoteProtocolError("not-open", f"stream {number} is not open")
        return link

    def _open(self, frame: frames.StreamOpen) -> tuple[list[ToBus], list[Frame]]:
        number = frame.stream
        if number in self._links:
            raise RemoteProtocolError("number-in-use", f"stream {number} is open already")
        if not 0 <= number <= _NUMBER_MAX or len(frame.identity) not in (0, GLOBAL_ID_BYTES):
            raise RemoteProtocolError("bad-frame", f"stream {number}, identity of {len(frame.identity)} bytes")
        if len(self._links) >= STREAMS_MAX:
            raise RemoteProtocolError("too-many-links", f"session has {STREAMS_MAX:,} streams open; close some")
        try:
            check_name(frame.destination)
        except Rejected as refusal:
            self._links[number] = Link(frame, State.CLOSED)
            return [], [frames.StreamClosed(number, refusal.code, refusal.reason)]
        resumed, identity = bool(frame.identity), frame.identity or self._ids.next()
        opening = replace(frame, identity=identity, resumed=resumed, attachment=self._attachment)
        self._links[number] = Link(opening)
        return [ToBus(self._session, 0, frames.Locate(frame.destination, frame.destination_kind))], []

    # -- from the bus --------------------------------------------------------------------------------

    def located(self, frame: frames.Located) -> tuple[list[ToBus], list[Frame]]:
        """What goes to the bus, and what to the client."""
        posted: list[ToBus] = []
        refused: list[Frame] = []
        for number, link in list(self._links.items()):
            asked = (link.open.destination, link.open.destination_kind)
            if link.state is not State.LOCATING or asked != (frame.name, frame.asked_kind):
                continue
            if frame.destination:
                link.state, link.destination = State.OPENING, frame.destination
                posted.append(ToBus(self._session, link.destination, link.open))
            else:
                link.state = State.CLOSED
                refused.append(frames.StreamClosed(number, frame.code, frame.reason))
        return posted, refused

    def bus_frame(self, frame: Frame) -> bool:
        """Whether it is for the client."""
        match frame:
            case frames.StreamData() | frames.StreamReadEnd():
                return self._readers.bus_frame(frame)
            case frames.StreamStored(number):
                link = self._links.get(number)
                return link is not None and link.state is State.OPEN
            case frames.StreamOpened(number):
                link = self._links.get(number)
                if link is None or link.state is not State.OPENING or frame.attachment != self._attachment:
                    return False
                link.state = State.OPEN
                return True
            case frames.StreamClosed(number):
                link = self._links.get(number)
                if link is None or link.state not in (State.OPENING, State.OPEN):
                    return False
                link.state = State.CLOSED
                return True
        raise AssertionError(f"{type(frame).__name__} is not of a stream")

"""One session of a client, as its client manager sees it: a pure machine.

A session checks what its client sends, finds the destination behind each producer and consumer, and passes the frames
on to the bus; what comes back from the bus goes to the client. It keeps no messages.

    open request --> LOCATING --Located--> OPENING --Opened--> OPEN --Closed--> (gone)

What a client says of a consumer right after opening it waits until the destination is located. What it sent before it
could know that the broker had closed a producer or consumer is ignored. Anything else for a producer or consumer that
is not open is the client's error.
"""
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import GLOBAL_ID_BYTES, GlobalIds
from angarium.core.names import check_name
from angarium.core.session.events import AskNode, Command, SendFrame, SessionSettings, ToBus
from angarium.core.session.readers import Readers
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch, Columns
from angarium.core.wire.frames import Frame

_NUMBER_MAX = (1 << 32) - 1
_POSITION_MAX = (1 << 62) - 1
_WAITING_FRAMES_MAX = 1_000
_Open = frames.ProducerOpen | frames.ConsumerOpen | frames.StreamOpen
_Opened = frames.ProducerOpened | frames.ConsumerOpened | frames.StreamOpened
_Closed = frames.ProducerClosed | frames.ConsumerClosed | frames.StreamClosed


class LinkState(Enum):
    LOCATING = "locating"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"  # by the broker: the client may not know yet


@dataclass(slots=True)
class Link:
    """A producer, a consumer or a stream: the way from this session to a destination."""

    open: _Open
    state: LinkState = LinkState.LOCATING
    destination: int = 0
    waiting: list[Frame] = field(default_factory=list)  # until it is located
    was_opened: bool = False


class Session:
    def __init__(
        self, connection: int, number: int, identity: bytes, settings: SessionSettings, ids: GlobalIds
    ) -> None:
        self.connection = connection
        self.number = number
        self.identity = identity
        self._settings = settings
        self._ids = ids
        # After a resume, frames meant for the session's earlier connection may still come from the bus. Those of a
        # producer or consumer count only once it is open, and open it is by an answer that repeats this.
        self._attachment = ids.next()
        self._producers: dict[int, Link] = {}
        self._consumers: dict[int, Link] = {}
        self._streams: dict[int, Link] = {}  # that are being written
        self._readers = Readers(identity, self._attachment, readers_max=settings.links_max)
        self._unconfirmed: dict[int, deque[tuple[int, int]]] = {}  # producer -> (last sequence, bytes) of batches
        self._unconfirmed_bytes = 0
        self._stalled = False
        self._requests: deque[frames.Request] = deque()  # not yet asked
        self._is_asking = False

    def tell_destinations(self, frame: Frame) -> list[Command]:
        """To every destination that knows this session, behind all that it was sent before."""
        links = (*self._producers.values(), *self._consumers.values(), *self._streams.values())
        identities = dict.fromkeys(link.destination for link in links if link.destination)
        if self._readers.have_browsed:
            identities[0] = None
        return [ToBus(self.identity, identity, frame) for identity in identities]

    def stall(self, stalled: bool) -> list[Command]:
        """The connection takes no more (or does again): consumers of this session are passed over."""
        self._stalled = stalled
        told = self.tell_destinations(frames.Stall(stalled)) if self._consumers else []
        return told + self._ask_next()

    # -- from the client -----------------------------------------------------------------------------

    def client_frame(self, frame: Frame, payload: bytes) -> list[Command]:
        """A frame that the client sent in this session; raises RemoteProtocolError if it may not."""
        match frame:
            case frames.Publish(number):
                return self._publish(number, frame, payload)
            case frames.Settle(number) | frames.Credit(number):
                return self._for_consumer(number, frame)
            case frames.ProducerOpen(number):
                self._check_free(self._producers, number, "producer")
                return self._open_producer(frame)
            case frames.ConsumerOpen(number):
                self._check_free(self._consumers, number, "consumer")
                _check_resume(frame)
                return self._open(self._consumers, number, frame)
            case frames.ProducerClose(number):
                return self._close_producer(number, frame)
            case frames.ConsumerClose(number):
                return self._close_consumer(number, frame)
            case frames.Request():
                return self._request(frame)
            case frames.StreamFragment() | frames.StreamOpen() | frames.StreamClose():
                return self._write_stream(frame, payload)
            case frames.StreamRead():
                return self._read_stream(frame)
            case frames.StreamCredit() | frames.StreamReadEnd():
                return self._readers.client_frame(frame)
        raise RemoteProtocolError("unexpected-frame", f"{type(frame).__name__} is not for a client to send here")

    def _request(self, frame: frames.Request) -> list[Command]:
        """One after the other, and none while the client does not read: answers may be long."""
        if len(self._requests) >= self._settings.requests_max:
            reason = f"{len(self._requests)} requests are waiting: the most is requests_max"
            raise RemoteProtocolError("too-many-requests", reason)
        self._requests.append(frame)
        return self._ask_next()

    def _ask_next(self) -> list[Command]:
        if self._is_asking or self._stalled or not self._requests:
            return []
        self._is_asking = True
        request = self._requests.popleft()
        if request.command.startswith("node."):
            return [AskNode(self.identity, request)]
        return [ToBus(self.identity, 0, request)]

    def _check_free(self, links: dict[int, Link], number: int, what: str) -> None:
        known = links.get(number)
        if known is not None and known.state is not LinkState.CLOSED:
            raise RemoteProtocolError("number-in-use", f"{what} {number} is open already")
        if not 0 <= number <= _NUMBER_MAX:
            raise RemoteProtocolError("bad-frame", f"{what} number {number} is outside 0..{_NUMBER_MAX}")
        count = len(self._producers) + len(self._consumers) + len(self._streams)
        if count >= self._settings.links_max and known is None:
            raise RemoteProtocolError("too-many-links", f"session has links_max {self._settings.links_max} open")

    def _open_producer(self, frame: frames.ProducerOpen) -> list[Command]:
        if frame.identity and len(frame.identity) != GLOBAL_ID_BYTES:
            raise RemoteProtocolError("bad-frame", f"producer identity of {len(frame.identity)} bytes")
        if not 0 <= frame.confirmed <= _POSITION_MAX:
            raise RemoteProtocolError("bad-frame", f"confirmed sequence {frame.confirmed} is out of range")
        if not frame.identity:
            frame = replace(frame, identity=self._ids.next())
        self._forget_unconfirmed(frame.producer)
        return self._open(self._producers, frame.producer, frame)

    def _open(self, links: dict[int, Link], number: int, frame: _Open) -> list[Command]:
        try:
            check_name(frame.destination)
            if isinstance(frame, frames.ConsumerOpen) and frame.subscription:
                check_name(frame.subscription, what="subscription")
        except Rejected as refusal:
            return [self._refused(frame, refusal.code, refusal.reason)]
        links[number] = Link(replace(frame, attachment=self._attachment))
        return [ToBus(self.identity, 0, frames.Locate(frame.destination, frame.destination_kind))]

    def _refused(self, frame: _Open, code: str, reason: str) -> SendFrame:
        if isinstance(frame, frames.ProducerOpen):
            return self._to_client(frames.ProducerClosed(frame.producer, code, reason))
        if isinstance(frame, frames.StreamOpen):
            return self._to_client(frames.StreamClosed(frame.stream, code, reason))
        return self._to_client(frames.ConsumerClosed(frame.consumer, code, reason))

    def _publish(self, number: int, frame: frames.Publish, payload: bytes) -> list[Command]:
        link = self._producers.get(number)
        if link is None or link.state not in (LinkState.OPEN, LinkState.CLOSED):
            raise RemoteProtocolError("not-open", f"producer {number} is not open")
        if link.state is LinkState.CLOSED:
            return []
        batch = Batch.parse(payload)
        assert isinstance(link.open, frames.ProducerOpen)
        if batch.producer != link.open.identity:
            raise RemoteProtocolError("bad-batch", "batch carries the identity of another producer")
        if batch.columns & Columns.SEQUENCE:
            raise RemoteProtocolError("bad-batch", "a producer's sequences have no gaps: publish without that column")
        self._check_bodies(batch)
        self._unconfirmed_bytes += len(payload)
        if self._unconfirmed_bytes > self._settings.unconfirmed_bytes_max + self._settings.frame_bytes_max:
            reason = f"{self._unconfirmed_bytes:,} bytes are unconfirmed: the most is unconfirmed_bytes_max"
            raise RemoteProtocolError("window-exceeded", reason)
        self._unconfirmed.setdefault(number, deque()).append((batch.last_sequence, len(payload)))
        return [ToBus(self.identity, link.destination, frame, payload)]

    def _check_bodies(self, batch: Batch) -> None:
        limit = self._settings.body_bytes_max
        if batch.body_bytes > limit:
            offsets = batch.offsets
            longest = max(offsets[i + 1] - offsets[i] for i in range(batch.count))
            if longest > limit:
                reason = f"body of {longest:,} bytes exceeds body_bytes_max {limit:,}"
                raise RemoteProtocolError("body-too-long", reason)

    def _for_consumer(self, number: int, frame: Frame) -> list[Command]:
        link = self._consumers.get(number)
        if link is None or link.state is LinkState.CLOSING:
            raise RemoteProtocolError("not-open", f"consumer {number} is not open")
        if link.state is LinkState.CLOSED:
            return []
        if link.state is LinkState.LOCATING:
            if len(link.waiting) >= _WAITING_FRAMES_MAX:
                raise RemoteProtocolError("too-many-frames", f"consumer {number} is not open yet")
            link.waiting.append(frame)
            return []
        return [ToBus(self.identity, link.destination, frame)]

    def _close_consumer(self, number: int, frame: frames.ConsumerClose) -> list[Command]:
        commands = self._for_consumer(number, frame)
        link = self._consumers[number]
        if link.state is LinkState.CLOSED:
            del self._consumers[number]
        elif link.state is not LinkState.LOCATING:
            link.state = LinkState.CLOSING
        return commands

    def _close_producer(self, number: int, frame: frames.ProducerClose) -> list[Command]:
        link = self._producers.pop(number, None)
        if link is None:
            raise RemoteProtocolError("not-open", f"producer {number} is not open")
        self._forget_unconfirmed(number)
        if link.state in (LinkState.LOCATING, LinkState.CLOSED):
            return []  # no destination knows it
        return [ToBus(self.identity, link.destination, frame)]

    # -- streams -------------------------------------------------------------------------------------

    def _write_stream(
        self, frame: frames.StreamOpen | frames.StreamFragment | frames.StreamClose, payload: bytes
    ) -> list[Command]:
        number = frame.stream
        if isinstance(frame, frames.StreamOpen):
            self._check_free(self._streams, number, "stream")
            if len(frame.identity) not in (0, GLOBAL_ID_BYTES):
                raise RemoteProtocolError("bad-frame", f"stream identity of {len(frame.identity)} bytes")
            identity = frame.identity or self._ids.next()
            return self._open(self._streams, number, replace(frame, identity=identity, resumed=bool(frame.identity)))
        link = self._streams.get(number)
        if link is None:
            raise RemoteProtocolError("not-open", f"stream {number} is not open")
        if isinstance(frame, frames.StreamClose):
            del self._streams[number]
            is_known = link.state not in (LinkState.LOCATING, LinkState.CLOSED)
            return [ToBus(self.identity, link.destination, frame)] if is_known else []
        if link.state is LinkState.CLOSED:
            return []
        if link.state is not LinkState.OPEN:
            raise RemoteProtocolError("not-open", f"stream {number} is not open yet")
        return [ToBus(self.identity, link.destination, frame, payload)]

    def _read_stream(self, frame: frames.StreamRead) -> list[Command]:
        link = self._consumers.get(frame.consumer)
        if frame.consumer >= 0 and (link is None or link.state is LinkState.LOCATING):
            raise RemoteProtocolError("not-open", f"consumer {frame.consumer} is not open")
        destination = link.destination if link is not None else 0
        return self._readers.open(replace(frame, attachment=self._attachment), destination)

    # -- from the bus --------------------------------------------------------------------------------

    def bus_frame(self, frame: Frame, payload: bytes) -> list[Command]:
        match frame:
            case frames.Deliver(number):
                link = self._consumers.get(number)
                if link is None or not link.was_opened or link.state is LinkState.CLOSED:
                    return []
            case frames.Confirm(number, sequence):
                link = self._producers.get(number)
                if link is None or link.state is not LinkState.OPEN:
                    return []
                self._confirmed(number, sequence)
            case frames.Block(number) | frames.Unblock(number):
                link = self._producers.get(number)
                if link is None or link.state is not LinkState.OPEN:
                    return []
            case frames.Settled(number):
                if number not in self._consumers:
                    return []
            case frames.Reply():
                self._is_asking = False
                return [self._to_client(frame, payload), *self._ask_next()]
            case frames.Located():
                return self._located(frame)
            case frames.StreamData() | frames.StreamReadEnd():
                return [self._to_client(frame, payload)] if self._readers.bus_frame(frame) else []
            case frames.StreamStored(number):
                link = self._streams.get(number)
                if link is None or link.state is not LinkState.OPEN:
                    return []
            case frames.ProducerOpened() | frames.ConsumerOpened() | frames.StreamOpened():
                return self._opened(frame)
            case frames.ProducerClosed() | frames.ConsumerClosed() | frames.StreamClosed():
                return self._closed(frame)
        return [self._to_client(frame, payload)]

    def _link_of(self, frame: _Opened | _Closed) -> tuple[dict[int, Link], int]:
        if isinstance(frame, frames.ProducerOpened | frames.ProducerClosed):
            return self._producers, frame.producer
        if isinstance(frame, frames.StreamOpened | frames.StreamClosed):
            return self._streams, frame.stream
        return self._consumers, frame.consumer

    def _opened(self, frame: _Opened) -> list[Command]:
        links, number = self._link_of(frame)
        link = links.get(number)
        if link is None or frame.attachment != self._attachment:
            return []
        if link.state is LinkState.CLOSED:  # by an answer to an earlier opening: nobody would ever use it
            return [ToBus(self.identity, link.destination, _close(frame))]
        link.was_opened = True
        if link.state is LinkState.OPENING:
            link.state = LinkState.OPEN
        return [self._to_client(frame)]

    def _closed(self, frame: _Closed) -> list[Command]:
        links, number = self._link_of(frame)
        link = links.get(number)
        if link is None or link.state in (LinkState.LOCATING, LinkState.CLOSED):
            return []
        if link.state is LinkState.OPENING and not frame.code:
            return []  # a refusal has a code: this answers a close from before the session was resumed
        if links is self._producers:
            self._forget_unconfirmed(number)
        if link.state is LinkState.CLOSING:
            del links[number]
        else:
            link.state = LinkState.CLOSED
        return [self._to_client(frame)]

    def _located(self, frame: frames.Located) -> list[Command]:
        commands: list[Command] = []
        for links in (self._producers, self._consumers, self._streams):
            for number, link in list(links.items()):
                asked = (link.open.destination, link.open.destination_kind)
                if link.state is not LinkState.LOCATING or asked != (frame.name, frame.asked_kind):
                    continue
                if frame.destination:
                    link.state = LinkState.OPENING
                    link.destination = frame.destination
                    commands += [ToBus(self.identity, frame.destination, f) for f in (link.open, *link.waiting)]
                    if any(isinstance(f, frames.ConsumerClose) for f in link.waiting):
                        link.state = LinkState.CLOSING
                    link.waiting.clear()
                    if self._stalled and links is self._consumers:
                        commands.append(ToBus(self.identity, frame.destination, frames.Stall(True)))
                else:
                    del links[number]
                    commands.append(self._refused(link.open, frame.code, frame.reason))
        return commands

    def _confirmed(self, number: int, sequence: int) -> None:
        batches = self._unconfirmed.get(number)
        while batches and batches[0][0] <= sequence:
            self._unconfirmed_bytes -= batches.popleft()[1]

    def _forget_unconfirmed(self, number: int) -> None:
        for _, size in self._unconfirmed.pop(number, ()):
            self._unconfirmed_bytes -= size

    def _to_client(self, frame: Frame, payload: bytes = b"") -> SendFrame:
        return SendFrame(self.connection, self.number, frame, payload)


def _close(frame: _Opened) -> Frame:
    match frame:
        case frames.ProducerOpened(number):
            return frames.ProducerClose(number)
        case frames.ConsumerOpened(number):
            return frames.ConsumerClose(number)
        case frames.StreamOpened(number):
            return frames.StreamClose(number)


def _check_resume(frame: frames.ConsumerOpen) -> None:
    if any(not 0 <= low < high <= _POSITION_MAX for low, high in frame.held):
        raise RemoteProtocolError("bad-range", f"consumer {frame.consumer} claims positions that cannot be")
    if not -1 <= frame.next_position <= _POSITION_MAX:
        raise RemoteProtocolError("bad-range", f"next position {frame.next_position} is out of range")

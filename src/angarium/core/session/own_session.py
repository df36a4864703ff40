"""What a client manager publishes of its own accord: events to `_LOG`, answers to commands that came as messages.

A session like those of clients, as message managers see it, without a client. It has a producer for each destination
that it publishes to, with one batch under way at a time, and others waiting behind it:

    IDLE --publish--> LOCATING --Located--> OPENING --ProducerOpened--> OPEN --nothing more--> (gone)
                          |                                               |
                          └─ there is no such destination: told, (gone)   └─ closed: told, (gone)

Only the producer of `_LOG` stays when it has nothing to do. It creates no destination: what nobody reads is published
nowhere. When the way to a message manager is lost, everything is located, opened and sent again; sequences make sure
that it is stored once.
"""
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from angarium.core.ids import GlobalIds
from angarium.core.names import EVENT_LOG
from angarium.core.session.events import (
    AskManager,
    Command,
    ManagerReplied,
    OwnMessage,
    OwnPublished,
    PublishOwn,
    ToBus,
)
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Frame
from angarium.core.wire.packing import MessageColumns, pack

REQUESTS_MAX = 1_000  # to message managers, unanswered; past it one more is refused
BATCHES_MAX = 1_000  # under way and waiting, to all destinations; past it one more is refused
_encode = msgspec.msgpack.Encoder().encode


class State(Enum):
    IDLE = "idle"
    LOCATING = "locating"
    OPENING = "opening"
    OPEN = "open"


@dataclass(slots=True)
class _Batch:
    number: int  # of the caller
    payload: bytes
    last_sequence: int
    is_sent: bool = False


@dataclass(slots=True)
class _Producer:
    number: int
    name: str
    kind: DestinationKind
    identity: bytes
    state: State = State.IDLE
    destination: int = 0
    attachment: bytes = b""
    sequence: int = 0  # the last that was given away
    confirmed: int = 0
    is_blocked: bool = False
    batches: deque[_Batch] = field(default_factory=deque)  # the first is under way


class OwnSession:
    def __init__(self, ids: GlobalIds, *, wall_ms_at_zero: float) -> None:
        self._ids = ids
        self._wall_ms_at_zero = wall_ms_at_zero
        self.identity = ids.next()
        self._producers: dict[str, _Producer] = {}  # by name of the destination
        self._number_last = 0
        self._requests: set[int] = set()  # not yet answered

    def handle(self, event: PublishOwn | AskManager, *, now: float) -> list[Command]:
        return self.publish(event, now=now) if isinstance(event, PublishOwn) else self._ask_manager(event)

    # -- publishing --------------------------------------------------------------------------------------

    def publish(self, event: PublishOwn, *, now: float) -> list[Command]:
        if sum(len(producer.batches) for producer in self._producers.values()) >= BATCHES_MAX:
            return [OwnPublished(event.number, "busy", f"{BATCHES_MAX:,} batches of this node are not yet published")]
        producer = self._producers.get(event.destination)
        if producer is None:
            self._number_last += 1
            producer = _Producer(self._number_last, event.destination, event.destination_kind, self._ids.next())
            self._producers[event.destination] = producer
        first, producer.sequence = producer.sequence + 1, producer.sequence + len(event.messages)
        bodies = [message.body for message in event.messages]
        wall_ms = int(self._wall_ms_at_zero + now * 1000)
        payload = pack(producer.identity, first, wall_ms, bodies, _columns(event.messages))
        producer.batches.append(_Batch(event.number, payload, producer.sequence))
        return self._locate(producer) if producer.state is State.IDLE else self._send(producer)

    def _locate(self, producer: _Producer) -> list[Command]:
        producer.state = State.LOCATING
        return [ToBus(self.identity, 0, frames.Locate(producer.name, producer.kind, True))]

    def _send(self, producer: _Producer) -> list[Command]:
        if producer.state is not State.OPEN or producer.is_blocked:
            return []
        if not producer.batches:
            return [] if producer.name == EVENT_LOG else self.close(producer.name)
        batch = producer.batches[0]
        if batch.is_sent:
            return []
        batch.is_sent = True
        return [ToBus(self.identity, producer.destination, frames.Publish(producer.number), batch.payload)]

    def _done(self, producer: _Producer, code: str = "", reason: str = "") -> list[Command]:
        told = OwnPublished(producer.batches.popleft().number, code, reason)
        return [told, *self._send(producer)]

    def _given_up(self, producer: _Producer, code: str, reason: str) -> list[Command]:
        """The next batch begins anew, as another producer: how far this one got is not known."""
        self._producers.pop(producer.name, None)
        return [OwnPublished(batch.number, code, reason) for batch in producer.batches]

    # -- from the bus ------------------------------------------------------------------------------------

    def bus_frame(self, frame: Frame) -> list[Command]:
        match frame:
            case frames.Located(name):
                return self._located(name, frame)
            case frames.ProducerOpened(number, attachment=attachment):
                producer = self._numbered(number)
                if producer is None or producer.state is not State.OPENING or producer.attachment != attachment:
                    return []
                producer.state, producer.is_blocked = State.OPEN, frame.blocked
                return self._send(producer)
            case frames.Confirm(number, sequence):
                producer = self._numbered(number)
                if producer is None or producer.state is not State.OPEN:
                    return []
                producer.confirmed = max(producer.confirmed, sequence)
                is_whole = bool(producer.batches) and producer.batches[0].last_sequence <= sequence
                return self._done(producer) if is_whole else []
            case frames.Refuse(number, _, last, code, reason):
                producer = self._numbered(number)
                is_meant = producer is not None and producer.batches and producer.batches[0].last_sequence == last
                return self._done(producer, code, reason) if producer is not None and is_meant else []
            case frames.ProducerClosed(number, code, reason):
                producer = self._numbered(number)
                return [] if producer is None else self._given_up(producer, code, reason)
            case frames.Block(number) | frames.Unblock(number):
                producer = self._numbered(number)
                if producer is None:
                    return []
                producer.is_blocked = isinstance(frame, frames.Block)
                return self._send(producer)
            case frames.Reply():
                return self._replied(frame)
            case frames.Failure(code, reason):
                producers = list(self._producers.values())
                return [told for producer in producers for told in self._given_up(producer, code, reason)]
        return []

    def _located(self, name: str, frame: frames.Located) -> list[Command]:
        producer = self._producers.get(name)
        if producer is None or producer.state is not State.LOCATING:
            return []
        if not frame.destination:
            return self._given_up(producer, frame.code, frame.reason)
        producer.state, producer.destination = State.OPENING, frame.destination
        producer.attachment = self._ids.next()
        opening = frames.ProducerOpen(
            producer.number, name, producer.kind, producer.identity, producer.confirmed, producer.attachment
        )
        return [ToBus(self.identity, frame.destination, opening)]

    def _numbered(self, number: int) -> _Producer | None:
        return next((producer for producer in self._producers.values() if producer.number == number), None)

    # -- requests ------------------------------------------------------------------------------------------

    def _ask_manager(self, event: AskManager) -> list[Command]:
        number = event.frame.number
        if len(self._requests) >= REQUESTS_MAX:
            reason = f"this node has {REQUESTS_MAX:,} unanswered requests; ask again"
            return [ManagerReplied(frames.Reply(number, "busy", reason))]
        self._requests.add(number)
        return [ToBus(self.identity, 0, event.frame)]

    def _replied(self, reply: frames.Reply) -> list[Command]:
        if reply.number not in self._requests:
            return []
        self._requests.discard(reply.number)
        return [ManagerReplied(reply)]

    # -- the ways to message managers ----------------------------------------------------------------------

    def way_lost(self) -> list[Command]:
        """To some message manager: whatever is under way anywhere begins anew."""
        reason = "the message manager changed before it replied; it may have been done or not"
        lost, self._requests = self._requests, set()
        commands: list[Command] = [
            ManagerReplied(frames.Reply(number, "request-lost", reason)) for number in sorted(lost)
        ]
        for producer in self._producers.values():
            producer.state, producer.is_blocked = State.IDLE, False
            if producer.batches:
                producer.batches[0].is_sent = False
                commands += self._locate(producer)
        return commands

    def close(self, name: str) -> list[Command]:
        """Nothing more is published there: what the destination remembers of it may go."""
        producer = self._producers.pop(name, None)
        if producer is None or producer.state is not State.OPEN:
            return []
        return [ToBus(self.identity, producer.destination, frames.ProducerClose(producer.number))]


def _columns(messages: Sequence[OwnMessage]) -> MessageColumns:
    headers = [_encode(message.headers) if message.headers else b"" for message in messages]
    properties = [_encode(message.properties) if message.properties else b"" for message in messages]
    return MessageColumns(
        headers=headers if any(headers) else None, properties=properties if any(properties) else None
    )

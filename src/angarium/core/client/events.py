"""What goes into and comes out of the client's machine (`core.client.connection`).

Numbers of sessions, producers, consumers and requests are chosen by the caller, ascending, never used twice.

The driver's duties:
- `Connect`: try to reach that address; answer with `Connected` or `Disconnected`.
- `SendBytes`: write the buffers, in order.
- `CloseTransport`: drop the transport or the attempt to connect. Nothing more is reported of it, not even
  `Disconnected`, and `Connect` may follow.
- Everything else is a notification for the application.
- After `ConnectionFailed` or `ConnectionClosed` the machine takes no more events.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from angarium.core.client.gathered import Gathered
from angarium.core.client.stream_events import StreamNotice, StreamRequest
from angarium.core.errors import AngariumError
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.codec import Received
from angarium.core.wire.frames import DestinationKind, PatternSyntax, Start

# -- facts, from the driver ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected: ...


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The transport ended, or could not be made."""

    reason: str


@dataclass(frozen=True, slots=True)
class FramesReceived:
    frames: list[Received]


@dataclass(frozen=True, slots=True)
class InputViolated:
    """The frame parser gave up: the bytes are not the protocol's."""

    code: str
    reason: str
    start: bytes = b""  # of the offending input, to guess what the peer speaks


@dataclass(frozen=True, slots=True)
class WritingPaused:
    """The transport's buffer is full: no new batch is packed until `WritingResumed`."""


@dataclass(frozen=True, slots=True)
class WritingResumed: ...


@dataclass(frozen=True, slots=True)
class Tick:
    """`deadline()` has passed."""


# -- requests, from the application --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """The first event. Ends in `ConnectionReady` or `ConnectionFailed`."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Says Goodbye and ends everything now: close sessions first to lose nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenSession:
    session: int
    transacted: bool = False  # it sends and settles by `Commit`


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Ends in `SessionEnded`, when everything sent is confirmed and every settlement durable, or at the timeout."""

    session: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Sync:
    """Ends in `Synced`, when the session's settlements so far are durable."""

    session: int
    token: int


@dataclass(frozen=True, slots=True)
class OpenProducer:
    session: int
    producer: int
    destination: str
    destination_kind: DestinationKind


@dataclass(frozen=True, slots=True)
class Publish:
    """At most one batch of messages. Their sequences follow those of the Publish before, the first is 1."""

    session: int
    producer: int
    messages: Gathered


@dataclass(frozen=True, slots=True)
class CloseProducer:
    """For a producer with nothing unconfirmed."""

    session: int
    producer: int


@dataclass(frozen=True, slots=True)
class OpenConsumer:
    session: int
    consumer: int
    destination: str
    destination_kind: DestinationKind
    prefetch: int  # messages held unsettled at most
    subscription: str = ""
    start: Start = Start.NEXT
    selector: str = ""
    shared: bool = False
    durable: bool = True  # of a named subscription
    no_local: bool = False
    exclusive: bool = False
    existing: bool = False  # refused if the destination does not exist


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Ends in `WatchFound`, again and again, or in `WatchEnded`."""

    session: int
    watch: int
    pattern: str
    syntax: PatternSyntax
    destination_kind: DestinationKind


@dataclass(frozen=True, slots=True)
class CloseWatch:
    """Nothing follows."""

    session: int
    watch: int


@dataclass(frozen=True, slots=True)
class SetPrefetch:
    session: int
    consumer: int
    prefetch: int


@dataclass(frozen=True, slots=True)
class Settle:
    """What the application has settled since the last time. It must hold all of it."""

    session: int
    consumer: int
    settled: Sequence[Range] = ()
    rejected: Sequence[Range] = ()
    released: Sequence[Range] = ()
    returned: Sequence[Range] = ()  # as if they had never been delivered


@dataclass(frozen=True, slots=True)
class Recover:
    """Give back all that the consumer holds. Ends in `Recovered`; until then nothing arrives."""

    session: int
    consumer: int
    unseen: Sequence[Range] = ()  # not yet in the application's hands: goes back as if never delivered


@dataclass(frozen=True, slots=True)
class Commit:
    """All of this or nothing, in a transacted session. Ends in `Committed` or `Aborted`."""

    session: int
    publishes: Sequence[tuple[int, Sequence[Gathered]]]  # producer, messages: each part at most one batch
    settles: Sequence[tuple[int, Sequence[Range]]]  # consumer, positions


@dataclass(frozen=True, slots=True)
class CloseConsumer:
    """Ends in `ConsumerEnded` with an empty code, when earlier settlements are durable."""

    session: int
    consumer: int
    unsubscribe: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """Ends in `RequestAnswered` or `RequestLost`."""

    number: int
    command: str
    arguments: dict[str, Any]


Event = (
    Connected | Disconnected | FramesReceived | InputViolated | WritingPaused | WritingResumed | Tick
    | OpenConnection | CloseConnection | OpenSession | CloseSession | Sync | OpenProducer | Publish | CloseProducer
    | OpenConsumer | SetPrefetch | Settle | Recover | Commit | CloseConsumer | Request
    | OpenWatch | CloseWatch
    | StreamRequest
)  # fmt: skip

# -- commands to the driver ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SendBytes:
    buffers: list[bytes]


@dataclass(frozen=True, slots=True)
class CloseTransport:
    reason: str
    abort: bool = False  # what was not yet written is worthless


# -- notifications -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectionReady:
    """After each handshake; sessions resume by themselves."""

    node: str
    frame_bytes_max: int
    body_bytes_max: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The machine tries again by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """For good: every session, producer, consumer and request has ended with this error."""

    error: AngariumError


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """As asked by `CloseConnection`; whatever was still open has ended."""


@dataclass(frozen=True, slots=True)
class SessionReady:
    session: int
    identity: bytes


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Its producers and consumers have ended with it. Empty code: as asked."""

    session: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Synced:
    """Empty code: durable."""

    session: int
    token: int
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProducerReady:
    session: int
    producer: int
    identity: bytes


@dataclass(frozen=True, slots=True)
class Confirmed:
    """All up to `sequence` are confirmed but those reported by `Refused`."""

    session: int
    producer: int
    sequence: int
    cost: int  # of the batches that this finished
    count: int  # messages in those


@dataclass(frozen=True, slots=True)
class Refused:
    """The messages `first` to `last` will never be stored."""

    session: int
    producer: int
    first: int
    last: int
    code: str
    reason: str
    cost: int
    count: int


@dataclass(frozen=True, slots=True)
class ProducerEnded:
    """What is unconfirmed has failed."""

    session: int
    producer: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    session: int
    producer: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    session: int
    producer: int


@dataclass(frozen=True, slots=True)
class ConsumerReady:
    session: int
    consumer: int


@dataclass(frozen=True, slots=True)
class MessagesArrived:
    """Messages `low` to `high` - 1 of the batch, whose first has `position`; the others were here before."""

    session: int
    consumer: int
    batch: Batch
    position: int
    redeliveries: list[int]
    low: int
    high: int
    positions: Sequence[int] = ()  # of all messages of the batch, when they are not consecutive


@dataclass(frozen=True, slots=True)
class MessagesDropped:
    """The subscription was too far behind: so many of its oldest messages will not come."""

    session: int
    consumer: int
    count: int


@dataclass(frozen=True, slots=True)
class PositionsLost:
    """Held, and no longer this consumer's: somebody else will get or got them. They need no settling."""

    session: int
    consumer: int
    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class SettlementsLost:
    """Settled here, but not this consumer's to settle any more: somebody else may have got them as well."""

    session: int
    consumer: int
    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was held has gone back; it may arrive again from now on."""

    session: int
    consumer: int


@dataclass(frozen=True, slots=True)
class Committed:
    session: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Nothing of the commit was done. What it was to settle is still held: recover it."""

    session: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """Empty code: as asked."""

    session: int
    consumer: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchFound:
    session: int
    watch: int
    destination_kind: DestinationKind
    names: list[str]  # some may have been told before
    created: bool  # since the watch was opened, or opened again
    complete: bool  # all that existed then have been told


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """Refused."""

    session: int
    watch: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """Empty code: done."""

    number: int
    code: str
    reason: str
    result: Any = None
    payload: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RequestLost:
    """The connection went before the reply came: it may have been done or not."""

    number: int
    reason: str


Command = (
    Connect | SendBytes | CloseTransport
    | ConnectionReady | ConnectionLost | ConnectionFailed | ConnectionClosed
    | SessionReady | SessionEnded | Synced
    | ProducerReady | Confirmed | Refused | ProducerEnded | Blocked | Unblocked
    | ConsumerReady | MessagesArrived | MessagesDropped | PositionsLost | SettlementsLost | Recovered | ConsumerEnded
    | Committed | Aborted
    | RequestAnswered | RequestLost
    | WatchFound | WatchEnded
    | StreamNotice
)  # fmt: skip

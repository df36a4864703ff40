"""Every frame of the protocol, as a type.

A frame is a fixed header, a MessagePack array (`meta`: the fields below, in order) and, for a few, a payload.
`wire.codec` turns them into bytes and back. The same frames travel between client and client manager and, inside
an envelope that names session and destination, on the bus. New fields may only be appended, with a default: a
peer ignores those that it does not know.

`session` numbers are the client's; 0 is the connection itself. `producer` and `consumer` numbers are the
client's too, unique within their session.
"""
from enum import IntEnum
from typing import Any, ClassVar

import msgspec

from angarium.core.ranges import Range

PROTOCOL_VERSION = 1
LANE_BITS = 56  # of a position; those above say of which lane it is: each priority that is used has one
PORT_DEFAULT = 4560  # where clients look for a broker


class DestinationKind(IntEnum):
    ANY = 0  # in a request: whatever exists; a queue if nothing does
    QUEUE = 1
    TOPIC = 2


class Outcome(IntEnum):
    SETTLE = 1  # done with: never delivered again
    REJECT = 2  # cannot be processed: taken off the subscription and counted as rejected
    RELEASE = 3  # give it back: delivered again, with a higher redelivery count
    RETURN = 4  # give it back as if it had never been delivered


class Start(IntEnum):
    """Where a new subscription begins; one that exists goes on where it was."""

    NEXT = 0  # with the first message published from now on
    OLDEST = 1  # with the oldest message still stored


class PatternSyntax(IntEnum):
    GLOB = 0
    REGEX = 1


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    kind: ClassVar[int]


# -- the connection ------------------------------------------------------------------------------


class Hello(Frame, frozen=True):
    """The client's first frame."""

    kind = 1
    version: int
    client: str  # free text for people: program and host
    product: str  # library and version
    identity: bytes = b""  # of the connection, as the Welcome of an earlier link told it; empty: a new one


class Welcome(Frame, frozen=True):
    """The client manager's answer: from here on, sessions may be opened."""

    kind = 2
    version: int
    node: str  # name of the node, for people
    incarnation: bytes  # a global id, fresh at each start of the node
    frame_bytes_max: int  # a longer frame closes the connection
    body_bytes_max: int  # of one message
    unconfirmed_bytes_max: int  # of published and unconfirmed batches in one session
    heartbeat_s: float  # the client manager sends something at least this often
    addresses: list[str] = []  # other client managers of the cluster
    identity: bytes = b""  # of the connection: the client repeats it when it connects again


class Ping(Frame, frozen=True):
    """Asks for a Pong with the same number."""

    kind = 3
    number: int


class Pong(Frame, frozen=True):
    kind = 4
    number: int


class Goodbye(Frame, frozen=True):
    """Sender will close the connection; nothing is wrong."""

    kind = 5
    reason: str


class Failure(Frame, frozen=True):
    """The peer broke the protocol; the connection is closed after this frame."""

    kind = 6
    code: str
    reason: str


# -- sessions ------------------------------------------------------------------------------------


class SessionOpen(Frame, frozen=True):
    kind = 10
    identity: bytes = b""  # empty: a new session; else the one to resume
    transacted: bool = False  # it sends and settles by Commit only


class SessionOpened(Frame, frozen=True):
    kind = 11
    identity: bytes


class SessionClose(Frame, frozen=True):
    """Ends producers and consumers; unsettled messages go back. The client has waited for its confirms before."""

    kind = 12


class SessionClosed(Frame, frozen=True):
    """Answer to SessionClose (code empty), or the broker's own decision (`session-taken`)."""

    kind = 13
    code: str = ""
    reason: str = ""


# -- producing -----------------------------------------------------------------------------------


class ProducerOpen(Frame, frozen=True):
    kind = 20
    producer: int
    destination: str
    destination_kind: DestinationKind
    identity: bytes = b""  # empty: a new producer; else the one to resume
    confirmed: int = 0  # every sequence up to here is known to be confirmed
    attachment: bytes = b""  # on the bus: of the session to this connection; the answer repeats it
    client: bytes = b""  # on the bus: the identity of the connection


class ProducerOpened(Frame, frozen=True):
    kind = 21
    producer: int
    identity: bytes
    sequence: int  # the last sequence the log has accepted: resend what follows
    attachment: bytes = b""


class Publish(Frame, frozen=True):
    """Payload: one batch whose producer is the identity of this producer."""

    kind = 22
    producer: int


class Confirm(Frame, frozen=True):
    """Every message up to and including `sequence` is as durable as its destination promises."""

    kind = 23
    producer: int
    sequence: int


class Refuse(Frame, frozen=True):
    """The messages `first` to `last` were not and never will be stored; later ones may be."""

    kind = 24
    producer: int
    first: int
    last: int
    code: str
    reason: str


class Block(Frame, frozen=True):
    """The destination cannot take more now. What was sent stays accepted and is confirmed later."""

    kind = 25
    producer: int
    code: str
    reason: str


class Unblock(Frame, frozen=True):
    kind = 26
    producer: int


class ProducerClose(Frame, frozen=True):
    kind = 27
    producer: int


class ProducerClosed(Frame, frozen=True):
    """The broker could not open the producer, or ended it: what is unconfirmed was not stored."""

    kind = 28
    producer: int
    code: str
    reason: str


# -- consuming -----------------------------------------------------------------------------------


class ConsumerOpen(Frame, frozen=True):
    """Opens or, after a reconnection, takes up a consumer.

    A consumer that resumes sends the positions it still holds unsettled, then its unanswered settlements,
    and only then credit: so nothing is delivered to it before the broker knows what it has.
    """

    kind = 30
    consumer: int
    destination: str
    destination_kind: DestinationKind
    subscription: str = ""  # durable name on a topic; empty: the queue itself, or this consumer alone
    start: Start = Start.NEXT
    credit: int = 0  # see Credit
    resumed: bool = False
    held: list[Range] = []
    next_position: int = -1  # of a resumed, not durable subscription: the first position not yet received
    attachment: bytes = b""  # on the bus: of the session to this connection; the answer repeats it
    selector: str = ""  # only messages that it is true of; empty: all
    shared: bool = False  # a subscription that several consumers divide among them
    durable: bool = True  # of a named subscription: it stays when nobody consumes from it
    no_local: bool = False  # nothing that the same connection has sent
    exclusive: bool = False  # one consumer at a time; the others wait
    client: bytes = b""  # on the bus: the identity of the connection
    existing: bool = False  # the destination is not created if it does not exist
    next_positions: list[int] = []  # as `next_position`, in the lanes beyond the first


class ConsumerOpened(Frame, frozen=True):
    kind = 31
    consumer: int
    lost: list[Range] = []  # held positions that are no longer this consumer's
    attachment: bytes = b""
    position: int = -1  # where a subscription that is not durable goes on: its client repeats it when it resumes
    positions: list[int] = []  # the same, in the lanes beyond the first


class Credit(Frame, frozen=True):
    """The consumer accepts `limit` messages in all, counted from its ConsumerOpen. It may be lowered."""

    kind = 32
    consumer: int
    limit: int


class Deliver(Frame, frozen=True):
    """Payload: one batch; its messages have the positions `position`, `position` + 1, ..., or those in `ranges`."""

    kind = 33
    consumer: int
    position: int
    redeliveries: list[int] = []  # how often each was delivered before; empty: never
    ranges: list[Range] = []  # positions of the messages in order, ascending, when they are not consecutive

    def positions(self, count: int) -> list[int]:
        """Of each of the `count` messages."""
        ranges = self.ranges or [(self.position, self.position + count)]
        return [position for low, high in ranges for position in range(low, high)]


class Settle(Frame, frozen=True):
    kind = 34
    consumer: int
    number: int  # 1, 2, 3, ... within the consumer
    outcome: Outcome
    ranges: list[Range]
    credit: int = -1  # as Credit, or -1: unchanged


class Settled(Frame, frozen=True):
    """Settlements up to `number` are durable."""

    kind = 35
    consumer: int
    number: int
    lost: list[Range] = []  # positions that were not this consumer's to settle


class ConsumerClose(Frame, frozen=True):
    """Unsettled messages go back. Answered by ConsumerClosed with an empty code, after earlier settlements."""

    kind = 36
    consumer: int
    unsubscribe: bool = False  # also end the durable subscription


class ConsumerClosed(Frame, frozen=True):
    """The consumer has ended: asked for (code empty), refused, or by the broker."""

    kind = 37
    consumer: int
    code: str = ""
    reason: str = ""


class Recover(Frame, frozen=True):
    """Everything that the consumer holds goes back, what is in `seen` with a higher redelivery count."""

    kind = 38
    consumer: int
    number: int  # 1, 2, 3, ... within the consumer
    seen: list[Range]


class Recovered(Frame, frozen=True):
    """What was delivered before this is void; it comes again after it."""

    kind = 39
    consumer: int
    number: int


class Dropped(Frame, frozen=True):
    """The subscription was too far behind: so many of its oldest messages are gone."""

    kind = 42
    consumer: int
    count: int


# -- administration ------------------------------------------------------------------------------


class Request(Frame, frozen=True):
    kind = 40
    number: int
    command: str
    arguments: dict[str, Any]
    client: bytes = b""  # on the bus: the identity of the connection


class Reply(Frame, frozen=True):
    """Answers the request of that number. Payload: the batches that `result` describes, if any."""

    kind = 41
    number: int
    code: str  # empty: done
    reason: str
    result: Any = None


# -- transactions --------------------------------------------------------------------------------


class Commit(Frame, frozen=True):
    """Sends and settlements of a session, all or nothing. Payload: the batches, one after the other."""

    kind = 60
    number: int  # 1, 2, 3, ... within the session; one that is sent again is done once
    publishes: list[tuple[int, int]]  # producer, bytes of its batch in the payload
    settles: list[tuple[int, list[Range]]]  # consumer, positions


class Committed(Frame, frozen=True):
    """All of it is durable."""

    kind = 61
    number: int


class Aborted(Frame, frozen=True):
    """Nothing of it was done: the client still holds what it would have settled, and gives it back with Recover."""

    kind = 62
    number: int
    code: str
    reason: str
    attachment: bytes = b""  # to which sending of the commit this is the answer


# -- between client manager and message manager, on the bus only -----------------------------------


class Locate(Frame, frozen=True):
    """Asks which destination has this name; creates it if none has."""

    kind = 50
    name: str
    destination_kind: DestinationKind
    existing: bool = False  # do not create it


class Located(Frame, frozen=True):
    """`destination` 0: refused with `code`."""

    kind = 51
    name: str
    asked_kind: DestinationKind
    destination: int
    destination_kind: DestinationKind
    code: str = ""
    reason: str = ""
    existing: bool = False  # as asked


class TransactionCommit(Frame, frozen=True):
    """A Commit whose producers and consumers the client manager has looked up. Payload: as there."""

    kind = 54
    number: int
    publishes: list[tuple[int, int, int]]  # destination, producer, bytes of its batch in the payload
    settles: list[tuple[int, int, list[Range]]]  # destination, consumer, positions
    attachment: bytes = b""


class SessionEnded(Frame, frozen=True):
    """The session is gone: closed by its client, or cut off (it may resume within the grace time)."""

    kind = 52
    closed: bool


class Stall(Frame, frozen=True):
    """The session's connection does not take more for now (or does again): its consumers are passed over."""

    kind = 53
    stalled: bool


class ClientHere(Frame, frozen=True):
    """The connection of that identity has come back."""

    kind = 56
    client: bytes


class ClientEnded(Frame, frozen=True):
    """The connection is gone: closed by its client, or cut off (it may come back within the grace time)."""

    kind = 57
    client: bytes
    closed: bool


# -- streams: bodies too long for a frame ------------------------------------------------------------


class StreamOpen(Frame, frozen=True):
    """Opens a stream to be written, or takes one up again after a reconnection. Answered by StreamOpened or
    StreamClosed. The content becomes a message when one with the header `stream` is published there."""

    kind = 70
    stream: int
    destination: str
    destination_kind: DestinationKind
    identity: bytes = b""  # empty: a new stream; else the one to resume
    resumed: bool = False  # it is one to resume
    attachment: bytes = b""  # on the bus: of the session to this connection; the answer repeats it


class StreamOpened(Frame, frozen=True):
    kind = 71
    stream: int
    identity: bytes
    stored: int  # fragments that are durable: the sender need not keep them
    following: int  # the fragment to go on with
    limit: int  # fragments that may be sent in all, for now
    fragment_bytes: int  # every fragment but the last is exactly this long
    attachment: bytes = b""


class StreamFragment(Frame, frozen=True):
    """Payload: the fragment of that number; only the last may be shorter than the others, or empty."""

    kind = 72
    stream: int
    number: int  # 0, 1, 2, ...
    crc: int  # crc32 of the payload
    last: bool = False


class StreamStored(Frame, frozen=True):
    """How far the stream is. With a code, nothing can be written for now, and the reason why."""

    kind = 73
    stream: int
    stored: int  # fragments that are durable
    limit: int  # fragments that may be sent in all
    code: str = ""
    reason: str = ""


class StreamClose(Frame, frozen=True):
    """The client is done with it. Unless a message holds it by now, it is deleted. Nothing is answered."""

    kind = 74
    stream: int


class StreamClosed(Frame, frozen=True):
    """The broker could not open the stream, or gave it up: nothing of it is kept."""

    kind = 75
    stream: int
    code: str
    reason: str


class StreamRead(Frame, frozen=True):
    """Read the stream of the message at `position`, from fragment `first` on: one that `consumer` holds or, with
    consumer -1, any that is stored in `destination`."""

    kind = 76
    reader: int
    consumer: int
    position: int
    first: int
    limit: int  # one past the last fragment that may be sent, for now
    destination: str = ""
    attachment: bytes = b""  # on the bus; what is sent for it repeats it


class StreamData(Frame, frozen=True):
    """Payload: the fragment of that number. After the last the reader is closed."""

    kind = 77
    reader: int
    number: int
    crc: int
    last: bool = False
    attachment: bytes = b""


class StreamCredit(Frame, frozen=True):
    kind = 78
    reader: int
    limit: int  # as in StreamRead


class StreamReadEnd(Frame, frozen=True):
    """From a client: it reads no further, and is not answered. From the broker: it cannot be read (any further)."""

    kind = 79
    reader: int
    code: str = ""
    reason: str = ""
    attachment: bytes = b""


# -- watches: which destinations match a pattern ------------------------------------------------------


class Watch(Frame, frozen=True):
    """Asks which destinations match the pattern, and to be told of each new one. Ends with the session's connection."""

    kind = 80
    watch: int
    pattern: str
    syntax: PatternSyntax = PatternSyntax.GLOB
    destination_kind: DestinationKind = DestinationKind.ANY
    attachment: bytes = b""  # on the bus: of the session to this connection; what is answered repeats it


class WatchFound(Frame, frozen=True):
    kind = 81
    watch: int
    destination_kind: DestinationKind
    names: list[str]
    created: bool = False  # they were created after the watch was opened
    complete: bool = False  # all that existed then have been told; nothing else is in such a frame
    attachment: bytes = b""


class WatchClose(Frame, frozen=True):
    """Nothing is answered."""

    kind = 82
    watch: int


class WatchClosed(Frame, frozen=True):
    """The broker could not open the watch."""

    kind = 83
    watch: int
    code: str
    reason: str
    attachment: bytes = b""


FRAMES: dict[int, type[Frame]] = {
    frame.kind: frame
    for frame in (
        Hello, Welcome, Ping, Pong, Goodbye, Failure,
        SessionOpen, SessionOpened, SessionClose, SessionClosed,
        ProducerOpen, ProducerOpened, Publish, Confirm, Refuse, Block, Unblock, ProducerClose, ProducerClosed,
        ConsumerOpen, ConsumerOpened, Credit, Deliver, Settle, Settled, ConsumerClose, ConsumerClosed,
        Recover, Recovered, Dropped,
        Request, Reply,
        TransactionCommit, Locate, Located, SessionEnded, Stall, ClientHere, ClientEnded,
        Commit, Committed, Aborted,
        StreamOpen, StreamOpened, StreamFragment, StreamStored, StreamClose, StreamClosed,
        StreamRead, StreamData, StreamCredit, StreamReadEnd,
        Watch, WatchFound, WatchClose, WatchClosed,
    )
}  # fmt: skip

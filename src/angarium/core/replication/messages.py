"""What the replicas of a group say to each other.

Every message names its group and the sender's epoch; one of a lower epoch than the receiver's is answered with
`Stale` and otherwise ignored, one of a higher epoch is ignored until the receiver has the configuration, too. On the
wire a message is a MessagePack array that begins with the name of its type; bytes that are stored, or that may be long,
follow it as payload. `Order` goes to all over the group's channel, or to one replica that asked for it (then without
references); everything else has one receiver.

Anything but the channel's order may be lost, when a link breaks; whoever needs an answer asks again.
"""
from collections.abc import Iterable, Sequence

import msgspec

from angarium.core.errors import RemoteProtocolError
from angarium.core.groups.configuration import Position, Replica
from angarium.core.malformed import MALFORMED
from angarium.core.storage import DeleteRange, Operation, Put, Table


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """Where bytes have been that every replica has heard: in a message on the group's channel."""

    sender: bytes  # incarnation
    sequence: int  # of its stream
    offset: int
    length: int


class _Tagged(msgspec.Struct, frozen=True, array_like=True, tag=True): ...


class PutHere(_Tagged, frozen=True):
    """A `Put` whose value is the next `length` bytes of the payload."""

    table: Table
    key: bytes
    length: int


class PutThere(_Tagged, frozen=True):
    """A `Put` whose value every replica has heard already."""

    table: Table
    key: bytes
    value: Reference


class Delete(_Tagged, frozen=True):
    table: Table
    low: bytes
    high: bytes


WireOperation = PutHere | PutThere | Delete


class OrderedWrite(msgspec.Struct, frozen=True, array_like=True):
    epoch: int  # in which it was ordered; a later primary passes it on as it is
    operations: list[WireOperation]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    group: str
    epoch: int


# -- orders ------------------------------------------------------------------------------------------


class Order(Message, frozen=True):
    """Primary: the writes that follow `previous`. Without any it is a heartbeat."""

    previous: Position
    committed: int  # every in-sync replica has all up to here
    last: int  # number of the primary's last order so far
    writes: list[OrderedWrite]


class Ack(Message, frozen=True):
    """Backup: all up to this number is on my disk."""

    number: int


class AskOrders(Message, frozen=True):
    """Backup: send me, in full, what follows."""

    after: Position


class Hello(Message, frozen=True):
    """Whoever is not primary, at each change of the configuration and whenever it is lost: this is how far I am."""

    position: Position
    is_copying: bool = False  # what is below the guest's cursor is as of `position`, the rest is not there yet
    avoid: Replica | None = None  # this host did not answer


class Welcome(Message, frozen=True):
    """Primary: what you have is a part of my history, and I still have what follows."""

    committed: int
    last: int
    host: Replica | None = None  # for one that is copying: go on from there


class MustCopy(Message, frozen=True):
    """Primary: what you have is not part of my history, or too old. Copy from `host`, and take the orders after
    `start`."""

    host: Replica
    start: Position
    history: list[tuple[int, int]]  # epoch, its first number: up to `start`
    reason: str
    after: Position | None = None  # what you said that you have, which this answers


class Stale(Message, frozen=True):
    """To whoever sent something of a lower epoch: there is a newer one."""


# -- copying -----------------------------------------------------------------------------------------


class RangeAsk(Message, frozen=True):
    """Guest: what do you have in here, unless it has this digest?"""

    request: int
    table: Table
    low: bytes
    high: bytes
    digest: bytes
    at_least: int  # answer only when your store has this order


class RangeSame(Message, frozen=True):
    request: int
    before: int  # the host's store was between these two when it was read
    after: int
    rows: int = 0  # in the range
    whole: int = 0  # rows of all ranges, about: to say how far the copy is


class RangePart(Message, frozen=True):
    """What the host has in [low, high); the payload is `pack_items` of it. `high` may be lower than was asked."""

    request: int
    high: bytes
    before: int
    after: int
    rows: int = 0
    whole: int = 0


class RangeLater(Message, frozen=True):
    """The host cannot answer now: ask again, or elsewhere."""

    request: int
    reason: str


# -- files of large messages ---------------------------------------------------------------------------


class FileBlock(Message, frozen=True):
    """Primary, or a host that was asked: a block of a stream. Its content is the payload, unless it is said where it
    has been heard."""

    stream: bytes
    number: int
    crc: int
    is_last: bool
    content: Reference | None = None
    is_packed: bool = False  # the payload is compressed; `crc` is of the content


class FileSync(Message, frozen=True):
    """Primary: so many blocks are there, and so many shall be durable. Say so when you have them."""

    stream: bytes
    written: int
    synced: int


class FileDelete(Message, frozen=True):
    stream: bytes


class FileGone(Message, frozen=True):
    """Primary: I do not have it any more."""

    stream: bytes


class FileAck(Message, frozen=True):
    """Backup: so many blocks are written, so many durable."""

    stream: bytes
    written: int
    synced: int


class BlocksAsk(Message, frozen=True):
    """Backup: send me blocks of a file, from this one on, before that one."""

    stream: bytes
    first: int
    end: int


class FilesAsk(Message, frozen=True):
    """Backup that is in sync: I have these. Say FileDelete of those that neither you nor any message has."""

    streams: list[bytes]


ReplicaMessage = (
    Order | Ack | AskOrders | Hello | Welcome | MustCopy | Stale | RangeAsk | RangeSame | RangePart | RangeLater
    | FileBlock | FileSync | FileDelete | FileGone | FileAck | BlocksAsk | FilesAsk
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[ReplicaMessage] = msgspec.msgpack.Decoder(ReplicaMessage)


def encode(message: ReplicaMessage) -> bytes:
    return _encode(message)


def decode(data: bytes) -> ReplicaMessage:
    try:
        return _decoder.decode(data)
    except MALFORMED as error:
        raise RemoteProtocolError("bad-message", f"a message between replicas: {error}") from None


# -- operations --------------------------------------------------------------------------------------


def pack_operations(
    operations: Iterable[Operation], references: dict[int, Reference], payload: list[bytes]
) -> list[WireOperation]:
    """`references`: of values that have been heard, by their identity as objects. Other values go to `payload`."""
    packed: list[WireOperation] = []
    for operation in operations:
        if isinstance(operation, DeleteRange):
            packed.append(Delete(operation.table, operation.low, operation.high))
        elif (reference := references.get(id(operation.value))) is not None:
            packed.append(PutThere(operation.table, operation.key, reference))
        else:
            packed.append(PutHere(operation.table, operation.key, len(operation.value)))
            payload.append(operation.value)
    return packed


def unpack_writes(writes: Sequence[OrderedWrite], payload: bytes) -> list[list[Operation | PutThere]]:
    """What has only been referred to stays as it is."""
    offset = 0
    unpacked: list[list[Operation | PutThere]] = []
    for write in writes:
        operations: list[Operation | PutThere] = []
        for operation in write.operations:
            if isinstance(operation, PutHere):
                end = offset + operation.length
                if operation.length < 0 or end > len(payload):
                    reason = f"an order's values end at {end:,}, its payload at {len(payload):,}"
                    raise RemoteProtocolError("bad-message", reason)
                operations.append(Put(operation.table, operation.key, payload[offset:end]))
                offset = end
            elif isinstance(operation, PutThere):
                operations.append(operation)
            else:
                operations.append(DeleteRange(operation.table, operation.low, operation.high))
        unpacked.append(operations)
    return unpacked

"""Datagrams of the bus: the header, and the bodies of those that carry no data.

     0  u8  version
     1  u8  kind
     2  u16 flags: zero
     4  u32 channel
     8  u64 cluster: the first 8 bytes of BLAKE2b of its name
    16  16s incarnation of the sender
    32  u64 sequence: of the stream for Data, else a counter of everything else this sender says on the channel
    40  u32 view in which it was sent
    44  u16 length of what follows the header
    46  u16 lag: of Data, how far its sequence is above the lowest that some receiver has not acknowledged
    48  the body, sealed (`seal.py`), the header as associated data; 16 bytes of it are the tag

Little-endian. The same bytes are sent again as a repair, by whoever has them.

A stream is the bytes of its messages, each after its length (u32), cut into Data datagrams wherever one is full. The
messages that were sent together end with a datagram of their own.
"""
import struct
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

VERSION = 1
HEADER = struct.Struct("<BBHIQ16sQIHH")
HEADER_BYTES = HEADER.size
INCARNATION_AT = 16
INCARNATION_BYTES = 16
# The header in two: what is the same for all data of a stream, and what changes.
STREAM_HEADER = struct.Struct("<BBHIQ16s")
STREAM_HEADER_BYTES = STREAM_HEADER.size
CHANGING_HEADER = struct.Struct("<QIHH")
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
LENGTH = struct.Struct("<I")


class Kind(IntEnum):
    DATA = 1
    HEARTBEAT = 2  # sender to all: how far the stream goes
    ACK = 3  # receiver to sender
    NAK = 4  # receiver to whoever repairs
    JOIN = 5  # receiver to sender: where does your stream begin for me?
    START = 6  # the answer
    EVICT = 7  # sender to receiver: the stream went on without you
    HAVE = 8  # receiver to receiver: how far I got with a stream whose sender is gone
    PROBE = 9  # to all on a link, or to one: do you hear me?


class Header(NamedTuple):
    version: int
    kind: int
    flags: int
    channel: int
    cluster: int
    incarnation: bytes
    sequence: int
    view: int
    length: int
    lag: int


class Heartbeat(NamedTuple):
    next: int  # first sequence that was not sent yet
    floor: int  # lowest that some receiver has not acknowledged
    stamp: int  # the sender's clock in µs, modulo 2**32; never 0
    rtt_us: int  # the longest round trip to a receiver


class Ack(NamedTuple):
    stream: bytes  # incarnation whose stream it is
    join: int
    next: int  # everything below has arrived
    window: int  # datagrams from there on that have room
    echo: int  # stamp of the heartbeat or start that it answers at once; else 0


class Nak(NamedTuple):
    stream: bytes
    low: int  # first that is missing
    missing: bytes  # a bit for each sequence from `low` on, lowest bit first: 1 is missing


class Join(NamedTuple):
    stream: bytes
    join: int  # ascends with every stream that this receiver begins or begins again


class Start(NamedTuple):
    receiver: bytes
    join: int
    sequence: int
    number: int  # of the message that begins there
    stamp: int


class Evict(NamedTuple):
    receiver: bytes
    join: int


class Have(NamedTuple):
    stream: bytes
    next: int  # everything below has arrived; 0: no part in this stream
    low: int  # what is kept for others begins here
    got: int  # 1: something has arrived; 0: the stream was to begin at `next`, and did not
    wanted: int  # 1: an answer is wanted


class Probe(NamedTuple):
    link: int  # -1: to the unicast port


Body = Heartbeat | Ack | Nak | Join | Start | Evict | Have | Probe

_LAYOUTS: dict[int, tuple[struct.Struct, type[Body]]] = {
    Kind.HEARTBEAT: (struct.Struct("<QQII"), Heartbeat),
    Kind.ACK: (struct.Struct("<16sIQII"), Ack),
    Kind.NAK: (struct.Struct("<16sQ"), Nak),
    Kind.JOIN: (struct.Struct("<16sI"), Join),
    Kind.START: (struct.Struct("<16sIQQI"), Start),
    Kind.EVICT: (struct.Struct("<16sI"), Evict),
    Kind.HAVE: (struct.Struct("<16sQQBB"), Have),
    Kind.PROBE: (struct.Struct("<i"), Probe),
}
_KINDS: dict[type[Body], Kind] = {body: Kind(kind) for kind, (_, body) in _LAYOUTS.items()}
NAK_BODY_BYTES = _LAYOUTS[Kind.NAK][0].size


def cluster_number(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def kind_of(body: Body) -> Kind:
    return _KINDS[type(body)]


def encode_body(body: Body) -> bytes:
    layout = _LAYOUTS[_KINDS[type(body)]][0]
    if isinstance(body, Nak):
        return layout.pack(body.stream, body.low) + body.missing
    return layout.pack(*body)


def decode_body(kind: int, data: bytes) -> Body | None:
    """None if it is none. Fields that a newer node appended are ignored."""
    layout, make = _LAYOUTS[kind]
    if len(data) < layout.size:
        return None
    fields = layout.unpack_from(data)
    if kind == Kind.NAK:
        return Nak(fields[0], fields[1], data[layout.size :])
    return make(*fields)


def bits_of(sequences: list[int], low: int) -> bytes:
    """The ascending sequences, none below `low`, as the `missing` of a Nak."""
    bits = 0
    for sequence in sequences:
        bits |= 1 << (sequence - low)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def sequences_of(nak: Nak) -> list[int]:
    bits, low, found = int.from_bytes(nak.missing, "little"), nak.low, []
    while bits:
        lowest = bits & -bits
        found.append(low + lowest.bit_length() - 1)
        bits ^= lowest
    return found

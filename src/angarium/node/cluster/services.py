"""What nodes say to each other, by service, and how it is packed.

Over links, each record is for one service (those below 16 are of the bus itself); on the channel of a group a first
byte tells envelopes of client managers from orders of the primary.
"""
import struct
from enum import IntEnum
from typing import Any

import msgspec

from angarium.core.errors import RemoteProtocolError
from angarium.core.malformed import MALFORMED
from angarium.node.event_log import Event


class Service(IntEnum):
    GROUPS = 16  # group services, see core/groups/protocol.py
    REPLICA = 17  # replicas of a group among themselves, see core/replication/messages.py
    ANSWERS = 18  # a message manager to a client manager: an envelope
    SERVING = 19  # a message manager to all client managers: from now on
    ADMIN = 20  # administration: questions to a node, and its answers
    LOG_READS = 21  # a client manager to a backup: a request for a page of a log, in an envelope
    LOG_PAGES = 22  # and its answer
    EVENTS = 23  # events of a node that clients do not connect to, for a client manager to publish


class OnChannel(IntEnum):
    ENVELOPE = 0
    REPLICA = 1
    ANEW = 2  # a client manager: whatever I have said of my sessions is void


_REPLICA_HEAD = struct.Struct("<16sI")  # store id of the sender, length of the message; the payload follows


def pack_replica(store: bytes, message: bytes) -> bytes:
    """The head and the message; a payload goes right behind it."""
    return _REPLICA_HEAD.pack(store, len(message)) + message


def unpack_replica(data: bytes, at: int = 0) -> tuple[bytes, bytes, bytes]:
    """Store id, message, payload."""
    if len(data) < at + _REPLICA_HEAD.size:
        raise RemoteProtocolError("bad-message", f"{len(data)} bytes between replicas: too short")
    store, length = _REPLICA_HEAD.unpack_from(data, at)
    begin = at + _REPLICA_HEAD.size
    if begin + length > len(data):
        raise RemoteProtocolError("bad-message", f"a message of {length:,} bytes between replicas is cut off")
    return store, data[begin : begin + length], data[begin + length :]


class Serving(msgspec.Struct, frozen=True, array_like=True):
    """The message manager of the group runs on the sender's node, started in that epoch."""

    group: int
    epoch: int
    is_anew: bool = False  # it hears the receiver from here on: what was said to it before may be lost


class Question(msgspec.Struct, frozen=True, array_like=True, tag="question"):
    number: int
    command: str
    arguments: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    number: int
    code: str
    reason: str
    result: Any = None


_encode = msgspec.msgpack.Encoder().encode
_serving = msgspec.msgpack.Decoder(Serving)
_events = msgspec.msgpack.Decoder(list[Event])
_admin: msgspec.msgpack.Decoder[Question | Answer] = msgspec.msgpack.Decoder(Question | Answer)


def encode(message: Serving | Question | Answer) -> bytes:
    return _encode(message)


def decode_serving(data: bytes) -> Serving:
    try:
        return _serving.decode(data)
    except MALFORMED as error:
        raise RemoteProtocolError("bad-message", f"who serves: {error}") from None


def decode_admin(data: bytes) -> Question | Answer:
    try:
        return _admin.decode(data)
    except MALFORMED as error:
        raise RemoteProtocolError("bad-message", f"administration: {error}") from None


def encode_events(events: list[Event]) -> bytes:
    return _encode(events)


def decode_events(data: bytes) -> list[Event]:
    try:
        return _events.decode(data)
    except MALFORMED as error:
        raise RemoteProtocolError("bad-message", f"events: {error}") from None

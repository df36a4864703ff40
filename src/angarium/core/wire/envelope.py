"""Frames between client managers and the message manager of a replica group, as messages of the bus and of links.

     0  u32 number of the group
     4  u64 epoch in which its message manager was started: what was meant for an earlier one is void
    12  16  session
    28  u32 its turn: how often its client has resumed it; 0 in an answer
    32  u64 destination; 0: the message manager itself, or an answer
    40  the frame, as on a client's connection, with session 0
"""
import struct
from typing import NamedTuple

from angarium.core.errors import RemoteProtocolError
from angarium.core.wire.codec import FrameParser, encode_head
from angarium.core.wire.frames import Frame

_HEAD = struct.Struct("<IQ16sIQ")
TURN_MAX = (1 << 32) - 1
FRAME_BYTES_MAX = 64 << 20  # nothing that a client's connection accepts is nearly as long


class Envelope(NamedTuple):
    group: int
    epoch: int
    session: bytes
    turn: int
    destination: int
    frame: Frame
    payload: bytes


def seal(
    group: int, epoch: int, session: bytes, destination: int, frame: Frame, payload: bytes, *, turn: int = 0
) -> list[bytes]:
    """In parts, to be sent as if joined."""
    head = _HEAD.pack(group, epoch, session, turn, destination) + encode_head(0, frame, len(payload))
    return [head, payload] if payload else [head]


def open_envelope(message: bytes) -> Envelope:
    if len(message) < _HEAD.size:
        raise RemoteProtocolError("bad-message", f"an envelope of {len(message)} bytes: at least {_HEAD.size}")
    group, epoch, session, turn, destination = _HEAD.unpack_from(message)
    received = FrameParser(frame_bytes_max=FRAME_BYTES_MAX).feed(memoryview(message)[_HEAD.size :])
    if len(received) != 1:
        raise RemoteProtocolError("bad-message", f"an envelope with {len(received)} frames: exactly one")
    return Envelope(group, epoch, session, turn, destination, received[0].frame, received[0].payload)

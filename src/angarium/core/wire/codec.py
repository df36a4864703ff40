"""Frames to bytes and back.

     0  u32 length of what follows this field
     4  u8  kind
     5  u8  zero
     6  u16 zero
     8  u32 session
    12  u32 length of meta
    16  meta: a MessagePack array
        payload: the rest

`FrameParser` takes bytes in any pieces. The first violation raises RemoteProtocolError with a stable code; the
parser is then finished: the connection has to be closed.
"""
import struct
from typing import NamedTuple

import msgspec

from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire.frames import FRAMES, Frame

HEADER = struct.Struct("<IBBHII")
HEADER_BYTES = HEADER.size
_LENGTH_BYTES = 4
BUFFER_KEPT_BYTES = 1 << 19  # a parser's buffer beyond this is given back after use

_encode_meta = msgspec.msgpack.Encoder().encode
_decoders = {kind: msgspec.msgpack.Decoder(frame).decode for kind, frame in FRAMES.items()}


class Received(NamedTuple):
    session: int
    frame: Frame
    payload: bytes
    size_bytes: int = 0  # of all of it, on the wire


def encode_head(session: int, frame: Frame, payload_bytes: int = 0) -> bytes:
    """Everything but the payload, which the caller writes right after it."""
    meta = _encode_meta(frame)
    meta_bytes = len(meta)
    length = HEADER_BYTES - _LENGTH_BYTES + meta_bytes + payload_bytes
    return HEADER.pack(length, frame.kind, 0, 0, session, meta_bytes) + meta


def encode(session: int, frame: Frame, payload: bytes = b"") -> bytes:
    return encode_head(session, frame, len(payload)) + payload


class FrameParser:
    """One direction of one connection.

    Frames that arrive whole are parsed where they are. Only an incomplete one is kept, in a buffer that is reused:
    allocating large blocks anew for each frame costs more than all the parsing.
    """

    def __init__(self, *, frame_bytes_max: int, buffer_kept_bytes: int = BUFFER_KEPT_BYTES) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer_kept_bytes = buffer_kept_bytes
        self._buffer = bytearray()
        self._filled = 0  # bytes of the incomplete frame at the start of the buffer: at most frame_bytes_max
        self._wanted = HEADER_BYTES  # bytes needed before parsing can get any further
        self._failed = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[Received]:
        """Frames that `data` completes; nothing of `data` is referred to afterwards."""
        if self._failed:
            raise LocalProtocolError("bytes fed to a parser that has failed")
        frames: list[Received] = []
        at = 0
        try:
            if self._filled:
                with memoryview(data) as fresh:
                    at = self._complete(fresh, frames)
            if not self._filled:
                at += self._parse(memoryview(data)[at:] if at else data, frames)
                if at < len(data):
                    self._keep(memoryview(data)[at:])
        except RemoteProtocolError:
            self._failed = True
            raise
        return frames

    def _complete(self, fresh: memoryview, frames: list[Received]) -> int:
        """Finish the incomplete frame with the first bytes of `fresh`; return how many were used."""
        used = 0
        while self._filled < self._wanted and used < len(fresh):
            taken = min(self._wanted - self._filled, len(fresh) - used)
            self._keep(fresh[used : used + taken])
            used += taken
            if self._filled == self._wanted:
                with memoryview(self._buffer)[: self._filled] as block:
                    if self._parse(block, frames):
                        self._filled = 0
                        break
        if self._filled == 0 and len(self._buffer) > self._buffer_kept_bytes:
            self._buffer = bytearray()
        return used

    def _keep(self, rest: memoryview) -> None:
        end = self._filled + len(rest)
        if end > len(self._buffer):
            # By what has come, not by what was announced: a length costs its sender nothing.
            grown = max(end, min(self._wanted, 2 * len(self._buffer)))
            self._buffer += bytes(grown - len(self._buffer))
        self._buffer[self._filled : end] = rest
        self._filled = end

    def _parse(self, block: bytes | bytearray | memoryview, frames: list[Received]) -> int:
        """Append the complete frames; return where the first incomplete one starts."""
        at, end = 0, len(block)
        while end - at >= HEADER_BYTES:
            length, kind, zero_a, zero_b, session, meta_bytes = HEADER.unpack_from(block, at)
            total = length + _LENGTH_BYTES
            if total > self._frame_bytes_max:
                reason = f"frame of {total:,} bytes exceeds frame_bytes_max {self._frame_bytes_max:,}"
                raise RemoteProtocolError("frame-too-long", reason)
            if total < HEADER_BYTES + meta_bytes or zero_a or zero_b:
                raise RemoteProtocolError("bad-frame", "frame header is malformed: is the peer speaking angarium?")
            decode = _decoders.get(kind)
            if decode is None:
                raise RemoteProtocolError("unknown-frame", f"frame of unknown kind {kind}")
            if end - at < total:
                self._wanted = total
                return at
            meta_at = at + HEADER_BYTES
            payload_at = meta_at + meta_bytes
            try:
                frame = decode(block[meta_at:payload_at])
            except (msgspec.DecodeError, RecursionError, ValueError) as error:
                raise RemoteProtocolError("bad-frame", f"{FRAMES[kind].__name__}: {error}") from None
            frames.append(Received(session, frame, bytes(block[payload_at : at + total]), total))
            at += total
        self._wanted = HEADER_BYTES
        return at

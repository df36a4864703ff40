"""Facts from the driver, and commands to it: bytes, and the link that carries them."""
from dataclasses import dataclass

import msgspec

from angarium.core.wire.codec import Received


@dataclass(frozen=True, slots=True)
class Connected: ...


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The transport ended, or could not be made."""

    reason: str


class FramesReceived(msgspec.Struct, frozen=True):
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


@dataclass(frozen=True, slots=True)
class Connect:
    host: str
    port: int


class SendBytes(msgspec.Struct, frozen=True):
    buffers: list[bytes]


@dataclass(frozen=True, slots=True)
class CloseTransport:
    reason: str
    abort: bool = False  # what was not yet written is worthless

"""Frames of streams: bodies too long for a frame."""
from angarium.core.wire.frames.vocabulary import DestinationKind, Frame


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

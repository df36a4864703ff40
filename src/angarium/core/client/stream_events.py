"""What goes into and comes out of the client's machine for streams: bodies that are sent and read in fragments."""
from dataclasses import dataclass, field

from angarium.core.wire.frames import DestinationKind

# -- requests, from the application --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A body to be sent in fragments. `StreamReady` follows; once `StreamAdvanced` says that all is stored, publish the
    message with the header `stream`."""

    session: int
    stream: int
    destination: str
    destination_kind: DestinationKind


@dataclass(frozen=True, slots=True)
class PutFragment:
    """The next one, as long as `StreamReady` says; only the last may be shorter."""

    session: int
    stream: int
    payload: bytes = field(repr=False)
    crc: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Done with: what no published message holds is deleted. One that has ended is no error."""

    session: int
    stream: int


@dataclass(frozen=True, slots=True)
class OpenReader:
    """Read the stream of a message that the consumer holds; with consumer -1, of any in the destination."""

    session: int
    reader: int
    consumer: int
    position: int
    destination: str = ""


@dataclass(frozen=True, slots=True)
class UseFragment:
    """One of those that arrived is used up. A reader that has ended is no error."""

    session: int
    reader: int


@dataclass(frozen=True, slots=True)
class CloseReader:
    """One that has ended is no error."""

    session: int
    reader: int


StreamRequest = OpenStream | PutFragment | CloseStream | OpenReader | UseFragment | CloseReader

# -- notifications -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamReady:
    """After each opening, also after a reconnection."""

    session: int
    stream: int
    identity: bytes
    fragment_bytes: int


@dataclass(frozen=True, slots=True)
class StreamAdvanced:
    """With a code: nothing can be stored for now, and why."""

    session: int
    stream: int
    stored: int  # fragments that are durable
    limit: int  # put no more than these, for now
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """By the broker: nothing of it is kept."""

    session: int
    stream: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class FragmentArrived:
    """The next one; after the last the reader has ended."""

    session: int
    reader: int
    payload: bytes = field(repr=False)
    is_last: bool


@dataclass(frozen=True, slots=True)
class ReaderEnded:
    """It cannot be read any further."""

    session: int
    reader: int
    code: str
    reason: str


StreamNotice = StreamReady | StreamAdvanced | StreamEnded | FragmentArrived | ReaderEnded

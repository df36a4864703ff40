"""The ways from a session to destinations: its producers and consumers, as their client manager sees them."""
from dataclasses import dataclass, field
from enum import Enum

from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.names import DEAD_MESSAGE_QUEUE, QUERY_BYTES_MAX
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Frame
from angarium.core.wire.layout import PRIORITY_MAX, Columns

_SEQUENCE = int(Columns.SEQUENCE)
_POSITION_MAX = (1 << 62) - 1
Asked = tuple[str, frames.DestinationKind, bool]  # name, kind, and whether it has to exist


class LinkState(Enum):
    LOCATING = "locating"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"  # by the broker: the client may not know yet


@dataclass(slots=True)
class Link:
    """A producer or a consumer: the way from this session to a destination."""

    open: frames.ProducerOpen | frames.ConsumerOpen
    state: LinkState = LinkState.LOCATING
    destination: int = 0
    waiting: list[Frame] = field(default_factory=list)  # until it is located
    waiting_bytes: int = 0  # of those, and of the opening
    was_opened: bool = False
    is_desk: bool = False  # a producer to `_ADMIN`: it leads nowhere beyond the client manager

    @property
    def asked(self) -> Asked:
        existing = isinstance(self.open, frames.ConsumerOpen) and self.open.existing
        return self.open.destination, self.open.destination_kind, existing


def check_resume(frame: frames.ConsumerOpen) -> None:
    if any(not 0 <= low < high <= _POSITION_MAX for low, high in frame.held):
        raise RemoteProtocolError("bad-range", f"consumer {frame.consumer} claims positions that cannot be")
    if not -1 <= frame.next_position <= _POSITION_MAX:
        raise RemoteProtocolError("bad-range", f"next position {frame.next_position} is out of range")
    if len(frame.next_positions) > PRIORITY_MAX or any(not 0 <= p <= _POSITION_MAX for p in frame.next_positions):
        raise RemoteProtocolError("bad-range", f"next positions {frame.next_positions[:12]} cannot be")


def check_producer(frame: frames.ProducerOpen) -> None:
    if frame.identity and len(frame.identity) != GLOBAL_ID_BYTES:
        raise RemoteProtocolError("bad-frame", f"producer identity of {len(frame.identity)} bytes")
    if not 0 <= frame.confirmed <= _POSITION_MAX:
        raise RemoteProtocolError("bad-frame", f"confirmed sequence {frame.confirmed} is out of range")
    if len(frame.query.encode()) > QUERY_BYTES_MAX or not 0 <= frame.batch <= _POSITION_MAX:
        raise RemoteProtocolError("bad-frame", f"query {frame.query!r:.50}, batch {frame.batch} is out of range")


def is_for_the_dead(frame: frames.ProducerOpen) -> bool:
    """Only what is staged may be sent there: the rows of a batch that are no messages for where they were to go."""
    return bool(frame.query) and frame.destination == DEAD_MESSAGE_QUEUE


def check_batch(batch: Batch, link: Link | None, body_bytes_max: int) -> None:
    if link is not None and isinstance(link.open, frames.ProducerOpen) and batch.producer != link.open.identity:
        raise RemoteProtocolError("bad-batch", "batch carries the identity of another producer")
    if batch.columns & _SEQUENCE:
        raise RemoteProtocolError("bad-batch", "a producer's sequences have no gaps: publish without that column")
    if batch.body_bytes > body_bytes_max:
        offsets = batch.offsets
        longest = max(offsets[i + 1] - offsets[i] for i in range(batch.count))
        if longest > body_bytes_max:
            reason = f"body of {longest:,} bytes exceeds body_bytes_max {body_bytes_max:,}"
            raise RemoteProtocolError("body-too-long", reason)

"""Frames of producers: opening, publishing, confirming, flow control."""
from angarium.core.wire.frames.vocabulary import DestinationKind, Frame


class ProducerOpen(Frame, frozen=True):
    kind = 20
    producer: int
    destination: str
    destination_kind: DestinationKind
    identity: bytes = b""  # empty: a new producer; else the one to resume
    confirmed: int = 0  # every sequence up to here is known to be confirmed
    attachment: bytes = b""  # on the bus: of the session to this connection; the answer repeats it
    client: bytes = b""  # on the bus: the identity of the connection
    query: str = ""  # what it publishes is staged, for this query to commit; empty: it is not
    batch: int = 0  # ... with its batch of this number


class ProducerOpened(Frame, frozen=True):
    kind = 21
    producer: int
    identity: bytes
    sequence: int  # the last sequence the log has accepted: resend what follows
    attachment: bytes = b""
    blocked: bool = False  # a Block follows: publish nothing new before


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

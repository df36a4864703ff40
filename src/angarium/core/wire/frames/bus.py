"""Frames between client manager and message manager: never from or to a client."""
from angarium.core.ranges import Range
from angarium.core.wire.frames.vocabulary import DestinationKind, Frame


class Locate(Frame, frozen=True):
    """Asks which destination has this name; creates it if none has."""

    kind = 50
    name: str
    destination_kind: DestinationKind
    existing: bool = False  # do not create it


class Located(Frame, frozen=True):
    """`destination` 0: refused with `code`."""

    kind = 51
    name: str
    asked_kind: DestinationKind
    destination: int
    destination_kind: DestinationKind
    code: str = ""
    reason: str = ""
    existing: bool = False  # as asked


class LocateBlocked(Frame, frozen=True):
    """What was asked for does not exist, and nothing can be created for now. `Located` follows when it can."""

    kind = 55
    name: str
    asked_kind: DestinationKind
    code: str
    reason: str


class TransactionCommit(Frame, frozen=True):
    """A Commit whose producers and consumers the client manager has looked up. Payload: as there. With `participants`
    it is only this group's part of it, and the group decides: the others are prepared, and wait for it."""

    kind = 54
    number: int
    publishes: list[tuple[int, int, int]]  # destination, producer, bytes of its batch in the payload
    settles: list[tuple[int, int, list[Range]]]  # destination, consumer, positions
    attachment: bytes = b""
    participants: list[int] = []  # the other groups


class SessionEnded(Frame, frozen=True):
    """The session is gone: closed by its client, or cut off (it may resume within the grace time)."""

    kind = 52
    closed: bool


class Stall(Frame, frozen=True):
    """The session's connection does not take more for now (or does again): its consumers are passed over."""

    kind = 53
    stalled: bool


class ClientHere(Frame, frozen=True):
    """The connection of that identity has come back."""

    kind = 56
    client: bytes


class ClientEnded(Frame, frozen=True):
    """The connection is gone: closed by its client, or cut off (it may come back within the grace time)."""

    kind = 57
    client: bytes
    closed: bool

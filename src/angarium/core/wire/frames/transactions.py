"""Frames of local transactions."""
from angarium.core.ranges import Range
from angarium.core.wire.frames.vocabulary import Frame


class Commit(Frame, frozen=True):
    """Sends and settlements of a session, all or nothing. Payload: the batches, one after the other."""

    kind = 60
    number: int  # 1, 2, 3, ... within the session; one that is sent again is done once
    publishes: list[tuple[int, int]]  # producer, bytes of its batch in the payload
    settles: list[tuple[int, list[Range]]]  # consumer, positions


class Committed(Frame, frozen=True):
    """All of it is durable."""

    kind = 61
    number: int


class Aborted(Frame, frozen=True):
    """Nothing of it was done: the client still holds what it would have settled, and gives it back with Recover."""

    kind = 62
    number: int
    code: str
    reason: str
    attachment: bytes = b""  # to which sending of the commit this is the answer

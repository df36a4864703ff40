"""Frames of a destination that is moved, between the message managers of two replica groups: rows there, and back that
they are durable, or which content of very large messages is lacking first. Any client manager passes them on.

One message at a time is under way for each destination, and it is sent again until it is answered. A message names the
move, and the attempt: the epoch in which the source's message manager was started. So what is left over of an earlier
one is told from what counts.
"""
from angarium.core.wire.frames.vocabulary import Frame


class MoveRows(Frame, frozen=True):
    """Rows of one table; their keys are without the destination's id. Payload: the rows, packed."""

    kind = 90
    group: int  # that is to have it
    source: int  # the group that has it
    name: str
    number: int  # of the move
    attempt: int
    sequence: int  # 0, 1, 2, ... of the attempt
    table: int
    record: bytes  # of the destination, with the first alone
    last: bool


class MoveTaken(Frame, frozen=True):
    """These rows, and all before, are durable in the target."""

    kind = 91
    group: int  # the source
    name: str
    number: int
    attempt: int
    sequence: int


class MoveRefused(Frame, frozen=True):
    """The target cannot take it."""

    kind = 92
    group: int  # the source
    name: str
    number: int
    attempt: int
    code: str
    reason: str


class MoveWants(Frame, frozen=True):
    """Before these rows can be taken: fragments of a stream that they name, `first` to `end` - 1."""

    kind = 93
    group: int  # the source
    name: str
    number: int
    attempt: int
    sequence: int  # of the rows
    stream: bytes
    first: int
    end: int


class MoveBlock(Frame, frozen=True):
    """A fragment of a stream, as it was asked for. Payload: the fragment."""

    kind = 94
    group: int  # that is to have it
    source: int
    name: str
    number: int
    attempt: int
    stream: bytes
    fragment: int
    crc: int
    last: bool

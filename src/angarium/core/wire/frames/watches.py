"""Frames of watches: which destinations match a pattern."""
from angarium.core.wire.frames.vocabulary import DestinationKind, Frame, PatternSyntax


class Watch(Frame, frozen=True):
    """Asks which destinations match the pattern, and to be told of each new one. Ends with the session's connection."""

    kind = 80
    watch: int
    pattern: str
    syntax: PatternSyntax = PatternSyntax.GLOB
    destination_kind: DestinationKind = DestinationKind.ANY
    attachment: bytes = b""  # on the bus: of the session to this connection; what is answered repeats it


class WatchFound(Frame, frozen=True):
    kind = 81
    watch: int
    destination_kind: DestinationKind
    names: list[str]
    created: bool = False  # they were created after the watch was opened
    complete: bool = False  # all that existed then have been told; nothing else is in such a frame
    attachment: bytes = b""


class WatchClose(Frame, frozen=True):
    """Nothing is answered."""

    kind = 82
    watch: int


class WatchClosed(Frame, frozen=True):
    """The broker could not open the watch."""

    kind = 83
    watch: int
    code: str
    reason: str
    attachment: bytes = b""

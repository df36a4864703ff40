"""How an application names a destination: a plain string, or a kind as well."""
from typing import Literal

import msgspec

from angarium.core.errors import Rejected
from angarium.core.names import check_name
from angarium.core.wire.frames import DestinationKind, PatternSyntax


class Queue(msgspec.Struct, frozen=True):
    """A queue: each message goes to one consumer. Refused with `wrong-kind` if the name is a topic's."""

    name: str


class Topic(msgspec.Struct, frozen=True):
    """A topic: each message goes to every subscriber. Refused with `wrong-kind` if the name is a queue's."""

    name: str


class Pattern(msgspec.Struct, frozen=True):
    """All destinations whose names match, for `Session.consume_matching` (those to come as well) and `browse_matching`.
    In a glob `*` is any part of a segment, `**` any number of segments; a regular expression has RE2's syntax and
    matches whole names."""

    text: str
    syntax: Literal["glob", "regex"] = "glob"
    kind: Literal["topic", "queue", "any"] = "topic"


PATTERN_SYNTAXES = {"glob": PatternSyntax.GLOB, "regex": PatternSyntax.REGEX}
PATTERN_KINDS = {"topic": DestinationKind.TOPIC, "queue": DestinationKind.QUEUE, "any": DestinationKind.ANY}


def plain_text(text: str, what: str) -> str:
    """The same as a `str` and nothing more: of another class, as numpy's strings are, no frame can carry it."""
    if text.__class__ is str:
        return text
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {type(text).__name__}")
    return str.__str__(text)


def checked_text(text: str, code: str, what: str) -> str:
    """The text as a plain `str`. Raise `Rejected` for half of a surrogate pair: no frame can carry it, on this
    connection or the next."""
    try:
        text = plain_text(text, what)
        text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(code, f"{what}: character {error.start + 1} is half of a surrogate pair") from None
    return text


def checked_pattern(pattern: Pattern) -> Pattern:
    text = checked_text(pattern.text, "bad-pattern", "pattern")
    if pattern.syntax not in PATTERN_SYNTAXES or pattern.kind not in PATTERN_KINDS:
        reason = f"{pattern}: syntax is one of {[*PATTERN_SYNTAXES]}, kind one of {[*PATTERN_KINDS]}"
        raise Rejected("bad-pattern", reason)
    return Pattern(text, pattern.syntax, pattern.kind)


Destination = str | Queue | Topic  # a string: whatever exists under that name; a queue is created if nothing does


def name_of(destination: Destination) -> str:
    return plain_text(destination if isinstance(destination, str) else destination.name, "a destination's name")


def resolve(destination: Destination, *, reading: bool = False) -> tuple[str, DestinationKind]:
    """Name and kind as the protocol has them; raise `Rejected` for a name that cannot be, or is not to send to."""
    match destination:
        case str():
            name, kind = destination, DestinationKind.ANY
        case Queue():
            name, kind = destination.name, DestinationKind.QUEUE
        case Topic():
            name, kind = destination.name, DestinationKind.TOPIC
        case _:
            raise TypeError(f"a destination is a str, Queue or Topic, not {type(destination).__name__}")
    name = plain_text(name, "a destination's name")
    check_name(name, reading=reading, sending=not reading)
    return name, kind

"""What frames are made of: the kind of struct that each is, and the words that their fields take."""
from enum import IntEnum
from typing import Annotated, ClassVar

import msgspec

from angarium.core.ranges import Range

PROTOCOL_VERSION = 1
LANE_BITS = 56  # of a position; those above say of which lane it is: each priority that is used has one
RANGES_MAX = 1 << 17  # that a client names in one list: each costs time that all others wait; it holds fewer messages
PORT_DEFAULT = 4560  # where clients look for a broker


Ranges = Annotated[list[Range], msgspec.Meta(max_length=RANGES_MAX)]  # positions that a client names


class DestinationKind(IntEnum):
    ANY = 0  # in a request: whatever exists; a queue if nothing does
    QUEUE = 1
    TOPIC = 2


class Outcome(IntEnum):
    SETTLE = 1  # done with: never delivered again
    REJECT = 2  # cannot be processed: taken off the subscription and counted as rejected
    RELEASE = 3  # give it back: delivered again, with a higher redelivery count
    RETURN = 4  # give it back as if it had never been delivered


class Start(IntEnum):
    """Where a new subscription begins; one that exists goes on where it was."""

    NEXT = 0  # with the first message published from now on
    OLDEST = 1  # with the oldest message still stored


class PatternSyntax(IntEnum):
    GLOB = 0
    REGEX = 1


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    kind: ClassVar[int]

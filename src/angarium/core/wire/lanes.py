"""Positions and the priorities that they stand for, and the order in which a browser shows them.

A position has the number of its lane above, the offset in the lane below (`core.destination.log`). A place has
instead of the lane how urgent it is, so that places ascend in the order in which messages would be received:

    place = (9 - priority) * 2**56 + offset in the lane

It does not depend on which priorities there are: it stays right when another one appears.
"""
from angarium.core.wire.frames import LANE_BITS
from angarium.core.wire.layout import PRIORITY_DEFAULT, PRIORITY_MAX

POSITION_MAX = ((PRIORITY_MAX + 1) << LANE_BITS) - 1  # of the last lane
_OFFSET = (1 << LANE_BITS) - 1


def priority_of(position: int) -> int:
    """Of the messages in the lane of that position."""
    return ((position >> LANE_BITS) + PRIORITY_DEFAULT) % (PRIORITY_MAX + 1)


def urgency_of(place: int) -> int:
    """0 of the most urgent."""
    return place >> LANE_BITS


def place_of(position: int) -> int:
    return ((PRIORITY_MAX - priority_of(position)) << LANE_BITS) | (position & _OFFSET)

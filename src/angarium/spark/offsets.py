"""How far a query is, as Spark keeps it in its checkpoints and shows it in its progress:

    {"orders": {"identity": 281474976710657, "4": 120344}}

For each destination its id, and for each priority that was used one past the last position that was read. A position
tells its priority by itself, so the keys are for people. The same form serves `startingOffsets` and `endingOffsets`.
Spark compares offsets as text: what is equal is written alike.
"""
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from angarium.client.log import LogDescription, LogLane, priority_of
from angarium.core.errors import ConfigError
from angarium.core.wire.frames import LANE_BITS

_IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Place:
    """In the log of one destination."""

    identity: int  # 0: whichever has the name
    positions: Mapping[int, int]  # by lane

    def in_lane(self, lane: LogLane) -> int:
        """A lane that is not named was not used then: all of it lies behind."""
        number = lane_of(lane)
        return self.positions.get(number, number << LANE_BITS)


Offsets = dict[str, Place]


def lane_of(lane: LogLane) -> int:
    return lane.first >> LANE_BITS


def place(identity: int, positions: Iterable[int]) -> Place:
    return Place(identity, {position >> LANE_BITS: position for position in positions})


def beginning(described: LogDescription) -> Place:
    return place(described.identity, (lane.first for lane in described.lanes))


def end(described: LogDescription) -> Place:
    return place(described.identity, (lane.end for lane in described.lanes))


def to_json(offsets: Offsets) -> dict[str, Any]:
    return {
        name: {_IDENTITY: found.identity}
        | {str(priority_of(position)): position for _, position in sorted(found.positions.items())}
        for name, found in sorted(offsets.items())
    }


def from_json(told: Mapping[str, Any]) -> Offsets:
    return {name: _place_of(name, value) for name, value in told.items()}


def _place_of(name: str, told: Mapping[str, int]) -> Place:
    positions: dict[int, int] = {}
    for key, position in told.items():
        if key == _IDENTITY:
            continue
        if priority_of(position) != int(key):
            raise ConfigError(f"{name!r}: position {position} is of priority {priority_of(position)}, not {key}")
        positions[position >> LANE_BITS] = position
    return Place(told.get(_IDENTITY, 0), positions)

"""Who reads a log, and how far they say they are: for administrators, and nothing depends on it.

A reader may tell its name and its positions now and then (`log.note`). It is kept in memory alone: after a restart, or
with another primary, it is there again when the reader has told it again. A destination remembers `READERS_MAX`; past
it the one is forgotten that was silent for longest.
"""
from collections.abc import Iterable
from typing import Any, NamedTuple

from angarium.core.destination.log import Log, lane_of

READERS_MAX = 100
NAME_CHARACTERS_MAX = 200


class _Noted(NamedTuple):
    positions: dict[int, int]  # by lane: one past the last that was read
    wall_ms: int


class LogReaders:
    def __init__(self) -> None:
        self._noted: dict[str, _Noted] = {}  # who was silent for longest first

    def note(self, reader: str, positions: Iterable[int], wall_ms: int) -> None:
        self._noted.pop(reader, None)
        self._noted[reader] = _Noted({lane_of(position): position for position in positions}, wall_ms)
        if len(self._noted) > READERS_MAX:
            del self._noted[next(iter(self._noted))]

    def forget(self, reader: str) -> None:
        self._noted.pop(reader, None)

    def told(self, log: Log) -> list[dict[str, Any]]:
        """By name: how many messages each has not read yet, and when it was last heard of."""
        return [
            {"name": reader, "lag": _lag(noted, log), "noted_ms": noted.wall_ms}
            for reader, noted in sorted(self._noted.items())
        ]


def _lag(noted: _Noted, log: Log) -> int:
    """A lane that a reader did not speak of was not used when it spoke."""
    lanes = log.order
    return sum(max(0, lane.readable - max(noted.positions.get(lane.number, lane.base), lane.first)) for lane in lanes)

"""The log of a destination: batches in order of arrival, in one lane for each priority that was ever used.

A position is a number that a message keeps as long as it is stored. Each lane has its own stretch of them:

    lane 0, priority 4   0, 1, 2, ...
    lane n, priority p   n * 2**56, n * 2**56 + 1, ...        n = (p - 4) mod 10

so that sets of positions need not know of lanes, an ordinary destination has small positions without gaps, and a
message of high priority is found without looking at those in front of it. Within one lane the order is that of arrival.

        deleted    first              readable    next
    ------|----------|-------------------|----------|
     gone   no longer    may be delivered   on its way
            needed                          to the disk
"""
import struct
from collections.abc import Iterable
from enum import IntEnum

from angarium.core.destination.expiries import ExpiryMarks
from angarium.core.destination.gauge import ByteGauge
from angarium.core.storage import DeleteRange, Operation, Put, Table, key_of, position_key
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import LANE_BITS as LANE_BITS
from angarium.core.wire.layout import PRIORITY_DEFAULT, PRIORITY_MAX, Columns

LANE_POSITIONS = 1 << LANE_BITS
LANE_COUNT = PRIORITY_MAX + 1
_FIGURES = struct.Struct(">QQ")
_EXPIRY, _PRIORITY = int(Columns.EXPIRY), int(Columns.PRIORITY)


class LogField(IntEnum):
    """Figures of a lane, each a record of its own: a settlement may be written ahead of a publish."""

    FIRST = 1  # positions below are gone, and how many bytes with them
    NEXT = 2  # the position that the next message gets, and how many bytes were stored so far
    DAMAGED = 3  # positions set aside, of the whole log
    DELAYED = 4  # messages that are not yet due, of the whole log
    EXPIRES = 5  # 1: some message may expire
    ARRIVALS = 64  # this and the next 63, a ring: positions below had come at that time (milliseconds since 1970)


ARRIVALS_MAX = 64


def lane_of(position: int) -> int:
    return position >> LANE_BITS


def lane_for(priority: int) -> int:
    return (priority - PRIORITY_DEFAULT) % LANE_COUNT


def log_put(destination: int, field: int, value: int, lane: int = 0, total_bytes: int = 0) -> Put:
    return Put(Table.LOG, key_of(destination, bytes((field, lane))), _FIGURES.pack(value, total_bytes))


def parse_log_record(key: bytes, value: bytes) -> tuple[int, tuple[int, int], tuple[int, int]]:
    """Destination, (field, lane), (value, bytes)."""
    figure, total_bytes = _FIGURES.unpack(value)
    return int.from_bytes(key[:8], "big"), (key[8], key[9]), (figure, total_bytes)


class Lane:
    __slots__ = (
        "arrivals", "base", "deleted", "expires", "expiries", "first", "gauge", "next", "number", "readable", "stored",
    )  # fmt: skip

    def __init__(self, number: int, first: int = 0, next_position: int = 0) -> None:
        """The positions of an empty lane, or as they were stored."""
        self.number = number
        self.base = number << LANE_BITS
        self.next = self.readable = self.stored = max(next_position, self.base)
        self.first = self.deleted = min(max(first, self.base), self.next)
        self.gauge = ByteGauge(self.first)
        self.expiries = ExpiryMarks()
        self.expires = False  # as is stored: some message may expire
        # What lay below a position had come then (`retaining`): position, milliseconds since 1970, field; ascending.
        self.arrivals: list[tuple[int, int, int]] = []

    @property
    def end(self) -> int:
        """One past the highest position that the lane can ever have."""
        return self.base + LANE_POSITIONS

    @property
    def urgency(self) -> int:
        """Lanes with a lower figure are delivered first."""
        return PRIORITY_MAX - (self.number + PRIORITY_DEFAULT) % LANE_COUNT


class Log:
    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.lanes: dict[int, Lane] = {0: Lane(0)}
        self.order: list[Lane] = [self.lanes[0]]  # the most urgent first

    def restore(self, figures: dict[tuple[int, int], tuple[int, int]]) -> None:
        """Take up what was stored, by (field, lane)."""
        for number in sorted({0, *(lane for _, lane in figures)}):
            first, freed = figures.get((LogField.FIRST, number), (0, 0))
            following, added = figures.get((LogField.NEXT, number), (0, 0))
            lane = Lane(number, first, following)
            lane.gauge.restore(lane.first, lane.next, added, freed)
            lane.expires = figures.get((LogField.EXPIRES, number), (0, 0))[0] > 0
            if lane.expires and lane.first < lane.next:
                lane.expiries.add(lane.first, lane.next, 0)  # somewhere, some time
            lane.arrivals = sorted(
                (position, ms, field)
                for (field, of_lane), (position, ms) in figures.items()
                if of_lane == number and LogField.ARRIVALS <= field < LogField.ARRIVALS + ARRIVALS_MAX
            )
            self._add(lane)

    def lane(self, number: int) -> Lane:
        return self.lanes.get(number) or self._add(Lane(number))

    def _add(self, lane: Lane) -> Lane:
        self.lanes[lane.number] = lane
        self.order = sorted(self.lanes.values(), key=lambda known: known.urgency)
        return lane

    def lane_at(self, position: int) -> Lane:
        return self.lanes[lane_of(position)]

    def __contains__(self, position: int) -> bool:
        lane = self.lanes.get(lane_of(position))
        return lane is not None and lane.base <= position < lane.next

    def has_range(self, low: int, high: int) -> bool:
        """Whether [low, high) are positions that were given out, of one lane."""
        lane = self.lanes.get(lane_of(low)) if low >= 0 else None
        return lane is not None and low < high <= lane.next

    @property
    def stored_count(self) -> int:
        return sum(lane.next - lane.first for lane in self.order)

    @property
    def readable_count(self) -> int:
        """Messages that ever became readable."""
        return sum(lane.readable - lane.base for lane in self.order)

    @property
    def stored_bytes(self) -> int:
        return sum(lane.gauge.total for lane in self.order)

    def append(self, lane: Lane, batch: Batch) -> list[Operation]:
        """Give the batch the lane's next positions, and store it."""
        lane.next += batch.count
        lane.stored = lane.next
        lane.gauge.add(lane.next, len(batch.data))
        operations: list[Operation] = [
            Put(Table.BATCH, position_key(self.identity, lane.next), batch.data),
            log_put(self.identity, LogField.NEXT, lane.next, lane.number, lane.gauge.added),
        ]
        return operations + self._mark_expiries(lane, batch) if batch.columns & _EXPIRY else operations

    def _mark_expiries(self, lane: Lane, batch: Batch) -> list[Operation]:
        earliest_ms = min((int(ms) for ms in batch.expiries_ms() or () if ms > 0), default=0)
        if not earliest_ms:
            return []
        lane.expiries.add(lane.next - batch.count, lane.next, earliest_ms)
        if lane.expires:
            return []
        lane.expires = True
        return [log_put(self.identity, LogField.EXPIRES, 1, lane.number)]

    def skip(self, lane: Lane, count: int) -> list[Operation]:
        """Positions pass without anything being stored: nobody wants the messages."""
        lane.next += count
        lane.first = lane.next
        return [
            log_put(self.identity, LogField.FIRST, lane.first, lane.number, lane.gauge.freed),
            log_put(self.identity, LogField.NEXT, lane.next, lane.number, lane.gauge.added),
        ]

    def trim(self, lane: Lane, needed_from: int) -> list[Operation]:
        """Free what lies below; not beyond what is written, for a deletion may overtake, on a full disk, the batch that
        it is to delete."""
        operations: list[Operation] = []
        first = min(needed_from, lane.readable)
        if first > lane.first:
            lane.first = first
            lane.gauge.free(first)
            lane.expiries.free(first)
            operations.append(log_put(self.identity, LogField.FIRST, first, lane.number, lane.gauge.freed))
        if lane.deleted < min(lane.first, lane.stored):
            lane.deleted = lane.first
            low, high = position_key(self.identity, lane.base), position_key(self.identity, lane.first + 1)
            operations.append(DeleteRange(Table.BATCH, low, high))
        return operations


def split_by_lane(batch: Batch) -> Iterable[tuple[int, Batch]]:
    """The messages of each priority as a batch of their own, with the number of the lane."""
    priorities = batch.priorities() if batch.columns & _PRIORITY else None
    if priorities is None:
        return ((0, batch),)
    if priorities.count(priorities[0]) == len(priorities):
        return ((lane_for(priorities[0]), batch),)
    return [
        (lane_for(priority), batch.select([i for i, found in enumerate(priorities) if found == priority]))
        for priority in sorted(set(priorities), reverse=True)
    ]

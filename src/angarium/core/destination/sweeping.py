"""Expired messages that nobody asks for: found and buried, a bounded portion at a time.

What is delivered is looked at then. For the rest, every destination knows by marks (`expiries`) where something will
expire, and when. When a mark is due its stretch is read, `READ_BYTES` at a time and one read at a time for the whole
node; what has expired and is free is settled and buried in one write, as at delivery.

    a mark is due --Tick--> Read --BatchesRead--> buried, new marks for what expires later --> the next read
                                                  nothing more is due --> a pause

After a round there is a pause of `PAUSE_S`, or `PAUSE_SHARE` times as long as the round took: so sweeping takes a tenth
of the time at most, whatever the backlog. What has expired while somebody holds it is looked for again every
`AGAIN_S`. Destinations in which nothing expires cost nothing: they are not known here.
"""
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from angarium.core.destination.delivery import Piece
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, Read, StoredBatch
from angarium.core.destination.log import Lane, LogField, log_put
from angarium.core.destination.pending import PendingSweep, PendingWrite
from angarium.core.wire.batch import Batch

READ_BYTES = 256 * 1024
PAUSE_S = 1.0
PAUSE_SHARE = 9.0
AGAIN_S = 10.0


class Sweeper:
    def __init__(self, destinations: dict[int, Destination]) -> None:
        self._destinations = destinations
        self._due: list[tuple[float, int]] = []  # a heap: when something expires where; an entry may be outdated
        self._scheduled: dict[int, float] = {}  # destination -> its earliest entry that counts
        self._is_reading = False
        self._began: float | None = None  # the round that is under way
        self._not_before = 0.0

    def note(self, destination: Destination, now: float) -> None:
        """Something there expires, perhaps earlier than all before; what comes too late is looked for after a pause."""
        earliest_ms = _earliest_ms(destination)
        if earliest_ms is None:
            return
        at = destination.state.monotonic(earliest_ms + 1)  # when it is over, however times are rounded
        at = at if at > now else now + PAUSE_S
        identity = destination.identity
        if at < self._scheduled.get(identity, float("inf")):
            self._scheduled[identity] = at
            heappush(self._due, (at, identity))

    def clock_stepped(self, now: float) -> None:
        """All that was foreseen comes at another time."""
        self._due, self._scheduled = [], {}
        for destination in self._destinations.values():
            self.note(destination, now)

    def deadline(self) -> float | None:
        if self._is_reading:
            return None
        while self._due and self._scheduled.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return max(self._due[0][0], self._not_before) if self._due else None

    def tick(self, now: float) -> list[Command]:
        """Read the next stretch in which something has expired, or pause."""
        while (at := self.deadline()) is not None and at <= now:
            identity = self._due[0][1]
            destination = self._destinations.get(identity)
            stretch = None if destination is None else _due_stretch(destination, now)
            if destination is not None and stretch is not None:
                self._is_reading = True
                self._began = now if self._began is None else self._began
                low, high = stretch
                token = destination.state.read_token(PendingSweep(identity, low, high))
                return [Read(token, identity, low, READ_BYTES, high)]
            heappop(self._due)
            del self._scheduled[identity]
            if destination is not None:
                self.note(destination, now)
        if self._began is not None:
            self._not_before = now + max(PAUSE_S, PAUSE_SHARE * (now - self._began))
            self._began = None
        return []

    def batches_read(self, asked: PendingSweep, event: BatchesRead, *, now: float) -> list[Command]:
        self._is_reading = False
        destination = self._destinations.get(asked.destination)
        commands: list[Command] = []
        if destination is not None:
            pieces = [
                Piece(stored.end, Batch.trusted(stored.data)) for stored in event.batches
                if isinstance(stored, StoredBatch)  # what is damaged is set aside when it would be delivered
            ]  # fmt: skip
            # What was read ends with a batch, wherever the read was to end.
            end = min(event.batches[-1].end, asked.high) if event.batches else asked.high
            end = min(end, asked.low + destination.dispatch.at_once())
            commands = destination.dispatch.expire(pieces, (asked.low, end), now=now)
            lane = destination.log.lane_at(asked.low)
            lane.expiries.looked(asked.low, end, list(_later(destination, lane, pieces, (asked.low, end), now)))
            if not len(lane.expiries):
                commands.append(_forgotten(destination, lane))
        return commands + self.tick(now)


def _earliest_ms(destination: Destination) -> int | None:
    times = (lane.expiries.earliest_ms for lane in destination.log.order)
    return min((time for time in times if time is not None), default=None)


def _due_stretch(destination: Destination, now: float) -> tuple[int, int] | None:
    """The first in which something may have expired, of what is stored and readable."""
    wall_ms = destination.state.wall_ms(now)
    for lane in destination.log.order:
        while (due := lane.expiries.due(wall_ms)) is not None:
            low, high = max(due[0], lane.first), min(due[1], lane.readable)
            if low > due[0]:
                lane.expiries.looked(due[0], min(low, due[1]), [])
            if low < high:
                return low, high
            if low < due[1]:  # it is on its way to the disk
                lane.expiries.looked(low, due[1], [(low, due[1], wall_ms + int(PAUSE_S * 1000))])
    return None


def _later(
    destination: Destination, lane: Lane, pieces: Sequence[Piece], looked: tuple[int, int], now: float
) -> Iterable[tuple[int, int, int]]:
    """For each batch when the first of its messages expires that has not, or that somebody holds."""
    wall_ms = destination.state.wall_ms(now)
    unsettled = destination.state.unsettled_in(max(looked[0], lane.first), looked[1])
    for piece in pieces:
        expiries = piece.batch.expiries_ms() if piece.batch is not None else None
        if piece.batch is None or expiries is None:
            continue
        base = piece.end - piece.batch.count
        parts = unsettled.overlap(base, piece.end)
        times = [int(expiries[at - base]) for part in parts for at in range(*part)]
        again_ms = wall_ms + int(AGAIN_S * 1000)
        if times := [ms if ms > wall_ms else again_ms for ms in times if ms > 0]:
            yield parts[0][0], min(piece.end, looked[1]), min(times)


def _forgotten(destination: Destination, lane: Lane) -> Command:
    """Nothing expires there any more: after a restart nobody has to look."""
    lane.expires = False
    noted = log_put(destination.identity, LogField.EXPIRES, 0, lane.number)
    return destination.state.write([noted], PendingWrite(), freeing=True, patient=True)

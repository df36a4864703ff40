"""Messages that stay in the log after everybody has settled them, for those who read it by position.

    retain_s         until so long after they came
    retain_bytes     while what is stored of their lane is no more
    retain_messages  the same

Of several the first that is reached frees the oldest. Nothing is freed that a subscription has not settled. The write
path knows nothing of this: it frees nothing of such a destination, and once in `LOOK_S` all of them, or `LOOKS_MAX` in
rotation, are looked at here. So up to a second's worth is kept beyond the limits.

Messages carry their producers' clocks, which may be wrong, so time is told by marks of our own: what lay below a
position had come when the mark was made. They are `MARKS` to a `retain_s`, stored in a ring of records of the log, and
tell too late rather than too early: what was not yet marked when a node stopped counts from its next start.
"""
from itertools import islice

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command
from angarium.core.destination.log import ARRIVALS_MAX, Lane, LogField, log_put
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.records import DestinationRecord
from angarium.core.storage import Operation

LOOK_S = 1.0
LOOKS_MAX = 1_000  # destinations in one look: some milliseconds
MARKS = ARRIVALS_MAX - 4  # those that are over are still there when they are looked for


class Retainer:
    def __init__(self, destinations: dict[int, Destination]) -> None:
        self._destinations = destinations
        self._retaining: dict[int, None] = {}  # destinations, those first that were not looked at for longest
        self._at: float | None = None  # the next look

    def note(self, destination: Destination, now: float) -> None:
        """It is new, or has other options."""
        if destination.record.retains:
            self._retaining[destination.identity] = None
            self._at = now + LOOK_S if self._at is None else self._at

    def deadline(self) -> float | None:
        return self._at

    def tick(self, now: float) -> list[Command]:
        if self._at is None or now < self._at:
            return []
        commands: list[Command] = []
        for identity in list(islice(self._retaining, LOOKS_MAX)):
            del self._retaining[identity]
            destination = self._destinations.get(identity)
            if destination is not None and destination.record.retains:
                self._retaining[identity] = None
                commands += _look(destination, now)
            elif destination is not None:  # its options have changed
                commands += destination.state.freed()
        self._at = now + LOOK_S if self._retaining else None
        return commands


def _look(destination: Destination, now: float) -> list[Command]:
    state, wall_ms = destination.state, destination.state.wall_ms(now)
    operations: list[Operation] = []
    if state.record.retain_s:
        for lane in state.log.order:
            operations += _marked(state.identity, lane, state.record.retain_s, wall_ms)
    operations += state.trim_to(lambda lane: floor(lane, state.record, wall_ms))
    return [state.write(operations, PendingWrite(), freeing=True, patient=True)] if operations else []


def _marked(identity: int, lane: Lane, retain_s: int, wall_ms: int) -> list[Operation]:
    """Note that what lies below has come by now, if that is news, and the last note is old enough."""
    position, ms, field = lane.arrivals[-1] if lane.arrivals else (lane.base, 0, LogField.ARRIVALS - 1)
    if lane.readable <= position or wall_ms - ms < max(LOOK_S, retain_s / MARKS) * 1_000:
        return []
    field = LogField.ARRIVALS + (field + 1 - LogField.ARRIVALS) % ARRIVALS_MAX
    lane.arrivals = [*lane.arrivals[-(ARRIVALS_MAX - 1) :], (lane.readable, wall_ms, field)]
    return [log_put(identity, field, lane.readable, lane.number, wall_ms)]


def floor(lane: Lane, record: DestinationRecord, wall_ms: int) -> int:
    """What lies below is retained no longer."""
    floors: list[int] = []
    if record.retain_s:
        over_ms = wall_ms - record.retain_s * 1_000
        floors.append(max((position for position, ms, _ in lane.arrivals if ms <= over_ms), default=lane.base))
    if record.retain_messages:
        floors.append(lane.readable - record.retain_messages)
    if record.retain_bytes:
        floors.append(lane.gauge.latest(record.retain_bytes))
    return max(floors)

"""Reading a log by position: what is stored, as it is stored, for anybody, without taking or settling anything.

    log.describe  one destination: its id, and for each lane where the log begins and ends
    log.list      the same of a page of destinations, by name
    log.seek      where in each lane the messages of a time begin
    log.read      the batches from a position on, as they were published
    log.note      how far a reader is, for administrators to see

Nothing that a request needs is remembered from another. A reader sees what was committed and has become due, in the
order of the log, whatever became of it since: settled, expired and dead messages too, as long as they are stored. What
is gone it notices by `first`, and a destination that was removed and made anew by its id, which is never used again.

A session is answered one request after the other, and none while its client does not read: so one page is all that a
reader can make a node hold.
"""
from typing import TYPE_CHECKING, Any

from angarium.core.destination.arguments import done, number, text
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, Read, StoredBatch, ToSession
from angarium.core.destination.log import LANE_COUNT, Lane, lane_of
from angarium.core.destination.log_pages import LogWanted, Stretch
from angarium.core.destination.log_readers import NAME_CHARACTERS_MAX
from angarium.core.destination.names import Names
from angarium.core.destination.pending import PendingLogRead, PendingSeek
from angarium.core.errors import Rejected
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Reply, Request

if TYPE_CHECKING:
    from angarium.core.destination.destinations import Destinations

COMMANDS = ("log.describe", "log.list", "log.seek", "log.read", "log.note")


class LogReading:
    def __init__(self, manager: "Destinations", names: Names) -> None:
        self._manager = manager
        self._names = names

    def request(self, session: bytes, request: Request, now: float) -> list[Command]:
        match request.command:
            case "log.list":
                return [done(session, request, [describe(found) for found in self._names.page(request)])]
            case "log.describe":
                return [done(session, request, describe(self._named(request)))]
            case "log.seek":
                return [self._seek(session, request)]
            case "log.note":
                return [self._note(session, request, now)]
        return [self._read(session, request)]

    def _read(self, session: bytes, request: Request) -> Command:
        destination = self._named(request)
        wanted = LogWanted.of(request)
        lane = destination.log.lanes.get(lane_of(wanted.position)) or Lane(lane_of(wanted.position))
        stretch = Stretch(destination.state.log_identity, lane.first, lane.readable)
        start, _ = wanted.within(stretch)
        if start is None:
            return done(session, request, wanted.nothing(stretch))
        token = self._manager.pending_read(PendingLogRead(destination.identity, session, request.number, wanted))
        return Read(token, destination.identity, start, wanted.bytes_max, lane.readable)

    def _note(self, session: bytes, request: Request, now: float) -> Command:
        destination, reader = self._named(request), text(request, "reader")
        positions = request.arguments.get("positions", [])
        if not 0 < len(reader) <= NAME_CHARACTERS_MAX:
            raise Rejected("bad-argument", f"a reader's name has 1 to {NAME_CHARACTERS_MAX} characters")
        valid = isinstance(positions, list) and len(positions) <= LANE_COUNT
        if not valid or not all(isinstance(at, int) and 0 <= at < 1 << 63 for at in positions):
            raise Rejected("bad-argument", f"{request.command} needs 'positions' as at most {LANE_COUNT} positions")
        if positions:
            destination.state.log_readers.note(reader, positions, destination.state.wall_ms(now))
        else:
            destination.state.log_readers.forget(reader)
        return done(session, request, {})

    def _seek(self, session: bytes, request: Request) -> Command:
        destination = self._named(request)
        timestamp_ms = number(request, "timestamp_ms", 0)
        lanes = [lane for _, lane in sorted(destination.log.lanes.items())]
        asked = PendingSeek(
            destination.identity, session, request.number, timestamp_ms,
            [(lane.first, lane.readable) for lane in lanes],
        )  # fmt: skip
        return self._sought(destination, asked)

    def _sought(self, destination: Destination, asked: PendingSeek) -> Command:
        """Look into the middle of the first stretch that is not narrowed down; or all are."""
        for low, high in asked.stretches:
            if low < high:
                middle = (low + high) // 2
                readable = destination.log.lane_at(middle).readable
                return Read(self._manager.pending_read(asked), destination.identity, middle, 1, readable)
        positions = [low for low, _ in asked.stretches]
        told = {"identity": destination.state.log_identity, "positions": positions}
        return ToSession(asked.session, Reply(asked.request, "", "", told))

    # -- what the disk has answered ------------------------------------------------------------------

    def read(
        self, asked: PendingLogRead | PendingSeek, event: BatchesRead, destination: Destination | None
    ) -> list[Command]:
        if destination is None:
            reason = "the destination has been removed meanwhile"
            return [ToSession(asked.session, Reply(asked.request, "unknown-destination", reason))]
        if isinstance(asked, PendingSeek):
            return [self._sought(destination, narrowed(asked, event))]
        lane = destination.log.lanes.get(lane_of(asked.wanted.position)) or Lane(lane_of(asked.wanted.position))
        stretch = Stretch(destination.state.log_identity, lane.first, lane.readable)
        told, payload = asked.wanted.page(stretch, event.batches)
        return [ToSession(asked.session, Reply(asked.request, "", "", told), payload)]

    def _named(self, request: Request) -> Destination:
        name, identity = text(request, "name"), number(request, "identity", 0)
        destination = self._manager.find(name)
        if destination is None:
            raise Rejected("unknown-destination", f"there is no destination {name!r}")
        if identity not in (0, known := destination.state.log_identity):
            reason = f"{name!r} with the id {identity} was removed; the one of that name now has {known}"
            raise Rejected("destination-removed", reason)
        return destination


def describe(destination: Destination) -> dict[str, Any]:
    return {
        "name": destination.record.name,
        "kind": destination.record.kind.name.lower(),
        "identity": destination.state.log_identity,
        # Of each lane that was ever used: where it begins and ends, and its bytes.
        "lanes": [
            [lane.first, lane.readable, lane.gauge.total] for _, lane in sorted(destination.log.lanes.items())
        ],
        "retains": destination.record.retains,
    }


def narrowed(asked: PendingSeek, event: BatchesRead) -> PendingSeek:
    """The stretch that was looked into without the half that cannot be."""
    at = next(index for index, (low, high) in enumerate(asked.stretches) if low < high)
    low, high = asked.stretches[at]
    middle = (low + high) // 2
    found = next((each for each in event.batches if each.end > middle), None)  # one whose key is damaged may end before
    if isinstance(found, StoredBatch):
        batch = Batch.trusted(found.data)
        if batch.timestamp_ms >= asked.timestamp_ms:
            high = max(low, min(middle, found.end - batch.count))
        else:
            low = min(high, found.end)
    elif found is not None:  # damaged: its time is not known
        low = min(high, found.end)
    else:
        high = middle
    stretches = [*asked.stretches[:at], (low, high), *asked.stretches[at + 1 :]]
    return PendingSeek(asked.destination, asked.session, asked.request, asked.timestamp_ms, stretches)

"""Destinations that are moved between replica groups, at one message manager: what the placement says becomes true.

    placement: a move from here   --> departures     --done--> its rows are deleted
                                                     --ended-> opened again, from its rows
               a move to here     --> arrivals       --done--> opened, from its rows
                                                     --ended-> its rows are deleted
               it is elsewhere, and we have it (we were down when that was decided) --> its rows are deleted

To open is the same in all cases, and the same as at a start: the small tables of the destination are read and taken up.
If a record of them is damaged it is not opened, for it would be without its log, or a subscription: whoever asks for it
is told so, and the next primary repairs it at its start, or has a copy that is whole.
Meanwhile whoever asks for it by name waits. A name that is elsewhere is not answered at all: the client manager that
asks has not heard yet where it is, and asks again there when it does (`core/session`).

A placement older than one by which something was opened here is not listened to.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.records import DestinationRecord
from angarium.core.groups.records import Placement
from angarium.core.moving.arrivals import Arrivals
from angarium.core.moving.departures import Departures
from angarium.core.moving.reading import RowsReading
from angarium.core.moving.records import arrival_delete, placed_put, row_deletes, stored_arrivals, stored_version
from angarium.core.report import Level, Report
from angarium.core.storage import Operation, Put, Table, key_of
from angarium.core.stream.events import FileEvent, FileFailed, FileSynced, FileWritten
from angarium.core.stream.reading import refused as refused_read
from angarium.core.wire import frames

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager

FRAMES = (frames.MoveRows, frames.MoveTaken, frames.MoveRefused, frames.MoveWants, frames.MoveBlock)
WAITING_MAX = 10_000  # sessions that ask for destinations that are on their way; past it one more is refused

Asked = frames.Locate | frames.StreamRead


@dataclass(slots=True, eq=False)
class Opening:
    """A destination whose rows are being read."""

    name: str
    identity: int
    record: DestinationRecord
    is_arrival: bool  # it becomes a destination of this group with this
    damage: str = ""  # why it cannot be opened


class Moves:
    def __init__(self, manager: "MessageManager", group: int) -> None:
        self._manager = manager
        self._group = group
        self.placement = Placement()
        self._version_min = 0  # by an older placement nothing is done
        self.departures = Departures(manager, group, self._is_expected)
        self.arrivals = Arrivals(manager)
        self._openings: dict[str, Opening] = {}
        self._waiting: dict[tuple[bytes, str], Asked] = {}  # by session and name

    def restore(self, records: dict[bytes, bytes]) -> None:
        self.arrivals.restore(stored_arrivals(records))
        self._version_min = stored_version(records)

    # -- the placement -----------------------------------------------------------------------------------

    def placed(self, placement: Placement, attempt: int, now: float) -> list[Command]:
        if placement.version < max(self._version_min, self.placement.version):
            return []
        self.placement = placement
        self.departures.attempt = attempt
        commands: list[Command] = []
        for departure in list(self.departures):
            move = placement.moves.get(departure.name)
            if move is None or move.number != departure.move.number:
                commands += self._departed(departure.name, now)
        for arrival in list(self.arrivals):
            commands += self._look_at_arrival(arrival.name)
        for destination in self._left_over():
            self._manager.tracer.forget(destination)
            commands += self._manager.remove(destination, PendingWrite())
        for name, move in placement.moves.items():
            if move.source == self._group and name not in self.departures:
                goes_home = move.target == placement.slot_of(name)
                commands += self.departures.begin(name, move, now, goes_home=goes_home)
        return commands

    def _left_over(self) -> list[Destination]:
        """What we have and is elsewhere: we were down when that was decided. One that has come here by a move is an
        exception of the placement as long as it is here; of what was made here none is deleted without being named."""
        exceptions = self.placement.exceptions
        named = [self._manager.find(name) for name, group in exceptions.items() if group != self._group]
        come = [found for found in self._manager.destinations.values() if found.record.first_identity]
        back = [found for found in come if self._place(found.record.name) != self._group]
        return [
            found for found in dict.fromkeys((*named, *back))
            if found is not None and found.record.name not in self.departures
        ]  # fmt: skip

    def _place(self, name: str) -> int:
        """The group that has it, or would."""
        return self._group if name.startswith("_") or not self.placement.slots else self.placement.group_of(name)

    def _departed(self, name: str, now: float) -> list[Command]:
        departure = self.departures.over(name)
        if departure.is_absent:
            waiting = self._take_waiting(name)  # if it is to be elsewhere, they ask there
            stays = self._place(name) == self._group
            return [c for asked in waiting if stays for c in self._ask_again(*asked)]
        if not departure.identity:
            return []  # it was never taken out
        if self._place(name) == self._group:
            self._manager.streams.stay(departure.identity, now)
            ended = self.placement.moves_ended.get(name)
            why = "its move was given up" if ended is None else ended.reason
            told = Report(Level.INFO, "destination-stays", f"{name!r} stays in this replica group: {why}")
            record = msgspec.msgpack.decode(departure.record, type=DestinationRecord)
            opening = self._openings[name] = Opening(name, departure.identity, record, is_arrival=False)
            if not departure.is_empty:  # not all that was written is to be read yet
                departure.then = lambda: self._read_from_start(opening)
                return [told]
            return [told, *self._read_from_start(opening)]
        self._forget_waiting(name)  # they ask where it is now
        text = f"{name!r} is in replica group {self._place(name)} from now on"
        files = self._manager.streams.leave(departure.identity)
        deletes = self._manager.write([*row_deletes(departure.identity)], PendingWrite(), freeing=True)
        return [Report(Level.INFO, "destination-left", text), deletes, *files]

    def _look_at_arrival(self, name: str) -> list[Command]:
        arrival = next(arrival for arrival in self.arrivals if arrival.name == name)
        record, move = arrival.record, self.placement.moves.get(name)
        is_under_way = move is not None and move.number == record.number
        if is_under_way or record.number > self.placement.moves_begun or name in self._openings:
            return []
        if self._place(name) == self._group and record.is_complete:
            described = msgspec.msgpack.decode(record.record, type=DestinationRecord)
            opening = self._openings[name] = Opening(name, record.identity, described, is_arrival=True)
            return self._read_from_start(opening)
        self._forget_waiting(name)
        return self.arrivals.drop(name)

    def frame(self, frame: frames.Frame, payload: bytes, now: float) -> list[Command]:
        """Any of FRAMES: from the message manager of another group; raises RemoteProtocolError."""
        if isinstance(frame, frames.MoveTaken | frames.MoveRefused):
            return self.departures.answered(frame, now)
        if isinstance(frame, frames.MoveWants):
            return self.departures.wanted(frame, now)
        assert isinstance(frame, frames.MoveRows | frames.MoveBlock)
        move = self.placement.moves.get(frame.name)
        if move is None or (move.number, move.source, move.target) != (frame.number, frame.source, self._group):
            return []  # not heard of yet: it is said again; or over
        if isinstance(frame, frames.MoveBlock):
            return self.arrivals.block(frame, payload)
        return self.arrivals.rows(frame, payload, now)

    def file_event(self, event: FileEvent, now: float) -> list[Command] | None:
        """None: it is not of a file that comes with a destination."""
        if isinstance(event, FileWritten | FileSynced | FileFailed) and event.stream in self.arrivals.files:
            return self.arrivals.file_event(event, now)
        return None

    # -- opening -----------------------------------------------------------------------------------------

    def _is_expected(self, name: str) -> bool:
        return name in self._openings or name in self.arrivals

    def _read_from_start(self, opening: Opening) -> list[Command]:
        return RowsReading(self._manager, opening.identity, lambda reading, now: self._read(opening, reading)).begin()

    def _read(self, opening: Opening, reading: RowsReading) -> list[Command]:
        if self._openings.get(opening.name) is not opening:
            return []
        if damage := reading.damage(opening.name):
            opening.damage = f"{damage}: it is served again when another copy of its group becomes primary"
            told: list[Command] = [Report(Level.ERROR, "destination-damaged", opening.damage)]
            return told + [_refused(*waiting, "damaged", damage) for waiting in self._take_waiting(opening.name)]
        return self._opened(opening, reading)

    def _opened(self, opening: Opening, reading: RowsReading) -> list[Command]:
        del self._openings[opening.name]
        self.departures.gone.pop(opening.identity, None)
        operations: list[Operation] = []
        pending: PendingWrite | None = None
        others: list[PendingWrite] = []
        if opening.is_arrival:
            self.arrivals.opened(opening.name, self._manager.now)
            self._version_min = self.placement.version
            put = Put(Table.DESTINATION, key_of(opening.identity), msgspec.msgpack.encode(opening.record))
            others, traces = self._manager.tracer.came(opening.record)
            operations = [put, arrival_delete(opening.name), placed_put(self.placement.version), *traces]
        destination, corrections, commands = self._manager.open_stored(opening.identity, opening.record, reading.state)
        if opening.is_arrival:
            pending = self._manager.creation(destination)
            pending.others += others
            commands.append(Report(Level.INFO, "destination-arrived", f"{opening.name!r} was moved to this group"))
        if operations or corrections:
            write = self._manager.write(operations + corrections, pending or PendingWrite())
            commands = [write, *commands]
        for asked in self._take_waiting(opening.name):
            commands += self._ask_again(*asked)
        return commands

    # -- whoever asks for it -----------------------------------------------------------------------------

    def is_away(self, name: str) -> bool:
        """It is elsewhere, or on its way."""
        if self.departures.is_out(name) or self._is_expected(name):
            return True
        return self._place(name) != self._group and self._manager.find(name) is None

    def why_away(self, name: str) -> tuple[str, str] | None:
        """Code and reason, for whoever asks for something of it; None: it is here, or can be."""
        if (opening := self._openings.get(name)) is not None and opening.damage:
            return "damaged", opening.damage
        if not self.is_away(name):
            return None
        return "moving", f"{name!r} is being moved to another replica group, or has just been; ask again"

    def locate(self, session: bytes, frame: frames.Locate) -> list[Command] | None:
        """None: it is here, or can be."""
        return self._wait(session, frame, frame.name, f"{frame.name} {frame.destination_kind} {frame.existing}")

    def stream_read(self, session: bytes, frame: frames.StreamRead) -> list[Command] | None:
        """By name; None: it is here, or nowhere."""
        return self._wait(session, frame, frame.destination, f"{frame.destination} is read")

    def _wait(self, session: bytes, frame: Asked, name: str, key: str) -> list[Command] | None:
        if not self.is_away(name):
            return None
        if (opening := self._openings.get(name)) is not None and opening.damage:
            return [_refused(session, frame, "damaged", opening.damage)]
        if not self.departures.is_out(name) and not self._is_expected(name):
            return []
        if len(self._waiting) >= WAITING_MAX:
            reason = f"{name!r} is being moved, and {WAITING_MAX:,} sessions wait for such destinations; try again"
            return [_refused(session, frame, "moving", reason)]
        self._waiting[session, key] = frame
        return []

    def _ask_again(self, session: bytes, frame: Asked) -> list[Command]:
        if isinstance(frame, frames.Locate):
            return self._manager.locate(session, frame)
        # Its reader has used up something meanwhile: it says anew from where on, and how much it takes.
        return [ToSession(session, frames.SessionDetached(f"{frame.destination!r} can be read again"))]

    def session_ended(self, session: bytes) -> None:
        for key in [key for key in self._waiting if key[0] == session]:
            del self._waiting[key]

    def _take_waiting(self, name: str) -> list[tuple[bytes, Asked]]:
        found = {key: frame for key, frame in self._waiting.items() if _asked_name(frame) == name}
        self._waiting = {key: frame for key, frame in self._waiting.items() if key not in found}
        return [(session, frame) for (session, _), frame in found.items()]

    def _forget_waiting(self, name: str) -> None:
        self._take_waiting(name)

    def destination_frame(self, session: bytes, identity: int, frame: frames.Frame) -> list[Command] | None:
        """What is for a destination that was taken out; None: it was not. Whoever opens it comes too late, and has to
        ask for it again; of all others the sessions have been detached."""
        if identity not in self.departures.gone:
            return None
        if isinstance(frame, frames.ProducerOpen | frames.ConsumerOpen | frames.StreamOpen):
            return [ToSession(session, frames.SessionDetached("the destination is being moved to another group"))]
        return []

    # -- time, and for people ----------------------------------------------------------------------------

    def deadline(self) -> float | None:
        return self.departures.deadline()

    def tick(self, now: float) -> list[Command]:
        return self.departures.tick(now)

    def describe(self) -> Iterator[dict[str, object]]:
        for departure in self.departures:
            yield {
                "name": departure.name, "number": departure.move.number, "step": departure.step.value,
                "rows": departure.rows, "bytes": departure.copied_bytes, "bytes_total": departure.total_bytes,
            }  # fmt: skip


def _asked_name(frame: Asked) -> str:
    return frame.name if isinstance(frame, frames.Locate) else frame.destination


def _refused(session: bytes, frame: Asked, code: str, reason: str) -> ToSession:
    if isinstance(frame, frames.StreamRead):
        return refused_read(session, frame, code, reason)
    kind = frame.destination_kind
    return ToSession(session, frames.Located(frame.name, kind, 0, kind, code, reason, frame.existing))

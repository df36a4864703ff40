"""A message manager: what the bus brings for the destinations that it has (`destinations.py`).

Frames for a destination go to that destination's machine; frames for destination 0 are the message manager's
own: Locate (find or create by name) and administrative Requests. What breaks the protocol is answered with a Failure,
on which the client manager closes the client's connection.
"""

from collections.abc import Sequence

from angarium.core.destination.absent import answer_removed
from angarium.core.destination.administration import Administration
from angarium.core.destination.destination import Destination
from angarium.core.destination.destinations import Destinations
from angarium.core.destination.events import (
    BatchesRead,
    ClockStepped,
    Command,
    DelayedRead,
    DestinationSettings,
    DiskMeasured,
    Event,
    FromSession,
    Placed,
    RowsRead,
    SettingsChanged,
    Tick,
    ToSession,
    WritesBlocked,
    WritesUnblocked,
    Written,
)
from angarium.core.destination.pending import (
    PendingDelayed,
    PendingRead,
    PendingRoom,
    PendingRows,
    PendingSweep,
    PendingWrite,
)
from angarium.core.destination.readings import Readings
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.restoring import StoredState, stored_records, take_up
from angarium.core.errors import LocalProtocolError, Rejected, RemoteProtocolError
from angarium.core.ids import destination_id
from angarium.core.moving.moves import FRAMES as MOVE_FRAMES
from angarium.core.moving.moves import Moves
from angarium.core.storage import Operation
from angarium.core.stream.events import FileEvent, StreamSettings
from angarium.core.stream.reading import Damage
from angarium.core.stream.streams import FRAMES as STREAM_FRAMES
from angarium.core.stream.streams import Streams
from angarium.core.transaction.local import FRAMES as TRANSACTION_FRAMES
from angarium.core.transaction.local import Transactions
from angarium.core.wire import frames


class MessageManager(Destinations):
    def __init__(
        self, settings: DestinationSettings, streams: StreamSettings | None = None, *,
        wall_ms_at_zero: float, number: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            settings, Streams(streams or StreamSettings()), wall_ms_at_zero=wall_ms_at_zero, number=number
        )
        self._own = (0, destination_id(number, 0))  # what is sent there is for the manager itself
        self._administration = Administration(self)
        self.transactions = Transactions(
            number, self.destinations, settings, write=self.write, wall_ms_at_zero=wall_ms_at_zero
        )
        self.moves = Moves(self, number)
        self.readings = Readings()

    # -- start -------------------------------------------------------------------------------------

    def restore(self, state: StoredState, *, now: float) -> list[Command]:
        """Take up what was stored; to be called once, before any event."""
        self.now = now
        if state.destinations:
            self._directory.restarted(now)
        self._next_destination, records = stored_records(state, self._number)
        for identity, record in records.items():
            self._add(identity, record)
            if record.owner:
                self._temporaries.restore(record.owner, identity, now=now)
        self.moves.restore(state.moves)
        arriving = [arrival.record.identity for arrival in self.moves.arrivals]
        operations = take_up(self.destinations, state, now=now, arriving=arriving)
        self.transactions.restore(state, now=now)
        damages = self.streams.restore(state.streams, state.stream_files, now=now)  # what they hold counts
        burials = [command for destination in self.destinations.values() for command in self._restored(destination)]
        commands: list[Command] = [self.write(operations, PendingWrite(), freeing=True)] if operations else []
        for damage in damages:
            commands += self._stream_damaged(damage)
        return commands + burials + self._keep_node_limits()

    def open_stored(
        self, identity: int, record: DestinationRecord, state: StoredState
    ) -> tuple[Destination, list[Operation], list[Command]]:
        """Take up one destination, of which the rows are given: it was moved here, or taken out and stays. What is to
        be corrected in the store, and what follows."""
        destination = self._add(identity, record)
        corrections = take_up({identity: destination}, state, now=self.now)
        self._directory.opened(destination, self.now)
        return destination, corrections, self._restored(destination) + self._keep_node_limits()

    def _restored(self, destination: Destination) -> list[Command]:
        self._note_deadline(destination)
        self.node_limits.note(destination)
        self._sweeper.note(destination, self.now)
        self.retainer.note(destination, self.now)
        self.tracer.follow(destination, anew=False)
        return destination.restored()

    # -- events ------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        deadlines = [self.streams.deadline(), self._temporaries.deadline(), self._directory.deadline()]
        deadlines += [self._sweeper.deadline(), self.transactions.deadline(), self.retainer.deadline()]
        deadlines += [self.tracer.deadline(), self.moves.deadline(), self.readings.deadline()]
        deadlines.append(self._noting.deadline())
        deadlines += [destination.deadline() for destination in self._timed.values()]
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    def handle(self, event: Event, *, now: float) -> list[Command]:
        self.now = now
        if not self.node_limits.makes_room:
            return self._handle(event, now)
        is_waiting = self.room_maker.is_waiting()
        commands = self._handle(event, now)
        return commands + self._keep_node_limits() if is_waiting or self.node_limits.stuck else commands

    def _handle(self, event: Event, now: float) -> list[Command]:
        match event:
            case FromSession(session, identity, frame, payload):
                if self.readings.holds(event, self.settings.selector_characters_max, now):
                    return []
                try:
                    if identity in self._own:
                        return self._own_frame(session, frame, payload, now)
                    return self._destination_frame(session, identity, frame, payload, now)
                except RemoteProtocolError as error:
                    return [ToSession(session, frames.Failure(error.code, error.reason))]
            case Written(token):
                return self._written(self._writes.pop(token), now) + self._keep_node_limits()
            case BatchesRead(token, _):
                asked = self._reads.pop(token)
                if isinstance(asked, PendingSweep):
                    return self._sweeper.batches_read(asked, event, now=now)
                if isinstance(asked, PendingRoom):
                    return self.room_maker.batches_read(asked, event, now) + self._blocking.keep_node_limits()
                destination = self.destinations.get(asked.destination)
                assert not isinstance(asked, PendingDelayed | PendingRows)
                if not isinstance(asked, PendingRead):
                    return self._administration.read(asked, event, destination, now=now)
                return [] if destination is None else destination.dispatch.batches_read(asked, event, now=now)
            case DelayedRead(token, _):
                asked = self._reads.pop(token)
                destination = self.destinations.get(asked.destination)
                if destination is None:
                    return []
                assert isinstance(asked, PendingDelayed)
                if asked.parts:
                    return destination.publishing.staging.read(asked, event, now=now)
                moved = destination.publishing.due(event, now=now)
                self._note_deadline(destination)
                return moved
            case RowsRead(token):
                asked = self._reads.pop(token)
                assert isinstance(asked, PendingRows)
                return asked.then(event, now)
            case Placed(placement, epoch):
                return self.moves.placed(placement, epoch, now)
            case WritesBlocked(reason, code):
                return self.tracer.blocked(True) + self._blocking.writes(reason, code) + self._creations_blocked()
            case WritesUnblocked():
                return self.tracer.blocked(False) + self._blocking.writes("")
            case DiskMeasured(room_bytes):
                self.node_limits.room_bytes = room_bytes
                commands = self._keep_node_limits()
                if self.node_limits.reason:
                    # What is deleted makes room on the disk with the next write, and nobody may have one.
                    commands.append(self.write([self.noted_identity()], PendingWrite(), freeing=True))
                return commands
            case SettingsChanged(settings, streams):
                return self._change_settings(settings, streams)
            case ClockStepped(wall_ms_at_zero):
                self._wall_ms_at_zero = self.transactions.wall_ms_at_zero = wall_ms_at_zero
                for destination in self.destinations.values():
                    destination.state.wall_ms_at_zero = wall_ms_at_zero
                self._sweeper.clock_stepped(now)
                return []
            case Tick():
                commands = list(self.streams.tick(now))
                for destination in list(self._timed.values()):
                    commands += destination.tick(now)
                    self._note_deadline(destination)
                commands += self._directory.tick(now) + self._sweeper.tick(now) + self.transactions.tick(now)
                commands += self.retainer.tick(now) + self.tracer.tick(now) + self.moves.tick(now)
                commands += self._noting.tick(now)
                commands += self._remove_temporaries(self._temporaries.due(now))
                return commands + [each for read in self.readings.tick(now) for each in self._handle(read, now)]
        return self._file_event(event)

    def _change_settings(self, settings: DestinationSettings, streams: StreamSettings) -> list[Command]:
        self.settings = self._directory.settings = self._temporaries.settings = settings
        self.node_limits.change(settings, self.destinations.values())
        self.streams.change_settings(streams)
        for destination in self.destinations.values():
            destination.state.settings = settings
        return self.room_maker.keep(self.now) + self._blocking.node_limits_changed()

    def _keep_node_limits(self) -> list[Command]:
        return self.room_maker.keep(self.now) + self._blocking.keep_node_limits()

    def _file_event(self, event: FileEvent) -> list[Command]:
        if (moved := self.moves.file_event(event, self.now)) is not None:
            return moved
        commands, damage = self.streams.file_event(event)
        return [*commands, *(self._stream_damaged(damage) if damage is not None else [])]

    def _stream_damaged(self, damage: Damage) -> list[Command]:
        destination = self.destinations.get(damage.destination)
        return [] if destination is None else destination.stream_damaged(damage.position, damage.reason)

    def _destination_frame(
        self, session: bytes, identity: int, frame: frames.Frame, payload: bytes, now: float
    ) -> list[Command]:
        destination = self.destinations.get(identity)
        if destination is None:
            if (moved := self.moves.destination_frame(session, identity, frame)) is not None:
                return moved
            return answer_removed(session, frame) or self._stream_frame(session, identity, frame, payload, now)
        if type(frame) is frames.Publish:  # the commonest concerns nobody else
            commands = destination.frame(session, frame, payload, now=now)
            if destination.publishing.is_timed:
                self._note_deadline(destination)
            return commands
        if isinstance(frame, frames.StreamRead):
            allowed = destination.consuming.holds(session, frame.consumer, frame.position)
            return list(self.streams.read(session, identity, frame, allowed=allowed))
        if isinstance(frame, STREAM_FRAMES):
            return self._stream_frame(session, identity, frame, payload, now)
        commands = destination.frame(session, frame, payload, now=now)
        self._note_deadline(destination)
        return commands + self._stream_frame(session, identity, frame, payload, now)

    def _stream_frame(
        self, session: bytes, identity: int, frame: frames.Frame, payload: bytes, now: float
    ) -> list[Command]:
        """What concerns streams, of a destination that may have been removed meanwhile."""
        if isinstance(frame, frames.SessionEnded):
            return list(self.streams.session_ended(session, identity, closed=frame.closed, now=now))
        if isinstance(frame, STREAM_FRAMES):
            return list(self.streams.frame(session, identity, frame, payload))
        return []

    def _own_frame(self, session: bytes, frame: frames.Frame, payload: bytes, now: float) -> list[Command]:
        if isinstance(frame, TRANSACTION_FRAMES):
            return self.transactions.frame(session, frame, payload, now=now)
        if isinstance(frame, MOVE_FRAMES):
            return self.moves.frame(frame, payload, now)
        match frame:
            case frames.StreamRead():
                if (moving := self.moves.stream_read(session, frame)) is not None:
                    return moving
                found = self.find(frame.destination)
                return list(self.streams.read(session, found.identity if found else 0, frame, allowed=True))
            case frames.SessionEnded(closed):
                self._directory.session_ended(session, closed=closed, now=now)
                self.moves.session_ended(session)
                ended = self.transactions.session_ended(session, closed=closed)
                return ended + self._stream_frame(session, 0, frame, b"", now)
            case frames.StreamCredit() | frames.StreamReadEnd():
                return self._stream_frame(session, 0, frame, b"", now)
            case frames.Locate():
                return self.locate(session, frame)
            case frames.Request():
                return self._administration.request(session, frame, now=now)
            case frames.Watch():
                return self._directory.watch(session, frame, now=now)
            case frames.WatchClose(number):
                self._directory.unwatch(session, number)
                return []
            case frames.ClientHere(client):
                self._temporaries.here(client, session)
                return []
            case frames.ClientEnded(client, closed):
                return self._remove_temporaries(self._temporaries.ended(client, session, closed=closed, now=now))
        raise LocalProtocolError(f"{type(frame).__name__} is not for a message manager")

    def locate(self, session: bytes, frame: frames.Locate) -> list[Command]:
        name, kind = frame.name, frame.destination_kind
        if (moving := self.moves.locate(session, frame)) is not None:
            return moving
        try:
            if frame.existing and self.find(name) is None:
                raise Rejected("unknown-destination", f"there is no destination {name!r}")
            destination, operations = self.create(self._own_name(name), kind)
        except Rejected as refusal:
            located = frames.Located(name, kind, 0, kind, refusal.code, refusal.reason, frame.existing)
            return [ToSession(session, located)]
        located = frames.Located(name, kind, destination.identity, destination.record.kind, existing=frame.existing)
        answer = ToSession(session, located)
        if operations:
            return [self.write_creation(destination, operations, answer), *self._locate_blocked([answer])]
        if (creation := self._creations.get(destination.identity)) is not None:
            creation.answers.append(answer)
            return self._locate_blocked([answer])
        return [answer]

    # -- writes and reads ------------------------------------------------------------------------------

    def confirms(self, tokens: Sequence[int]) -> list[Command]:
        """Of writes that are durable, what their producers wait for, before anything else follows from them. `Written`
        still has to come for each. Whoever is in a hurry asks; nobody has to."""
        commands: list[Command] = []
        for token in tokens:
            pending = self._writes[token]
            if pending.refused is not None:
                break  # a confirm says that all before it was taken, but for what was refused before
            destination = self.destinations.get(pending.destination)
            if destination is not None and pending.confirmed is not None:
                commands += destination.publishing.confirmed(*pending.confirmed)
                pending.confirmed = None
        return commands

    def deliveries(self, tokens: Sequence[int], *, now: float) -> list[Command]:
        """The same for those who wait for what these writes have brought into logs."""
        self.now = now
        commands: list[Command] = []
        for token in tokens if not self.node_limits.makes_room else ():
            pending = self._writes[token]
            if not pending.is_plain:
                break  # what follows from it comes before all that follows from later ones
            destination = self.destinations.get(pending.destination)
            if destination is not None and pending.arrived and not pending.is_handed_out:
                pending.is_handed_out = True
                commands += destination.dispatch.arrived(pending.arrived, now=now)
        return commands

    def _written(self, pending: PendingWrite, now: float) -> list[Command]:
        if pending.created:
            self._creations.pop(pending.created, None)
            if (created := self.destinations.get(pending.created)) is not None and created.record.traced:
                self.tracer.follow(created)
        for lane, end in pending.traced:
            lane.readable = max(lane.readable, end)
        if pending.committed is not None:
            self.transactions.written(*pending.committed, now)
        destination = self.destinations.get(pending.destination)
        commands: list[Command] = []
        if destination is not None:
            commands += destination.written(pending, now=now)
            self.node_limits.note(destination)
            if pending.moved or pending.held_ms is not None:
                self._note_deadline(destination)
        following = [command for other in pending.others for command in self._written(other, now)]
        if destination is None:  # a commit: whoever has to wait with the next one is told before, all else comes after
            commands += [command for command in following if _is_flow(command)]
            commands += pending.answers
            following = [command for command in following if not _is_flow(command)]
        commands += following
        if pending.follows is not None:
            commands += pending.follows(now)
        return [*commands, *self.streams.delete(pending.gone)]

    def held(self) -> dict[str, int]:
        """What counts for the limits of the node; all 0 if it has none."""
        limits, room = self.node_limits, self.room_maker
        return {
            "messages": limits.messages, "bytes": limits.bytes,
            "dead_messages": limits.dead.messages, "dead_bytes": limits.dead.bytes,
            "moved": room.moved, "dropped": room.dropped,
        }  # fmt: skip

    def check(self) -> None:
        """Assert the invariants of every destination. For tests and the simulator."""
        for destination in self.destinations.values():
            for lane in destination.log.order:
                assert lane.base <= max(lane.first, lane.readable) <= lane.next < lane.end
            for subscription in destination.subscriptions:
                subscription.check(destination.log)


def _is_flow(command: Command) -> bool:
    return isinstance(command, ToSession) and isinstance(command.frame, frames.Block | frames.Unblock)

"""The destinations of one message manager: found by name, created, removed; and the writes that make it so.

    created --write--> not yet stored --Written--> stored --removed--> (gone)

A destination is there at once, and whoever asks for it before its record is durable is answered then. What the bus
brings for a destination is not known here (`message_manager.py`).
"""
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from angarium.core.destination.blocking import Blocking
from angarium.core.destination.dead_message_queue import RECORD as DEAD_MESSAGE_QUEUE_RECORD
from angarium.core.destination.dead_message_queue import DeadMessageQueue
from angarium.core.destination.destination import Destination
from angarium.core.destination.directory import Directory
from angarium.core.destination.events import Command, DestinationSettings, ToSession, Write
from angarium.core.destination.making_room import RoomMaker
from angarium.core.destination.names import Known
from angarium.core.destination.node_limits import NodeLimits
from angarium.core.destination.noting import Noting
from angarium.core.destination.pending import (
    TAKEN_OUT,
    PendingAdministration,
    PendingDelayed,
    PendingRead,
    PendingRoom,
    PendingRows,
    PendingSweep,
    PendingWrite,
)
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.restoring import NEXT_DESTINATION_KEY
from angarium.core.destination.retaining import Retainer
from angarium.core.destination.state import DestinationState
from angarium.core.destination.sweeping import Sweeper
from angarium.core.destination.temporaries import Temporaries
from angarium.core.destination.tracing import Tracer
from angarium.core.destination.well_known import well_known
from angarium.core.errors import Rejected
from angarium.core.ids import destination_id, group_of
from angarium.core.names import DEAD_MESSAGE_QUEUE, check_name, group_named, is_temporary
from angarium.core.storage import Operation, Put, Table, key_of
from angarium.core.stream.streams import Streams
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind

Asked = PendingRead | PendingAdministration | PendingDelayed | PendingSweep | PendingRoom | PendingRows


class Destinations:
    def __init__(
        self, settings: DestinationSettings, streams: Streams, *, wall_ms_at_zero: float, number: int
    ) -> None:
        self.settings = settings
        self.streams = streams
        self.now = 0.0  # of the event that is handled
        self._wall_ms_at_zero = wall_ms_at_zero
        self._number = number  # of the replica group that it is
        self.destinations = Known()
        self._by_name: dict[str, Destination] = {}
        self._next_destination = destination_id(number, 1)
        self._token = 0
        self._writes: dict[int, PendingWrite] = {}
        self._reads: dict[int, Asked] = {}
        self._creations: dict[int, PendingWrite] = {}  # destinations whose record is not yet durable
        self._timed: dict[int, Destination] = {}  # destinations that have a deadline
        self.node_limits = NodeLimits(settings)
        self._blocking = Blocking(self.destinations, self.node_limits)
        self.room_maker = RoomMaker(self.destinations, self.node_limits, lambda: self.find(DEAD_MESSAGE_QUEUE))
        self._dead_message_queue = DeadMessageQueue(self)
        self._temporaries = Temporaries(settings)
        self._directory = Directory(self.destinations, settings)
        self._sweeper = Sweeper(self.destinations)
        self._noting = Noting(self.destinations)
        self.tracer = Tracer(self, number)
        self.retainer = Retainer(self.destinations)

    def find(self, name: str) -> Destination | None:
        return self._by_name.get(self._own_name(name))

    def _own_name(self, name: str) -> str:
        """As it is called here: a group's own dead message queue has no number."""
        return DEAD_MESSAGE_QUEUE if group_named(name) == self._number else name

    def dead_message_queue_unused(self, name: str) -> Destination | None:
        """As it is before anything has died here: empty, and in no table. None if another destination is meant, or it
        is there."""
        if self._own_name(name) != DEAD_MESSAGE_QUEUE or self.find(name) is not None:
            return None
        return Destination(self._state(destination_id(self._number, 0), DEAD_MESSAGE_QUEUE_RECORD))

    def _state(self, identity: int, record: DestinationRecord) -> DestinationState:
        return DestinationState(
            identity,
            record,
            self.settings,
            write_token=self._pending_write,
            read_token=self.pending_read,
            streams=self.streams,
            wall_ms_at_zero=self._wall_ms_at_zero,
        )

    def _add(self, identity: int, record: DestinationRecord) -> Destination:
        state = self._state(identity, record)
        state.bury = self._dead_message_queue.bury
        destination = Destination(state)
        state.note_expiring = lambda: self._sweeper.note(destination, self.now)
        state.note_later = lambda subscription: self._noting.note(identity, subscription, self.now)
        self._blocking.apply(destination)
        self.destinations[identity] = self._by_name[record.name] = destination
        return destination

    def _note_deadline(self, destination: Destination) -> None:
        if destination.deadline() is None:
            self._timed.pop(destination.identity, None)
        else:
            self._timed[destination.identity] = destination

    # -- creating -----------------------------------------------------------------------------------

    def create(
        self, name: str, kind: DestinationKind, wanted: DestinationRecord | None = None
    ) -> tuple[Destination, list[Operation]]:
        """Find the destination, or create it with the operations that have to be written."""
        known = self._by_name.get(name)
        if known is not None:
            if kind not in (DestinationKind.ANY, known.record.kind):
                have, want = known.record.kind.name.lower(), kind.name.lower()
                raise Rejected("wrong-kind", f"{name!r} is a {have}, not a {want}")
            return known, []
        if wanted is None and (record := well_known(name, kind)) is not None:
            return self.created(record)
        check_name(name)
        if is_temporary(name):
            raise Rejected("unknown-destination", f"there is no temporary destination {name!r} (any more)")
        self._check_room()
        return self.created(wanted or DestinationRecord(name, kind or DestinationKind.QUEUE))

    def create_temporary(
        self, wanted: DestinationRecord, *, client: bytes, session: bytes
    ) -> tuple[Destination, list[Operation]]:
        """For that connection alone to consume from, and to vanish with it."""
        self._temporaries.check_room(client)
        self._check_room()
        destination, operations = self.created(msgspec.structs.replace(wanted, buries=False, owner=client))
        self._temporaries.add(client, session, destination.identity)
        return destination, operations

    def _check_room(self) -> None:
        if len(self.destinations) >= self.settings.destinations_max:
            reason = f"{len(self.destinations):,} destinations exist, as many as destinations_max allows; remove some"
            raise Rejected("too-many-destinations", reason)
        if group_of(self._next_destination) != self._number:
            raise Rejected("too-many-destinations", "all ids of destinations that this node may give have been used")

    def next_identity(self) -> tuple[int, Operation]:
        """And what has to be written, so that it is given once."""
        identity, self._next_destination = self._next_destination, self._next_destination + 1
        return identity, self.noted_identity()

    def noted_identity(self) -> Operation:
        return Put(Table.NODE, NEXT_DESTINATION_KEY, self._next_destination.to_bytes(8, "big"))

    def created(self, record: DestinationRecord) -> tuple[Destination, list[Operation]]:
        identity, noted = self.next_identity()
        destination = self._add(identity, record)
        self.retainer.note(destination, self.now)
        if not record.name.startswith("_"):
            self._directory.created(destination, self.now)
            self._note_deadline(destination)
        return destination, [Put(Table.DESTINATION, key_of(identity), msgspec.msgpack.encode(record)), noted]

    def write_creation(self, destination: Destination, operations: list[Operation], answer: ToSession) -> Write:
        """Answered when it is durable, as are others that ask for the destination until then."""
        pending = self.creation(destination)
        pending.answers.append(answer)
        others, more = self.tracer.prepared(destination.record)
        pending.others += others
        return self.write(operations + more, pending)

    def creation(self, destination: Destination) -> PendingWrite:
        """What follows once the destination is durable."""
        pending = self._creations[destination.identity] = PendingWrite(created=destination.identity)
        return pending

    def writes_blocked(self) -> tuple[str, str] | None:
        """Code and reason why nothing can be written for now, but for what makes room."""
        return self._blocking.of_writes()

    def _locate_blocked(self, waiting: Sequence[ToSession]) -> list[Command]:
        """To those that ask for a destination which cannot be created for now: why they wait."""
        if (why := self.writes_blocked()) is None:
            return []
        asked = [(answer.session, answer.frame) for answer in waiting if isinstance(answer.frame, frames.Located)]
        return [
            ToSession(session, frames.LocateBlocked(located.name, located.asked_kind, *why))
            for session, located in asked
        ]

    def _creations_blocked(self) -> list[Command]:
        return [told for creation in self._creations.values() for told in self._locate_blocked(creation.answers)]

    def is_stored(self, destination: Destination) -> bool:
        return destination.identity not in self._creations

    # -- removing -----------------------------------------------------------------------------------

    def remove(self, destination: Destination, pending: PendingWrite) -> list[Command]:
        """Tell its producers and consumers, and delete all that is stored of it."""
        record = destination.record
        reason = f"{record.name!r} has been removed"
        closings, operations = destination.remove("destination-removed", reason)
        told = self.streams.forget(destination.identity, "destination-removed", reason)
        # Its creation must not follow: only what is stored may be removed ahead of other writes.
        freeing = self.is_stored(destination)
        self._temporaries.remove(record.owner, destination.identity)
        self._forget(destination)
        return [*closings, *told, self.write(operations, pending, freeing=freeing)]

    def _forget(self, destination: Destination) -> None:
        del self.destinations[destination.identity], self._by_name[destination.record.name]
        self._timed.pop(destination.identity, None)
        self.node_limits.forget(destination.identity)
        self.streams.destination_gone(destination.identity)

    def take_out(self, destination: Destination) -> list[bytes]:
        """From now on nobody knows it here; its rows stay. Returns the sessions that have it open."""
        consuming = [consumer.session for consumer in destination.consumers.values()]
        producing = [producer.session for producer in destination.producers.attached()]
        streaming = self.streams.take_out(destination.identity)
        self._forget(destination)
        # One of the same id may be opened before they are answered: it has not asked for anything.
        for token, asked in self._reads.items():
            if asked.destination == destination.identity and not isinstance(asked, PendingRows):
                self._reads[token] = replace(asked, destination=TAKEN_OUT)
        return list(dict.fromkeys(session for session in (*consuming, *producing, *streaming) if session is not None))

    def check_arrival(self, name: str) -> None:
        """Raise Rejected if the destination cannot be moved here."""
        if name in self._by_name:
            raise Rejected("already-exists", f"there is a destination {name!r} in the group that is to take it")
        self._check_room()

    def _remove_temporaries(self, identities: list[int]) -> list[Command]:
        found = [self.destinations[identity] for identity in identities]
        return [command for destination in found for command in self.remove(destination, PendingWrite())]

    # -- writes and reads ---------------------------------------------------------------------------

    def write(self, operations: list[Operation], pending: PendingWrite, *, freeing: bool = False) -> Write:
        return Write(self._pending_write(pending), operations, freeing)

    def _pending_write(self, pending: PendingWrite) -> int:
        self._token += 1
        pending.gone = self.streams.take_gone()
        pending.traced = self.tracer.take_written()
        if self.node_limits.makes_room:  # what has just been settled need not be made room for
            for each in (pending, *pending.others):
                if (destination := self.destinations.get(each.destination)) is not None:
                    self.node_limits.note(destination)
        self._writes[self._token] = pending
        return self._token

    def pending_read(self, pending: Asked) -> int:
        self._token += 1
        self._reads[self._token] = pending
        return self._token

"""Destinations that come to a replica group: the target's side of a move.

    MoveRows 0 --> stored under a fresh id, with a record of how far it is --1, 2, ...--> complete, and read once
        --the placement says that it is here-->  opened (`moves.py`)
        --the move is over, and it is not------> its rows are deleted
        --another move, or attempt, begins-----> the same, and it begins anew

Rows go through the group's own writes, so they are on all its copies; whoever becomes primary finds the record. Nobody
knows the destination until it is opened. A message is taken once, in order; one that was taken is answered again. The
last one is answered when what it would be opened from has been read and is whole: the source deletes it after that.
Rows that name streams wait until the files are durable (`files.py`): no row says that there is content that is not.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.pending import PendingWrite
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import ANYBODY
from angarium.core.moving.files import UNFINISHED, ArrivingFiles, Copy, streams_of, unfinished_of
from angarium.core.moving.reading import RowsReading
from angarium.core.moving.records import COPIED, ArrivalRecord, arrival_delete, arrival_put, row_deletes
from angarium.core.replication.ranges import Item, unpack_items
from angarium.core.storage import Operation, Put, Table, key_of
from angarium.core.stream.events import FileFailed, FileSynced, FileWritten, StoredFile
from angarium.core.wire.frames import MoveBlock, MoveRefused, MoveRows, MoveTaken, MoveWants

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager

_WITH_FILES = (Table.STREAM, UNFINISHED)


@dataclass(slots=True, eq=False)
class Arrival:
    name: str
    record: ArrivalRecord  # as it will be once all writes under way are durable
    durable: int  # sequence of the next message, as far as it is durable
    is_checking: bool = False  # all of it is durable, and its records are being read
    is_whole: bool = False  # and none of them is damaged: it can be opened
    waiting: tuple[MoveRows, bytes] | None = None  # the next message, which names streams that are still lacking
    unfinished: dict[bytes, StoredFile] = field(default_factory=dict)  # streams that were being sent to it


class Arrivals:
    def __init__(self, manager: "MessageManager") -> None:
        self._manager = manager
        self._found: dict[str, Arrival] = {}
        self.files = ArrivingFiles(manager.streams)

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._found.values())

    def identities(self) -> dict[str, int]:
        """By name, the ids that they will have."""
        return {name: arrival.record.identity for name, arrival in self._found.items()}

    def restore(self, records: dict[str, ArrivalRecord]) -> None:
        self._found = {name: Arrival(name, record, record.sequence) for name, record in records.items()}

    def rows(self, message: MoveRows, payload: bytes, now: float) -> list[Command]:
        """Of a move that is under way; raises RemoteProtocolError."""
        items = _items(message, payload)
        arrival = self._found.get(message.name)
        known = (-1, -1) if arrival is None else (arrival.record.number, arrival.record.attempt)
        operations: list[Operation] = []
        if (message.number, message.attempt) != known:
            if (message.number, message.attempt) < known or message.sequence != 0:
                return []  # of an earlier one
            try:
                self._manager.check_arrival(message.name)
            except Rejected as refusal:
                return [_refused(message, refusal.code, refusal.reason)]
            if message.table in _WITH_FILES:
                raise RemoteProtocolError("bad-message", f"{message.name!r} is moved here, and begins with streams")
            dropped: list[Command] = []
            if arrival is not None:
                operations += row_deletes(arrival.record.identity)
                dropped += self._forget(arrival)
            identity, noted = self._manager.next_identity()
            operations.append(noted)
            record = ArrivalRecord(identity, message.number, message.attempt, 0, False, message.record)
            arrival = self._found[message.name] = Arrival(message.name, record, 0)
            return [*self._take(arrival, message, items, operations, now), *dropped]
        assert arrival is not None
        if message.sequence < arrival.record.sequence:
            return self._answer(arrival, message) if message.sequence < arrival.durable else []
        if message.sequence > arrival.record.sequence or arrival.record.is_complete:
            return []
        lacks = self._lacks(arrival, message, payload, items)
        return self._take(arrival, message, items, operations, now) if lacks is None else lacks

    def _take(
        self, arrival: Arrival, message: MoveRows, items: list[Item], operations: list[Operation], now: float
    ) -> list[Command]:
        rows = self._puts(arrival, message, items, now)
        arrival.record = replace(arrival.record, sequence=message.sequence + 1, is_complete=message.last)
        operations += [arrival_put(message.name, arrival.record), *rows]
        pending = PendingWrite(follows=lambda now: self._durable(arrival, message))
        return [self._manager.write(operations, pending)]

    def _puts(self, arrival: Arrival, message: MoveRows, items: list[Item], now: float) -> list[Operation]:
        identity, table = arrival.record.identity, self._manager.streams.table
        if message.table == Table.TRANSACTION:
            return self._manager.transactions.numbers.learn(dict(items), now)
        if message.table == UNFINISHED:
            arrival.unfinished |= unfinished_of(items)
            return []
        if message.table == Table.STREAM:
            for key, value in items:
                self.files.taken(table.restore(key_of(identity, key), value)[2].identity)
        return [Put(Table(message.table), key_of(identity, key), value) for key, value in items]

    def _durable(self, arrival: Arrival, message: MoveRows) -> list[Command]:
        arrival.durable = max(arrival.durable, message.sequence + 1)
        return self._answer(arrival, message) if self._found.get(arrival.name) is arrival else []

    def _answer(self, arrival: Arrival, message: MoveRows) -> list[Command]:
        if not message.last or arrival.is_whole:
            return [_taken(message)]
        if arrival.is_checking:
            return []
        arrival.is_checking = True
        reading = RowsReading(
            self._manager, arrival.record.identity, lambda reading, now: self._checked(arrival, message, reading),
            keeps=False,
        )  # fmt: skip
        return reading.begin()

    def _checked(self, arrival: Arrival, message: MoveRows, reading: RowsReading) -> list[Command]:
        arrival.is_checking = False
        if self._found.get(arrival.name) is not arrival:
            return []
        if damage := reading.damage(arrival.name):
            return [_refused(message, "damaged", f"{damage} in the group that is to have it")]
        arrival.is_whole = True
        return [_taken(message)]

    # -- very large messages -----------------------------------------------------------------------------

    def _lacks(self, arrival: Arrival, message: MoveRows, payload: bytes, items: list[Item]) -> list[Command] | None:
        """None if every stream that these rows name is durable here; else what is to be said about it."""
        arrival.waiting = None
        wanted = streams_of(message.table, items)
        try:
            copy = self.files.lacking(arrival.name, wanted)
        except Rejected as refusal:
            return [_refused(message, refusal.code, refusal.reason)]
        if copy is None:
            return None
        arrival.waiting = (message, payload)
        return [*self.files.settle(copy), *self._ask(arrival, copy, again=True)]

    def _ask(self, arrival: Arrival, copy: Copy, *, again: bool) -> list[Command]:
        fragments = self.files.wanted(copy, again=again)
        if arrival.waiting is None or fragments is None:
            return []
        rows = arrival.waiting[0]
        wants = MoveWants(rows.source, rows.name, rows.number, rows.attempt, rows.sequence, copy.stream, *fragments)
        return [ToSession(ANYBODY, wants)]

    def block(self, message: MoveBlock, payload: bytes) -> list[Command]:
        """Of a move that is under way; raises RemoteProtocolError."""
        arrival = self._found.get(message.name)
        if arrival is None or (message.number, message.attempt) != (arrival.record.number, arrival.record.attempt):
            return []
        return list(self.files.block(message, payload))

    def file_event(self, event: FileWritten | FileSynced | FileFailed, now: float) -> list[Command]:
        """Of a file that `files` has."""
        commands: list[Command] = []
        waiting = [self._found[name] for name in self.files.users(event.stream) if name in self._found]
        if isinstance(event, FileFailed):
            commands += self.files.failed(event.stream)
            refusals = [arrival.waiting[0] for arrival in waiting if arrival.waiting is not None]
            return commands + [_refused(rows, "stream-failed", event.reason) for rows in refusals]
        copy = self.files.answered(event)
        for arrival in waiting:
            if arrival.waiting is not None and copy.is_complete:
                commands += self.rows(*arrival.waiting, now)
            else:
                commands += self._ask(arrival, copy, again=False)
        return commands

    def _forget(self, arrival: Arrival) -> list[Command]:
        """What there is of it: files that messages would hold go when their rows have."""
        self._manager.streams.table.forget(arrival.record.identity)
        return list(self.files.drop(arrival.name))

    # -- the end -----------------------------------------------------------------------------------------

    def opened(self, name: str, now: float) -> None:
        """It is a destination from now on: what was stored of its arrival goes with the write that makes it one."""
        arrival = self._found.pop(name)
        for stream, file in arrival.unfinished.items():
            if stream in self.files:
                self.files.taken(stream)
                self._manager.streams.arrived(arrival.record.identity, stream, file, now)

    def drop(self, name: str) -> list[Command]:
        arrival = self._found.pop(name)
        dropped = self._forget(arrival)
        # On a full disk it must not overtake rows that still wait: those would be left.
        is_written = arrival.durable == arrival.record.sequence
        deletes = [*row_deletes(arrival.record.identity), arrival_delete(name)]
        return [self._manager.write(deletes, PendingWrite(), freeing=is_written), *dropped]


def _items(message: MoveRows, payload: bytes) -> list[Item]:
    if message.table not in (*COPIED, UNFINISHED, Table.TRANSACTION):
        raise RemoteProtocolError("bad-message", f"rows of table {message.table} are not of a destination")
    return unpack_items(payload)


def _refused(message: MoveRows, code: str, reason: str) -> ToSession:
    refused = MoveRefused(message.source, message.name, message.number, message.attempt, code, reason)
    return ToSession(ANYBODY, refused)


def _taken(message: MoveRows) -> ToSession:
    taken = MoveTaken(message.source, message.name, message.number, message.attempt, message.sequence)
    return ToSession(ANYBODY, taken)

"""Destinations that come to a replica group: the target's side of a move.

    MoveRows 0 --> stored under a fresh id, with a record of how far it is --1, 2, ...--> complete, and read once
        --the placement says that it is here-->  opened (`moves.py`)
        --the move is over, and it is not------> its rows are deleted
        --another move, or attempt, begins-----> the same, and it begins anew

Rows go through the group's own writes, so they are on all its copies; whoever becomes primary finds the record. Nobody
knows the destination until it is opened. A message is taken once, in order; one that was taken is answered again. The
last one is answered when what it would be opened from has been read and is whole: the source deletes it after that.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.pending import PendingWrite
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ids import ANYBODY
from angarium.core.moving.reading import RowsReading
from angarium.core.moving.records import COPIED, ArrivalRecord, arrival_delete, arrival_put, row_deletes
from angarium.core.replication.ranges import Item, unpack_items
from angarium.core.storage import Operation, Put, Table, key_of
from angarium.core.wire.frames import MoveRefused, MoveRows, MoveTaken

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager


@dataclass(slots=True, eq=False)
class Arrival:
    name: str
    record: ArrivalRecord  # as it will be once all writes under way are durable
    durable: int  # sequence of the next message, as far as it is durable
    is_checking: bool = False  # all of it is durable, and its records are being read
    is_whole: bool = False  # and none of them is damaged: it can be opened


class Arrivals:
    def __init__(self, manager: "MessageManager") -> None:
        self._manager = manager
        self._found: dict[str, Arrival] = {}

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
            operations += row_deletes(arrival.record.identity) if arrival is not None else ()
            identity, noted = self._manager.next_identity()
            operations.append(noted)
            record = ArrivalRecord(identity, message.number, message.attempt, 0, False, message.record)
            arrival = self._found[message.name] = Arrival(message.name, record, 0)
        assert arrival is not None
        if message.sequence < arrival.record.sequence:
            return self._answer(arrival, message) if message.sequence < arrival.durable else []
        if message.sequence > arrival.record.sequence or arrival.record.is_complete:
            return []
        rows = self._puts(arrival.record.identity, message, items, now)
        arrival.record = replace(arrival.record, sequence=message.sequence + 1, is_complete=message.last)
        operations += [arrival_put(message.name, arrival.record), *rows]
        pending = PendingWrite(follows=lambda now: self._durable(arrival, message))
        return [self._manager.write(operations, pending)]

    def _puts(self, identity: int, message: MoveRows, items: list[Item], now: float) -> list[Operation]:
        if message.table == Table.TRANSACTION:
            return self._manager.transactions.numbers.learn(dict(items), now)
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

    def opened(self, name: str) -> None:
        """It is a destination from now on: what was stored of its arrival goes with the write that makes it one."""
        del self._found[name]

    def drop(self, name: str) -> Command:
        arrival = self._found.pop(name)
        # On a full disk it must not overtake rows that still wait: those would be left.
        is_written = arrival.durable == arrival.record.sequence
        return self._manager.write(
            [*row_deletes(arrival.record.identity), arrival_delete(name)], PendingWrite(), freeing=is_written
        )


def _items(message: MoveRows, payload: bytes) -> list[Item]:
    if message.table not in (*COPIED, Table.TRANSACTION):
        raise RemoteProtocolError("bad-message", f"rows of table {message.table} are not of a destination")
    return unpack_items(payload)


def _refused(message: MoveRows, code: str, reason: str) -> ToSession:
    refused = MoveRefused(message.source, message.name, message.number, message.attempt, code, reason)
    return ToSession(ANYBODY, refused)


def _taken(message: MoveRows) -> ToSession:
    taken = MoveTaken(message.source, message.name, message.number, message.attempt, message.sequence)
    return ToSession(ANYBODY, taken)

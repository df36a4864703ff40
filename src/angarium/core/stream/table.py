"""Which message holds which stream: the stored table, mirrored in memory.

    STREAM: destination id, position -> stream's identity, fragments, bytes

A record is written in the same group as the message, and deleted in the same group as the message's last settlement.
A message that is not yet due, or prepared, has a place of its own, beyond all positions, until it gets one. One stream
may have several: a message that is copied to another destination takes its stream along. The file goes when the last
record is durably gone, so a crash leaves at most a file without a record, which the next start sweeps.
"""
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from angarium.core.errors import StorageCorrupt
from angarium.core.malformed import MALFORMED
from angarium.core.ranges import Range
from angarium.core.storage import DeleteRange, Operation, Put, Table, delete_key, position_key

WAITING = 15 << 56  # places of messages that are not yet due: beyond all lanes of positions


class StreamRecord(msgspec.Struct, array_like=True, frozen=True):
    identity: bytes
    fragments: int
    bytes: int


def held_streams(records: dict[bytes, bytes]) -> set[bytes]:
    """The identities in the stored table."""
    return {_parse(key, value).identity for key, value in records.items()}


def _parse(key: bytes, value: bytes) -> StreamRecord:
    try:
        return msgspec.msgpack.decode(value, type=StreamRecord)
    except MALFORMED as error:
        raise StorageCorrupt(f"stream record {key.hex()}: {error}") from None


@dataclass(slots=True)
class _Bound:
    """The streams of one destination."""

    records: dict[int, StreamRecord] = field(default_factory=dict)
    positions: list[int] = field(default_factory=list)  # ascending
    bytes: int = 0  # of all content
    waiting_bytes: int = 0  # of which for messages that are not yet due


class StreamTable:
    def __init__(self) -> None:
        self._waiting: dict[tuple[int, bytes], list[int]] = {}  # destination, stream -> places of messages not yet due
        self._waiting_last = WAITING
        self._bound: dict[int, _Bound] = {}
        self._references: dict[bytes, int] = {}  # stream -> how many messages hold it
        self._records: dict[bytes, StreamRecord] = {}  # of the same streams
        self._gone: list[bytes] = []  # released since somebody asked
        self._leaving: dict[bytes, int] = {}  # released, and not yet durably so: how often. Their files are still whole

    def __len__(self) -> int:
        return len(self._references)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._references

    def restore(self, key: bytes, value: bytes) -> tuple[int, int, StreamRecord]:
        destination, position = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
        record = _parse(key, value)
        self._add(destination, position, record)
        return destination, position, record

    def at(self, destination: int, position: int) -> StreamRecord | None:
        bound = self._bound.get(destination)
        return None if bound is None else bound.records.get(position)

    def waiting_bytes(self, destination: int) -> int:
        """Content of messages that are not yet due."""
        bound = self._bound.get(destination)
        return 0 if bound is None else bound.waiting_bytes

    def log_bytes(self, destination: int) -> int:
        """Content of messages that have a position."""
        bound = self._bound.get(destination)
        return 0 if bound is None else bound.bytes - bound.waiting_bytes

    def bytes_between(self, destination: int, low: int, high: int) -> int:
        """Of those, what lies at positions `low` to `high` - 1."""
        bound = self._bound.get(destination)
        if bound is None:
            return 0
        positions = bound.positions[bisect_left(bound.positions, low) : bisect_left(bound.positions, high)]
        return sum(bound.records[position].bytes for position in positions)

    def known(self, identity: bytes) -> StreamRecord | None:
        """What is recorded of a stream that some message holds."""
        return self._records.get(identity)

    def is_stored(self, identity: bytes) -> bool:
        """Its file is whole here, and stays if a message takes it up now."""
        return identity in self._references or identity in self._leaving

    def bind(self, destination: int, position: int, record: StreamRecord) -> Operation:
        self._add(destination, position, record)
        return Put(Table.STREAM, position_key(destination, position), msgspec.msgpack.encode(record))

    def bind_waiting(self, destination: int, record: StreamRecord) -> Operation:
        """A message that is not yet due holds it."""
        return self.bind(destination, self._waiting_last + 1, record)

    def release_waiting(self, destination: int, identity: bytes) -> list[Operation]:
        """One such message has become due: by now it holds the stream at its position, if anybody wants it."""
        positions, bound = self._waiting.get((destination, identity)), self._bound.get(destination)
        if not positions or bound is None:
            return []
        position = positions[0]
        bound.positions.remove(position)
        self._drop(destination, bound, [position])
        return [delete_key(Table.STREAM, position_key(destination, position))]

    def _add(self, destination: int, position: int, record: StreamRecord) -> None:
        bound = self._bound.setdefault(destination, _Bound())
        bound.records[position] = record
        bound.bytes += record.bytes
        if position >= WAITING:
            bound.waiting_bytes += record.bytes
            self._waiting.setdefault((destination, record.identity), []).append(position)
            self._waiting_last = max(self._waiting_last, position)
        insort(bound.positions, position)
        self._references[record.identity] = self._references.get(record.identity, 0) + 1
        self._records[record.identity] = record

    def release_all(self, destination: int, low: int, high: int) -> list[Operation]:
        """Nobody needs positions `low` to `high` - 1 any more."""
        bound = self._bound.get(destination)
        if bound is None:
            return []
        first, end = bisect_left(bound.positions, low), bisect_left(bound.positions, high)
        positions = bound.positions[first:end]
        if not positions:
            return []
        del bound.positions[first:end]
        self._drop(destination, bound, positions)
        return [DeleteRange(Table.STREAM, position_key(destination, low), position_key(destination, high))]

    def release(self, destination: int, ranges: Iterable[Range], is_needed: Callable[[int], bool]) -> list[Operation]:
        """These positions were settled somewhere; those that nobody needs any more are released."""
        bound = self._bound.get(destination)
        if bound is None:
            return []
        operations: list[Operation] = []
        for low, high in ranges:
            found = bound.positions[bisect_left(bound.positions, low) : bisect_left(bound.positions, high)]
            free = [position for position in found if not is_needed(position)]
            for position in free:
                bound.positions.remove(position)
                operations.append(delete_key(Table.STREAM, position_key(destination, position)))
            self._drop(destination, bound, free)
        return operations

    def forget(self, destination: int) -> None:
        """The destination is removed, its records with it."""
        bound = self._bound.get(destination)
        if bound is not None:
            self._drop(destination, bound, bound.positions)

    def take_gone(self) -> list[bytes]:
        """Streams that no message holds any more, since the last time; their files may go when that is durable."""
        gone, self._gone = self._gone, []
        return gone

    def left(self, identity: bytes) -> bool:
        """That it was released is durable; whether its file goes. Another message may have taken it up since, and may
        have released it again, which is not durable."""
        self._leaving[identity] -= 1
        if self._leaving[identity]:
            return False
        del self._leaving[identity]
        return identity not in self._references

    def _drop(self, destination: int, bound: _Bound, positions: list[int]) -> None:
        for position in positions:
            record = bound.records.pop(position)
            identity = record.identity
            bound.bytes -= record.bytes
            if position >= WAITING:
                bound.waiting_bytes -= record.bytes
                places = self._waiting[destination, identity]
                places.remove(position)
                if not places:
                    del self._waiting[destination, identity]
            self._references[identity] -= 1
            if not self._references[identity]:
                del self._references[identity], self._records[identity]
                self._leaving[identity] = self._leaving.get(identity, 0) + 1
                self._gone.append(identity)
        if not bound.records:
            self._bound.pop(destination, None)

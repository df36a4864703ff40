"""What is stored of staged messages: parts, and how far each query has committed.

A part is what one producer stages for one batch of a query. Its key is the producer's id, which nobody else ever has.
"""
from dataclasses import dataclass, field

import msgspec

from angarium.core.destination.events import ToSession
from angarium.core.storage import DeleteRange, Operation, Put, Table, delete_key, key_of


class _PartRecord(msgspec.Struct, array_like=True, frozen=True):
    query: str
    batch: int
    count: int
    last: int
    used_ms: int


class _CommitRecord(msgspec.Struct, array_like=True, frozen=True):
    batch: int
    count: int
    used_ms: int
    moving: list[bytes]


@dataclass(slots=True, eq=False)
class Part:
    identity: bytes  # of its producer
    query: str
    batch: int
    count: int = 0  # messages
    last: int = 0  # sequence of the last one
    durable: int = 0  # messages that are written
    used_ms: int = 0

    def put(self, destination: int) -> Operation:
        record = _PartRecord(self.query, self.batch, self.count, self.last, self.used_ms)
        return Put(Table.STAGE_PART, key_of(destination, self.identity), msgspec.msgpack.encode(record))

    def deletes(self, destination: int) -> list[Operation]:
        """The part and what is staged in it."""
        last = staged_key(destination, self.identity, self.last)
        return [self.delete(destination), delete_staged(destination, self.identity, last)]

    def delete(self, destination: int) -> Operation:
        return delete_key(Table.STAGE_PART, key_of(destination, self.identity))


@dataclass(slots=True, eq=False)
class Commit:
    """How far a query is: the last batch that is committed, and what of it is not yet moved."""

    query: str
    batch: int = -1
    count: int = 0  # messages of that batch
    used_ms: int = 0
    moving: dict[bytes, Part] = field(default_factory=dict)  # in the order in which they are moved
    waiting: list[ToSession] = field(default_factory=list)  # answers, for when all is moved

    def put(self, destination: int) -> Operation:
        record = _CommitRecord(self.batch, self.count, self.used_ms, list(self.moving))
        return Put(Table.STAGE_COMMIT, self._key(destination), msgspec.msgpack.encode(record))

    def delete(self, destination: int) -> Operation:
        return delete_key(Table.STAGE_COMMIT, self._key(destination))

    def _key(self, destination: int) -> bytes:
        return key_of(destination, self.query.encode())


def staged_key(destination: int, part: bytes, last: int) -> bytes:
    """Of a batch that ends with that sequence."""
    return key_of(destination, part + last.to_bytes(8, "big"))


def delete_staged(destination: int, part: bytes, last_key: bytes) -> DeleteRange:
    """All of the part up to that key."""
    return DeleteRange(Table.STAGED, key_of(destination, part), last_key + b"\0")


def restored_part(identity: bytes, record: bytes) -> Part:
    found = msgspec.msgpack.decode(record, type=_PartRecord)
    return Part(identity, found.query, found.batch, found.count, found.last, found.count, found.used_ms)


def restored_commit(query: str, record: bytes, parts: dict[bytes, Part]) -> Commit:
    """Parts that are moved wholly are gone from `parts`; those that are not are taken out."""
    found = msgspec.msgpack.decode(record, type=_CommitRecord)
    moving = {identity: parts.pop(identity) for identity in found.moving if identity in parts}
    return Commit(query, found.batch, found.count, found.used_ms, moving)

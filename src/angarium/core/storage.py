"""What the machines ask of a disk: tables of ordered byte keys, written in atomic groups.

Every operation is idempotent, so replaying a group that was already applied changes nothing. The layout of keys
and values belongs to the machines that write them; the store knows only tables.
"""
from enum import IntEnum

import msgspec


class Table(IntEnum):
    NODE = 1  # what this node remembers of itself
    DESTINATION = 2  # destination id -> name, kind, settings
    LOG = 3  # destination id -> first and next position
    BATCH = 4  # destination id, end position -> batch as published
    SUBSCRIPTION = 5  # destination id, subscription id -> cursors, ...
    PRODUCER = 6  # destination id, producer id -> last sequence
    DAMAGED = 7  # destination id, end position -> bytes that failed their checksum
    ATTACHED = 8  # destination id, session, consumer number, subscription id -> its last recovery
    DELAYED = 10  # destination id, due time, number -> batch that is not yet due
    DEDUPLICATION = 11  # destination id, slot of the ring -> number, deduplication id
    LAST_VALUE = 12  # destination id, last-value key -> position of its last message
    TRANSACTION = 13  # session -> number of its last committed transaction, and up to which none will be any more
    PREPARED = 14  # session, number -> part of a transaction that another group decides: see core/transaction
    DECISION = 15  # session, number -> committed here, and by which groups that is not known to be done
    STREAM = 16  # destination id, position -> the stream that holds the body of that message
    REPLICA = 17  # how far this copy of a replica group is: its own, never copied to another
    PAGE = 18  # destination id, subscription id, page -> what is settled, redelivered or doomed beyond the cursors
    GROUPS = 20  # what a voter keeps of the log of decisions: see core/groups/log.py
    STAGE_PART = 21  # destination id, part -> query, batch, how much is staged
    STAGED = 22  # destination id, part, last sequence -> batch that is not yet committed, or not yet moved
    STAGE_COMMIT = 23  # destination id, query -> its last committed batch, and what of it is to be moved
    MOVE = 24  # name -> a destination that is being moved here from another replica group: see core/moving


class Put(msgspec.Struct, frozen=True):
    table: Table
    key: bytes
    value: bytes


class DeleteRange(msgspec.Struct, frozen=True):
    table: Table
    low: bytes  # inclusive
    high: bytes  # exclusive


Operation = Put | DeleteRange


def key_of(destination: int, suffix: bytes = b"") -> bytes:
    return destination.to_bytes(8, "big") + suffix


def position_key(destination: int, end: int) -> bytes:
    """Batches are keyed by where they end: the batch that holds position p is the first key at or after p + 1."""
    return destination.to_bytes(8, "big") + end.to_bytes(8, "big")


def delete_key(table: Table, key: bytes) -> DeleteRange:
    return DeleteRange(table, key, key + b"\0")


def delete_prefix(table: Table, destination: int) -> DeleteRange:
    return DeleteRange(table, key_of(destination), key_of(destination + 1))

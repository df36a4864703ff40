"""What a replica group stores of destinations that come to it, and which rows a destination has.

    MOVE   name -> ArrivalRecord: rows of it are stored here under an id that nobody knows yet
           PLACED_KEY -> version of the placement by which the last one was opened (8 bytes)
"""
from collections.abc import Iterable

import msgspec

from angarium.core.errors import StorageCorrupt
from angarium.core.malformed import MALFORMED
from angarium.core.storage import Operation, Put, Table, delete_key, delete_prefix

PLACED_KEY = b"\0placed"  # no name begins so
# In the order in which they are copied: keys of all of them begin with the destination's id. First the log, so that
# whatever is left over is found.
COPIED = (
    Table.LOG, Table.BATCH, Table.SUBSCRIPTION, Table.PAGE, Table.PRODUCER, Table.DAMAGED, Table.ATTACHED,
    Table.DELAYED, Table.DEDUPLICATION, Table.LAST_VALUE, Table.STAGE_PART, Table.STAGED, Table.STAGE_COMMIT,
    Table.STREAM,
)  # fmt: skip
# Those that a message manager has in memory.
READ = (
    Table.LOG, Table.SUBSCRIPTION, Table.PAGE, Table.PRODUCER, Table.ATTACHED, Table.DEDUPLICATION, Table.LAST_VALUE,
    Table.STAGE_PART, Table.STAGE_COMMIT,
)  # fmt: skip


class ArrivalRecord(msgspec.Struct, frozen=True, array_like=True):
    identity: int  # that the destination will have
    number: int  # of the move
    attempt: int
    sequence: int  # of the next message
    is_complete: bool
    record: bytes  # of the destination


def arrival_key(name: str) -> bytes:
    return name.encode()


def arrival_put(name: str, record: ArrivalRecord) -> Operation:
    return Put(Table.MOVE, arrival_key(name), msgspec.msgpack.encode(record))


def arrival_delete(name: str) -> Operation:
    return delete_key(Table.MOVE, arrival_key(name))


def placed_put(version: int) -> Operation:
    return Put(Table.MOVE, PLACED_KEY, version.to_bytes(8, "big"))


def stored_arrivals(records: dict[bytes, bytes]) -> dict[str, ArrivalRecord]:
    """By name."""
    found: dict[str, ArrivalRecord] = {}
    for key, value in records.items():
        if key != PLACED_KEY:
            try:
                found[key.decode()] = msgspec.msgpack.decode(value, type=ArrivalRecord)
            except MALFORMED as error:
                raise StorageCorrupt(f"destination that is moved here, {key.hex()}: {error}") from None
    return found


def stored_version(records: dict[bytes, bytes]) -> int:
    return int.from_bytes(records.get(PLACED_KEY, b""), "big")


def row_deletes(identity: int) -> Iterable[Operation]:
    return [delete_prefix(table, identity) for table in (*COPIED, Table.DESTINATION)]

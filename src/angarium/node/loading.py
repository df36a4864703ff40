"""What the store has for the machines, and what can still be told of records that fail their checksum.

A damaged message is found when it is read, and set aside then. The small records beside the messages are read here,
once, and a damaged one must not cost the messages that it is about:

    DESTINATION    its name is lost: the destination goes on as `damaged-<number>`, for an administrator to empty
    LOG            where the log begins and ends follows from the batches that are there, and from the subscriptions
    SUBSCRIPTION   its name is the key: it goes on, from the oldest message that is stored
    PAGE           forgotten: what it says is settled is delivered again; a selector that it holds is lost
    ATTACHED       there is nothing in it but its key
    PRODUCER       forgotten: what its client resends after this start may be stored twice
    STREAM         forgotten: its message is delivered, and cannot be opened
    NODE           drawn anew

Each is reported, and written anew, so that it is reported once. Without damage nothing of this is looked at.
"""
import logging
from dataclasses import dataclass, field

import msgspec

from angarium.core.destination.log import LANE_BITS, LANE_COUNT, LogField, lane_of, log_put, parse_log_record
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.restoring import StoredState
from angarium.core.destination.subscription_record import SubscriptionRecord
from angarium.core.errors import RemoteProtocolError
from angarium.core.moving.records import stored_arrivals
from angarium.core.storage import DeleteRange, Operation, Put, Table, delete_key, key_of, position_key
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.store.interface import Damaged, Item, Store

_log = logging.getLogger("angarium")
_SCAN_LIMIT = 10_000


@dataclass(slots=True)
class Loaded:
    state: StoredState = field(default_factory=StoredState)
    operations: list[Operation] = field(default_factory=list)  # to be written before anything else: the repairs


def load(store: Store) -> Loaded:
    loaded = Loaded()
    state = loaded.state
    damaged: list[tuple[Table | None, bytes]] = []
    for table, records in state.tables().items():
        low, high = b"", b"\xff" * 9
        while items := store.scan(table, low, high, limit=_SCAN_LIMIT):
            for item in items:
                if isinstance(item, Damaged):
                    _log.error("record-damaged: %s record %s fails its checksum", table.name, item.key.hex())
                    damaged.append((table, item.key))
                else:
                    records[item.key] = item.value
            low = items[-1].key + b"\0"
    for damage in store.recovery.damages:
        _log.error("journal-damaged: %s", damage.reason)
        if damage.table == Table.BATCH and damage.key is not None:
            loaded.operations.append(Put(Table.DAMAGED, damage.key, damage.raw))
        else:
            damaged.append((damage.table, damage.key or b""))
    if damaged:
        _repair(store, loaded, damaged)
    return loaded


def _repair(store: Store, loaded: Loaded, damaged: list[tuple[Table | None, bytes]]) -> None:
    state = loaded.state
    for table, key in damaged:
        if table is Table.ATTACHED:
            _put(loaded, state.attached, Table.ATTACHED, key, b"")
        elif table is Table.PRODUCER and key not in state.producers:
            loaded.operations.append(delete_key(Table.PRODUCER, key))
        elif table is Table.STREAM and key not in state.streams:
            loaded.operations.append(delete_key(Table.STREAM, key))
        elif table is Table.PAGE and key not in state.pages:
            loaded.operations.append(delete_key(Table.PAGE, key))
        elif table is Table.STAGE_PART and key not in state.stage_parts:  # its commit will find that it is missing
            loaded.operations += [delete_key(table, key), DeleteRange(Table.STAGED, key, key + b"\xff" * 9)]
        elif table is Table.STAGE_COMMIT and key not in state.stage_commits:
            loaded.operations.append(delete_key(table, key))
    keys = [key for _, key in damaged]
    known = {int.from_bytes(key[:8], "big") for key in (*state.destinations, *state.logs, *state.subscriptions, *keys)}
    arriving = {arrival.identity for arrival in stored_arrivals(state.moves).values()}
    for destination in sorted(known - arriving):
        _restore_destination(store, loaded, destination)
        if key_of(destination) in state.destinations:
            _restore_log(store, loaded, destination, keys)
    for table, key in damaged:
        if table is Table.SUBSCRIPTION and key not in state.subscriptions and key[:8] in state.destinations:
            identity = int.from_bytes(key[:8], "big")
            firsts = {lane: _figure(state, identity, LogField.FIRST, lane) for lane in range(LANE_COUNT)}
            record = msgspec.msgpack.encode(SubscriptionRecord(firsts, firsts))
            _put(loaded, state.subscriptions, Table.SUBSCRIPTION, key, record)


def _restore_destination(store: Store, loaded: Loaded, destination: int) -> None:
    """A destination of which there are messages, and no record."""
    state, key = loaded.state, key_of(destination)
    found = any(_batch_after(store, destination, lane << LANE_BITS) is not None for lane in range(LANE_COUNT))
    if key in state.destinations or not found:
        return
    names = [subscription[8:] for subscription in state.subscriptions if subscription[:8] == key]
    kind = DestinationKind.TOPIC if names and b"" not in names else DestinationKind.QUEUE
    record = DestinationRecord(f"damaged-{destination}", kind)
    _log.error("record-damaged: the name of destination %d is lost: it is %r from now on", destination, record.name)
    _put(loaded, state.destinations, Table.DESTINATION, key, msgspec.msgpack.encode(record))


def _restore_log(store: Store, loaded: Loaded, destination: int, damaged: list[bytes]) -> None:
    for lane in range(LANE_COUNT):
        _restore_lane(store, loaded, destination, lane, damaged)


def _restore_lane(store: Store, loaded: Loaded, destination: int, lane: int, damaged: list[bytes]) -> None:
    state, base = loaded.state, lane << LANE_BITS
    reached = [_figure(state, destination, LogField.FIRST, lane), _figure(state, destination, LogField.NEXT, lane)]
    for key, value in state.subscriptions.items():
        if key[:8] == key_of(destination):
            record = msgspec.msgpack.decode(value, type=SubscriptionRecord)
            reached += [record.cursors.get(lane, base), record.delivered.get(lane, base)]
    end = _end_of_batches(store, destination, max(reached))
    if end > _figure(state, destination, LogField.NEXT, lane):
        _note(loaded, destination, LogField.NEXT, end, lane)
    first_key = key_of(destination, bytes([LogField.FIRST, lane]))
    if first_key in damaged and first_key not in state.logs:
        _note(loaded, destination, LogField.FIRST, _start_of_batches(store, destination, base, end), lane)


def _figure(state: StoredState, destination: int, log_field: LogField, lane: int) -> int:
    key = key_of(destination, bytes([log_field, lane]))
    value = state.logs.get(key)
    return lane << LANE_BITS if value is None else parse_log_record(key, value)[2][0]


def _note(loaded: Loaded, destination: int, log_field: LogField, value: int, lane: int) -> None:
    put = log_put(destination, log_field, value, lane)
    _put(loaded, loaded.state.logs, put.table, put.key, put.value)


def _put(loaded: Loaded, records: dict[bytes, bytes], table: Table, key: bytes, value: bytes) -> None:
    records[key] = value
    loaded.operations.append(Put(table, key, value))


def _batch_after(store: Store, destination: int, position: int) -> Item | Damaged | None:
    """The batch that holds the position, or the next one of its lane."""
    low, high = position_key(destination, position + 1), position_key(destination, (lane_of(position) + 1) << LANE_BITS)
    return store.first_at_or_after(Table.BATCH, low, high)


def _end_of_batches(store: Store, destination: int, known: int) -> int:
    """Where the last batch ends, found in growing and then shrinking steps; at least `known`."""
    end, step = known, 1
    while True:
        found = _batch_after(store, destination, end + step - 1)
        if found is not None:
            end, step = int.from_bytes(found.key[8:], "big"), 2 * step
        elif step == 1:
            return end
        else:
            step //= 2


def _start_of_batches(store: Store, destination: int, base: int, end: int) -> int:
    """Where the first batch begins; `end` if there is none. Of a damaged one only its end is known."""
    found = _batch_after(store, destination, base)
    if found is None:
        return end
    found_end = int.from_bytes(found.key[8:], "big")
    if isinstance(found, Damaged):
        return found_end - 1
    try:
        return found_end - Batch.trusted(found.value).count
    except RemoteProtocolError:
        return found_end - 1

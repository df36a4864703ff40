"""What replication asks of a store beside writing: ranges to copy, and one hash to compare replicas by.

All of it may wait for the disk and takes time to digest and to pack, so it belongs into the reader's thread.
"""
from angarium.core.destination.events import ReadRows, RowsRead
from angarium.core.replication.events import RangeRead, ReadRange
from angarium.core.replication.history import StoredReplica, stored_replica
from angarium.core.replication.ranges import Digest, Item, digest_of, pack_items, replicated_ranges
from angarium.core.storage import Table
from angarium.store import interface
from angarium.store.interface import Store

_ITEMS_MAX = 10_000
_BULKY = (Table.BATCH, Table.DELAYED, Table.DAMAGED, Table.STAGED)


def load_replica(store: Store) -> StoredReplica:
    """Raises `StorageCorrupt` if the store no longer knows what it is."""
    records: dict[bytes, bytes] = {}
    for item in store.scan(Table.REPLICA, b"", b"\xff" * 9, limit=100):
        if isinstance(item, interface.Item):
            records[item.key] = item.value
    return stored_replica(records)


def read_range(store: Store, command: ReadRange) -> RangeRead:
    """A range as of one moment, and the store's orders just before and after. What is damaged is left out."""
    before = load_replica(store).position.number
    high, items = scan_range(store, command)
    after = load_replica(store).position.number
    return answer_range(command, high, items, before, after, whole=rows(store))


def rows(store: Store) -> int:
    """About how many a copy has."""
    return sum(store.rows(table) for table in {table for table, _, _ in replicated_ranges()})


def scan_range(store: Store, command: ReadRange) -> tuple[bytes, list[Item]]:
    """Up to where, and what is there: as of one moment."""
    found = store.scan(
        command.table, command.low, command.high, limit=_ITEMS_MAX, bytes_max=command.bytes_max
    )
    size_bytes = sum(len(item.value) if isinstance(item, interface.Item) else len(item.raw) for item in found)
    is_all = len(found) < _ITEMS_MAX and size_bytes < command.bytes_max
    high = command.high if is_all or not found else found[-1].key + b"\0"
    return high, [(item.key, item.value) for item in found if isinstance(item, interface.Item)]


def read_rows(store: Store, command: ReadRows) -> RowsRead:
    """Rows of a destination that is moved; when they are copied, nobody writes them meanwhile."""
    found = store.scan(command.table, command.low, command.high, limit=_ITEMS_MAX, bytes_max=command.bytes_max)
    size_bytes = sum(len(item.value) if isinstance(item, interface.Item) else len(item.raw) for item in found)
    items = [(item.key, item.value) for item in found if isinstance(item, interface.Item)]
    is_all = len(found) < _ITEMS_MAX and size_bytes < command.bytes_max
    return RowsRead(command.token, items, b"" if is_all else found[-1].key + b"\0", len(found) - len(items))


def answer_range(
    command: ReadRange, high: bytes, items: list[Item], before: int, after: int, *, whole: int
) -> RangeRead:
    digest = digest_of(items)
    is_same = digest == command.unless and high == command.high
    data = pack_items(items) if command.with_data and not is_same else None
    return RangeRead(command.token, high, digest, before, after, data, len(items), whole)


def replica_hash(store: Store, *, thorough: bool = True) -> str:
    """Equal for replicas at the same order. Unless `thorough`, of messages only where they are, not what they say: then
    it takes as long as there are batches, not bytes, to read."""
    digest = Digest()
    for table, low, end in replicated_ranges():
        at = low
        while found := store.scan(table, at, end, limit=1_000):
            for item in found:
                value = item.value if isinstance(item, interface.Item) else b""
                is_skipped = table in _BULKY and not thorough
                digest.add(bytes([table]) + item.key, b"%d" % len(value) if is_skipped else value)
            at = found[-1].key + b"\0"
    return digest.value().hex()

"""What a read finds in a store: batches from memory at once, or from the disk, in whatever thread may wait for it.

Whoever drives a disk asks here: a node (`disk.py`), a backup that shows pages of logs, the simulator.
"""
from collections.abc import Sequence

from angarium.core.destination.events import DamagedBatch, DelayedRead, Read, ReadDelayed, StoredBatch
from angarium.core.storage import Table, key_of, position_key
from angarium.core.wire.batch import Batch
from angarium.store.interface import Damaged, Item, Store

_Batch = StoredBatch | DamagedBatch
_ASIDE_MAX = 1_000  # batches that are kept beside the log, of one read
_READ_BATCHES_MAX = 128  # of one read: some milliseconds of delivering


def read_from_memory(store: Store, read: Read) -> list[_Batch] | None:
    """What memory holds from the wanted position on; None if only the disk can tell."""
    batches: list[_Batch] = []
    position, size_bytes = read.position, 0
    high = position_key(read.destination, read.end + 1)
    while position < read.end and size_bytes < read.bytes_max and len(batches) < _READ_BATCHES_MAX:
        item = store.peek_memory(Table.BATCH, position_key(read.destination, position + 1), high)
        if item is None:
            break
        end = int.from_bytes(item.key[8:], "big")
        if end - Batch.trusted(item.value).count > position:
            break  # an older batch, on disk, comes first
        batches.append(StoredBatch(end, item.value))
        position = end
        size_bytes += len(item.value)
    return batches or None


def read_delayed(store: Store, read: ReadDelayed) -> DelayedRead:
    """The first of those that wait for their time, or of those staged in the parts, one part after the other."""
    if not read.parts:
        low, high = key_of(read.destination), key_of(read.destination + 1)
        found = list(store.scan(Table.DELAYED, low, high, limit=_ASIDE_MAX, bytes_max=read.bytes_max))
    else:
        found, left_bytes = [], read.bytes_max
        for part in read.parts:
            low = key_of(read.destination, part)
            some = store.scan(Table.STAGED, low, low + b"\xff" * 9, limit=_ASIDE_MAX - len(found), bytes_max=left_bytes)
            found += some
            left_bytes -= sum(len(item.value) for item in some if isinstance(item, Item))
            if left_bytes <= 0 or len(found) >= _ASIDE_MAX:
                break
    return DelayedRead(read.token, [(item.key, item.value if isinstance(item, Item) else b"") for item in found])


def read_from_store(store: Store, read: Read) -> list[_Batch]:
    low = position_key(read.destination, read.position + 1)
    high = position_key(read.destination, read.end + 1)
    items: Sequence[Item | Damaged] = store.scan(
        Table.BATCH, low, high, limit=_READ_BATCHES_MAX, bytes_max=read.bytes_max
    )
    if items and not isinstance(items[-1], Item):
        if len(items) > 1:
            items = items[:-1]  # it is read again, with what follows it
        else:  # by itself as long as a read
            items = [*items, *store.scan(Table.BATCH, items[0].key + b"\0", high, limit=1, bytes_max=1)]
    batches: list[_Batch] = []
    for item in reversed(items):
        end = int.from_bytes(item.key[8:], "big")
        if isinstance(item, Item):
            batches.append(StoredBatch(end, item.value))
        else:  # its key may be what was damaged: it cannot reach into the next one
            batches.append(DamagedBatch(min(end, _base(batches[-1])) if batches else end, item.raw))
    return batches[::-1]


def _base(batch: _Batch) -> int:
    return batch.end - (Batch.trusted(batch.data).count if isinstance(batch, StoredBatch) else 0)

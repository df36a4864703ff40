"""A store with batches of one destination, told by where they end."""
from angarium.core.errors import Unavailable
from angarium.core.storage import Put, Table, key_of, position_key
from angarium.store.durable import DurableStore

VALUE = bytes(3_000)


def fill(store: DurableStore, first: int, *, until_refused: bool = False, count: int = 10_000) -> int:
    """Commits one batch after the other; returns the end of the last that was confirmed."""
    end = first
    for end in range(first, first + count):
        try:
            store.commit([Put(Table.BATCH, position_key(1, end), VALUE)])
        except Unavailable:
            assert until_refused
            return end - 1
    return end


def ends(store: DurableStore) -> list[int]:
    items = store.scan(Table.BATCH, key_of(1), key_of(2), limit=10_000, bytes_max=1 << 30)
    return [int.from_bytes(item.key[8:], "big") for item in items]

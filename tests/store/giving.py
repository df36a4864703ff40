"""Stores whose groups are given to the kernel, and what is found in them."""
from pathlib import Path

from angarium.core.storage import Operation, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from angarium.store.settings import StoreSettings
from tests.store.disks import crash, give

ROOMY = StoreSettings(segment_bytes=1 << 20, ballast_bytes=256 * 1024)


def put(number: int, size_bytes: int = 10) -> list[Operation]:
    """The latest number, and one of all."""
    value = number.to_bytes(8, "big")
    return [Put(Table.LOG, b"last", value), Put(Table.BATCH, position_key(1, number), value + bytes(size_bytes))]


def give_surely(store: DurableStore, operations: list[Operation]) -> None:
    """A busy kernel may refuse to begin: then it is asked again."""
    assert any(give(store, operations) for _ in range(100))


def give_or_commit(store: DurableStore, operations: list[Operation]) -> None:
    if not give(store, operations):
        store.commit(operations)


def numbers(store: DurableStore) -> list[int]:
    """All of them, the latest being the last."""
    items = store.scan(Table.BATCH, key_of(1), key_of(2), limit=10_000, bytes_max=1 << 30)
    found = [int.from_bytes(item.key[8:], "big") for item in items]
    last = store.get(Table.LOG, b"last")
    assert (last is None) == (not found)
    assert last is None or int.from_bytes(last, "big") == found[-1]
    return found


def reopened(store: DurableStore, path: Path, settings: StoreSettings = ROOMY) -> DurableStore:
    """After kill -9. Nothing is ever damaged by it."""
    crash(store)
    store = DurableStore.open(path, settings)
    assert store.recovery.damages == ()
    return store

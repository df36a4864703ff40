"""Goal: what is read or deleted does not stay in memory, however much of it there is.
Method: what the process maps of files is measured."""
import contextlib
import os
import resource
from pathlib import Path

from angarium.core.storage import Put, Table, key_of, position_key
from angarium.store.disk import DiskCalls
from angarium.store.durable import DurableStore
from angarium.store.residency import FilePages
from angarium.store.settings import MIB, StoreSettings
from angarium.store.tables import Tables


def test_reading_a_backlog_does_not_fill_memory(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=4 << 20, resident_bytes_max=2 << 20)
    store = DurableStore.open(tmp_path, settings)
    for end in range(1, 401):
        store.commit([Put(Table.BATCH, position_key(1, end), bytes(100_000))])
    pages = FilePages()
    low, most_bytes, at_first_bytes = key_of(1), 0, pages.resident_bytes()
    while items := store.scan(Table.BATCH, low, key_of(2), limit=10):
        low = items[-1].key + b"\0"
        most_bytes = max(most_bytes, pages.resident_bytes() - at_first_bytes)
    assert store.statistics().lmdb_bytes > 30 << 20
    assert most_bytes < 12 << 20
    store.close()
    pages.close()


def test_a_process_without_a_free_descriptor_still_reads_its_backlog(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, StoreSettings(segment_bytes=4 << 20, resident_bytes_max=2 << 20))
    for end in range(1, 101):
        store.commit([Put(Table.BATCH, position_key(1, end), bytes(100_000))])
    taken: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        low, found = key_of(1), 0
        while items := store.scan(Table.BATCH, low, key_of(2), limit=10):
            low, found = items[-1].key + b"\0", found + len(items)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        store.close()
    assert found == 100


def test_deleting_batches_brings_none_of_other_destinations_into_memory(tmp_path: Path) -> None:
    tables = Tables(tmp_path, StoreSettings(), DiskCalls())
    large = bytes(range(256)) * (MIB // 256)
    list(tables.write([], [(Table.BATCH, position_key(1, end), large) for end in range(1, 21)], 1))
    list(tables.write([], [(Table.BATCH, position_key(3, end), large) for end in range(1, 21)], 2))
    list(tables.write([], [(Table.BATCH, position_key(2, end), b"small") for end in range(1, 21)], 3))
    pages = FilePages()
    before_bytes = pages.resident_bytes()
    for end in range(1, 21):
        list(tables.write([(Table.BATCH, key_of(2), position_key(2, end + 1))], [], 3 + end))
    assert pages.resident_bytes() - before_bytes < MIB
    pages.close()
    tables.close()

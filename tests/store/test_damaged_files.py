"""Goal: damage at rest is noticed, told, and costs what it hit and nothing else.
Method: bits are flipped, files cut, replaced and removed between closing a store and opening it."""
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from angarium.core.errors import StorageCorrupt
from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store.disk import DiskCalls
from angarium.store.durable import DurableStore
from angarium.store.interface import Damaged, Item, ValueDamaged
from angarium.store.memtable import KeyRanges
from angarium.store.settings import PAGE_BYTES
from angarium.store.tables import Tables
from tests.store.disks import SMALL, FaultyDisk
from tests.store.filled import ends, fill


def checkpointed(path: Path) -> None:
    """A store of which LMDB holds some values, each recognizable."""
    store = DurableStore.open(path, SMALL)
    for end in range(1, 40):
        store.commit([Put(Table.BATCH, position_key(1, end), b"batch %02d " % end * 400)])
    store.close()


def test_a_flipped_bit_in_a_value_at_rest_is_noticed(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    data = bytearray((tmp_path / "data.mdb").read_bytes())
    at = data.index(b"batch 05 " * 3)
    while at >= 0:  # LMDB may hold older copies of a page: spoil every one
        data[at] ^= 4
        at = data.find(b"batch 05 " * 3, at + 3_600)
    (tmp_path / "data.mdb").write_bytes(data)

    store = DurableStore.open(tmp_path, SMALL)
    with pytest.raises(ValueDamaged) as caught:
        store.get(Table.BATCH, position_key(1, 5))
    assert (caught.value.table, caught.value.key) == (Table.BATCH, position_key(1, 5))
    assert b"batch 05 " in caught.value.raw
    found = store.scan(Table.BATCH, key_of(1), key_of(2), 1_000)
    assert [item.key for item in found] == [position_key(1, end) for end in range(1, 40)]
    assert [at for at, item in enumerate(found, 1) if isinstance(item, Damaged)] == [5]
    first = store.first_at_or_after(Table.BATCH, position_key(1, 5), key_of(2))
    assert isinstance(first, Damaged)
    assert store.statistics().damages == 3
    store.commit([Put(Table.DAMAGED, first.key, first.raw), DeleteRange(Table.BATCH, first.key, first.key + b"\0")])
    assert all(isinstance(item, Item) for item in store.scan(Table.BATCH, key_of(1), key_of(2), 1_000))
    store.close()


def with_a_flipped_bit(path: Path, keys: Sequence[bytes], spoiled: bytes, *, at: int, bit: int) -> Tables:
    tables = Tables(path, SMALL, DiskCalls())
    list(tables.write([], [(Table.BATCH, key, b"value of " + key) for key in keys], 1))
    tables.close()
    data = bytearray((path / "data.mdb").read_bytes())
    for found in re.finditer(re.escape(spoiled) + b"....value of ", bytes(data), re.DOTALL):
        data[found.start() + at] ^= 1 << bit
    (path / "data.mdb").write_bytes(data)
    return Tables(path, SMALL, DiskCalls())


def intact(tables: Tables, low: bytes, high: bytes, limit: int = 1_000) -> list[bytes]:
    found = tables.scan(
        tables.begin(), Table.BATCH, low, high, over=[], hidden=KeyRanges(), limit=limit, bytes_max=1 << 20
    )
    return [item.key for item in found if isinstance(item, Item)]


@pytest.mark.parametrize("at", [0, 2, 6, 7, 9, 13, 14, 15])
@pytest.mark.parametrize("bit", [0, 1, 3, 6])
def test_a_flipped_bit_in_a_key_at_rest_costs_that_value_alone(tmp_path: Path, at: int, bit: int) -> None:
    """Once: LMDB, which halves its way through a page, was led astray, and what stood behind it was not found."""
    keys = [position_key(destination, end) for destination in (2, 3) for end in range(10, 400, 10)]
    tables = with_a_flipped_bit(tmp_path, keys, spoiled := keys[20], at=at, bit=bit)
    left = [key for key in keys if key != spoiled]
    for low in keys:
        assert intact(tables, low, key_of(3)) == [key for key in left if low <= key < key_of(3)]
        assert intact(tables, low, key_of(4), 3)[:2] == [key for key in left if low <= key][:2]
    removed = position_key(2, 150), position_key(2, 300)
    list(tables.write([(Table.BATCH, *removed), (Table.BATCH, key_of(3), key_of(4))], [], 2))
    assert intact(tables, b"", b"\xff" * 16) == [
        key for key in left if key < key_of(3) and not removed[0] <= key < removed[1]
    ]
    tables.close()


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize(("at", "bit"), [(7, 0), (7, 1), (15, 4), (15, 5)])
def test_so_it_does_at_either_end_of_a_table(tmp_path: Path, place: int, at: int, bit: int) -> None:
    """Once: the way back from one that was astray ended behind the first of all, and another search at the last."""
    keys = [position_key(2, end) for end in range(10, 70, 10)]
    tables = with_a_flipped_bit(tmp_path, keys, keys[place], at=at, bit=bit)
    left = [key for key in keys if key != keys[place]]
    for low in (b"", *keys, key_of(3)):
        assert intact(tables, low, b"\xff" * 16) == [key for key in left if low <= key]
    list(tables.write([(Table.BATCH, keys[0], keys[2]), (Table.BATCH, keys[4], keys[5])], [], 2))
    assert intact(tables, b"", b"\xff" * 16) == [key for key in left if keys[2] <= key and key != keys[4]]
    tables.close()


@pytest.mark.parametrize("at", [6, 7, 14, 15])
@pytest.mark.parametrize("bit", [0, 3, 6])
def test_a_flipped_bit_in_a_key_at_rest_lets_no_other_record_come_back(tmp_path: Path, at: int, bit: int) -> None:
    """Nobody has read anything yet when the others are deleted. LMDB looks at this key first whichever it looks for."""
    keys = [position_key(2, end) for end in range(10, 400, 10)]
    for number, removed in enumerate(keys):
        directory = tmp_path / str(number)
        directory.mkdir()
        tables = Tables(directory, SMALL, DiskCalls())
        list(tables.write([], [(Table.PAGE, key, b"value of " + key) for key in keys], 1))
        tables.close()
        data = bytearray((directory / "data.mdb").read_bytes())
        for found in re.finditer(re.escape(keys[19]) + b"....value of ", bytes(data), re.DOTALL):
            data[found.start() + at] ^= 1 << bit
        (directory / "data.mdb").write_bytes(data)
        tables = Tables(directory, SMALL, DiskCalls())
        list(tables.write([(Table.PAGE, removed, removed + b"\0")], [], 2))
        items = tables.scan(
            tables.begin(), Table.PAGE, b"", b"\xff" * 16, over=[], hidden=KeyRanges(), limit=1_000, bytes_max=1 << 20
        )
        left = [item.key for item in items if isinstance(item, Item)]
        assert left == [key for key in keys if key not in (removed, keys[19])]
        tables.close()


def test_a_ruined_lmdb_file_is_called_corrupt(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    with (tmp_path / "data.mdb").open("r+b") as file:
        file.write(bytes(8_192))
    with pytest.raises(StorageCorrupt):
        DurableStore.open(tmp_path, SMALL)


@pytest.mark.parametrize("left_pages", [2, 3, 10, 20])
def test_a_cut_lmdb_file_is_called_corrupt(tmp_path: Path, left_pages: int) -> None:
    """And kills nobody: reading behind the end of a mapped file would."""
    checkpointed(tmp_path)
    os.truncate(tmp_path / "data.mdb", left_pages * PAGE_BYTES)
    with pytest.raises(StorageCorrupt, match=f"{left_pages * PAGE_BYTES:,} bytes of .*: it was cut"):
        DurableStore.open(tmp_path, SMALL)


def test_of_an_lmdb_file_that_lacks_values_only_those_are_damaged(tmp_path: Path) -> None:
    tables = Tables(tmp_path, SMALL, DiskCalls())
    for end in range(1, 9):  # small ones free pages, which the tree takes when the large one goes to the end
        value = b"small" if end < 8 else b"large" * 20_000
        list(tables.write([], [(Table.BATCH, position_key(1, end), value)], end))
    tables.close()
    path = tmp_path / "data.mdb"
    size_bytes = path.stat().st_size
    os.truncate(path, path.read_bytes().rindex(b"large" * 1_000))
    tables = Tables(tmp_path, SMALL, DiskCalls())
    assert path.stat().st_size == size_bytes
    found = [tables.get(tables.begin(), Table.BATCH, position_key(1, end)) for end in range(1, 9)]
    assert found[:7] == [Item(position_key(1, end), b"small") for end in range(1, 8)]
    assert isinstance(found[7], Damaged)
    tables.close()


def test_unreadable_pages_of_the_journal_count_as_damage(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    fill(store, 1, count=5)
    store.close()

    class Unreadable(FaultyDisk):
        def pread(self, fd: int, count: int, offset: int) -> bytes:
            if offset <= 2 * PAGE_BYTES < offset + count:
                raise OSError(errno.EIO, "unreadable")
            return super().pread(fd, count, offset)

    store = DurableStore.open(tmp_path, SMALL, Unreadable())
    assert ends(store) == [1, 2, 4, 5]
    assert len(store.recovery.damages) == 1
    store.close()


def test_a_missing_segment_is_reported(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    fill(store, 1, count=3)
    store.close()
    lost = min(tmp_path.glob("journal-*-0.seg"))
    lost.unlink()
    store = DurableStore.open(tmp_path, SMALL)
    assert [damage.reason for damage in store.recovery.damages] == [f"{lost.name}: missing, with whatever it held"]
    store.close()


@pytest.mark.parametrize("left_bytes", [0, 100, 4_096, 40_960, 43_000])
def test_a_cut_segment_is_reported_and_filled_up(tmp_path: Path, left_bytes: int) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    fill(store, 1, count=13)
    store.close()
    cut = min(tmp_path.glob("journal-*-0.seg"))
    os.truncate(cut, left_bytes)
    store = DurableStore.open(tmp_path, SMALL)
    reasons = [damage.reason for damage in store.recovery.damages]
    assert reasons == [f"{cut.name}: {left_bytes:,} bytes of 65,536: cut, with whatever was behind"]
    kept = ends(store)
    assert kept == list(range(1, 1 + left_bytes // PAGE_BYTES))
    fill(store, 100, count=50)  # through both segments, again and again
    store.close()
    store = DurableStore.open(tmp_path, SMALL)
    assert store.recovery.damages == ()
    assert ends(store) == [*kept, *range(100, 150)]
    store.close()


def test_segments_that_are_all_cut_are_called_corrupt(tmp_path: Path) -> None:
    DurableStore.open(tmp_path, SMALL).close()
    for path in tmp_path.glob("journal-*.seg"):
        os.truncate(path, 10_000)
    with pytest.raises(StorageCorrupt, match="it was cut"):
        DurableStore.open(tmp_path, SMALL)


def test_an_older_lmdb_file_is_reported(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    old = (tmp_path / "data.mdb").read_bytes()
    fill(store, 1, count=100)
    store.close()
    (tmp_path / "data.mdb").write_bytes(old)
    store = DurableStore.open(tmp_path, SMALL)
    assert store.recovery.damages[0].reason.startswith("LMDB knows groups up to 0, but held them up to ")
    store.close()

"""Goal: a call that fails costs a refusal, never data: the state is as before, the same group goes through later."""
import contextlib
import errno
import os
import re
import resource
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import lmdb
import pytest

from angarium.core.errors import StorageCorrupt, Unavailable
from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store.disk import DiskCalls
from angarium.store.durable import DurableStore
from angarium.store.interface import Damaged, Item, ValueDamaged
from angarium.store.memtable import KeyRanges
from angarium.store.residency import FilePages
from angarium.store.settings import MIB, PAGE_BYTES, StoreSettings
from angarium.store.tables import Tables
from tests.store.disks import SMALL, FaultyDisk, crash

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


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_is_refused_and_repeated(tmp_path: Path, call: str, code: int) -> None:
    disk = FaultyDisk(code=code)
    store = DurableStore.open(tmp_path, SMALL, disk)
    store.commit([Put(Table.LOG, b"k", b"1")])
    for value in (b"2", b"3", b"4"):
        disk.fail = {call: 1}
        with pytest.raises(Unavailable, match="journal: cannot"):
            store.commit([Put(Table.LOG, b"k", value)])
        assert store.get(Table.LOG, b"k") == b"1"
    store.commit([Put(Table.LOG, b"k", b"5")])
    crash(store)
    store = DurableStore.open(tmp_path, SMALL)
    assert store.get(Table.LOG, b"k") == b"5"
    assert store.recovery.groups_replayed == 2
    assert store.recovery.damages == ()
    store.close()


def test_pages_whose_sync_failed_are_not_synced_again(tmp_path: Path) -> None:
    """fsyncgate: after a failed fdatasync the kernel may call those pages clean. The retry goes elsewhere."""
    places: list[int] = []

    class Recorder(FaultyDisk):
        def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
            places.append(offset)
            return super().pwritev(fd, buffers, offset)

    disk = Recorder()
    store = DurableStore.open(tmp_path, SMALL, disk)
    places.clear()
    disk.fail = {"fdatasync": 1}
    with pytest.raises(Unavailable):
        store.commit([Put(Table.LOG, b"k", b"1")])
    store.commit([Put(Table.LOG, b"k", b"1")])
    assert places == [0, PAGE_BYTES, PAGE_BYTES]  # the group, the seal that makes it void, the repeated group over it
    store.close()


def test_failing_for_a_whole_segment_and_healing(tmp_path: Path) -> None:
    """Every refused sync gives up a place. When the segment is used up the other is taken, and nothing is lost."""
    disk = FaultyDisk()
    store = DurableStore.open(tmp_path, SMALL, disk)
    last = fill(store, 1, count=5)
    disk.fail = {"fdatasync": 40}
    for _ in range(40):
        assert fill(store, last + 1, until_refused=True) == last
    disk.fail = {}
    last = fill(store, last + 1, count=30)
    assert ends(store) == list(range(1, last + 1))
    crash(store)
    store = DurableStore.open(tmp_path, SMALL)
    assert ends(store) == list(range(1, last + 1))
    store.close()


@pytest.mark.parametrize("call", ["pwritev", "fsync"])
def test_a_segment_that_cannot_be_prepared_leaves_nothing_behind(tmp_path: Path, call: str) -> None:
    disk = FaultyDisk(fail={call: 1}, code=errno.ENOSPC)
    with pytest.raises(Unavailable, match="cannot prepare a journal segment"):
        DurableStore.open(tmp_path, SMALL, disk)
    assert list(tmp_path.glob("journal*")) == []
    store = DurableStore.open(tmp_path, SMALL, disk)
    fill(store, 1, count=3)
    store.close()


def test_a_stuck_checkpoint_loses_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = FaultyDisk(code=errno.ENOSPC)
    store = DurableStore.open(tmp_path, SMALL, disk)
    disk.fail = {"lmdb_commit": -1}
    last = fill(store, 1, until_refused=True)
    assert store.blocked_reason is not None
    assert ends(store) == list(range(1, last + 1))
    crash(store)
    disk.fail = {}

    store = DurableStore.open(tmp_path, SMALL, disk)
    assert ends(store) == list(range(1, last + 1))
    last = fill(store, last + 1, count=50)
    assert store.blocked_reason is None
    assert ends(store) == list(range(1, last + 1))
    store.close()


@pytest.mark.parametrize(("free_bytes", "said"), [(4_096, "the disk is full: 4,096 bytes are free"), (1 << 30, "")])
def test_a_write_that_lmdb_could_not_finish_for_want_of_room_is_told_as_that(
    tmp_path: Path, free_bytes: int, said: str
) -> None:
    class CutShort(FaultyDisk):
        def free_bytes(self, path: Path) -> int:
            return free_bytes

        def lmdb_commit(self, transaction: "lmdb.Transaction[bytes]") -> None:
            raise lmdb.Error(f"mdb_txn_commit: {os.strerror(errno.EIO)}")

    store = DurableStore.open(tmp_path, SMALL, CutShort())
    fill(store, 1, until_refused=True)
    assert store.blocked_reason is not None
    told = store.blocked_reason.partition(os.strerror(errno.EIO))[2]
    assert told.startswith(f"; {said}") if said else "full" not in told
    crash(store)


@pytest.mark.parametrize("removals", [0, 1])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_disk_that_takes_no_writes_at_all_is_a_refusal_and_may_heal(tmp_path: Path, code: int, removals: int) -> None:
    """As a file system that was made read-only for its errors: not even the ballast can go, or it cannot come back."""
    disk = FaultyDisk(code=code, spare={"remove": removals})
    store = DurableStore.open(tmp_path, SMALL, disk)
    everything = ("pwritev", "fdatasync", "fsync", "allocate", "truncate", "remove", "lmdb_commit")
    last = fill(store, 1, count=5)
    disk.fail = {"lmdb_commit": -1, "remove": -1, "allocate": -1, "truncate": -1}
    last = fill(store, last + 1, until_refused=True)
    disk.fail = dict.fromkeys(everything, -1)
    for _ in range(3):
        assert fill(store, last + 1, until_refused=True) == last
    assert store.blocked_reason is not None
    disk.fail = {}
    last = fill(store, last + 1, count=50)
    assert store.blocked_reason is None
    assert ends(store) == list(range(1, last + 1))
    assert store.statistics().ballast_bytes == SMALL.ballast_bytes
    store.close()


def test_the_refused_group_goes_through_once_there_is_room(tmp_path: Path) -> None:
    disk = FaultyDisk(code=errno.ENOSPC)
    store = DurableStore.open(tmp_path, SMALL, disk)
    disk.fail = {"lmdb_commit": -1}
    last = fill(store, 1, until_refused=True)
    disk.fail = {}
    last = fill(store, last + 1, count=1)
    assert ends(store) == list(range(1, last + 1))
    store.close()


def test_what_frees_space_may_use_the_reserve(tmp_path: Path) -> None:
    disk = FaultyDisk(code=errno.ENOSPC)
    store = DurableStore.open(tmp_path, SMALL, disk)
    disk.fail = {"lmdb_commit": -1}
    last = fill(store, 1, until_refused=True)
    store.commit([DeleteRange(Table.BATCH, key_of(1), position_key(1, last))], reserved=True)
    assert ends(store) == [last]
    disk.fail = {}
    store.commit([Put(Table.BATCH, position_key(1, last + 1), VALUE)])
    assert ends(store) == [last, last + 1]
    crash(store)
    store = DurableStore.open(tmp_path, SMALL)
    assert ends(store) == [last, last + 1]
    store.close()


def test_the_reserve_ends_too(tmp_path: Path) -> None:
    disk = FaultyDisk(code=errno.ENOSPC)
    store = DurableStore.open(tmp_path, SMALL, disk)
    disk.fail = {"lmdb_commit": -1}
    fill(store, 1, until_refused=True)
    accepted = 0
    with pytest.raises(Unavailable):
        for accepted in range(1_000):
            store.commit([Put(Table.LOG, b"settled", b"%d" % accepted)], reserved=True)
    assert accepted == 2  # an eighth of 64 KiB, in pages
    store.seal()  # the last page is kept for it
    crash(store)
    disk.fail = {}
    store = DurableStore.open(tmp_path, SMALL, disk)
    assert store.get(Table.LOG, b"settled") == b"%d" % (accepted - 1)
    store.close()


def test_a_retry_does_not_delete_what_the_failed_attempt_wrote(tmp_path: Path) -> None:
    """The memtable deletes a range and puts keys into it again. The first attempt fails halfway through the puts."""
    disk = FaultyDisk(code=errno.ENOSPC)
    store = DurableStore.open(tmp_path, SMALL, disk)
    store.commit([DeleteRange(Table.BATCH, key_of(1), key_of(2))])
    disk.spare, disk.fail = {"lmdb_commit": 1}, {"lmdb_commit": 2}
    last = fill(store, 1, until_refused=True, count=40)  # refused, if the checkpoint fails while the journal is full
    last = fill(store, last + 1, count=40 - last) if last < 40 else last
    assert disk.fail == {"lmdb_commit": 0}
    assert ends(store) == list(range(1, last + 1))
    store.close()


def test_a_stuck_checkpoint_goes_on_with_the_commits(tmp_path: Path) -> None:
    """Nobody has to call `retry`: while there is journal left, a commit now and then does."""
    disk = FaultyDisk(fail={}, code=errno.ENOSPC)
    store = DurableStore.open(tmp_path, SMALL, disk)
    disk.fail = {"lmdb_commit": 2}  # the first attempt, and the one with the ballast released
    store._retry_at = inf
    last = fill(store, 1, count=15)
    wait_until(lambda: store.blocked_reason is not None)
    store._retry_at = 0.0
    last = fill(store, last + 1, count=1)
    wait_until(lambda: store.statistics().checkpoints == 1)
    assert store.blocked_reason is None
    assert ends(store) == list(range(1, last + 1))
    store.close()


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_write_cut_short_is_continued(tmp_path: Path) -> None:
    class Short(FaultyDisk):
        def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
            return super().pwritev(fd, [b"".join(buffers)[:1_000]], offset)

    store = DurableStore.open(tmp_path, SMALL)
    store.close()
    store = DurableStore.open(tmp_path, SMALL, Short())
    last = fill(store, 1, count=5)
    crash(store)
    store = DurableStore.open(tmp_path, SMALL)
    assert ends(store) == list(range(1, last + 1))
    store.close()


def test_a_group_of_more_buffers_than_one_write_takes(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=8 << 20)
    store = DurableStore.open(tmp_path, settings)
    store.commit([Put(Table.BATCH, position_key(1, end), bytes(5_000)) for end in range(1, 1_301)])
    crash(store)
    store = DurableStore.open(tmp_path, settings)
    assert ends(store) == list(range(1, 1_301))
    store.close()


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


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}"):
        DurableStore.open(tmp_path, SMALL)
    store.close()
    DurableStore.open(tmp_path, SMALL).close()


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

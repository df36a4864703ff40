"""Goal: a call that fails costs a refusal, never data: the state is as before, the same group goes through later."""
import errno
import os
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import lmdb
import pytest

from angarium.core.errors import Unavailable
from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from angarium.store.settings import PAGE_BYTES, StoreSettings
from tests.store.disks import SMALL, FaultyDisk, crash
from tests.store.filled import VALUE, ends, fill


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


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}"):
        DurableStore.open(tmp_path, SMALL)
    store.close()
    DurableStore.open(tmp_path, SMALL).close()

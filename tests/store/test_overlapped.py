"""Goal: a group that the kernel writes by itself counts as much as one that was committed: once it is said to be
durable it stays, in order, exactly once; where the kernel will not or cannot, `commit` goes on as if nothing was.
Method: a real file system; some of its answers are replaced by worse ones."""
import errno
import os
import select
from pathlib import Path

import pytest

from angarium.core.errors import Unavailable
from angarium.core.storage import Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from angarium.store.groups import HEAD_BYTES
from angarium.store.interface import OPERATION_BYTES
from angarium.store.journal import REFUSALS_MAX
from angarium.store.overlapped import BUFFER_BYTES
from angarium.store.settings import PAGE_BYTES
from tests.store.disks import SMALL, FaultyDisk, crash, start
from tests.store.giving import ROOMY, give_or_commit, give_surely, numbers, put, reopened


def damage_in(directory: Path, old: bytes, new: bytes) -> None:
    (segment,) = [file for file in directory.glob("*.seg") if old in file.read_bytes()]
    segment.write_bytes(segment.read_bytes().replace(old, new))


# -- groups ----------------------------------------------------------------------------------------------------------


def test_what_is_durable_is_there_after_a_crash_and_seen_only_once_it_is_shown(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    give_surely(store, put(1))
    assert any(start(store, put(2)) for _ in range(100))
    assert numbers(store) == [1]
    store.finish()
    assert numbers(store) == [1]
    assert store.peek_memory(Table.BATCH, position_key(1, 2), key_of(2)) is None
    store.show()
    assert numbers(store) == [1, 2]
    assert store.statistics().groups == 2
    store = reopened(store, path)
    assert numbers(store) == [1, 2]
    assert store.recovery.groups_replayed == 2
    store.close()


def test_what_is_durable_and_not_yet_shown_is_there_after_a_crash(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    give_surely(store, put(1))
    assert start(store, put(2))
    store.finish()
    store = reopened(store, path)
    assert numbers(store) == [1, 2]
    store.close()


def test_what_is_under_way_in_a_crash_is_there_as_a_whole_or_not_at_all(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    give_surely(store, put(1))
    assert store.start(put(2, 20_000) + put(3, 20_000))
    store = reopened(store, path)
    assert numbers(store) in ([1], [1, 2, 3])
    give_surely(store, put(4))
    assert numbers(reopened(store, path))[-1] == 4


def test_commits_and_given_groups_and_seals_keep_their_order(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    for number in range(1, 61):
        size_bytes = (10, 3_000, 9_000)[number % 3]
        if number % 4 == 0:
            store.commit(put(number, size_bytes))
        else:
            give_surely(store, put(number, size_bytes))
        if number % 5 == 0:
            store.seal()
    assert numbers(store) == list(range(1, 61))
    assert store._journal.sequence_next == 61
    store = reopened(store, path)
    assert numbers(store) == list(range(1, 61))
    assert store.recovery.groups_replayed == 60
    assert store._journal.sequence_next == 61
    store.close()


def test_a_seal_says_of_given_groups_too_that_they_were_confirmed(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    give_surely(store, put(1))
    store.seal()
    give_surely(store, [Put(Table.LOG, b"a", b"good"), Put(Table.LOG, b"b", b"spoiled")])
    store.seal()
    crash(store)
    damage_in(path, b"spoiled", b"spoilee")
    store = DurableStore.open(path, ROOMY)
    assert [(damage.table, damage.key) for damage in store.recovery.damages] == [(Table.LOG, b"b")]
    assert store.get(Table.LOG, b"a") == b"good"
    store.close()


def test_a_given_group_that_was_cut_short_is_dropped_as_a_whole(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    give_surely(store, put(1))
    store.seal()
    give_surely(store, [Put(Table.LOG, b"a", b"good"), Put(Table.LOG, b"b", b"torn off")])
    crash(store)
    damage_in(path, b"torn off", b"torn of ")
    store = DurableStore.open(path, ROOMY)
    assert store.recovery.damages == ()
    assert store.recovery.torn_bytes == PAGE_BYTES
    assert store.get(Table.LOG, b"a") is None
    assert numbers(store) == [1]
    store.close()


# -- what has to be committed ----------------------------------------------------------------------------------------


def test_a_full_segment_is_left_to_a_commit(path: Path) -> None:
    store = DurableStore.open(path, SMALL)
    number = lap = refused = 0
    while lap < 6:
        number += 1
        store._wait_for_checkpoint()  # nothing is begun before
        if not start(store, put(number)):
            assert store._journal.used_bytes == store.group_bytes_max + 2 * HEAD_BYTES, "the reserve is left alone"
            store.commit(put(number))
            lap += 1
            continue
        try:
            store.finish()
            store.show()
        except Unavailable:
            refused += 1
            store.commit(put(number))
    assert number > 6 * 10
    assert refused <= 10
    assert store.statistics().checkpoints >= 4
    assert numbers(store) == list(range(1, number + 1))
    store = reopened(store, path, SMALL)
    assert numbers(store) == list(range(1, number + 1))
    store.close()


def test_a_group_larger_than_the_buffer_has_to_be_committed(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    largest_bytes = BUFFER_BYTES - 2 * HEAD_BYTES - OPERATION_BYTES - len(b"k")
    assert not store.start([Put(Table.LOG, b"k", os.urandom(largest_bytes + 1))])
    assert store.overlapped is not None
    value, small = os.urandom(largest_bytes), [Put(Table.LOG, b"s", b"small")]
    give_surely(store, [Put(Table.LOG, b"k", value)])
    give_surely(store, list(small))
    store = reopened(store, path)
    assert store.get(Table.LOG, b"k") == value
    assert store.get(Table.LOG, b"s") == b"small"
    assert store.recovery.groups_replayed == 2
    store.close()


def test_a_group_of_nothing_is_not_begun(path: Path) -> None:
    """Like a commit of nothing, which writes nothing: on disk it would be a seal that takes a sequence."""
    disk = FaultyDisk()
    store = DurableStore.open(path, ROOMY, disk)
    give_surely(store, put(1))
    began = len(disk.started_at)
    assert not store.start([])
    assert len(disk.started_at) == began
    store.commit([])
    give_surely(store, put(2))
    store = reopened(store, path)
    assert numbers(store) == [1, 2]
    store.close()


def test_nothing_is_begun_before_a_checkpoint_that_is_wanted(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    give_surely(store, put(1))
    store.make_room()
    assert not store.start(put(2))
    store.commit(put(2))
    assert store._journal.used_bytes == PAGE_BYTES, "the other segment was taken"
    store._wait_for_checkpoint()
    for number in range(3, 4 + REFUSALS_MAX):  # its pages are in the way, from when it was made
        give_or_commit(store, put(number))
    give_surely(store, put(4 + REFUSALS_MAX))
    assert numbers(store) == list(range(1, 5 + REFUSALS_MAX))
    store.close()


def test_nothing_is_begun_while_the_store_is_blocked(path: Path) -> None:
    disk = FaultyDisk(code=errno.ENOSPC)
    store = DurableStore.open(path, ROOMY, disk)
    disk.fail = {"pwritev": 1}
    with pytest.raises(Unavailable):
        store.commit(put(1))
    assert not store.start(put(1))
    store.commit(put(1))
    give_or_commit(store, put(2))
    assert numbers(store) == [1, 2]
    store.close()


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [None, "start"])
def test_a_closed_store_holds_no_descriptor(path: Path, refused: str | None) -> None:
    def descriptors() -> set[str]:
        return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists()}

    before = descriptors()
    for number in range(1, 4):
        disk = FaultyDisk(fail={} if refused is None else {refused: 1}, code=errno.EOPNOTSUPP)
        store = DurableStore.open(path, ROOMY, disk)
        assert len(descriptors()) > len(before)
        give_or_commit(store, put(number))
        store.close()
        assert descriptors() == before
    store = DurableStore.open(path, ROOMY)
    assert numbers(store) == [1, 2, 3]
    crash(store)
    assert descriptors() == before


def test_a_file_system_without_it_has_a_store_like_any_other(tmp_path: Path) -> None:
    class Elsewhere(FaultyDisk):
        def overlapped_writer(self, paths: object) -> None:
            return None

    store = DurableStore.open(tmp_path, ROOMY, Elsewhere())
    assert store.overlapped is None
    store.commit(put(1))
    assert not store.start(put(2))
    store.seal()
    store.commit(put(2))
    store = reopened(store, tmp_path)
    assert numbers(store) == [1, 2]
    store.close()


def test_the_descriptor_is_quiet_while_nothing_was_started(path: Path) -> None:
    store = DurableStore.open(path, ROOMY)
    store.commit(put(1))
    store.seal()
    give_surely(store, put(2))
    assert select.select([store.descriptor], [], [], 0.0)[0] == []
    store.close()

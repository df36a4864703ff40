"""Goal: a group that the kernel writes by itself counts as much as one that was committed: once it is said to be
durable it stays, in order, exactly once; where the kernel will not or cannot, `commit` goes on as if nothing was.
Method: a real file system; some of its answers are replaced by worse ones."""
import errno
import os
import select
from pathlib import Path

import pytest

from angarium.core.errors import Unavailable
from angarium.core.storage import Operation, Put, Table, key_of, position_key
from angarium.store import journal
from angarium.store.durable import DurableStore
from angarium.store.groups import HEAD_BYTES
from angarium.store.interface import OPERATION_BYTES, NotOver
from angarium.store.journal import PAUSE_REFUSALS, REFUSALS_MAX
from angarium.store.overlapped import BUFFER_BYTES
from angarium.store.settings import PAGE_BYTES, StoreSettings
from tests.store.disks import SMALL, FaultyDisk, crash, give, start

ROOMY = StoreSettings(segment_bytes=1 << 20, ballast_bytes=256 * 1024)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory of a store, on a file system that can do it."""
    store = DurableStore.open(tmp_path / "probe", SMALL)
    start(store, [Put(Table.LOG, b"k", b"v")])
    is_possible = store.overlapped is not None
    crash(store)
    if not is_possible:
        pytest.skip(f"{tmp_path}: its file system has no asynchronous direct I/O")
    return tmp_path / "store"


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


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["finish", "end"])
def test_a_place_at_which_the_device_failed_is_given_up(path: Path, call: str) -> None:
    """What failed may be on disk all the same: committed again it counts once."""
    disk = FaultyDisk()
    store = DurableStore.open(path, ROOMY, disk)
    give_surely(store, put(1))
    place = store._journal.used_bytes
    disk.fail = {call: 1}
    disk.started_at.clear()
    disk.written_at.clear()
    assert start(store, put(2))
    with pytest.raises(Unavailable, match="journal: cannot make a group durable"):
        store.finish()
    assert numbers(store) == [1]
    store.commit(put(2))
    assert (disk.started_at, disk.written_at) == ([place], [place + PAGE_BYTES])
    give_surely(store, put(3))
    assert numbers(store) == [1, 2, 3]
    assert store._journal.sequence_next == 4
    store = reopened(store, path)
    assert numbers(store) == [1, 2, 3]
    assert store.recovery.groups_replayed == 3
    store.close()


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_group_that_failed_is_void_once_another_took_its_turn(path: Path, is_sealed: bool) -> None:
    disk = FaultyDisk(fail={"finish": 1})
    store = DurableStore.open(path, ROOMY, disk)
    assert start(store, [Put(Table.LOG, b"failed", b"v")])
    with pytest.raises(Unavailable):
        store.finish()
    if is_sealed:
        store.seal()
    else:
        give_surely(store, put(1))
    store = reopened(store, path)
    assert store.get(Table.LOG, b"failed") is None
    assert numbers(store) == ([] if is_sealed else [1])
    store.close()


def test_a_device_that_fails_for_a_whole_segment_costs_no_more_than_that(path: Path) -> None:
    disk = FaultyDisk()
    store = DurableStore.open(path, SMALL, disk)
    disk.fail = {"finish": -1}
    for number in range(1, 41):
        assert not give(store, put(number))
        store.commit(put(number))
    disk.fail = {}
    for number in range(41, 61):
        give_or_commit(store, put(number))
    assert numbers(store) == list(range(1, 61))
    store = reopened(store, path, SMALL)
    assert numbers(store) == list(range(1, 61))
    store.close()


def test_what_the_kernel_did_not_begin_is_written_to_the_same_place(path: Path) -> None:
    disk = FaultyDisk()
    store = DurableStore.open(path, ROOMY, disk)
    give_surely(store, put(1))
    place = store._journal.used_bytes
    disk.fail = {"begin": 1}
    disk.started_at.clear()
    disk.written_at.clear()
    assert start(store, put(2))
    with pytest.raises(Unavailable, match="the kernel would have had to wait"):
        store.finish()
    assert numbers(store) == [1]
    store.commit(put(2))
    assert disk.started_at == disk.written_at == [place]
    give_surely(store, put(3))
    assert disk.started_at[1] == place + PAGE_BYTES
    assert numbers(store) == [1, 2, 3]
    store = reopened(store, path)
    assert numbers(store) == [1, 2, 3]
    assert store.recovery.groups_replayed == 3
    store.close()


def test_a_file_system_that_cannot_is_asked_once(path: Path) -> None:
    disk = FaultyDisk(fail={"start": 1}, code=errno.EOPNOTSUPP)
    store = DurableStore.open(path, ROOMY, disk)
    store.commit(put(1))
    assert store.overlapped is not None
    assert not store.start(put(2))
    assert store.overlapped is None
    assert not store.start(put(2))
    assert disk.calls["start"] == 1
    store.commit(put(2))
    disk.written_at.clear()
    store.seal()
    store.seal()
    assert disk.written_at == [2 * PAGE_BYTES]
    store.commit(put(3))
    store = reopened(store, path)
    assert numbers(store) == [1, 2, 3]
    assert store.recovery.groups_replayed == 3
    assert store.overlapped is not None, "it is asked again after a restart"
    store.close()


def test_pages_that_the_system_keeps_are_in_the_way_a_few_times(path: Path) -> None:
    """Whole laps were committed by a thread: the system keeps their pages, and the kernel would have to wait."""
    store = DurableStore.open(path, SMALL)
    for number in range(1, 41):
        store.commit(put(number))
    outcomes: dict[int, list[bool]] = {}  # lap -> was each begun
    number, lap, place = 40, 0, store._journal.used_bytes
    while lap < 9:
        number += 1
        if store._journal.used_bytes < place:
            lap += 1
        place = store._journal.used_bytes
        store._wait_for_checkpoint()  # nothing is begun before
        is_begun = give(store, put(number))
        if not is_begun:
            store.commit(put(number))
        if is_begun or store._journal.used_bytes > place:  # else the segment was full
            outcomes.setdefault(lap, []).append(is_begun)
    refused = [of_lap.count(False) for of_lap in outcomes.values()]
    given = [of_lap.count(True) for of_lap in outcomes.values()]
    assert max(refused) <= REFUSALS_MAX + 1, "a busy kernel may refuse another"
    assert sum(refused) <= 2 * REFUSALS_MAX + 10
    assert min(given[3:-1]) >= 8
    assert numbers(store) == list(range(1, number + 1))
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


def test_pages_stay_cached_while_groups_are_large(path: Path) -> None:
    """Letting go of them would cost whoever writes much, for the sake of little groups in between."""
    store = DurableStore.open(path, ROOMY)
    forgotten: list[int] = []
    assert store._journal.overlapped is not None
    store._journal.overlapped.forget_cached = forgotten.append  # type: ignore[method-assign, assignment]
    for number in range(1, 4 * REFUSALS_MAX):
        store._journal._is_cached = True
        store.commit(put(number, BUFFER_BYTES + 1))
    assert not forgotten
    store._journal._is_cached = True
    store.commit(put(101))
    assert len(forgotten) == 1
    store.close()


# -- a kernel that is slow to begin, or never does -------------------------------------------------------------------


def test_a_quiet_descriptor_says_that_it_is_not_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for a failure, the place would be written again while the kernel still writes it; taken for the end, the
    next group would be called durable by the end of this one."""
    store = DurableStore.open(path, ROOMY)
    writer = store._journal.overlapped
    assert writer is not None
    with pytest.raises(NotOver):
        writer.finish()
    assert start(store, put(1))
    with monkeypatch.context() as early:
        early.setattr(os, "eventfd_read", _blocking)
        for _ in range(3):
            with pytest.raises(NotOver):
                store.finish()
    store.finish()
    store.show()
    give_surely(store, put(2))
    assert numbers(store) == [1, 2]
    store.close()


def _blocking(descriptor: int) -> int:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_a_kernel_that_kept_us_waiting_is_not_asked_for_a_while(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DurableStore.open(path, ROOMY)
    with monkeypatch.context() as slow:
        slow.setattr(journal, "START_S_MAX", -1.0)  # however soon it begins, it is too late
        slow.setattr(journal, "PAUSE_GROUPS", 5)
        give_or_commit(store, put(1))
    for number in range(2, 7):
        assert not store.start(put(number))
        store.commit(put(number))
    give_surely(store, put(7))
    assert numbers(store) == list(range(1, 8))
    store.close()


def test_a_kernel_that_always_refuses_is_asked_less(path: Path) -> None:
    disk = FaultyDisk(fail={"begin": -1})
    store = DurableStore.open(path, ROOMY, disk)
    for number in range(1, 400):
        give_or_commit(store, put(number))
    assert disk.calls["begin"] <= 2 * PAUSE_REFUSALS
    assert numbers(store) == list(range(1, 400))
    store.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_says_so_at_the_end_is_asked_once(path: Path, code: int) -> None:
    disk = FaultyDisk(fail={"finish": 1}, code=code)
    store = DurableStore.open(path, ROOMY, disk)
    give_or_commit(store, put(1))
    assert store.overlapped is None
    give_or_commit(store, put(2))
    store = reopened(store, path)
    assert numbers(store) == [1, 2]
    store.close()

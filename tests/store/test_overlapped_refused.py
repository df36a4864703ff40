"""Goal: where the kernel fails, refuses or is slow, nothing durable is lost and `commit` goes on as if nothing was.
Method: a real file system; some of its answers are replaced by worse ones."""
import errno
import os
from pathlib import Path

import pytest

from angarium.core.errors import Unavailable
from angarium.core.storage import Put, Table
from angarium.store import journal
from angarium.store.durable import DurableStore
from angarium.store.interface import NotOver
from angarium.store.journal import PAUSE_REFUSALS, REFUSALS_MAX
from angarium.store.overlapped import BUFFER_BYTES
from angarium.store.settings import PAGE_BYTES
from tests.store.disks import SMALL, FaultyDisk, give, start
from tests.store.giving import ROOMY, give_or_commit, give_surely, numbers, put, reopened

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

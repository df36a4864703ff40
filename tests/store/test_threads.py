"""Goal: readers see whole groups, always, and never wait for the disk unless they ask it something."""
import threading
from pathlib import Path

import pytest

from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from angarium.store.interface import Item
from tests.store.disks import SMALL, FaultyDisk

WAIT_S = 20.0


def test_readers_see_whole_groups_while_groups_are_written_and_checkpointed(tmp_path: Path) -> None:
    store = DurableStore.open(tmp_path, SMALL)
    stop = threading.Event()
    wrong: list[object] = []
    passes = [0, 0]

    def check_pairs(reader: int) -> None:
        """Every group puts the same number under all four keys, and moves a window of ten batches on."""
        while not stop.is_set():
            values = [item.value for item in store.scan(Table.LOG, b"", b"\xff", 10) if isinstance(item, Item)]
            if len(set(values)) > 1 or len(values) not in (0, 4):
                wrong.append(values)
            window = [int.from_bytes(item.key[8:], "big") for item in store.scan(Table.BATCH, key_of(1), key_of(2), 50)]
            if window and (window != list(range(window[0], window[-1] + 1)) or len(window) > 10):
                wrong.append(window)
            peeked = store.peek_memory(Table.BATCH, key_of(1), key_of(2))
            if peeked is not None and peeked.value[:16] != peeked.key:
                wrong.append(peeked)
            passes[reader] += 1

    readers = [threading.Thread(target=check_pairs, args=(reader,)) for reader in range(2)]
    for reader in readers:
        reader.start()
    number = 0
    while number < 1_500 or min(passes) < 200:
        number += 1
        key = position_key(1, number)
        store.commit(
            [
                *(Put(Table.LOG, key_of(at), b"%d" % number) for at in range(4)),
                Put(Table.BATCH, key, key * 200),
                DeleteRange(Table.BATCH, key_of(1), position_key(1, max(number - 9, 0))),
            ]
        )
        assert number < 100_000
    stop.set()
    for reader in readers:
        reader.join(WAIT_S)
    assert wrong == []
    assert store.statistics().checkpoints > 20
    store.close()


class SlowDisk(FaultyDisk):
    """Stops in the named call until told to go on."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call = call
        self.armed = False
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def enter(self, name: str) -> None:
        super().enter(name)
        if self.armed and name == self._call:
            self.reached.set()
            assert self.go_on.wait(WAIT_S)


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "lmdb_commit"])
def test_reads_do_not_wait_for_writes(tmp_path: Path, call: str) -> None:
    """If they did, this test would hang: the write goes on only after the reads."""
    disk = SlowDisk(call)
    store = DurableStore.open(tmp_path, SMALL, disk)
    store.commit([Put(Table.LOG, b"a", b"1"), Put(Table.LOG, b"c", b"1"), DeleteRange(Table.LOG, b"b", b"c")])

    def write() -> None:
        for number in range(60):
            store.commit([Put(Table.BATCH, position_key(1, number), bytes(4_000))])

    disk.armed = True
    writer = threading.Thread(target=write)
    writer.start()
    assert disk.reached.wait(WAIT_S)
    assert store.get(Table.LOG, b"a") == b"1"
    assert store.get(Table.LOG, b"b") is None
    assert store.peek_memory(Table.LOG, b"b", b"z") == Item(b"c", b"1")
    assert store.scan(Table.LOG, b"", b"\xff", 10) == [Item(b"a", b"1"), Item(b"c", b"1")]
    assert store.statistics().memory_bytes > 0
    disk.armed = False
    disk.go_on.set()
    writer.join(WAIT_S)
    assert len(store.scan(Table.BATCH, key_of(1), key_of(2), 100)) == 60
    store.close()


def test_a_group_is_not_visible_before_it_is_durable(tmp_path: Path) -> None:
    disk = SlowDisk("fdatasync")
    store = DurableStore.open(tmp_path, SMALL, disk)
    disk.armed = True
    writer = threading.Thread(target=store.commit, args=([Put(Table.LOG, b"a", b"1")],))
    writer.start()
    assert disk.reached.wait(WAIT_S)
    assert store.get(Table.LOG, b"a") is None
    assert store.peek_memory(Table.LOG, b"", b"\xff") is None
    disk.go_on.set()
    writer.join(WAIT_S)
    assert store.get(Table.LOG, b"a") == b"1"
    store.close()


def test_a_read_of_lmdb_begins_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun later it could show a checkpoint that the layers copied before do not know of; no test can time that."""
    store = DurableStore.open(tmp_path, SMALL)
    begin = store._tables.begin
    held: list[bool] = []

    def recording() -> object:
        held.append(store._layers.changed._is_owned())  # type: ignore[attr-defined]
        return begin()

    monkeypatch.setattr(store._tables, "begin", recording)
    store.get(Table.LOG, b"k")
    store.scan(Table.LOG, b"a", b"b", 1)
    assert held == [True, True]
    store.close()


def test_close_waits_for_a_running_read(tmp_path: Path) -> None:
    """LMDB unmapped under a reader would take the process with it."""
    store = DurableStore.open(tmp_path, SMALL)
    transaction = store._tables.begin()
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    assert store._tables.get(transaction, Table.LOG, b"k") is None
    closer.join(WAIT_S)
    assert not closer.is_alive()

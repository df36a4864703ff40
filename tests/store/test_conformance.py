"""Goal: both disks do what a dictionary would do, across restarts, crashes and refused writes.
Method: one seed draws every operation; after each step reads are compared with a plain dict. Small segments, so that
every run rotates and checkpoints many times. Replay one: pytest -k 'like_a_dictionary[durable-17]'."""
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from angarium.core.errors import LocalProtocolError, Unavailable
from angarium.core.storage import DeleteRange, Operation, Put, Table, delete_key, delete_prefix, key_of, position_key
from angarium.store.durable import DurableStore
from angarium.store.interface import KEY_BYTES_MAX, Item, Store, ValueDamaged, group_bytes
from angarium.store.memory import MemoryStore
from tests.store.disks import SMALL, FaultyDisk, crash

TABLES = (Table.LOG, Table.BATCH, Table.SUBSCRIPTION)
Model = dict[tuple[Table, bytes], bytes]


class Subject(Protocol):
    """A disk with the switches that the test needs."""

    @property
    def store(self) -> Store: ...

    def reopen(self) -> None: ...

    def crash(self) -> None: ...

    def fail_next_commit(self) -> None: ...


class Durable:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._disk = FaultyDisk(code=errno.ENOSPC)
        self.store = DurableStore.open(path, SMALL, self._disk)

    def reopen(self) -> None:
        self.store.close()
        self.store = DurableStore.open(self._path, SMALL, self._disk)

    def crash(self) -> None:
        crash(self.store)
        self.store = DurableStore.open(self._path, SMALL, self._disk)

    def fail_next_commit(self) -> None:
        self._disk.fail = {"pwritev": 1} if self._disk.calls["pwritev"] % 2 else {"fdatasync": 1}


class Memory:
    def __init__(self, path: Path) -> None:
        self.store = MemoryStore(checkpoint_groups=7)

    def reopen(self) -> None:
        self.store.close()
        self.store = self.store.reopen()

    def crash(self) -> None:
        self.store = self.store.crash()

    def fail_next_commit(self) -> None:
        self.store.fail_commits(1)


SUBJECTS: dict[str, Callable[[Path], Subject]] = {"durable": Durable, "memory": Memory}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    return SUBJECTS[request.param](tmp_path / "store")


def random_key(random: Random) -> bytes:
    return position_key(random.randrange(1, 4), random.randrange(30))


def random_operation(random: Random) -> Operation:
    table = random.choice(TABLES)
    kind = random.random()
    if kind < 0.7:
        size = random.choice((0, 1, 20, 300, 5_000))
        return Put(table, random_key(random), random.randbytes(size))
    if kind < 0.8:
        return delete_key(table, random_key(random))
    if kind < 0.95:  # a settled prefix is freed
        destination = random.randrange(1, 4)
        return DeleteRange(table, key_of(destination), position_key(destination, random.randrange(30)))
    return delete_prefix(table, random.randrange(1, 4))


def apply(model: Model, operations: list[Operation]) -> None:
    for operation in operations:
        if isinstance(operation, Put):
            model[operation.table, operation.key] = operation.value
        else:
            for table, key in list(model):
                if table is operation.table and operation.low <= key < operation.high:
                    del model[table, key]


def check_reads(store: Store, model: Model, random: Random) -> None:
    table = random.choice(TABLES)
    key = random_key(random)
    assert store.get(table, key) == model.get((table, key))

    low, high = sorted((random_key(random), random_key(random)))
    limit, bytes_max = random.choice((1, 2, 5, 1_000)), random.choice((1, 600, 1 << 20))
    expected: list[Item] = []
    for of, at in sorted(model):
        if of is table and low <= at < high:
            if len(expected) == limit or sum(len(item.value) for item in expected) >= bytes_max:
                break
            expected.append(Item(at, model[of, at]))
    assert store.scan(table, low, high, limit, bytes_max) == expected
    inside = [Item(at, value) for (of, at), value in model.items() if of is table and low <= at < high]
    first = store.first_at_or_after(table, low, high)
    assert first == min(inside, default=None)
    peeked = store.peek_memory(table, low, high)
    if peeked is not None:
        assert first is not None
        assert first.key <= peeked.key < high
        assert model[table, peeked.key] == peeked.value


@pytest.mark.parametrize("seed", range(20))
def test_like_a_dictionary(subject: Subject, seed: int) -> None:
    random = Random(seed)
    model: Model = {}
    for _ in range(120):
        step = random.random()
        if step < 0.80:
            operations = [random_operation(random) for _ in range(random.randrange(1, 6))]
            subject.store.commit(operations, reserved=random.random() < 0.2)
            apply(model, operations)
        elif step < 0.86:
            subject.fail_next_commit()
            with pytest.raises(Unavailable):
                subject.store.commit([random_operation(random)])
            assert subject.store.blocked_reason is not None
        elif step < 0.90:
            subject.store.seal()
        elif step < 0.95:
            subject.reopen()
        else:
            subject.crash()
        for _ in range(4):
            check_reads(subject.store, model, random)
    assert subject.store.recovery.damages == ()
    assert subject.store.recovery.torn_bytes == 0
    subject.store.close()


def test_a_refused_group_may_be_committed_again(subject: Subject) -> None:
    group = [Put(Table.LOG, b"k", b"new")]
    subject.store.commit([Put(Table.LOG, b"k", b"old")])
    subject.fail_next_commit()
    with pytest.raises(Unavailable):
        subject.store.commit(group)
    assert subject.store.get(Table.LOG, b"k") == b"old"
    subject.store.commit(group)
    assert subject.store.blocked_reason is None
    subject.crash()
    assert subject.store.get(Table.LOG, b"k") == b"new"
    subject.store.close()


def test_a_refused_group_does_not_come_back(subject: Subject) -> None:
    subject.store.commit([Put(Table.LOG, b"k", b"old")])
    for _ in range(2):  # once failing to write, once failing to sync
        subject.fail_next_commit()
        with pytest.raises(Unavailable):
            subject.store.commit([Put(Table.LOG, b"k", b"refused")])
    subject.crash()
    assert subject.store.get(Table.LOG, b"k") == b"old"
    subject.store.close()


def test_what_no_disk_could_store_is_refused_before_anything_is_written(subject: Subject) -> None:
    store = subject.store
    good = Put(Table.LOG, b"k", b"v")
    too_much = Put(Table.BATCH, b"k", bytes(store.group_bytes_max))
    bad: list[Operation] = [
        Put(Table.LOG, b"", b"v"),
        Put(Table.LOG, bytes(KEY_BYTES_MAX + 1), b"v"),
        DeleteRange(Table.LOG, b"", bytes(KEY_BYTES_MAX + 2)),
        too_much,
    ]
    for operation in bad:
        with pytest.raises(LocalProtocolError):
            store.commit([good, operation])
    assert store.get(Table.LOG, b"k") is None
    assert group_bytes([too_much]) > store.group_bytes_max
    largest_key = b"\xff" * KEY_BYTES_MAX
    store.commit([Put(Table.LOG, largest_key, b"v")])
    store.commit([delete_key(Table.LOG, largest_key)])
    assert store.get(Table.LOG, largest_key) is None
    store.close()


def test_the_largest_group_fits(subject: Subject) -> None:
    overhead = group_bytes([Put(Table.BATCH, b"k", b"")])
    for _ in range(3):
        value = bytes(subject.store.group_bytes_max - overhead)
        subject.store.commit([Put(Table.BATCH, b"k", value)])
    subject.crash()
    assert subject.store.get(Table.BATCH, b"k") == value
    subject.store.close()


def test_a_closed_store_refuses(subject: Subject) -> None:
    subject.store.close()
    subject.store.close()
    with pytest.raises(LocalProtocolError):
        subject.store.commit([Put(Table.LOG, b"k", b"v")])
    with pytest.raises(LocalProtocolError):
        subject.store.get(Table.LOG, b"k")


def test_the_simulated_disk_loses_what_was_not_synced() -> None:
    store = MemoryStore()
    store.commit([Put(Table.LOG, b"a", b"1")])
    for key in (b"b", b"c", b"d"):
        store.stage([Put(Table.LOG, key, b"1")])
    assert store.get(Table.LOG, b"b") is None
    after = store.crash(keep_groups=2)
    assert [item.key for item in after.scan(Table.LOG, b"", b"z", 10)] == [b"a", b"b", b"c"]


def test_the_simulated_disk_rots_and_fills() -> None:
    store = MemoryStore()
    store.commit([Put(Table.LOG, b"a", b"1"), Put(Table.LOG, b"b", b"2")])
    store.damage(Table.LOG, b"a")
    with pytest.raises(ValueDamaged):
        store.get(Table.LOG, b"a")
    assert [isinstance(item, Item) for item in store.scan(Table.LOG, b"", b"z", 10)] == [False, True]
    store.commit([Put(Table.LOG, b"a", b"3")])
    assert store.get(Table.LOG, b"a") == b"3"
    store.full_reason = "no space left"
    with pytest.raises(Unavailable, match="no space"):
        store.commit([Put(Table.LOG, b"a", b"4")])
    store.commit([delete_key(Table.LOG, b"a")], reserved=True)
    assert store.get(Table.LOG, b"a") is None


def test_rows_are_counted_about_right_in_memory_and_at_rest(subject: Subject) -> None:
    """What is being moved from one to the other may count twice."""
    for number in range(60):
        subject.store.commit([Put(Table.BATCH, position_key(1, number), b"x" * 2_000)])
    subject.store.commit([Put(Table.LOG, b"k", b"v")])
    for _ in range(2):
        assert 60 <= subject.store.rows(Table.BATCH) <= 120
        assert 1 <= subject.store.rows(Table.LOG) <= 2
        assert subject.store.rows(Table.SUBSCRIPTION) == 0
        subject.reopen()
    subject.store.close()

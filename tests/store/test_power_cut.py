"""Goal: when a commit returned, its group survives a power cut at any moment; no group survives in part. The same when
it was given to the kernel, and the kernel said that it is done.
Method: a disk that remembers which pages were synced. At random moments, also in the middle of checkpoints, the power
is cut: of what was not synced each page survives by chance. The store opened from that must hold every confirmed group.
A skipped or misplaced fdatasync shows here. The seed draws the operations and the chances; how the checkpoint's thread
falls between them varies from run to run."""
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from angarium.core.errors import Unavailable
from angarium.core.storage import DeleteRange, Operation, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from tests.store.disks import SMALL, LossyDisk, crash, start

State = dict[bytes, bytes]


def apply(state: State, operations: Sequence[Operation]) -> State:
    state = dict(state)
    for operation in operations:
        if isinstance(operation, Put):
            state[operation.key] = operation.value
        else:
            state = {key: value for key, value in state.items() if not operation.low <= key < operation.high}
    return state


def values_in(path: Path) -> State:
    store = DurableStore.open(path, SMALL)
    items = store.scan(Table.BATCH, b"", b"\xff" * 9, limit=10_000, bytes_max=1 << 30)
    assert store.recovery.damages == ()
    store.close()
    return {item.key: item.value for item in items}  # type: ignore[union-attr]


class World:
    """One writer, and cuts whose outcome is judged at once."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = Random(seed)
        self.disk = LossyDisk(path / "live")
        self.store = DurableStore.open(path / "live", SMALL, self.disk)
        self.confirmed: State = {}
        self.in_flight: State = {}
        self.cuts = 0
        self.given = 0  # groups that became durable by way of the kernel
        self.refused = 0  # groups that the kernel was given, and did not make durable
        self.disk.at_write = self.maybe_cut

    def group(self) -> list[Operation]:
        random = self.random
        end = self.store.statistics().groups + 1
        group: list[Operation] = [
            Put(Table.BATCH, position_key(at, end), random.randbytes(random.choice((10, 900, 6_000)))) for at in (1, 2)
        ]
        if random.random() < 0.3:
            group.append(DeleteRange(Table.BATCH, key_of(1), position_key(1, random.randrange(end))))
        return group

    def commit(self) -> None:
        group = self.group()
        self.in_flight = apply(self.confirmed, group)
        if self.random.random() < 0.5 or not self.give(group):
            self.commit_waiting(group)

    def give(self, group: list[Operation]) -> bool:
        self.store._wait_for_checkpoint()  # nothing is begun before it is done
        if not start(self.store, group):
            return False
        self.maybe_cut()
        try:
            self.store.finish()
        except Unavailable:
            self.refused += 1
            self.maybe_cut()
            return False
        self.confirmed = self.in_flight
        self.given += 1
        self.maybe_cut()
        self.store.show()
        return True

    def commit_waiting(self, group: list[Operation]) -> None:
        while True:
            try:
                self.store.commit(group)
            except Unavailable:
                continue
            self.confirmed = self.in_flight
            return

    def maybe_cut(self) -> None:
        if self.random.random() < 0.1:
            self.cut()

    def cut(self) -> None:
        self.cuts += 1
        target = self.path / f"cut-{self.cuts}"
        self.disk.cut(target, self.random, survive=self.random.choice((0.0, 0.5, 0.9, 1.0)))
        assert values_in(target) in (self.confirmed, self.in_flight)


@pytest.mark.parametrize("seed", range(12))
def test_power_cut(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(60):
        world.commit()
        if world.random.random() < 0.1:
            world.store.seal()
        world.maybe_cut()
    assert world.store.statistics().checkpoints > 3
    world.disk.at_write = lambda: None
    world.store.close()
    world.cut()
    assert world.cuts > 10
    assert world.given > 10


@pytest.mark.parametrize("seed", range(8))
def test_power_cut_of_a_disk_that_also_fails_to_sync(tmp_path: Path, seed: int) -> None:
    """What it failed to sync is gone when the power is: what lies there is from an earlier life of the segment."""
    world = World(tmp_path, seed)
    failures = 0

    def fails() -> bool:
        nonlocal failures
        is_failing = world.random.random() < 0.3
        failures += is_failing
        return is_failing

    world.disk.fails_to_sync = fails
    world.disk.would_wait = lambda: world.random.random() < 0.2
    for _ in range(80):
        world.commit()
        world.maybe_cut()
    assert world.store.statistics().checkpoints > 3
    assert failures > 10
    assert world.given > 5
    assert world.refused > 5
    world.disk.fails_to_sync = lambda: False
    world.disk.at_write = lambda: None
    world.store.close()
    world.cut()


def test_every_commit_is_synced_before_it_returns(tmp_path: Path) -> None:
    """The same with certainty instead of chance: everything that was not synced is lost, after every commit."""
    world = World(tmp_path, seed=1)
    world.disk.at_write = lambda: None
    for number in range(30):
        world.commit()
        dark = tmp_path / f"dark-{number}"
        world.disk.cut(dark, Random(0), survive=0.0)
        assert values_in(dark) == world.confirmed
    assert 5 < world.given < 25
    world.store.close()


def test_a_group_that_the_kernel_has_not_finished_survives_whole_or_not_at_all(tmp_path: Path) -> None:
    disk = LossyDisk(tmp_path / "live")
    store = DurableStore.open(tmp_path / "live", SMALL, disk)
    before = [Put(Table.BATCH, position_key(1, end), bytes(100)) for end in (1, 2)]
    group = [Put(Table.BATCH, position_key(2, end), bytes(5_000)) for end in (1, 2, 3)]
    store.commit(before)
    assert start(store, group)
    random, outcomes = Random(0), []
    for number, survive in enumerate([0.0, 1.0] + [0.5] * 6 + [0.9] * 20):
        dark = tmp_path / f"dark-{number}"
        disk.cut(dark, random, survive)
        outcomes.append(values_in(dark))
    without, whole = apply({}, before), apply({}, [*before, *group])
    assert outcomes[:2] == [without, whole]
    assert all(outcome in (without, whole) for outcome in outcomes)
    assert without in outcomes[8:] and whole in outcomes[8:]
    store.finish()
    disk.cut(tmp_path / "darkest", random, survive=0.0)
    assert values_in(tmp_path / "darkest") == whole
    store.show()
    store.close()


def test_what_a_restart_shows_is_durable_even_if_its_commit_never_returned(tmp_path: Path) -> None:
    """Killed between write and sync: the group is in the page cache, the restart finds it and shows it. A power cut
    right after must not take it away again."""

    class Killed(BaseException):
        pass

    class KillsInSync(LossyDisk):
        armed = False

        def fdatasync(self, fd: int) -> None:
            if self.armed:
                raise Killed
            super().fdatasync(fd)

    disk = KillsInSync(tmp_path / "live")
    store = DurableStore.open(tmp_path / "live", SMALL, disk)
    disk.armed = True
    with pytest.raises(Killed):
        store.commit([Put(Table.LOG, b"k", b"v")])
    crash(store)
    disk.armed = False
    store = DurableStore.open(tmp_path / "live", SMALL, disk)
    assert store.get(Table.LOG, b"k") == b"v"
    disk.cut(tmp_path / "dark", Random(0), survive=0.0)
    after = DurableStore.open(tmp_path / "dark", SMALL)
    assert after.get(Table.LOG, b"k") == b"v"
    after.close()
    store.close()


def test_what_a_restart_shows_is_durable_even_if_the_kernel_never_finished_it(tmp_path: Path) -> None:
    disk = LossyDisk(tmp_path / "live")
    store = DurableStore.open(tmp_path / "live", SMALL, disk)
    assert start(store, [Put(Table.LOG, b"k", b"v")])
    crash(store)
    store = DurableStore.open(tmp_path / "live", SMALL, disk)
    assert store.get(Table.LOG, b"k") == b"v"
    disk.cut(tmp_path / "dark", Random(0), survive=0.0)
    after = DurableStore.open(tmp_path / "dark", SMALL)
    assert after.get(Table.LOG, b"k") == b"v"
    after.close()
    store.close()


def test_after_a_clean_close_a_flipped_bit_in_the_last_group_is_damage_even_after_a_power_cut(tmp_path: Path) -> None:
    disk = LossyDisk(tmp_path / "live")
    store = DurableStore.open(tmp_path / "live", SMALL, disk)
    store.commit([Put(Table.LOG, b"a", b"good"), Put(Table.LOG, b"b", b"spoiled"), Put(Table.LOG, b"c", b"good")])
    store.close()
    disk.cut(tmp_path / "dark", Random(0), survive=0.0)
    (segment,) = [path for path in (tmp_path / "dark").glob("*.seg") if b"spoiled" in path.read_bytes()]
    segment.write_bytes(segment.read_bytes().replace(b"spoiled", b"spoilee"))
    after = DurableStore.open(tmp_path / "dark", SMALL)
    assert [(damage.table, damage.key) for damage in after.recovery.damages] == [(Table.LOG, b"b")]
    assert b"spoilee" in after.recovery.damages[0].raw
    assert [after.get(Table.LOG, key) for key in (b"a", b"b", b"c")] == [b"good", None, b"good"]
    after.close()

"""Goal: what a node has stored of a replica group is deleted when it has seen that its copy was removed, and in no
other case: nothing that may count is touched. Method: decisions as a node hears them, stores in a directory."""
import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.records import Placement
from angarium.node.cluster.hosting import Hosting, HostingWays
from angarium.node.cluster.replica import ReplicaHost
from angarium.node.cluster.stores import Stores, _left_over, open_stores
from angarium.node.config import NodeConfig, NodeSettings
from angarium.store.disk import DiskCalls
from angarium.store.interface import Store
from angarium.store.settings import StoreSettings

ONE, TWO = Replica("one", b"1" * 16), Replica("two", b"2" * 16)
BOTH = GroupConfiguration("a", 1, 4, ONE, (ONE, TWO), ("one", "two"), 2, 1)
ALONE = replace(BOTH, epoch=5, in_sync=(ONE,), members=("one",), copies=1)


class Host:
    """As far as it matters here: it follows a configuration that is not older than what its store knows."""

    def __init__(self, fence: int = 0) -> None:
        self.fence = fence
        self.is_stopped = False
        self.stored = Path()
        self.replication = SimpleNamespace(configuration=None)

    def configured(self, configuration: GroupConfiguration) -> None:
        if configuration.epoch > self.fence:
            self.replication.configuration = configuration

    def placed(self, placement: Placement) -> None: ...

    async def stop(self) -> bool:
        assert self.stored.exists(), "it writes until it is closed"
        self.is_stopped = True
        return True


class Node:
    def __init__(self, path: Path, *, fence: int = 0, is_real: bool = True) -> None:
        self.latest = BOTH
        self.changes = 0
        self.host = Host(fence)
        self.host.stored = path / "replica-a"
        self.host.stored.mkdir()
        (path / "replica-a" / "journal").write_bytes(b"x" * 1_000)
        stores = Stores(cast(Store, None), {"a": cast(Store, None)}, path, StoreSettings() if is_real else None)
        make = cast(Any, lambda group, store: self.host)
        self.hosting = Hosting("two", stores, HostingWays(make, self._held, lambda _: self.latest, Placement))

    def _held(self) -> None:
        self.changes += 1

    def hear(self, before: GroupConfiguration | None, configuration: GroupConfiguration) -> bool:
        self.latest = configuration
        self.host.configured(configuration)
        return self.hosting.is_removed(before, configuration)


def test_a_copy_that_was_removed_goes_with_all_that_was_stored(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert not node.hear(None, BOTH)
    assert node.hear(BOTH, ALONE)
    asyncio.run(node.hosting.let_go("a"))
    assert node.host.is_stopped and not node.hosting.replicas and node.changes == 1 and not list(tmp_path.iterdir())
    assert not node.hosting.announced()


@pytest.mark.parametrize(
    ("before", "configuration", "fence"),
    [
        (None, ALONE, 0),  # it was not seen to hold one: it may have been another cluster's
        (replace(ALONE, epoch=3), ALONE, 0),  # the same
        (BOTH, ALONE, 5),  # long past: the store knows of a later epoch, in which it may count
        (BOTH, replace(BOTH, epoch=5), 0),
        (BOTH, replace(ALONE, epoch=0), 0),  # not formed
    ],
)
def test_in_doubt_nothing_is_touched(
    tmp_path: Path, before: GroupConfiguration | None, configuration: GroupConfiguration, fence: int
) -> None:
    assert not Node(tmp_path, fence=fence).hear(before, configuration)


def test_where_it_could_not_be_opened_again_it_is_not_deleted(tmp_path: Path) -> None:
    assert not Node(tmp_path, is_real=False).hear(BOTH, ALONE)


def test_one_that_is_added_again_meanwhile_begins_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    assert node.hear(BOTH, ALONE)
    opened: list[bool] = []

    async def open_later(self: Stores, group: str) -> Any:
        opened.append((tmp_path / "replica-a").exists())

    monkeypatch.setattr(Stores, "open_later", open_later)

    async def run() -> None:
        going = asyncio.create_task(node.hosting.let_go("a"))
        await asyncio.sleep(0)
        node.latest = replace(BOTH, epoch=6)
        assert not node.hosting.lacks(node.latest), "not before it is gone"
        await going

    asyncio.run(run())
    assert opened == [False] and isinstance(node.hosting.replicas["a"], Host) and node.changes == 2
    assert not isinstance(node.hosting.replicas["a"], ReplicaHost)


def test_decisions_that_are_heard_at_once_are_followed_once(tmp_path: Path) -> None:
    """By a node that was paused: it has not begun with the first when it hears of the last."""
    node = Node(tmp_path)
    assert node.hear(BOTH, ALONE)
    going = node.hosting.let_go("a")
    added, removed = replace(BOTH, epoch=6), replace(ALONE, epoch=7)
    assert not node.hear(ALONE, added) and not node.hosting.lacks(added), "not before it is gone"
    assert not node.hear(added, removed), "it is going already"
    asyncio.run(going)
    assert not node.hosting.replicas and not list(tmp_path.iterdir())


def test_a_store_is_opened_once_and_goes_if_it_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    assert node.hear(BOTH, ALONE)
    asyncio.run(node.hosting.let_go("a"))
    added, again = replace(BOTH, epoch=6), replace(BOTH, epoch=7, min_copies=2)
    assert node.hosting.lacks(added)

    async def open_later(self: Stores, group: str) -> Any:
        (tmp_path / "replica-a").mkdir()

    monkeypatch.setattr(Stores, "open_later", open_later)
    going = node.hosting.open("a")
    assert not node.hosting.lacks(again), "it is being opened"
    node.latest = replace(ALONE, epoch=8)
    asyncio.run(going)
    assert not node.hosting.replicas and not list(tmp_path.iterdir())


def test_none_is_made_for_a_copy_that_was_added_and_removed_long_ago(tmp_path: Path) -> None:
    """Else a node that once held one would make an empty store at each start, and delete it."""
    node = Node(tmp_path)
    node.hosting.replicas.clear()
    shutil.rmtree(node.host.stored)
    assert node.hosting.lacks(BOTH)
    opening = node.hosting.open("a")
    node.latest = ALONE  # the next one in the log
    asyncio.run(opening)
    assert not node.hosting.replicas and not node.changes and not list(tmp_path.iterdir())
    assert node.hosting.lacks(replace(BOTH, epoch=6)), "should it be added again"


def test_a_store_that_knows_of_a_later_epoch_stays_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is heard is long past: it came back afterwards, and may count."""
    node = Node(tmp_path, fence=9)
    node.hosting.replicas.clear()

    async def open_later(self: Stores, group: str) -> Any: ...

    monkeypatch.setattr(Stores, "open_later", open_later)
    node.latest = replace(ALONE, epoch=8)
    asyncio.run(node.hosting.open("a"))
    assert "a" in node.hosting.replicas and (tmp_path / "replica-a").exists()


def test_a_crash_in_the_middle_leaves_no_half_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    assert node.hear(BOTH, ALONE)

    def failing(path: Path) -> None:
        raise OSError("the power is cut")

    monkeypatch.setattr("angarium.node.cluster.stores.shutil.rmtree", failing)
    asyncio.run(node.hosting.let_go("a"))
    assert [path.name for path in tmp_path.iterdir()] == ["removed-replica-a"]
    assert _left_over(tmp_path) == list(tmp_path.iterdir()), "which goes at the next start"


def test_the_new_name_is_durable_before_anything_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut takes back a name that was not synced, and not what was deleted after it: that would be half of a
    store, under the name by which it is opened."""
    node = Node(tmp_path)
    assert node.hear(BOTH, ALONE)
    durable: list[str] = ["replica-a"]  # names in the directory, as a power cut would leave them
    rmtree = shutil.rmtree

    def fsync(disk: DiskCalls, fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path:
            durable[:] = [path.name for path in tmp_path.iterdir()]

    def deleting(path: Path) -> None:
        assert durable == [path.name] == ["removed-replica-a"]
        rmtree(path)

    monkeypatch.setattr(DiskCalls, "fsync", fsync)
    monkeypatch.setattr("angarium.node.cluster.stores.shutil.rmtree", deleting)
    asyncio.run(node.hosting.let_go("a"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("group", ["a.removed", "removed-replica-a", ".removed", "a"])
def test_no_name_of_a_group_is_taken_for_what_is_left_over(tmp_path: Path, group: str) -> None:
    stores = Stores(cast(Store, None), {}, tmp_path, StoreSettings())
    stores.replica_data(group).mkdir()
    assert _left_over(tmp_path) == []


def test_what_is_left_over_goes_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "removed-replica-a").mkdir()
    (tmp_path / "removed-replica-a" / "journal").write_bytes(b"x")
    config = NodeConfig(node=NodeSettings(data=str(tmp_path)))

    async def start() -> None:
        stores = await open_stores(config, "two")
        stores.node.close()

    asyncio.run(start())
    assert [path.name for path in tmp_path.iterdir()] == ["node"]

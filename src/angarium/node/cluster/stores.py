"""The stores of a node: one small one for itself and the log of decisions, one for each replica."""
import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from angarium.core.errors import ConfigError
from angarium.core.storage import Put, Table
from angarium.node.cluster.settings import group_members
from angarium.node.cluster.sizes import SEGMENT_BYTES_MIN, check_journal
from angarium.node.config import NodeConfig
from angarium.store.disk import DiskCalls, sync_directory
from angarium.store.durable import DurableStore
from angarium.store.interface import Damaged, Store
from angarium.store.settings import StoreSettings

_STORE_KEY = b"store"  # in Table.REPLICA: the id of this store
_NODE_SEGMENT_BYTES = 4 << 20
_REMOVED = "removed-"  # before the name of a directory: no store that is open has one that begins so
_SCAN_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Stores:
    node: Store
    replicas: dict[str, Store]  # by group, those of the configuration
    data: Path
    settings: StoreSettings | None = None  # of those that are opened later; None: none can be

    def replica_data(self, group: str) -> Path:
        return self.data / f"replica-{group}"

    @property
    def can_open(self) -> bool:
        return self.settings is not None

    def has(self, group: str) -> bool:
        """Something is stored of a copy, whether it is open or not."""
        return self.replica_data(group).exists()

    async def open_later(self, group: str) -> Store:
        """One more: the cluster has decided that this node holds a copy."""
        assert self.settings is not None
        return await _open_replica(self.replica_data(group), self.settings)

    async def remove(self, group: str) -> None:
        """Of a copy that was removed, and is closed: all that was stored of it. Raises OSError."""
        await asyncio.to_thread(_remove_replica, self.replica_data(group))


def _remove_replica(path: Path) -> None:
    """By a name first under which nobody opens it: half of a store is not one."""
    removed = path.with_name(_REMOVED + path.name)
    if removed.exists():
        shutil.rmtree(removed)
    path.rename(removed)
    sync_directory(DiskCalls(), path.parent)
    shutil.rmtree(removed)


async def _open_replica(path: Path, settings: StoreSettings) -> Store:
    """Raises ConfigError if its journal is too small for what it may have to take."""
    store = await asyncio.to_thread(DurableStore.open, path, settings, segment_bytes_min=SEGMENT_BYTES_MIN)
    try:
        check_journal(path, store)
    except ConfigError:
        await asyncio.to_thread(store.close)
        raise
    return store


async def open_stores(config: NodeConfig, name: str) -> Stores:
    data = Path(config.node.data)
    for left in sorted(await asyncio.to_thread(_left_over, data)):  # a crash came before all of it was gone
        await asyncio.to_thread(shutil.rmtree, left)
    small = replace(config.store, segment_bytes=_NODE_SEGMENT_BYTES)
    node = await asyncio.to_thread(DurableStore.open, data / "node", small)
    replicas: dict[str, Store] = {
        group: await _open_replica(data / f"replica-{group}", config.store)
        for group, members in group_members(config.cluster).items()
        if name in members
    }
    return Stores(node, replicas, data, config.store)


def _left_over(data: Path) -> list[Path]:
    return list(data.glob(f"{_REMOVED}replica-*"))


def store_identity(store: Store, bytes_by_chance: Callable[[int], bytes]) -> bytes:
    """Drawn when the data directory is made: one that lost its disk is another replica."""
    found = store.scan(Table.REPLICA, _STORE_KEY, _STORE_KEY + b"\0", limit=1)
    if found and not isinstance(found[0], Damaged):
        return found[0].value
    identity = bytes_by_chance(16)
    store.commit([Put(Table.REPLICA, _STORE_KEY, identity)], reserved=True)
    return identity


def table_records(store: Store, table: Table) -> dict[bytes, bytes]:
    """All of a small table."""
    records: dict[bytes, bytes] = {}
    low = b""
    while items := store.scan(table, low, b"\xff" * 16, limit=_SCAN_LIMIT):
        records |= {item.key: item.value for item in items if not isinstance(item, Damaged)}
        low = items[-1].key + b"\0"
    return records

"""The simulator's disk: the same interface in memory, deterministic, with faults on request.

    stage --sync--> durable and visible          commit = stage, then sync
      |
    crash(keep_groups): the first few staged groups survive, the others are gone

A simulated node that wants time to pass between writing and knowing calls `stage` and, later, `sync`; both are what
`commit` does at once. What is staged is not visible, as with `DurableStore`.

Like the real one it has a memory part and a disk part, so that callers meet a `peek_memory` that finds
nothing: after every `checkpoint_groups` groups the memory part moves to the disk part.

Faults: `fail_commits` refuses, `full_reason` refuses what is not reserved, `damage` spoils a stored value.
After `crash` or `close` the store refuses every call; `crash` and `reopen` return its successor.
"""
from collections.abc import Sequence

from angarium.core.errors import LocalProtocolError, Unavailable
from angarium.core.storage import Operation, Put, Table
from angarium.store.interface import (
    SCAN_BYTES_MAX,
    Damaged,
    Item,
    RecoveryReport,
    StoreStatistics,
    ValueDamaged,
    check_operations,
    group_bytes,
)
from angarium.store.memtable import Layer, Memtable, merged


class MemoryStore:
    def __init__(self, *, checkpoint_groups: int = 64, group_bytes_max: int = 28 << 20) -> None:
        self.recovery = RecoveryReport()
        self.overlapped = None
        self.full_reason: str | None = None
        self._checkpoint_groups = checkpoint_groups
        self._group_bytes_max = group_bytes_max
        self._at_rest = {table: Layer() for table in Table}
        self._damaged: set[tuple[Table, bytes]] = set()
        self._journal: list[tuple[Operation, ...]] = []  # durable, not yet at rest
        self._staged: list[tuple[Operation, ...]] = []
        self._active = Memtable()  # the effects of `_journal`
        self._failures_left = 0
        self._failure_reason = ""
        self._refusal: str | None = None
        self._closed = False
        self._groups = self._checkpoints = self._damages = 0

    # Writing

    @property
    def reserve_bytes(self) -> int:
        return self._group_bytes_max // 7

    @property
    def group_bytes_max(self) -> int:
        return self._group_bytes_max

    @property
    def blocked_reason(self) -> str | None:
        return self._refusal

    def commit(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
        self.stage(operations, reserved=reserved)
        self.sync()

    def stage(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
        """Written but not yet durable; the caller owes a `sync` before it confirms anything."""
        self._refuse_if_closed()
        check_operations(operations)
        if group_bytes(operations) > self._group_bytes_max:
            raise LocalProtocolError(
                f"group of {group_bytes(operations):,} bytes exceeds group_bytes_max {self._group_bytes_max:,}; "
                "commit it in parts"
            )
        self._refusal = None
        if self._failures_left > 0:
            self._failures_left -= 1
            self._refusal = self._failure_reason
        elif self.full_reason is not None and not reserved:
            self._refusal = self.full_reason
        if self._refusal is not None:
            raise Unavailable(self._refusal)
        if operations:
            self._staged.append(tuple(operations))

    def sync(self) -> None:
        """What is staged becomes durable and visible, in order."""
        self._refuse_if_closed()
        staged, self._staged = self._staged, []
        for operations in staged:
            self._journal.append(operations)
            self._active.apply(operations)
            self._groups += 1
            if len(self._journal) >= self._checkpoint_groups:
                self.checkpoint()

    def checkpoint(self) -> None:
        """Moves everything in memory to the disk part."""
        for operations in self._journal:
            for operation in operations:
                layer = self._at_rest[operation.table]
                if isinstance(operation, Put):
                    layer.put(operation.key, operation.value)
                    self._damaged.discard((operation.table, operation.key))
                else:
                    layer.remove(operation.low, operation.high)
        self._damaged = {(table, key) for table, key in self._damaged if key in self._at_rest[table].values}
        self._journal, self._active = [], Memtable()
        self._checkpoints += 1

    def seal(self) -> None:
        self._refuse_if_closed()

    def retry(self) -> None:
        self._refuse_if_closed()

    def close(self) -> None:
        self._closed = True

    # Faults

    def fail_commits(self, count: int, reason: str = "simulated: input/output error") -> None:
        """Refuses the next `count` commits."""
        self._failures_left, self._failure_reason = count, reason

    def damage(self, table: Table, key: bytes) -> None:
        """Spoils the stored value of `key`, which must exist; writing the key again heals it."""
        self._refuse_if_closed()
        self.checkpoint()  # only what is at rest can rot: memory is not checked
        if key not in self._at_rest[table].values:
            raise LocalProtocolError(f"{table.name} {key.hex()}: nothing there to damage")
        self._damaged.add((table, key))

    def crash(self, keep_groups: int = 0) -> "MemoryStore":
        """The store as the next start finds it. Of the staged groups the first `keep_groups` had reached the disk."""
        return self._successor(self._staged[:keep_groups])

    def reopen(self) -> "MemoryStore":
        """The store as the next start finds it after a clean close, which makes everything staged durable."""
        return self._successor(self._staged)

    def _successor(self, survivors: list[tuple[Operation, ...]]) -> "MemoryStore":
        self._closed = True
        successor = MemoryStore(checkpoint_groups=self._checkpoint_groups, group_bytes_max=self._group_bytes_max)
        successor.full_reason = self.full_reason
        successor._at_rest, successor._damaged = self._at_rest, self._damaged
        successor._journal = [*self._journal, *survivors]
        for operations in successor._journal:
            successor._active.apply(operations)
        successor.recovery = RecoveryReport(groups_replayed=len(successor._journal))
        return successor

    # Reading

    def get(self, table: Table, key: bytes) -> bytes | None:
        self._refuse_if_closed()
        layer = self._active[table]
        if (resident := layer.values.get(key)) is not None:
            return resident
        if layer.tombstones.end_of(key) is not None:
            return None
        value = self._at_rest[table].values.get(key)
        if value is not None and (table, key) in self._damaged:
            self._damages += 1
            raise ValueDamaged(table, key, _spoiled(value))
        return value

    def peek_memory(self, table: Table, low: bytes, high: bytes) -> Item | None:
        items = merged(self._active[table], None, low, high, limit=1, bytes_max=1)
        return items[0] if items else None

    def first_at_or_after(self, table: Table, low: bytes, high: bytes) -> Item | Damaged | None:
        items = self.scan(table, low, high, limit=1)
        return items[0] if items else None

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int = SCAN_BYTES_MAX
    ) -> list[Item | Damaged]:
        self._refuse_if_closed()
        active = self._active[table]
        items: list[Item | Damaged] = []
        for item in merged(active, self._at_rest[table], low, high, limit, bytes_max):
            if (table, item.key) in self._damaged and item.key not in active.values:
                items.append(Damaged(item.key, _spoiled(item.value)))
                self._damages += 1
            else:
                items.append(item)
        return items

    def rows(self, table: Table) -> int:
        return len(self._active[table].values) + len(self._at_rest[table].values)

    def room_bytes(self) -> int:
        return 1 << 62

    def make_room(self) -> None: ...

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            groups=self._groups,
            journal_bytes=sum(map(group_bytes, self._journal)),
            memory_bytes=self._active.memory_bytes,
            lmdb_bytes=sum(len(value) for layer in self._at_rest.values() for value in layer.values.values()),
            checkpoints=self._checkpoints,
            damages=self._damages,
        )

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise LocalProtocolError("the store is closed")


def _spoiled(value: bytes) -> bytes:
    """One bit flipped; an empty value has none, there it is the checksum that rotted."""
    return bytes([value[0] ^ 1]) + value[1:] if value else value

"""What lies in memory over LMDB: the active memtable, and under it the frozen one while it is being checkpointed.

    reads:   active -> frozen -> LMDB        (a tombstone in one layer hides what lies beneath)
    writes:  active

The lock guards which memtables there are and what is in them. It is held for memory operations only, and to begin an
LMDB read transaction (microseconds): never across a write, a sync or a wait. That transaction has to begin under the
lock: begun later it could see a checkpoint that the layers copied before it do not know of.
"""
import threading
from collections.abc import Sequence

import lmdb

from angarium.core.storage import Operation, Table
from angarium.store.interface import Item
from angarium.store.memtable import KeyRanges, Memtable, merged
from angarium.store.tables import TableRange, Tables

Snapshot = tuple[list[Item], KeyRanges, "lmdb.Transaction[memoryview]"]


class Layers:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.changed = threading.Condition(threading.Lock())  # notified when the frozen memtable comes, goes, is stuck
        self.active = Memtable()
        self.frozen: Memtable | None = None
        self.frozen_sequence = 0  # the last group in `frozen`

    def apply(self, operations: Sequence[Operation]) -> None:
        with self.changed:
            self.active.apply(operations)

    def freeze(self, sequence: int) -> None:
        """Only the writer freezes, and only when nothing is frozen."""
        with self.changed:
            assert self.frozen is None
            self.frozen, self.active, self.frozen_sequence = self.active, Memtable(), sequence
            self.changed.notify_all()

    def lookup(self, table: Table, key: bytes) -> "bytes | lmdb.Transaction[memoryview] | None":
        """The answer, or the transaction in which to ask LMDB."""
        with self.changed:
            for memtable in (self.active, self.frozen):
                if memtable is not None:
                    layer = memtable[table]
                    if (value := layer.values.get(key)) is not None:
                        return value
                    if layer.tombstones.end_of(key) is not None:
                        return None
            return self._tables.begin()

    def first(self, table: Table, low: bytes, high: bytes) -> Item | None:
        with self.changed:
            items = self._merged(table, low, high, limit=1, bytes_max=1)
        return items[0] if items else None

    def snapshot(self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int) -> Snapshot:
        """What lies over LMDB in [low, high), what it hides there, and LMDB as of the same moment."""
        with self.changed:
            items = self._merged(table, low, high, limit, bytes_max)
            hidden = self.active[table].tombstones.overlapping(low, high)
            under = None if self.frozen is None else self.frozen[table].tombstones.overlapping(low, high)
            transaction = self._tables.begin()
        if under is not None:
            hidden.update(under)
        return items, hidden, transaction

    def _merged(self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int) -> list[Item]:
        bottom = None if self.frozen is None else self.frozen[table]
        return merged(self.active[table], bottom, low, high, limit, bytes_max)

    def active_tombstones(self) -> list[TableRange]:
        with self.changed:
            return [(table, low, high) for table in Table for low, high in self.active[table].tombstones]

    def rows(self, table: Table) -> "tuple[int, lmdb.Transaction[memoryview]]":
        """In memory, and LMDB as of the same moment."""
        with self.changed:
            layers = [memtable[table] for memtable in (self.active, self.frozen) if memtable is not None]
            return sum(len(layer.values) for layer in layers), self._tables.begin()

    @property
    def memory_bytes(self) -> int:
        with self.changed:
            return self.active.memory_bytes + (0 if self.frozen is None else self.frozen.memory_bytes)

"""The checkpoint: writes the frozen memtable to LMDB, in a thread of its own, so that its journal segment gets free.

    idle --a memtable is frozen--> writing --durable--> idle
                                      |  ^
                           no room    v  |  retry (asked for by the writer)
                                    stuck (with a reason; nothing is lost, the frozen memtable and its segment stay)

Tombstones first, then values, then the note up to which group all is applied. A crash between two of the transactions
leaves part of the work done; the journal replays all of it over that, and every operation is idempotent.

On a full disk. Whatever the active memtable deletes is already durable in the journal, so it may leave LMDB early, and
the frozen memtable's values that it hides need not be written at all. With the ballast released, those deletes are
written first: the pages they free take what is left of the frozen memtable. What is left may use the ballast's space
itself only when it is small (settlements, cursors); messages may not.

`Layers.changed` guards `_wanted`, `failure`, `attempts` and the frozen memtable. All else belongs to the thread.
"""
import threading
from collections.abc import Iterator

from angarium.core.errors import StorageCorrupt, Unavailable
from angarium.core.storage import Table
from angarium.store.ballast import Ballast
from angarium.store.layers import Layers
from angarium.store.memtable import KeyRanges, Memtable
from angarium.store.tables import TableItem, TableRange, Tables

SMALL_SHARE = 4  # the rest of a memtable counts as small up to a fourth of the ballast


class Checkpoint:
    def __init__(self, layers: Layers, tables: Tables, ballast: Ballast) -> None:
        self._layers = layers
        self._tables = tables
        self._ballast = ballast
        self._stopping = False
        self._wanted = True  # false while stuck, until somebody asks for a retry
        self._done: tuple[Table, bytes] | None = None  # the last item of the frozen memtable that is durable
        self.failure: Unavailable | StorageCorrupt | None = None
        self.broken: BaseException | None = None  # a defect of ours: the store refuses everything from here on
        self.count = 0
        self.attempts = 0
        self.applied = 0
        self._thread = threading.Thread(target=self._run, name="angarium-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns after the transaction that is being written, if any."""
        with self._layers.changed:
            self._stopping = True
            self._layers.changed.notify_all()
        self._thread.join()

    def retry(self) -> None:
        """Asks for another attempt; the lock is held by the caller."""
        if self._layers.frozen is not None and not self._wanted:
            self._wanted, self.failure = True, None
            self._layers.changed.notify_all()

    def _run(self) -> None:
        changed = self._layers.changed
        while True:
            with changed:
                changed.wait_for(lambda: self._stopping or (self._wanted and self._layers.frozen is not None))
                frozen = self._layers.frozen
                if self._stopping or frozen is None:
                    return
                self.attempts += 1
            failure: Unavailable | StorageCorrupt | None = None
            finished = False
            try:
                finished = self._attempt(frozen)
            except (Unavailable, StorageCorrupt) as error:
                failure = error
            except BaseException as error:
                self.broken = error
                raise
            finally:
                with changed:
                    self.failure, self._wanted = failure, failure is None
                    if finished:
                        self.applied = self._layers.frozen_sequence
                        self._layers.frozen, self._done = None, None
                        self.count += 1
                    changed.notify_all()

    def _attempt(self, frozen: Memtable) -> bool:
        """True when all is durable; False when asked to stop halfway."""
        try:
            finished = self._write(frozen, self._ranges(frozen), hidden=[])
        except Unavailable:
            return self._attempt_on_full_disk(frozen)
        if finished and self._ballast.held_bytes < self._ballast.wanted_bytes:
            self._ballast.restore()
        return finished

    def _attempt_on_full_disk(self, frozen: Memtable) -> bool:
        hidden = self._layers.active_tombstones()
        self._ballast.release()
        try:
            for _ in self._tables.write([*self._ranges(frozen), *hidden], (), None):
                pass
            self._tables.turn_pages()
            left_bytes = sum(len(value) for _, _, value in self._items(frozen, hidden, self._done))
            if left_bytes > self._ballast.wanted_bytes // SMALL_SHARE:
                self._ballast.restore()
            return self._write(frozen, [], hidden)
        finally:
            self._ballast.restore()

    def _write(self, frozen: Memtable, ranges: list[TableRange], hidden: list[TableRange]) -> bool:
        items = self._items(frozen, hidden, self._done)
        for done in self._tables.write(ranges, items, self._layers.frozen_sequence):
            self._done = done or self._done
            if self._stopping:
                return False  # if this was the last transaction, replaying the segment once more does no harm
        return True

    def _ranges(self, frozen: Memtable) -> list[TableRange]:
        """The tombstones; none once an item is durable: written again they would delete it."""
        if self._done is not None:
            return []
        return [(table, low, high) for table in Table for low, high in frozen[table].tombstones]

    def _items(
        self, frozen: Memtable, hidden: list[TableRange], done: tuple[Table, bytes] | None
    ) -> Iterator[TableItem]:
        """What is still to be written after `done`, in order of table and key."""
        for table in Table:
            covered = KeyRanges((low, high) for of, low, high in hidden if of is table)
            layer = frozen[table]
            for key in layer.keys:
                if (done is None or (table, key) > done) and covered.end_of(key) is None:
                    yield table, key, layer.values[key]

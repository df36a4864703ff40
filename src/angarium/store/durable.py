"""The durable store: a journal in front of LMDB (docs/adr/0002-journal-in-front-of-lmdb.md).

                 commit                              reads
                   |                                   |
          1. group |                                   v
                   v            2. when durable   active memtable -- the journal's active segment, in memory
       journal segment A, B  ----------------->        |
                                                  frozen memtable -- the other segment, while a checkpoint writes it
                                                       |
                                                    LMDB          <-- checkpoint, in its own thread

A commit is one write and one fdatasync to the journal; only then its effects enter the active memtable, all at once. A
small one may be given to the kernel instead, and nobody waits for it (overlapped.py).
When the active segment is full its memtable is frozen, the other segment is taken, and the checkpoint writes the frozen
memtable to LMDB. If the active segment fills up before that is done, the commit waits: that is the back-pressure.
Messages that are published, consumed and settled within one segment never reach LMDB.

Files in DIR: lock, journal-<identity>-0.seg and -1.seg, data.mdb and lock.mdb (LMDB's), ballast.

Threads and locks. The writer's thread owns the journal, or between `start` and `show` whoever calls them. The
checkpoint's thread owns LMDB's write side and the ballast. `Layers.changed`, one lock, guards what is in memory; it is
held for microseconds, so a read in memory never waits for a sync or a checkpoint. See interface.py for which calls
belong to which thread.

Refused writes. A full or failing disk makes `commit` raise `Unavailable` and changes nothing. Commits that free space
pass `reserved=True`: they may also use the reserve of the journal.
"""
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from angarium.core.errors import LocalProtocolError, StorageCorrupt, Unavailable
from angarium.core.storage import Operation, Table
from angarium.store.ballast import Ballast
from angarium.store.checkpoint import Checkpoint
from angarium.store.directory_lock import DirectoryLock
from angarium.store.disk import DiskCalls, sync_directory
from angarium.store.interface import (
    SCAN_BYTES_MAX,
    Damage,
    Damaged,
    Item,
    Overlapped,
    RecoveryReport,
    StoreStatistics,
    ValueDamaged,
)
from angarium.store.journal import Group, Journal, prepare_segments
from angarium.store.layers import Layers
from angarium.store.recovery import Recovered
from angarium.store.settings import StoreSettings, ballast_bytes_for, segment_bytes_for
from angarium.store.tables import Tables

RETRY_AFTER_S = 0.1  # a stuck checkpoint is tried again by the first commit after this long


class DurableStore:
    """Made by `open` only."""

    recovery: RecoveryReport

    def __init__(
        self, lock: DirectoryLock, journal: Journal, tables: Tables, ballast: Ballast, settings: StoreSettings
    ) -> None:
        self._lock = lock
        self._journal = journal
        self._tables = tables
        self._ballast = ballast
        self._settings = settings
        self._layers = Layers(tables)
        self._checkpoint = Checkpoint(self._layers, tables, ballast)
        self._started: Sequence[Operation] = ()
        self._groups = 0
        self._groups_frozen = 0  # the same when the segment was last switched
        self._is_checkpoint_wanted = False
        self._damages = 0
        self._frozen_bytes = 0
        self._write_failure: str | None = None
        self._retry_at = 0.0
        self._closed = False

    @classmethod
    def open(
        cls, path: Path | str, settings: StoreSettings | None = None, disk: DiskCalls | None = None, *,
        segment_bytes_min: int = 0,
    ) -> "DurableStore":  # fmt: skip
        """`segment_bytes_min`: of a journal whose size is chosen here."""
        started = time.monotonic()
        settings, disk, directory = settings or StoreSettings(), disk or DiskCalls(), Path(path)
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        with ExitStack() as undo:
            lock = DirectoryLock(directory)
            undo.callback(lock.release)
            # LMDB's file is created after the segments: with it there, every segment has been there as well.
            existed = (directory / "data.mdb").exists()
            segment_bytes = settings.segment_bytes or max(
                segment_bytes_min, segment_bytes_for(disk.free_bytes(directory))
            )
            segments = prepare_segments(directory, segment_bytes, disk)
            journal = Journal(segments, disk)
            undo.callback(journal.release)
            tables = Tables(directory, settings, disk)
            undo.callback(tables.close)
            if not existed:
                sync_directory(disk, directory)
                sync_directory(disk, directory.parent)
            found = journal.recover(tables.applied())
            if existed:
                missing = [f"{name}: missing, with whatever it held" for name in segments.created]
                found.damages += [Damage(None, None, reason) for reason in missing]
            found.damages += [Damage(None, None, reason) for reason in segments.cut]
            ballast_bytes = settings.ballast_bytes
            if ballast_bytes is None:
                ballast_bytes = ballast_bytes_for(journal.segment_bytes)
            ballast = Ballast(directory, ballast_bytes, disk)
            ballast.restore()
            store = cls(lock, journal, tables, ballast, settings)
            store._replay(found)
            undo.pop_all()
        damages = tuple(found.damages)
        store._damages = len(damages)
        store.recovery = RecoveryReport(found.groups_replayed, time.monotonic() - started, found.torn_bytes, damages)
        store._checkpoint.start()
        return store

    def _replay(self, found: Recovered) -> None:
        """At most two segments hold groups that count: the older one becomes the frozen memtable again."""
        for at, (segment, groups) in enumerate(found.replay):
            for operations in groups:
                self._layers.active.apply(operations)
            if at < len(found.replay) - 1:
                self._freeze(found.replay_end[segment])
        self._checkpoint.applied = found.applied

    # Writing: the writer's thread

    @property
    def group_bytes_max(self) -> int:
        return self._journal.group_bytes_max

    @property
    def reserve_bytes(self) -> int:
        return self._journal.reserve_bytes

    @property
    def blocked_reason(self) -> str | None:
        failure = self._checkpoint.failure
        return self._write_failure or (None if failure is None else str(failure))

    def commit(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
        self._refuse_if_closed()
        if not operations:
            return
        if self._is_checkpoint_wanted and self._layers.frozen is None and self._groups > self._groups_frozen:
            self._is_checkpoint_wanted = False
            self._freeze(self._journal.sequence_next - 1)
            self._journal.switch()
        group = self._journal.encode(operations)
        if not self._journal.fits(group, reserved=False):
            self._make_room(group, reserved)
        self._journal.applied = self._checkpoint.applied
        try:
            self._journal.write(group)
        except Unavailable as error:
            self._write_failure = str(error)
            raise
        self._write_failure = None
        self._show(operations)
        if self._checkpoint.failure is not None and time.monotonic() >= self._retry_at:
            self.retry()

    def _show(self, operations: Sequence[Operation]) -> None:
        self._layers.apply(operations)
        self._groups += 1

    @property
    def overlapped(self) -> Overlapped | None:
        return None if self._journal.overlapped is None else self

    @property
    def descriptor(self) -> int:
        assert self._journal.overlapped is not None
        return self._journal.overlapped.descriptor

    def start(self, operations: Sequence[Operation]) -> bool:
        self._refuse_if_closed()
        if not operations or self._is_checkpoint_wanted or self.blocked_reason is not None:
            return False
        if self._layers.frozen is not None:  # its checkpoint may fill the device's queue: the kernel would have to wait
            return False
        group = self._journal.encode(operations)
        if not self._journal.fits(group, reserved=False):
            return False
        self._journal.applied = self._checkpoint.applied
        if not self._journal.start(group):
            return False
        self._started = operations
        return True

    def finish(self) -> None:
        self._journal.finish()

    def show(self) -> None:
        self._show(self._started)

    def seal(self) -> None:
        """The driver calls this when no commit came for some 50 ms: from then on a flipped bit in the last group is
        told apart from a write cut short. Costs one page write without a sync, nothing when already sealed."""
        self._refuse_if_closed()
        self._journal.seal()

    def retry(self) -> None:
        """Tries a stuck checkpoint again, without waiting for it; `blocked_reason` tells how it went."""
        with self._layers.changed:
            self._retry_at = time.monotonic() + RETRY_AFTER_S
            self._checkpoint.retry()

    def close(self) -> None:
        """Waits for at most one transaction of a running checkpoint. The next open replays what is not in LMDB yet."""
        if self._closed:
            return
        self._closed = True
        self._checkpoint.stop()
        self._journal.close()
        self._tables.close()
        self._lock.release()

    def _make_room(self, group: Group, reserved: bool) -> None:
        """Switches to the other segment. A reserved group that fits the reserve does without, if it must."""
        try:
            self._wait_for_checkpoint()
        except Unavailable:
            if reserved and self._journal.fits(group, reserved=True):
                return
            raise
        self._freeze(self._journal.sequence_next - 1)
        self._journal.switch()

    def _freeze(self, sequence: int) -> None:
        self._frozen_bytes = self._journal.used_bytes
        self._groups_frozen = self._groups
        self._layers.freeze(sequence)

    def _wait_for_checkpoint(self) -> None:
        """Returns when nothing is frozen. Gives up only after an attempt that began after the call: one that is already
        running does not know of the deletes that were committed meanwhile."""
        checkpoint, layers = self._checkpoint, self._layers
        with layers.changed:
            known = checkpoint.attempts
            done = True
            while done and layers.frozen is not None and checkpoint.broken is None:
                checkpoint.retry()
                done = layers.changed.wait_for(
                    lambda: layers.frozen is None or checkpoint.failure is not None or checkpoint.broken is not None,
                    self._settings.checkpoint_wait_s_max,
                )
                if checkpoint.failure is not None and checkpoint.attempts > known:
                    break
            if checkpoint.broken is not None:
                raise RuntimeError("the checkpoint's thread died; the node must stop") from checkpoint.broken
            if isinstance(checkpoint.failure, StorageCorrupt):
                raise checkpoint.failure
            if checkpoint.failure is not None:
                raise Unavailable(f"no room for more: {checkpoint.failure}") from checkpoint.failure
            if not done:
                raise Unavailable(
                    f"checkpoint still running after checkpoint_wait_s_max {self._settings.checkpoint_wait_s_max}; "
                    "the disk is too slow for the load"
                )

    # Reading: any thread

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Raises `ValueDamaged` when the value is there but fails its checksum."""
        self._refuse_if_closed()
        found = self._layers.lookup(table, key)
        if found is None or isinstance(found, bytes):
            return found
        item = self._tables.get(found, table, key)
        if isinstance(item, Damaged):
            self._damages += 1
            raise ValueDamaged(table, key, item.raw)
        return None if item is None else item.value

    def peek_memory(self, table: Table, low: bytes, high: bytes) -> Item | None:
        """The smallest key in [low, high) that is in memory. LMDB may hold a smaller one: the caller has to know from
        the value whether this is the one it looks for."""
        return self._layers.first(table, low, high)

    def first_at_or_after(self, table: Table, low: bytes, high: bytes) -> Item | Damaged | None:
        """The smallest key in [low, high)."""
        items = self.scan(table, low, high, limit=1)
        return items[0] if items else None

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int = SCAN_BYTES_MAX
    ) -> list[Item | Damaged]:
        """The first items in [low, high) in key order: at most `limit`, and no more once they sum up to `bytes_max`."""
        self._refuse_if_closed()
        over, hidden, transaction = self._layers.snapshot(table, low, high, limit, bytes_max)
        items = self._tables.scan(
            transaction, table, low, high, over=over, hidden=hidden, limit=limit, bytes_max=bytes_max
        )
        self._damages += sum(isinstance(item, Damaged) for item in items)
        return items

    def rows(self, table: Table) -> int:
        self._refuse_if_closed()
        in_memory, transaction = self._layers.rows(table)
        return in_memory + self._tables.rows(transaction, table)

    def statistics(self) -> StoreStatistics:
        frozen_bytes = self._frozen_bytes if self._layers.frozen is not None else 0
        return StoreStatistics(
            groups=self._groups,
            journal_bytes=self._journal.used_bytes + frozen_bytes,
            memory_bytes=self._layers.memory_bytes,
            lmdb_bytes=self._tables.file_bytes,
            ballast_bytes=self._ballast.held_bytes,
            checkpoints=self._checkpoint.count,
            damages=self._damages,
        )

    def make_room(self) -> None:
        self._is_checkpoint_wanted = True

    def room_bytes(self) -> int:
        self._refuse_if_closed()
        return self._tables.room_bytes()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise LocalProtocolError("the store is closed")

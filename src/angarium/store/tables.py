"""The tables at rest: one LMDB environment, one named database for each table, each value with its checksum.

    value = crc32(key, value) u32 | value

LMDB has no checksums of its own. A value that fails is reported with its bytes, never returned as good.

One thread writes (the checkpoint's), in transactions of bounded size, each durable when it ends. Any thread reads, in
short transactions, which LMDB lets run beside the writer; a long one would keep freed pages from being used again.
"""
import errno
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import lmdb

from angarium.core.checksum import crc32
from angarium.core.errors import LocalProtocolError, StorageCorrupt, Unavailable
from angarium.core.storage import Table
from angarium.store.disk import DiskCalls
from angarium.store.interface import Damaged, Item
from angarium.store.memtable import KeyRanges
from angarium.store.residency import Residency
from angarium.store.settings import StoreSettings

WRITES_MAX = 4_000  # keys put or deleted in one transaction: with `chunk_bytes` bounds its dirty pages and its time
LMDB_OWN_PAGES = 16  # its two meta pages, and about what its list of free pages takes
READERS_MAX = 126
_DELETE_COST_BYTES = 1024  # what deleting one key counts against `chunk_bytes`: its share of pages copied and freed
_CRC = struct.Struct("<I")
_APPLIED = b"applied"
_TURN = b"turn"
_CORRUPT = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.BadTxnError,  # it met one of the others before
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)

TableRange = tuple[Table, bytes, bytes]
TableItem = tuple[Table, bytes, bytes]


def _stored(key: bytes, value: bytes) -> bytes:
    return _CRC.pack(crc32(value, crc32(key))) + value


def _checked(key: bytes, stored: memoryview) -> Item | Damaged:
    if len(stored) < _CRC.size:
        return Damaged(key, bytes(stored))
    value = bytes(stored[_CRC.size :])
    intact = crc32(value, crc32(key)) == _CRC.unpack_from(stored)[0]
    return Item(key, value) if intact else Damaged(key, value)


def _search(cursor: "lmdb.Cursor[Any]", low: bytes) -> bool:
    """Moves to the first key from `low` on, or to one before it. LMDB halves its way there: a key of which a bit was
    flipped, and which is out of order since, leads it too far to the left, so that it stops at that key, or too far to
    the right, so that it stops behind it. Asked again it may be led astray where it was not before, for where it begins
    is where it is: so the way back is taken step by step."""
    found = cursor.set_range(low)
    if not (cursor.prev() if found else cursor.last()):
        return bool(cursor.first())
    before = bytes(cursor.key())
    if not cursor.prev():
        return bool(cursor.first()) and (before >= low or (found and bool(cursor.next())))
    if low <= before or before < bytes(cursor.key()):
        while bytes(cursor.key()) >= low:
            if not cursor.prev():
                return bool(cursor.first())
        return True
    return found and bool(cursor.next()) and bool(cursor.next())


def _is_out_of_order(cursor: "lmdb.Cursor[Any]") -> bool:
    """Whether the next key comes before this one, and this one is what was damaged. The cursor stays."""
    key, value = bytes(cursor.key()), memoryview(cursor.value())
    is_descending = False
    if cursor.next():
        is_descending = bytes(cursor.key()) < key
        cursor.prev()
    else:
        cursor.last()
    return is_descending and isinstance(_checked(key, value), Damaged)


class Tables:
    def __init__(self, directory: Path, settings: StoreSettings, disk: DiskCalls) -> None:
        self._path = directory / "data.mdb"
        self._disk = disk
        self._chunk_bytes = settings.chunk_bytes
        self._reads = threading.Condition()  # guards the two below
        self._reading = 0
        self._closed = False
        self._is_damaged = False  # a value that fails its checksum was met: its key may be what was damaged
        with self._errors():
            self._env = lmdb.open(
                str(directory),
                map_size=settings.map_bytes,
                max_dbs=max(Table) + 2,
                max_readers=READERS_MAX,
                readahead=settings.readahead,
                mode=0o640,  # as the journal: messages are not for everybody
            )
            self._fill_up_if_cut(directory)
            self._env.reader_check()  # a killed process leaves its reader slots behind
            self._meta = self._env.open_db(b"meta")
            self._databases = {table: self._env.open_db(table.name.encode()) for table in Table}
        self.residency = Residency(self._path.resolve(), settings.resident_bytes_max)

    def _fill_up_if_cut(self, directory: Path) -> None:
        """Whoever touches the mapping beyond the file's end is killed by the system, so there is nothing beyond it.

        A file may be shorter than its pages reach: LMDB does not write a page that was freed in the transaction that
        took it. Whether any of those that are gone was in use, a process of its own finds out, which may be killed.
        What only values stood in is zeros then, and fails its checksum when it is read.
        """
        size_bytes, reaches_bytes = self.file_bytes, (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
        if size_bytes < reaches_bytes:
            walk = [sys.executable, "-m", "angarium.store.walking", str(directory)]
            if subprocess.run(walk, capture_output=True, check=False).returncode:
                self._env.close()
                raise lmdb.CorruptedError(f"{size_bytes:,} bytes of {reaches_bytes:,}: it was cut")
            os.truncate(self._path, reaches_bytes)

    def close(self) -> None:
        """Waits for reads that are running: LMDB must not be unmapped under them."""
        with self._reads:
            self._closed = True
            self._reads.wait_for(lambda: self._reading == 0)
        self._env.close()
        self.residency.close()

    @property
    def file_bytes(self) -> int:
        return self._path.stat().st_size

    def room_bytes(self) -> int:
        """What is free on the disk, and what of the file, which never shrinks, holds nothing any more."""
        free_bytes = self._disk.free_bytes(self._path.parent)
        with self._errors(), self._env.begin(buffers=True) as transaction:
            found = [transaction.stat(database) for database in (self._meta, *self._databases.values())]
            pages = sum(each["branch_pages"] + each["leaf_pages"] + each["overflow_pages"] for each in found)
            allocated = int(self._env.info()["last_pgno"]) + 1
            return free_bytes + max(0, allocated - pages - LMDB_OWN_PAGES) * int(found[0]["psize"])

    def applied(self) -> int:
        """The last journal group whose effects are all here; 0 when the note of it is missing or damaged."""
        with self._errors(), self._env.begin(buffers=True) as transaction:
            stored = transaction.get(_APPLIED, db=self._meta)
            item = None if stored is None else _checked(_APPLIED, stored)
        return int.from_bytes(item.value, "big") if isinstance(item, Item) else 0

    # Reading

    def begin(self) -> "lmdb.Transaction[memoryview]":
        """A snapshot; the caller hands it to `get` or `scan`, which end it."""
        with self._reads:
            if self._closed:
                raise LocalProtocolError("the store is closed")
            with self._errors():
                transaction = self._env.begin(buffers=True)
            self._reading += 1
        return transaction

    @contextmanager
    def _ending(self, transaction: "lmdb.Transaction[memoryview]") -> Iterator[None]:
        try:
            with self._errors(), transaction:
                yield
        finally:
            with self._reads:
                self._reading -= 1
                self._reads.notify_all()

    def get(self, transaction: "lmdb.Transaction[memoryview]", table: Table, key: bytes) -> Item | Damaged | None:
        with self._ending(transaction):
            stored = transaction.get(key, db=self._databases[table])
            found = None if stored is None else _checked(key, stored)
        if isinstance(found, Item):
            self.residency.touched(len(found.value))
        return found

    def rows(self, transaction: "lmdb.Transaction[memoryview]", table: Table) -> int:
        with self._ending(transaction):
            return int(transaction.stat(self._databases[table])["entries"])

    def scan(
        self,
        transaction: "lmdb.Transaction[memoryview]",
        table: Table,
        low: bytes,
        high: bytes,
        *,
        over: Sequence[Item],
        hidden: KeyRanges,
        limit: int,
        bytes_max: int,
    ) -> list[Item | Damaged]:
        """What is here in [low, high) and not `hidden`, with the items of `over` laid over it."""
        items: list[Item | Damaged] = []
        size = touched = 0
        with self._ending(transaction), transaction.cursor(self._databases[table]) as cursor:
            stored = self._visible(cursor, low, high, hidden)
            below = next(stored, None)
            waiting = iter(over)
            above = next(waiting, None)
            while len(items) < limit and size < bytes_max and (below is not None or above is not None):
                if above is not None and (below is None or above.key <= below[0]):
                    if below is not None and above.key == below[0]:
                        below = next(stored, None)
                    items.append(above)
                    size += len(above.value)
                    above = next(waiting, None)
                    continue
                assert below is not None
                found = _checked(*below)
                items.append(found)
                if isinstance(found, Damaged):
                    self._is_damaged = True
                value_bytes = len(found.value if isinstance(found, Item) else found.raw)
                size += value_bytes
                touched += value_bytes
                below = next(stored, None) if len(items) < limit and size < bytes_max else None
        self.residency.touched(touched)
        return items

    def _visible(
        self, cursor: "lmdb.Cursor[memoryview]", low: bytes, high: bytes, hidden: KeyRanges
    ) -> Iterator[tuple[bytes, memoryview]]:
        """What is in [low, high) and not hidden, in order; without damaged values whose keys are out of order."""
        on_key = _search(cursor, low)
        key, value = (bytes(cursor.key()), cursor.value()) if on_key else (b"", memoryview(b""))
        while on_key:
            on_key = cursor.next()
            following = (bytes(cursor.key()), cursor.value()) if on_key else (b"", memoryview(b""))
            is_descending = on_key and following[0] < key
            if is_descending:  # one of the two
                self._is_damaged = True
            if key >= low and not (is_descending and isinstance(_checked(key, value), Damaged)):
                if key >= high:
                    return
                hidden_to = hidden.end_of(key)
                if hidden_to is None:
                    yield key, value
                    low = key + b"\0"
                else:
                    low = hidden_to
                    if on_key and following[0] < low:
                        on_key = _search(cursor, low)
                        following = (bytes(cursor.key()), cursor.value()) if on_key else following
            key, value = following

    # Writing

    def write(
        self, ranges: Iterable[TableRange], items: Iterable[TableItem], applied: int | None
    ) -> Iterator[tuple[Table, bytes] | None]:
        """Deletes `ranges`, then puts `items`, then notes `applied`; in as many transactions as that takes.

        Yields after each one the last item that is durable, None before the first. The caller may stop there.
        """
        work: Iterator[tuple[bool, TableRange]] = chain(
            ((False, deletion) for deletion in ranges), ((True, item) for item in items)
        )
        last: tuple[Table, bytes] | None = None
        pending = next(work, None)
        while pending is not None or applied is not None:
            with self._errors(), self._transaction() as transaction:
                room_bytes, writes = self._chunk_bytes, 0
                while pending is not None and room_bytes > 0 and writes < WRITES_MAX:
                    is_put, (table, first, second) = pending
                    if is_put:
                        transaction.put(first, _stored(first, second), db=self._databases[table])
                        room_bytes -= len(second)
                        writes += 1
                        last = table, first
                    else:
                        budget = min(WRITES_MAX - writes, 1 + room_bytes // _DELETE_COST_BYTES)
                        deleted, finished = self._delete(transaction, table, first, second, budget)
                        room_bytes -= deleted * _DELETE_COST_BYTES
                        writes += deleted
                        if not finished:
                            continue
                    pending = next(work, None)
                if pending is None and applied is not None:
                    noted = applied.to_bytes(8, "big")
                    transaction.put(_APPLIED, _stored(_APPLIED, noted), db=self._meta)
                    applied = None
            yield last

    def turn_pages(self) -> None:
        """LMDB uses a freed page again only in the second transaction after; these are those two."""
        for turn in (b"0", b"1"):
            with self._errors(), self._transaction() as transaction:
                transaction.put(_TURN, turn, db=self._meta)

    def _delete(
        self, transaction: "lmdb.Transaction[bytes]", table: Table, low: bytes, high: bytes, budget: int
    ) -> tuple[int, bool]:
        """Of batches the neighbours are looked at only if something is known to be damaged: each value that a cursor
        comes to is brought into memory whole, and these are other destinations'. What of them is left behind is never
        read, and the next deletion there begins with it."""
        with_care = self._is_damaged or table is not Table.BATCH
        deleted = 0
        with transaction.cursor(self._databases[table]) as cursor:
            on_key = _search(cursor, low) if with_care else cursor.set_range(low)
            while on_key:
                key = cursor.key()
                if low <= key < high:
                    if deleted == budget:
                        return deleted, False
                    on_key = cursor.delete()
                    deleted += 1
                elif key < low or (with_care and _is_out_of_order(cursor)):
                    on_key = cursor.next()
                else:
                    break
        return deleted, True

    @contextmanager
    def _transaction(self) -> Iterator["lmdb.Transaction[bytes]"]:
        transaction = self._env.begin(write=True)
        try:
            yield transaction
            self._disk.lmdb_commit(transaction)
        except BaseException:
            transaction.abort()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _CORRUPT as error:
            raise StorageCorrupt(
                f"{self._path}: {error}; stop the node, keep a copy of its directory, and "
                "start it on a copy made before, or on an empty directory: what is only here is then lost"
            ) from error
        except lmdb.PanicError as error:  # LMDB could not write its own meta page, and refuses until it is opened again
            raise Unavailable(f"{self._path}: {error}; check the disk and restart this node") from error
        except lmdb.Error as error:
            raise Unavailable(f"{self._path}: {error}{self._lack_of_room(error)}") from error

    def _lack_of_room(self, error: lmdb.Error) -> str:
        """A write that was cut short because the disk is full is an input/output error to LMDB."""
        free_bytes = self._disk.free_bytes(self._path)
        if os.strerror(errno.EIO) not in str(error) or free_bytes >= self._chunk_bytes:
            return ""
        return f"; the disk is full: {free_bytes:,} bytes are free"

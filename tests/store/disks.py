"""Disks that misbehave on request, and one that remembers what was made durable."""
import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import lmdb

from angarium.store.disk import DiskCalls
from angarium.store.durable import DurableStore
from angarium.store.settings import PAGE_BYTES, StoreSettings

SMALL = StoreSettings(segment_bytes=64 * 1024, ballast_bytes=256 * 1024, chunk_bytes=8 * 1024)


def disk_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@dataclass
class FaultyDisk(DiskCalls):
    """Lets a call through as often as `spare` says, then fails it as often as `fail` says; negative: until further
    notice. Counts every call."""

    fail: dict[str, int] = field(default_factory=dict)
    spare: dict[str, int] = field(default_factory=dict)
    code: int = errno.EIO
    calls: dict[str, int] = field(default_factory=dict)

    def _enter(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.spare.get(name, 0):
            self.spare[name] -= 1
        elif left := self.fail.get(name, 0):
            self.fail[name] = left - 1
            if name == "lmdb_commit":
                raise lmdb.DiskError("injected", self.code)
            raise disk_error(self.code)

    def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray], offset: int) -> int:
        self._enter("pwritev")
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        self._enter("fdatasync")
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._enter("fsync")
        super().fsync(fd)

    def allocate(self, fd: int, length: int) -> None:
        self._enter("allocate")
        super().allocate(fd, length)

    def lmdb_commit(self, transaction: "lmdb.Transaction[bytes]") -> None:
        self._enter("lmdb_commit")
        super().lmdb_commit(transaction)


class LossyDisk(DiskCalls):
    """Remembers which written pages were made durable, and can say what a power cut would have left of them.

    Calls are serialized, so that a cut sees all files at one moment. LMDB's own writes are taken as they are: between
    its commits its file does not change.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at_write: Callable[[], None] = lambda: None  # called around everything that changes a file
        self.fails_to_sync: Callable[[], bool] = lambda: False  # then what was to be synced is lost, and said to be so
        self._lock = threading.RLock()
        self._durable: dict[str, bytearray] = {}  # file name -> content that survives for certain
        self._written: dict[str, dict[int, bytes]] = {}  # file name -> offset of page -> latest content

    def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray], offset: int) -> int:
        with self._lock:
            written = super().pwritev(fd, buffers, offset)
            pages = self._written.setdefault(self._name(fd), {})
            data = b"".join(buffers)[:written]
            for at in range(0, written, PAGE_BYTES):
                pages[offset + at] = data[at : at + PAGE_BYTES]
            self.at_write()
            return written

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            if self.fails_to_sync():
                self._written.pop(self._name(fd), None)
                raise disk_error(errno.EIO)
            self._settle(self._name(fd))
            self.at_write()

    def fsync(self, fd: int) -> None:
        with self._lock:
            self._settle(self._name(fd))

    def lmdb_commit(self, transaction: "lmdb.Transaction[bytes]") -> None:
        with self._lock:
            self.at_write()
            super().lmdb_commit(transaction)
            self.at_write()

    def _name(self, fd: int) -> str:
        return Path(f"/proc/self/fd/{fd}").readlink().name.replace(".new", ".seg")

    def _settle(self, name: str) -> None:
        if not name.endswith(".seg"):  # a directory: names are durable at once here
            return
        content = self._durable.setdefault(name, bytearray())
        for offset, page in self._written.pop(name, {}).items():
            if len(content) < offset + len(page):
                content.extend(bytes(offset + len(page) - len(content)))
            content[offset : offset + len(page)] = page

    def cut(self, target: Path, random: Random, survive: float) -> None:
        """Writes to `target` what the disk holds after a power cut: each unsynced page survives by chance."""
        with self._lock:
            target.mkdir()
            for name in ("data.mdb", "ballast"):
                if (self.directory / name).exists():
                    shutil.copyfile(self.directory / name, target / name)
            for name, durable in self._durable.items():
                content = bytearray(durable)
                for offset, page in sorted(self._written.get(name, {}).items()):
                    if random.random() < survive:
                        content[offset : offset + len(page)] = page
                (target / name).write_bytes(content)


def crash(store: DurableStore) -> None:
    """What kill -9 does, at a moment when the checkpoint is between two transactions: nothing is sealed or said."""
    store._checkpoint.stop()
    store._journal.release()
    store._tables.close()
    store._lock.release()
    store._closed = True

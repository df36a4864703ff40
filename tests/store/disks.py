"""Disks that misbehave on request, and one that remembers what was made durable."""
import errno
import mmap
import os
import select
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import lmdb

from angarium.core.errors import Unavailable
from angarium.core.storage import Operation
from angarium.store.disk import DiskCalls
from angarium.store.durable import DurableStore
from angarium.store.overlapped import BUFFER_BYTES, NotBegun, OverlappedWriter
from angarium.store.settings import PAGE_BYTES, StoreSettings

SMALL = StoreSettings(segment_bytes=64 * 1024, ballast_bytes=256 * 1024, chunk_bytes=8 * 1024)
WAIT_S_MAX = 20.0


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
    written_at: list[int] = field(default_factory=list)  # offsets of what was written by a thread
    started_at: list[int] = field(default_factory=list)  # and of what was given to the kernel

    def enter(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.spare.get(name, 0):
            self.spare[name] -= 1
        elif left := self.fail.get(name, 0):
            self.fail[name] = left - 1
            if name == "lmdb_commit":
                raise lmdb.DiskError("injected", self.code)
            raise disk_error(self.code)

    def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        self.enter("pwritev")
        self.written_at.append(offset)
        return super().pwritev(fd, buffers, offset)

    def overlapped_writer(self, paths: Sequence[Path]) -> OverlappedWriter | None:
        real = super().overlapped_writer(paths)
        return None if real is None else FaultyWriter(real, self)

    def fdatasync(self, fd: int) -> None:
        self.enter("fdatasync")
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self.enter("fsync")
        super().fsync(fd)

    def allocate(self, fd: int, length: int) -> None:
        self.enter("allocate")
        super().allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        self.enter("truncate")
        super().truncate(fd, length)

    def remove(self, path: Path) -> None:
        self.enter("remove")
        super().remove(path)

    def lmdb_commit(self, transaction: "lmdb.Transaction[bytes]") -> None:
        self.enter("lmdb_commit")
        super().lmdb_commit(transaction)


class FaultyWriter(OverlappedWriter):
    """The system's own, and what its disk has to fail: `start`; `begin`, which the kernel would have had to wait for;
    `finish`, of what may be on the device all the same; `end`, of which the last page is missing."""

    def __init__(self, real: OverlappedWriter, disk: FaultyDisk) -> None:
        self._real, self._disk = real, disk
        self.files, self.buffer, self.descriptor = real.files, real.buffer, real.descriptor
        self._is_begun = True

    def start(self, file: int, length: int, offset: int) -> None:
        self._disk.enter("start")
        self._disk.started_at.append(offset)
        self._is_begun = not self._fails("begin")
        if self._is_begun:
            self._real.start(file, length, offset)
        else:
            os.eventfd_write(self.descriptor, 1)

    def finish(self) -> int:
        if not self._is_begun:
            os.eventfd_read(self.descriptor)
            raise NotBegun(errno.EAGAIN, os.strerror(errno.EAGAIN))
        durable_bytes = self._real.finish()
        self._disk.enter("finish")
        return durable_bytes - PAGE_BYTES if self._fails("end") else durable_bytes

    def _fails(self, name: str) -> bool:
        try:
            self._disk.enter(name)
        except OSError:
            return True
        return False

    def forget_cached(self, file: int) -> None:
        self._real.forget_cached(file)

    def close(self) -> None:
        self._real.close()


class LossyDisk(DiskCalls):
    """Remembers which written pages were made durable, and can say what a power cut would have left of them.

    Calls are serialized, so that a cut sees all files at one moment. LMDB's own writes are taken as they are: between
    its commits its file does not change.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at_write: Callable[[], None] = lambda: None  # called around everything that changes a file
        self.fails_to_sync: Callable[[], bool] = lambda: False  # then what was to be synced is lost, and said to be so
        self.would_wait: Callable[[], bool] = lambda: False  # then what was to be started is not begun
        self.lock = threading.RLock()
        self._durable: dict[str, bytearray] = {}  # file name -> content that survives for certain
        self._written: dict[str, dict[int, bytes]] = {}  # file name -> offset of page -> latest content

    def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        with self.lock:
            written = super().pwritev(fd, buffers, offset)
            self.wrote(fd, b"".join(buffers)[:written], offset)
            return written

    def overlapped_writer(self, paths: Sequence[Path]) -> OverlappedWriter | None:
        return LossyWriter(paths, self)

    def wrote(self, fd: int, data: bytes, offset: int) -> None:
        pages = self._written.setdefault(self._name(fd), {})
        for at in range(0, len(data), PAGE_BYTES):
            pages[offset + at] = data[at : at + PAGE_BYTES]
        self.at_write()

    def finish(self, fd: int, offset: int, length: int) -> None:
        """Makes these pages durable, and no others."""
        name = self._name(fd)
        pages = self._written[name]
        own = {at: pages.pop(at) for at in range(offset, offset + length, PAGE_BYTES)}
        if self.fails_to_sync():
            raise disk_error(errno.EIO)
        others, self._written[name] = pages, own
        self._settle(name)
        self._written[name] = others
        self.at_write()

    def fdatasync(self, fd: int) -> None:
        with self.lock:
            if self.fails_to_sync():
                self._written.pop(self._name(fd), None)
                raise disk_error(errno.EIO)
            self._settle(self._name(fd))
            self.at_write()

    def fsync(self, fd: int) -> None:
        with self.lock:
            self._settle(self._name(fd))

    def lmdb_commit(self, transaction: "lmdb.Transaction[bytes]") -> None:
        with self.lock:
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
        with self.lock:
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


class LossyWriter(OverlappedWriter):
    """Writes at once what it is given: it can be lost from `start` on, and survives for certain from `finish` on."""

    def __init__(self, paths: Sequence[Path], disk: LossyDisk) -> None:
        self._disk = disk
        self.files = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in paths]
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._started: tuple[int, int, int] | None = None

    def start(self, file: int, length: int, offset: int) -> None:
        fd = self.files[file]
        with self._disk.lock:
            self._started = None if self._disk.would_wait() else (fd, offset, length)
            if self._started is not None:
                os.pwrite(fd, self.buffer[:length], offset)
                self._disk.wrote(fd, self.buffer[:length], offset)
        os.eventfd_write(self.descriptor, 1)

    def finish(self) -> int:
        os.eventfd_read(self.descriptor)
        if self._started is None:
            raise NotBegun(errno.EAGAIN, os.strerror(errno.EAGAIN))
        with self._disk.lock:
            self._disk.finish(*self._started)
        return self._started[2]

    def forget_cached(self, file: int) -> None: ...

    def close(self) -> None:
        self._close_files()


def start(store: DurableStore, operations: Sequence[Operation]) -> bool:
    """Gives a group to the kernel, and waits until it says that this is over."""
    if store.overlapped is None or not store.start(operations):
        return False
    assert select.select([store.descriptor], [], [], WAIT_S_MAX)[0]
    return True


def give(store: DurableStore, operations: Sequence[Operation]) -> bool:
    """A commit by way of the kernel. False: it has to be committed."""
    if not start(store, operations):
        return False
    try:
        store.finish()
    except Unavailable:
        return False
    store.show()
    return True


def crash(store: DurableStore) -> None:
    """What kill -9 does, at a moment when the checkpoint is between two transactions: nothing is sealed or said."""
    store._checkpoint.stop()
    store._journal.release()
    store._tables.close()
    store._lock.release()
    store._closed = True

"""The calls into the operating system that can fail on a bad or full disk, in one place, so that a test can fail them.

`DurableStore` takes a `DiskCalls`; tests hand it a subclass that refuses, delays, tears or records.
"""
import os
from collections.abc import Sequence
from pathlib import Path

import lmdb

from angarium.store.overlapped import OverlappedWriter, overlapped_writer


class DiskCalls:
    def pwritev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        return os.pwritev(fd, buffers, offset)

    def overlapped_writer(self, paths: Sequence[Path]) -> OverlappedWriter | None:
        return overlapped_writer(paths)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return os.pread(fd, count, offset)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def allocate(self, fd: int, length: int) -> None:
        os.posix_fallocate(fd, 0, length)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def free_bytes(self, path: Path) -> int:
        """What an ordinary process may still use; the superuser's share is left alone."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lmdb_commit(self, transaction: "lmdb.Transaction[bytes]") -> None:
        transaction.commit()


def sync_directory(disk: DiskCalls, path: Path) -> None:
    """Makes names that were created, renamed or removed in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.fsync(fd)
    finally:
        os.close(fd)

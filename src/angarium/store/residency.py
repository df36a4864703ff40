"""Keeps LMDB's mapping from filling memory: drops its resident pages when there are too many.

LMDB reads through a shared, read-only mapping of its file. Every page ever touched, and its neighbours, count towards
the process's resident set until the kernel needs the memory, so that reading a large backlog looks like a leak, and in
a container with a memory limit behaves like one. MADV_DONTNEED takes the pages out of our page table. That is safe: for
a shared file mapping it discards nothing (the pages stay in the page cache, and none is dirty: LMDB writes with
pwrite); whoever touches such a page again, even at the same moment in another thread, faults in the same content.

The first pages stay: they hold LMDB's meta pages, which every transaction reads. Where there is no /proc, nothing is
dropped: a cost in memory, not in correctness. The file that tells is opened once: a process that has run out of
descriptors must still be able to look.
"""
import ctypes
import mmap
import os
from pathlib import Path

from angarium.store.settings import MIB

_KEEP_BYTES = 64 * 1024
_READ_COST_BYTES = 64 * 1024  # the kernel maps this much around a fault, however little was asked for
_LOOK_EVERY_BYTES = MIB  # looking costs some microseconds

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_madvise.restype = ctypes.c_int


def mapping_address(path: Path) -> int | None:
    """Where this process maps the beginning of `path`; None when it does not, or when the system does not tell."""
    try:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        addresses, _, offset, _, found_inode, *name = line.split(maxsplit=5)
        if found_inode == inode and name == [os.fspath(path)] and int(offset, 16) == 0:
            return int(addresses.partition("-")[0], 16)
    return None


class FilePages:
    """How much of what this process maps from files is resident; 0 where the system does not tell."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def resident_bytes(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            return int(os.pread(self._descriptor, 256, 0).split()[2]) * mmap.PAGESIZE
        except (OSError, IndexError):
            return 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Residency:
    """Told what is read through the mapping of `path`; looks now and then, drops what exceeds `bytes_max`."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._address = mapping_address(path)
        self._pages = FilePages()
        self._floor_bytes = self._pages.resident_bytes()  # libraries, and the like
        self._unlooked_bytes = 0
        self.drops = 0

    def touched(self, count: int) -> None:
        # Two threads at once may lose a count. It only decides when to look.
        self._unlooked_bytes += count + _READ_COST_BYTES
        if self._unlooked_bytes >= _LOOK_EVERY_BYTES and self._address is not None:
            self._unlooked_bytes = 0
            if self._pages.resident_bytes() - self._floor_bytes > self._bytes_max:
                self._drop(self._address)

    def close(self) -> None:
        self._pages.close()

    def _drop(self, address: int) -> None:
        try:
            length = self._path.stat().st_size - _KEEP_BYTES
        except OSError:
            return
        if length > 0:
            _madvise(address + _KEEP_BYTES, length, mmap.MADV_DONTNEED)  # may refuse: a cost in memory only
        self._floor_bytes = self._pages.resident_bytes()
        self.drops += 1

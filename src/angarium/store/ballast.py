"""Space held back on the disk, so that deletes can still be written when the disk is full.

LMDB writes before it frees: even a delete needs a few new pages. When a checkpoint finds the disk full, the ballast
file is removed, the deletes are written into the space it held, and the file comes back as large as there is room for.
It holds real blocks (fallocate), and nothing but the checkpoint's thread touches it.
"""
import os
from contextlib import suppress
from pathlib import Path

from angarium.store.disk import DiskCalls


class Ballast:
    def __init__(self, directory: Path, wanted_bytes: int, disk: DiskCalls) -> None:
        self._path = directory / "ballast"
        self._disk = disk
        self.wanted_bytes = wanted_bytes
        self.held_bytes = self._path.stat().st_size if self._path.exists() else 0

    def release(self) -> None:
        with suppress(OSError):  # a disk that takes no writes at all: the deletes that follow tell what is wrong
            self._disk.remove(self._path)
            self.held_bytes = 0

    def restore(self) -> None:
        """As large as wanted, or else as there is room for. A full disk is no error here: it is what this is for."""
        if self.held_bytes < self.wanted_bytes and not self._allocate(self.wanted_bytes):
            room_bytes = self.held_bytes + self._disk.free_bytes(self._path.parent)
            if room_bytes > self.held_bytes:
                self._allocate(min(room_bytes, self.wanted_bytes))

    def _allocate(self, size: int) -> bool:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            return False
        try:
            self._disk.allocate(fd, size)
        except OSError:
            with suppress(OSError):
                self._disk.truncate(fd, self.held_bytes)  # a failed allocation may have grown it part of the way
            return False
        finally:
            os.close(fd)
        self.held_bytes = size
        return True

"""One process for each directory: an flock on DIR/lock, which the kernel lets go when its holder dies."""
import fcntl
import os
from pathlib import Path

from angarium.core.errors import Unavailable


class DirectoryLock:
    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._fd, b"%-20d\n" % os.getpid(), 0)  # always the same length: no block to find on a full disk
        except BlockingIOError:
            holder = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise Unavailable(
                f"{directory}: in use by process {holder}; stop it, or choose another directory"
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise Unavailable(f"{path}: {error.strerror}") from error

    def release(self) -> None:
        os.close(self._fd)

"""How long something took, without the time for which those who took part were ready and had no processor: what is left
is the broker's own doing, on a busy machine as on an idle one.

Those who take part are the thread that measures, the broker's event loop, and its thread that writes. That other
threads of the broker wait (reading, checkpoints, the log) keeps nobody here waiting, and excuses nothing. If two of
those who take part wait at the same time it is counted twice: what is measured is never more than the delay.
"""
import time
from pathlib import Path

WRITER = "disk-writer"


class Delay:
    """From its making on; to be used in one thread."""

    def __init__(self, pid: int) -> None:
        tasks = Path(f"/proc/{pid}/task")
        writers = [task for task in tasks.iterdir() if _name(task) == WRITER]
        assert writers, f"process {pid} has no thread {WRITER!r}: {sorted(map(_name, tasks.iterdir()))}"
        self._tasks = (Path("/proc/thread-self"), tasks / str(pid), *writers)
        self._queued_s = self._queued()
        self._began = time.monotonic()

    def seconds(self) -> float:
        took_s = time.monotonic() - self._began
        return max(0.0, took_s - (self._queued() - self._queued_s))

    def _queued(self) -> float:
        return sum(map(_queued_s, self._tasks))


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text(encoding="utf-8").strip()
    except OSError:  # it has ended
        return ""


def _queued_s(task: Path) -> float:
    """Of a thread: time on a processor, time waiting for one, turns; nothing where the kernel does not count."""
    try:
        return int((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):  # also a thread that has ended
        return 0.0

"""How long something took, without the time for which a process that took part was ready and had no processor: what is
left is the broker's own doing, on a busy machine as on an idle one."""
import time
from pathlib import Path


class Delay:
    """From its making on; to be used in one thread."""

    def __init__(self, pid: int) -> None:
        self._broker = Path(f"/proc/{pid}/task")
        self._queued_s = self._queued()
        self._began = time.monotonic()

    def seconds(self) -> float:
        took_s = time.monotonic() - self._began
        return max(0.0, took_s - (self._queued() - self._queued_s))

    def _queued(self) -> float:
        tasks = (Path("/proc/thread-self/schedstat"), *(task / "schedstat" for task in self._broker.iterdir()))
        return sum(map(_queued_s, tasks))


def _queued_s(schedstat: Path) -> float:
    """Of a thread: time on a processor, time waiting for one, turns; nothing where the kernel does not count."""
    try:
        return int(schedstat.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):  # also a thread that has ended
        return 0.0

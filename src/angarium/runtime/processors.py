"""How many processors this process may use: what the system lets it run on, and how much time its control groups leave.

    /proc/self/cgroup   0::/a/b        cpu.max in /sys/fs/cgroup/a/b and above it, or below /sys/fs/cgroup/unified
                        4:cpu:/a/b     cpu.cfs_quota_us and cpu.cfs_period_us in /sys/fs/cgroup/cpu/a/b and above it
"""
import os
from contextlib import suppress
from pathlib import Path


def processors(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """How many this process may use: those it may run on, or as much time as its control groups leave it."""
    usable = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):  # no such file, or one that says it otherwise
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                usable = min(usable, _quota(groups, path, "cpu.max"), _quota(groups / "unified", path, "cpu.max"))
            elif "cpu" in controllers.split(","):  # of the first version
                usable = min(usable, _quota(groups / controllers, path, "cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return usable


def _quota(root: Path, path: str, *files: str) -> float:
    """The least of the group and those above it, in processors."""
    group, least = root / path.lstrip("/"), float("inf")
    for directory in (group, *group.parents):
        if not directory.is_relative_to(root):
            break
        with suppress(OSError, ValueError):  # no such file, or no limit: "max"
            quota, period = " ".join([(directory / name).read_text() for name in files]).split()
            if int(quota) > 0:
                least = min(least, int(quota) / int(period))
    return least

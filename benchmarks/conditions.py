"""Everything about machine and software that a reader needs to judge a figure."""
import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.systems.contract import System


def conditions(systems: list[System], data: Path) -> dict[str, str]:
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "load before": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(data),
        "python": platform.python_version(),
        "loop": f"uvloop {importlib.metadata.version('uvloop')} in every Python client",
        "network": "loopback TCP, one process for each of broker, producer and consumer",
    }
    for system in systems:
        versions = ", ".join(f"{name} {version}" for name, version in system.versions().items())
        found[system.title] = f"{versions}; {system.durability}"
        for variant in system.variants:
            found[f"{system.title}: {variant.name}"] = variant.settings
    return found


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(data: Path) -> str:
    """Type and device of the longest mount point above the data: a tmpfs would make every figure worthless."""
    path = data.resolve()
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(device, point, kind) for device, point, kind in mounts if path.is_relative_to(point)]
    device, _, kind = max(above, key=lambda mount: len(mount[1]))
    return f"{kind} on {device}"

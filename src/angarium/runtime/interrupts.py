"""Which processors hear of a disk's work: where its interrupts come to.

A disk with a queue for each processor answers where it was asked. One with fewer, as most virtual ones, answers on one
processor, whoever asked; if that sleeps, it has to be woken, and then has to wake whoever waits elsewhere. Who waits
there himself spares that (docs/adr/0026-awake-for-the-next.md).

    /sys/dev/block/254:0 -> .../0000:00:02.0/virtio1/block/vda      the disk; mq/ has its queues
                            .../0000:00:02.0/msi_irqs/36            the interrupts of the device that it belongs to
    /proc/irq/36/effective_affinity_list                            where they come to
"""
import os
from contextlib import suppress
from pathlib import Path

_SYSTEM, _PROCESSES = Path("/sys"), Path("/proc")
_ASIDE = ("config", "control", "event")  # of virtio's devices: that they have changed


def interrupted_processors(path: Path, system: Path = _SYSTEM, processes: Path = _PROCESSES) -> frozenset[int]:
    """Those where the end of a write below `path` is told. None: wherever it was asked for, or nobody knows."""
    try:
        device = path.stat().st_dev
        disk = (system / f"dev/block/{os.major(device)}:{os.minor(device)}").resolve(strict=True)
        if not (disk / "mq").is_dir():  # a partition: the disk is above it
            disk = disk.parent
        if len(list((disk / "mq").iterdir())) >= len(os.sched_getaffinity(0)):
            return frozenset()
        # Of the nearest that has any: those above are bridges, which tell of themselves.
        numbers = next((found for above in disk.parents if (found := _interrupts(above))), [])
        lists = [
            (processes / f"irq/{number}/effective_affinity_list").read_text()
            for number in numbers
            if not _is_aside(processes / f"irq/{number}")
        ]
    except OSError:  # no such disk: a file system in memory, of a network, or of several disks
        return frozenset()
    return frozenset(processor for text in lists for processor in parse_list(text))


def _interrupts(directory: Path) -> list[str]:
    with suppress(OSError):
        return [each.name for each in (directory / "msi_irqs").iterdir()]
    return []


def _is_aside(interrupt: Path) -> bool:
    """It does not tell that something is done; the directory of who handles it says so."""
    return any(each.name.endswith(_ASIDE) for each in interrupt.iterdir())


def parse_list(text: str) -> list[int]:
    """As the kernel writes it: `0-2,5`."""
    parts = [part.partition("-") for part in text.strip().split(",") if part]
    return [number for low, _, high in parts for number in range(int(low), int(high or low) + 1)]

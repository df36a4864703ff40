"""Goal: a process of Spark's that works for us does not ask the system for the same memory again and again, and imports
only what it needs."""
import platform
import subprocess
import sys

import pytest

BLOCKS_MADE = """
import resource
from angarium.spark import process
if {prepared}:
    process.prepare()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        blocks = [b"x" * (2 << 20) for _ in range(2)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def faults(*, prepared: bool) -> int:
    command = [sys.executable, "-c", BLOCKS_MADE.format(prepared=prepared)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is told in the way of glibc, which is not here")
def test_blocks_of_memory_are_used_again() -> None:
    pages = 50 * 2 * (2 << 20) // 4096
    assert faults(prepared=False) > pages / 4  # else there is nothing to win, and the settings can go
    assert faults(prepared=True) < pages / 100


OBJECTS_SEEN = """
import gc
import pyspark.sql.session
from angarium.spark import process, reading
if {prepared}:
    process.prepare()
    process.prepare()

class Cycle:
    def __init__(self):
        self.itself = self

gc.collect()
seen = len(gc.get_objects())
cycles = [Cycle() for _ in range(1_000)]
del cycles
print(seen, gc.collect())
"""


def seen_and_collected(*, prepared: bool) -> tuple[int, int]:
    """How many objects are looked at when garbage is collected, and how much of it is found."""
    command = [sys.executable, "-c", OBJECTS_SEEN.format(prepared=prepared)]
    seen, collected = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(seen), int(collected)


def test_modules_are_not_looked_through_after_every_task() -> None:
    """Spark collects garbage after each, and the next one waits for that."""
    assert seen_and_collected(prepared=False)[0] > 20_000  # else there is nothing to win
    seen, collected = seen_and_collected(prepared=True)
    assert seen < 1_000
    assert collected >= 1_000, "what comes later is still collected"


def test_a_process_that_neither_connects_nor_writes_imports_what_it_needs() -> None:
    """Spark starts such processes for each stream and many a query, and waits for them."""
    program = "import sys, angarium.spark.source; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "angarium.spark.planning" in imported
    unwanted = {"angarium.client.connection", "angarium.core.client.connection", "angarium.core.selector.parser"}
    assert not imported & (unwanted | {"angarium.spark.sink", "angarium.spark.rows", "angarium.spark.reading"})

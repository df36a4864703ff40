"""Goal: a process of Spark's that works for us does not ask the system for the same memory again and again."""
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

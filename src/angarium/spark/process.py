"""What a process of Spark's is told before it works for us. It runs one task after the other, and nothing else."""
import ctypes
import gc
import sys
from functools import cache

TURN_S = 0.0005  # of a thread, while another waits for it
MALLOC_BYTES = 32 << 20  # up to here memory comes from the heap; the most that glibc allows
MALLOC_KEPT_BYTES = 64 << 20  # free memory at the end of a heap that is not given back to the system
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@cache  # once
def prepare() -> None:
    # Pages are received by the connection's thread while the task makes columns, and a page takes it many turns: it
    # would wait for each of them for up to 5 ms.
    sys.setswitchinterval(TURN_S)
    _keep_memory()
    # After each task Spark has the process look for garbage among all objects: those of all modules, each time, which
    # took three quarters of what a short task cost. What is there by now stays.
    gc.freeze()


def _keep_memory() -> None:
    """Blocks of a megabyte come and go all the time. Left to itself glibc has the system zero them each time, which
    takes as long as all else that receiving takes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # another C library, with its own ways
    mallopt(_M_MMAP_THRESHOLD, MALLOC_BYTES)
    mallopt(_M_TRIM_THRESHOLD, MALLOC_KEPT_BYTES)

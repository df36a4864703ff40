"""Settings of the durable store."""
from collections.abc import Iterator
from dataclasses import dataclass

from angarium.core.errors import refuse

PAGE_BYTES = 4096
SEGMENT_BYTES_MIN = 8 * PAGE_BYTES
SEGMENT_BYTES_MAX = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreSettings:
    # Size of each of the two journal segments, a multiple of 4096; only the first open of a directory looks at it.
    # None: a sixteenth of the free space, at least 4 MiB, at most 32 MiB: large enough that a checkpoint is rare,
    # small enough that both memtables together stay under some 100 MB and a restart replays in well under a second.
    # In a cluster at least 10 MiB: for the longest message of the bus.
    segment_bytes: int | None = None
    # Address space LMDB may grow into. Sparse, so large costs nothing; lower it where address space is limited.
    map_bytes: int = 1 << 40
    # Space held back so that deletes still work on a full disk. None: a quarter of a segment, at least 1 MiB.
    ballast_bytes: int | None = None
    # Bytes of one LMDB write transaction of a checkpoint: bounds its dirty pages in memory and the time close() waits.
    chunk_bytes: int = 4 * MIB
    # When more of LMDB's mapping than this is resident, it is dropped: bounds RSS, not the page cache.
    resident_bytes_max: int = 64 * MIB
    # Whether the kernel reads ahead in LMDB's file. What is read cold is a backlog, in order: 371 MB/s with, 30 MB/s
    # without, for values of 100 KB (measured, ADR 2).
    readahead: bool = True
    # How long a commit waits for a running checkpoint before it is refused; a disk that slow is a disk that fails.
    checkpoint_wait_s_max: float = 30.0

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if self.segment_bytes is not None and (
            self.segment_bytes % PAGE_BYTES or not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX
        ):
            yield (
                f"store.segment_bytes {self.segment_bytes:,}: a multiple of {PAGE_BYTES:,} "
                f"from {SEGMENT_BYTES_MIN:,} to {SEGMENT_BYTES_MAX:,}"
            )
        for name in ("map_bytes", "chunk_bytes", "resident_bytes_max", "checkpoint_wait_s_max"):
            if getattr(self, name) <= 0:
                yield f"store.{name} {getattr(self, name)}: more than 0"
        if self.ballast_bytes is not None and self.ballast_bytes < 0:
            yield f"store.ballast_bytes {self.ballast_bytes}: 0 or more"


def segment_bytes_for(free_bytes: int) -> int:
    chosen = min(max(free_bytes // 16, 4 * MIB), 32 * MIB)
    return chosen - chosen % PAGE_BYTES


def ballast_bytes_for(segment_bytes: int) -> int:
    return max(segment_bytes // 4, MIB)

"""What the journal in front of LMDB buys: commits through `DurableStore` against plain LMDB commits in the same run.

    python -m benchmarks.store [--directory DIR] [--seconds 2]

The row "raw" is a bare write and fdatasync of the same bytes into a file written before: the least any store can take.
Two loads. *Backlog*: every group stays, so that all of it ends in LMDB through checkpoints. *Steady*: what was written
8 MB before is deleted again, as when consumers keep up. Each commit is durable when it returns, in both stores.
They take turns within a run, so that a noisy disk is noisy for both. ADR 2 cites the table this prints.
"""
import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import lmdb

from angarium.core.storage import DeleteRange, Operation, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore

SIZES_BYTES = (1_000, 64_000, 1_000_000)
KEPT_BYTES = 8_000_000
ROUNDS = 4
RAW_BYTES = 32 << 20
Commit = Callable[[Sequence[Operation]], None]


class PlainLmdb:
    """One transaction for each group, synced: what the store would be without a journal."""

    def __init__(self, path: Path) -> None:
        self._env = lmdb.open(str(path), map_size=1 << 40, max_dbs=16, readahead=False)
        self._databases = {table: self._env.open_db(table.name.encode()) for table in Table}

    def commit(self, operations: Sequence[Operation]) -> None:
        with self._env.begin(write=True) as transaction:
            for operation in operations:
                database = self._databases[operation.table]
                if isinstance(operation, Put):
                    transaction.put(operation.key, operation.value, db=database)
                    continue
                cursor = transaction.cursor(database)
                on_key = cursor.set_range(operation.low)
                while on_key and cursor.key() < operation.high:
                    on_key = cursor.delete()

    def close(self) -> None:
        self._env.close()


class RawFile:
    """The bytes and nothing else."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._place = 0
        for offset in range(0, RAW_BYTES, 1 << 20):
            os.pwrite(self._fd, bytes(1 << 20), offset)
        os.fsync(self._fd)

    def commit(self, operations: Sequence[Operation]) -> None:
        buffers = [operation.value for operation in operations if isinstance(operation, Put)]
        length = -(-sum(map(len, buffers)) // 4096) * 4096
        if self._place + length > RAW_BYTES:
            self._place = 0
        os.pwritev(self._fd, buffers, self._place)
        os.fdatasync(self._fd)
        self._place += length

    def close(self) -> None:
        os.close(self._fd)


class Load:
    def __init__(self, commit: Commit, size_bytes: int, *, steady: bool) -> None:
        self._commit = commit
        self._value = bytes(size_bytes)
        self._steady = steady
        self._end = 0
        self._kept_groups = max(KEPT_BYTES // size_bytes, 1)
        self.latencies_s: list[float] = []

    def run(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while (started := time.perf_counter()) < until:
            self._end += 1
            group: list[Operation] = [
                Put(Table.BATCH, position_key(1, self._end), self._value),
                Put(Table.LOG, key_of(1), self._end.to_bytes(8, "big")),
            ]
            if self._steady and self._end > self._kept_groups:
                group.append(DeleteRange(Table.BATCH, key_of(1), position_key(1, self._end - self._kept_groups)))
            self._commit(group)
            self.latencies_s.append(time.perf_counter() - started)

    def row(self) -> str:
        ordered = sorted(self.latencies_s)
        rate = len(ordered) / sum(ordered)
        p50, p99 = (ordered[int(len(ordered) * part)] * 1e6 for part in (0.5, 0.99))
        return f"{rate:10,.0f} {rate * len(self._value) / 1e6:9.1f} {p50:10,.0f} {p99:10,.0f}"


def compare(directory: Path, size_bytes: int, seconds: float, *, steady: bool) -> None:
    durable = DurableStore.open(directory / "durable")
    plain = PlainLmdb(_made(directory / "plain"))
    raw = RawFile(directory / "raw")
    commits: dict[str, Commit] = {"raw": raw.commit, "journal": durable.commit, "LMDB": plain.commit}
    loads = {name: Load(commit, size_bytes, steady=steady) for name, commit in commits.items()}
    for _ in range(ROUNDS):
        for load in loads.values():
            load.run(seconds / ROUNDS)
    for name, load in loads.items():
        print(f"{'steady' if steady else 'backlog':8} {size_bytes:>9,} {name:8} {load.row()}")
    durable.close()
    plain.close()
    raw.close()
    shutil.rmtree(directory)


def many_small(directory: Path) -> None:
    """What Python costs: groups of 300 small operations, where the sync hardly counts."""
    store = DurableStore.open(directory)
    group: list[Operation] = [Put(Table.SUBSCRIPTION, position_key(1, at), bytes(60)) for at in range(300)]
    store.commit(group)
    processor, wall = time.thread_time(), time.perf_counter()
    for _ in range(200):
        store.commit(group)
    operations = 200 * len(group)
    processor_us = (time.thread_time() - processor) / operations * 1e6
    wall_us = (time.perf_counter() - wall) / operations * 1e6
    print(f"300 operations of 60 bytes a group: {processor_us:.2f} us of processor, {wall_us:.2f} us in all, each")
    store.close()
    shutil.rmtree(directory)


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk to be measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each load and store")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-store-", dir=arguments.directory))
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    print(f"{'load':8} {'bytes':>9} {'store':8} {'commits/s':>10} {'MB/s':>9} {'p50 us':>10} {'p99 us':>10}")
    try:
        for steady in (False, True):
            for size_bytes in SIZES_BYTES:
                compare(work / f"{size_bytes}-{steady}", size_bytes, arguments.seconds, steady=steady)
        many_small(work / "small")
        print(f"load average after: {os.getloadavg()[0]:.2f}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()

"""A disk of dictionaries: it does what the store promises, when the test says so.

Writes wait in order until `complete` takes them; a disk that is `full` takes only those that free. Reads answer from
what is durable. `crash` keeps a prefix of what waits, which nobody is told of: that is all a power cut may do.
"""
from collections import deque

from angarium.core.destination.events import (
    DamagedBatch,
    Read,
    ReadDelayed,
    ReadRows,
    RowsRead,
    StoredBatch,
    Write,
)
from angarium.core.destination.overtaking import overtaking
from angarium.core.destination.restoring import StoredState
from angarium.core.storage import DeleteRange, Operation, Put, Table, key_of, position_key
from angarium.core.stream.events import StoredFile


class FakeDisk:
    def __init__(self) -> None:
        self.tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        self.waiting: deque[Write] = deque()
        self.full = False
        self.damaged: set[bytes] = set()  # keys of batches that fail their checksum
        self.damaged_rows: set[tuple[Table, bytes]] = set()  # of any table: the same
        self.deleted: list[DeleteRange] = []  # every range deletion that was applied, in order
        self.batches_written = 0
        self.stream_files: dict[bytes, StoredFile] = {}  # as they are found at a start

    def complete_next(self) -> Write | None:
        """Make the next write durable that this disk can take."""
        able = overtaking(self.waiting) if self.full else list(self.waiting)
        if not able:
            return None
        self.waiting.remove(able[0])
        self.apply(able[0].operations)
        return able[0]

    def apply(self, operations: list[Operation]) -> None:
        for operation in operations:
            records = self.tables[operation.table]
            if isinstance(operation, Put):
                assert operation.key, "an empty key cannot be stored"
                records[operation.key] = operation.value
                self.batches_written += operation.table == Table.BATCH
            else:
                assert operation.low < operation.high, f"{operation} deletes nothing"
                self.deleted.append(operation)
                for key in self.keys_in(operation):
                    del records[key]

    def keys_in(self, deletion: DeleteRange) -> list[bytes]:
        return [key for key in self.tables[deletion.table] if deletion.low <= key < deletion.high]

    def read(self, read: Read) -> list[StoredBatch | DamagedBatch]:
        """What `Store.scan` returns: batches in order until one reaches `bytes_max`."""
        found: list[StoredBatch | DamagedBatch] = []
        size_bytes = 0
        low, high = position_key(read.destination, read.position + 1), position_key(read.destination, read.end + 1)
        for key, data in sorted(self.tables[Table.BATCH].items()):
            if low <= key < high and size_bytes < read.bytes_max:
                end = int.from_bytes(key[8:], "big")
                found.append(DamagedBatch(end, data) if key in self.damaged else StoredBatch(end, data))
                size_bytes += len(data)
        return found

    def read_delayed(self, read: ReadDelayed) -> list[tuple[bytes, bytes]]:
        prefix = read.destination.to_bytes(8, "big")
        if read.parts:
            return self._read_staged(read)
        return [item for item in sorted(self.tables[Table.DELAYED].items()) if item[0][:8] == prefix]

    def read_rows(self, read: ReadRows) -> RowsRead:
        found: list[tuple[bytes, bytes]] = []
        damaged = 0
        for key, value in sorted(self.tables[read.table].items()):
            if read.low <= key < read.high:
                if (read.table, key) in self.damaged_rows:
                    damaged += 1
                    continue
                found.append((key, value))
                if sum(len(value) for _, value in found) >= read.bytes_max:
                    return RowsRead(read.token, found, key + b"\0", damaged)
        return RowsRead(read.token, found, b"", damaged)

    def _read_staged(self, read: ReadDelayed) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for part in read.parts:
            low = key_of(read.destination, part)
            for item in sorted(item for item in self.tables[Table.STAGED].items() if item[0].startswith(low)):
                found.append((item[0], b"" if item[0] in self.damaged else item[1]))
                if sum(len(data) for _, data in found) >= read.bytes_max:
                    return found
        return found

    def batch_ends(self, destination: int) -> list[int]:
        keys = sorted(self.tables[Table.BATCH])
        return [int.from_bytes(key[8:], "big") for key in keys if key[:8] == destination.to_bytes(8, "big")]

    def records_of(self, destination: int) -> dict[Table, list[bytes]]:
        """Everything stored for a destination, without the record of its existence."""
        prefix = destination.to_bytes(8, "big")
        skipped = (Table.NODE, Table.DESTINATION)
        found = {t: [k for k in keys if k[:8] == prefix] for t, keys in self.tables.items() if t not in skipped}
        return {table: keys for table, keys in found.items() if keys}

    def crash(self, kept: int) -> None:
        for write in list(self.waiting)[:kept]:
            self.apply(write.operations)
        self.waiting.clear()

    def state(self) -> StoredState:
        return StoredState(
            node=dict(self.tables[Table.NODE]),
            destinations=dict(self.tables[Table.DESTINATION]),
            logs=dict(self.tables[Table.LOG]),
            subscriptions=dict(self.tables[Table.SUBSCRIPTION]),
            pages=dict(self.tables[Table.PAGE]),
            producers=dict(self.tables[Table.PRODUCER]),
            attached=dict(self.tables[Table.ATTACHED]),
            streams=dict(self.tables[Table.STREAM]),
            deduplication=dict(self.tables[Table.DEDUPLICATION]),
            last_values=dict(self.tables[Table.LAST_VALUE]),
            stage_parts=dict(self.tables[Table.STAGE_PART]),
            stage_commits=dict(self.tables[Table.STAGE_COMMIT]),
            transactions=dict(self.tables[Table.TRANSACTION]),
            prepared=dict(self.tables[Table.PREPARED]),
            decisions=dict(self.tables[Table.DECISION]),
            moves=dict(self.tables[Table.MOVE]),
            stream_files=dict(self.stream_files),
        )

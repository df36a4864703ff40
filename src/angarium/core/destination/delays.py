"""Messages that are not yet due: kept beside the log, in the order of their times, and moved into it when they are.

    Publish --due later--> DELAYED table, by time --Tick--> ReadDelayed --DelayedRead--> one write: out of the table,
                                                                                          into the log

They get their positions when they are moved, behind what is there. So they cost no memory while they wait, survive
a restart, and expire or are selected as if they had been published when they became due.
"""
from angarium.core.destination.events import Command, DelayedRead, ReadDelayed
from angarium.core.destination.log import LogField, log_put
from angarium.core.destination.pending import PendingDelayed, PendingWrite
from angarium.core.destination.state import DestinationState
from angarium.core.storage import DeleteRange, Operation, Put, Table, key_of
from angarium.core.wire.batch import Batch

READ_BYTES_MAX = 1 << 20


class Delays:
    def __init__(self, state: DestinationState) -> None:
        self._state = state
        self.count = 0
        self.next_ms: int | None = None  # when the next one is due, or earlier
        self._number = 0  # of the last one that was put: keeps keys apart
        self._is_moving = False  # a read, or the write that follows it, is under way

    def restore(self, count: int, wall_ms: int) -> None:
        if count:
            self.count, self.next_ms = count, 0
            self._number = wall_ms << 20  # beyond all that were given out before

    def hold(self, batch: Batch, dues_ms: list[int]) -> list[Operation]:
        """Keep the messages, each until its time."""
        operations: list[Operation] = []
        for due_ms in sorted(set(dues_ms)):
            part = batch.select([index for index, due in enumerate(dues_ms) if due == due_ms])
            self._number += 1
            operations.append(Put(Table.DELAYED, delayed_key(self._state.identity, due_ms, self._number), part.data))
            self.next_ms = due_ms if self.next_ms is None else min(self.next_ms, due_ms)
        self.count += batch.count
        return [*operations, self._figure()]

    def _figure(self) -> Operation:
        return log_put(self._state.identity, LogField.DELAYED, self.count)

    # -- becoming due ------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        if self.next_ms is None or self._is_moving:
            return None
        return self._state.monotonic(self.next_ms)

    def tick(self, now: float) -> list[Command]:
        if self.next_ms is None or self._is_moving or self._state.wall_ms(now) < self.next_ms:
            return []
        self._is_moving = True
        identity = self._state.identity
        return [ReadDelayed(self._state.read_token(PendingDelayed(identity)), identity, READ_BYTES_MAX)]

    def due(self, event: DelayedRead, pending: PendingWrite, *, now: float) -> tuple[list[Batch], list[Operation]]:
        """What of the messages read is due, and what removes it from the table; the caller appends it in the same
        write. What cannot be read any more goes as well."""
        wall_ms = self._state.wall_ms(now)
        times = [int.from_bytes(key[8:16], "big") for key, _ in event.items]
        count = sum(due_ms <= wall_ms for due_ms in times)
        self.next_ms = times[count] if count < len(times) else (0 if count else None)
        self._is_moving = count > 0
        if not count:
            return [], []
        pending.moved = True
        batches = [Batch.trusted(data) for _, data in event.items[:count] if data]
        self.count = max(0, self.count - sum(batch.count for batch in batches)) if self.next_ms is not None else 0
        low, high = event.items[0][0], event.items[count - 1][0] + b"\0"
        return batches, [DeleteRange(Table.DELAYED, low, high), self._figure()]

    def moved(self, now: float) -> list[Command]:
        """What was due is in the log, and no longer in the table: go on with what else there is."""
        self._is_moving = False
        return self.tick(now)


def delayed_key(destination: int, due_ms: int, number: int) -> bytes:
    return key_of(destination, due_ms.to_bytes(8, "big") + number.to_bytes(8, "big"))


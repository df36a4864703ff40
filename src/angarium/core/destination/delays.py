"""Messages that are not yet due: kept beside the log, in the order of their times, and moved into it when they are.

    Publish --due later--> DELAYED table, by time --Tick--> ReadDelayed --DelayedRead--> one write: out of the table,
                                                                                          into the log

Only what is durable is waited for: a read that came before it would not find it, and nobody would look again.
They get their positions when they are moved, behind what is there. So they cost no memory while they wait, survive
a restart, and expire or are selected as if they had been published when they became due.
"""
from collections import deque
from collections.abc import Sequence

from angarium.core.destination.events import Command, DelayedRead, ReadDelayed
from angarium.core.destination.log import LogField, log_put
from angarium.core.destination.pending import PendingDelayed, PendingWrite
from angarium.core.destination.state import DestinationState
from angarium.core.storage import Operation, Put, Table, delete_key, key_of
from angarium.core.wire.batch import Batch

READ_BYTES_MAX = 1 << 20  # and moved at once, or one batch


class Delays:
    def __init__(self, state: DestinationState) -> None:
        self._state = state
        self.count = 0
        self.bytes = 0  # without the content of streams
        self.next_ms: int | None = None  # when the next one is due, or earlier
        self._number = 0  # of the last one that was put: keeps keys apart
        self._is_moving = False  # a read, or the write that follows it, is under way
        # Writes that put something into the table and are under way: how many messages and bytes each.
        self._unwritten: deque[tuple[int, int]] = deque()
        self._noted_ms: int | None = None  # became durable since the last read was asked for: the earliest of them

    def restore(self, count: int, stored_bytes: int, wall_ms: int) -> None:
        if count:
            self.count, self.bytes, self.next_ms = count, stored_bytes, 0
            self._number = wall_ms << 20  # beyond all that were given out before

    def hold(self, batch: Batch, dues_ms: list[int], pending: PendingWrite) -> list[Operation]:
        """Keep the messages, each until its time; once `pending` is written, `held` has to be told."""
        operations: list[Operation] = []
        bytes_before = self.bytes
        by_due: dict[int, list[int]] = {}
        for index, due_ms in enumerate(dues_ms):
            by_due.setdefault(due_ms, []).append(index)
        for due_ms, indices in sorted(by_due.items()):
            part = batch.select(indices)
            self._number += 1
            operations.append(Put(Table.DELAYED, delayed_key(self._state.identity, due_ms, self._number), part.data))
            operations += self._state.streams.hold(self._state.identity, part)
            self.bytes += len(part.data)
        written_before = (0, 0) if pending.held_ms is None else self._unwritten.pop()
        self._unwritten.append((written_before[0] + batch.count, written_before[1] + self.bytes - bytes_before))
        pending.held_ms = _earlier(pending.held_ms, min(dues_ms))
        self.count += batch.count
        return [*operations, self._figure()]

    def held(self, due_ms: int) -> None:
        """Some are durable, the first of them due then."""
        self._unwritten.popleft()  # they are written in order
        self._noted_ms = _earlier(self._noted_ms, due_ms)
        self.next_ms = _earlier(self.next_ms, due_ms)

    def coming(self) -> tuple[int, int]:
        """Messages and bytes that are on their way to the disk."""
        return sum(count for count, _ in self._unwritten), sum(size for _, size in self._unwritten)

    def _figure(self) -> Operation:
        return log_put(self._state.identity, LogField.DELAYED, self.count, total_bytes=self.bytes)

    # -- becoming due ------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        if self.next_ms is None or self._is_moving:
            return None
        return self._state.monotonic(self.next_ms)

    def tick(self, now: float) -> list[Command]:
        if self.next_ms is None or self._is_moving or self._state.wall_ms(now) < self.next_ms:
            return []
        self._is_moving, self._noted_ms = True, None
        identity = self._state.identity
        return [ReadDelayed(self._state.read_token(PendingDelayed(identity)), identity, READ_BYTES_MAX)]

    def due(self, event: DelayedRead, pending: PendingWrite, *, now: float) -> tuple[list[Batch], list[Operation]]:
        """What of the messages read is due, and what removes it from the table; the caller appends it in the same
        write. What cannot be read any more goes as well."""
        wall_ms = self._state.wall_ms(now)
        times = [int.from_bytes(key[8:16], "big") for key, _ in event.items]
        count = _fitting(event.items, sum(due_ms <= wall_ms for due_ms in times))
        is_empty = not count and not times and self._noted_ms is None and not self._unwritten
        self.next_ms = _earlier(times[count] if count < len(times) else (0 if count else None), self._noted_ms)
        self._is_moving = count > 0
        if not count:
            if is_empty:  # what could not be read was not counted
                self.count = self.bytes = 0
            return [], []
        pending.moved = True
        batches = [Batch.trusted(data) for _, data in event.items[:count] if data]
        self.count = max(0, self.count - sum(batch.count for batch in batches))
        self.bytes = max(0, self.bytes - sum(len(batch.data) for batch in batches))
        # Each by itself: what was held since the read may lie between them.
        return batches, [*(delete_key(Table.DELAYED, key) for key, _ in event.items[:count]), self._figure()]

    def moved(self, now: float) -> list[Command]:
        """What was due is in the log, and no longer in the table: go on with what else there is."""
        self._is_moving = False
        return self.tick(now)


def _fitting(items: Sequence[tuple[bytes, bytes]], count: int) -> int:
    """So many of the first are one write. What was read ends with a batch that may be as long as a frame."""
    size_bytes = 0
    for number, (_, data) in enumerate(items[:count]):
        size_bytes += len(data)
        if number and size_bytes > READ_BYTES_MAX:
            return number
    return count


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((ms for ms in (one_ms, other_ms) if ms is not None), default=None)


def delayed_key(destination: int, due_ms: int, number: int) -> bytes:
    return key_of(destination, due_ms.to_bytes(8, "big") + number.to_bytes(8, "big"))


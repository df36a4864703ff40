"""The disk's driver: writes in groups from one thread, reads from another, the event loop never waits.

Writes queue up while the writer thread makes the previous group durable; all that has gathered then forms the next
group. Settlements, which nobody waits for, are patient: alone they wait a moment for company, so that the next publish
does not have to wait for their fdatasync. What is little takes a shorter way, where the store has one: the loop gives
it to the kernel itself, and no thread has to be woken, or wake the loop. A store that cannot write (a full disk) loses
nothing: every write is tried again until it succeeds, in order, except that writes which make room go first, so that
consumers can empty a full disk.

    write --> gathering --+-- little, nothing under way --> the kernel ----------> durable
                          |                                  └─ failed ──┐
                          +-- else ------------------> the writer's thread -----> durable

Reads of what is still in memory are answered at once; the others go to the reader thread. In one turn of the loop
memory answers only so much: an answer leads to deliveries and they to the next read, so that a long backlog would keep
everybody else waiting, and what was delivered could not leave meanwhile. The rest takes turns.
"""
import asyncio
import queue
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from angarium.core.destination.events import (
    BatchesRead,
    DelayedRead,
    Read,
    ReadDelayed,
    StoredBatch,
    Write,
)
from angarium.core.destination.overtaking import overtaking
from angarium.core.errors import Unavailable
from angarium.core.storage import Operation
from angarium.runtime.polling import Polling
from angarium.runtime.reading import read_delayed, read_from_memory, read_from_store
from angarium.runtime.threads import LoopThreads
from angarium.store.interface import NotOver, Overlapped, Store, group_bytes

_TURN_BATCHES_MAX = 128  # from memory, before others may run
_TURN_BYTES_MAX = 1 << 20
_GIVEN_BYTES_MAX = 32 * 1024  # more is encoded in a thread: others should not wait for it
_TURN_S_MAX = 0.02  # the same: a selector of thousands of terms takes milliseconds for a message


@dataclass(frozen=True, slots=True)
class DiskSettings:
    # What one group commit takes at most. More would delay the confirms of those who came first.
    group_bytes_target: int = 4 << 20
    # How long writes that nobody waits for (settlements) may wait for others to share their group.
    patience_s: float = 0.003
    # How often a store that cannot write is tried again.
    retry_after_s: float = 0.25
    # After this much idle time the journal's end is marked, so that damage there can be told from a torn write.
    seal_after_s: float = 0.05


class _Queued(NamedTuple):
    write: Write
    size_bytes: int


class Disk:
    """Callbacks are called on the event loop: written(tokens), read(event), blocked(reason), failed(error).

    `written` comes right after durable(tokens), which may be told before the effects can be read: whoever reads
    through here has them shown before."""

    def __init__(
        self,
        store: Store,
        settings: DiskSettings,
        *,
        written: Callable[[list[int]], None],
        read: Callable[[BatchesRead], None],
        delayed: Callable[[DelayedRead], None],
        blocked: Callable[[str], None],
        failed: Callable[[BaseException], None],
        durable: Callable[[list[int]], None] = lambda tokens: None,
        polling: Polling | None = None,
    ) -> None:
        """`polling` is told of what the kernel was given, if somebody waits for that."""
        self.unwritten_bytes = 0
        self.freeing_bytes = 0  # of those, what makes room
        self._store = store
        self._settings = settings
        self._written, self._read, self._delayed = written, read, delayed
        self._blocked = blocked
        self._failed = failed
        self._durable = durable
        self._polling = polling
        self._threads = LoopThreads(self._broke)
        self._loop = asyncio.get_running_loop()
        self._writes: queue.SimpleQueue[list[_Queued] | None] = queue.SimpleQueue()  # an empty one: seal
        self._in_thread = 0  # writes and seals that the writer has not told the end of
        self._gathering: list[_Queued] = []  # not yet handed over
        self._gathering_bytes = 0
        self._patience: asyncio.TimerHandle | None = None
        self._given: list[_Queued] = []  # to the kernel
        self._unshown: Overlapped | None = None  # has a group that is durable, until its effects can be read
        self._is_awaited = False  # what gathers meanwhile is to be handed over when that is done
        self._descriptor: int | None = None  # of the store, that tells its end
        self._is_sealed = True
        self._sealing: asyncio.TimerHandle | None = None
        self._rested_from = 0.0  # when the last group became durable
        self._reads: queue.SimpleQueue[Read | ReadDelayed | None] = queue.SimpleQueue()
        self._postponed: deque[Read] = deque()  # to a later turn of the loop
        self._turn_batches = self._turn_bytes = 0  # answered since the last turn that was waited for
        self._turn_ends = 0.0
        self._stopping = self._is_closed = False
        self._finished = asyncio.Event()  # while stopping: nothing is unwritten, or nothing more can be written
        self._group_bytes_max = min(settings.group_bytes_target, store.group_bytes_max)
        self._threads.start(self._write_loop, "disk-writer")
        self._threads.start(self._read_loop, "disk-reader")

    # -- on the event loop -----------------------------------------------------------------------------

    def write(self, write: Write) -> None:
        if self._is_closed:
            return  # asked for too late: nobody will hear that it is durable
        size_bytes = group_bytes(write.operations)
        self.unwritten_bytes += size_bytes
        if write.freeing:
            self.freeing_bytes += size_bytes
        self._gathering.append(_Queued(write, size_bytes))
        self._gathering_bytes += size_bytes
        if not write.patient or self._gathering_bytes > self._group_bytes_max or self._stopping:
            self._hand_over()
        elif self._patience is None:
            self._patience = self._loop.call_later(self._settings.patience_s, self._hand_over)

    def _hand_over(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._given:
            self._is_awaited = True
            return
        self._is_awaited = False
        handed, size_bytes, self._gathering, self._gathering_bytes = self._gathering, self._gathering_bytes, [], 0
        if not handed or (size_bytes <= _GIVEN_BYTES_MAX and not self._in_thread and self._give(handed)):
            return
        self._hand_to_thread(handed)

    def _hand_to_thread(self, handed: list[_Queued]) -> None:
        if self._polling is not None:
            self._polling.rest()  # the thread needs the interpreter
        self._in_thread += len(handed) or 1
        self._writes.put(handed)

    def _give(self, handed: list[_Queued]) -> bool:
        """To the kernel. False: it has to be handed to the thread."""
        overlapped = self._store.overlapped
        if overlapped is None:
            return False
        if self._descriptor is None:
            self._descriptor = overlapped.descriptor
            self._loop.add_reader(self._descriptor, self._given_back)
        try:
            is_given = overlapped.start([operation for queued in handed for operation in queued.write.operations])
        except BaseException:  # a broken invariant: the node has to stop, and will not see these written
            self._finished.set()
            raise
        self._given = handed if is_given else []
        if is_given and self._polling is not None and any(not queued.write.patient for queued in handed):
            self._polling.came()
        return is_given

    def _given_back(self) -> None:
        overlapped = self._store.overlapped
        assert overlapped is not None
        given = self._given
        try:
            overlapped.finish()
        except NotOver:
            return
        except Unavailable:
            self._given = []
            self._hand_to_thread(given)
        else:
            self._tell(overlapped, given)
        if self._is_awaited:
            self._hand_over()

    def _tell(self, overlapped: Overlapped, given: list[_Queued]) -> None:
        tokens = [queued.write.token for queued in given]
        self.unwritten_bytes -= sum([queued.size_bytes for queued in given])
        self.freeing_bytes -= sum([queued.size_bytes for queued in given if queued.write.freeing])
        self._unshown = overlapped
        try:
            self._durable(tokens)
            self._show_given()
        except BaseException:  # a broken invariant: the node has to stop, and what is not shown keeps all else away
            self._finished.set()
            raise
        self._given = []
        self._completed(tokens)

    def _show_given(self) -> None:
        if self._unshown is not None:
            overlapped, self._unshown = self._unshown, None
            overlapped.show()

    # -- rest --------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Something has become durable: if nothing more comes, it is sealed."""
        self._is_sealed = False
        self._rested_from = self._loop.time()
        if self._sealing is None:
            self._sealing = self._loop.call_later(self._settings.seal_after_s, self._seal_if_resting)

    def _seal_if_resting(self) -> None:
        left_s = self._rested_from + self._settings.seal_after_s - self._loop.time()
        if left_s > 0 or self._given or self._in_thread:
            self._sealing = self._loop.call_later(max(left_s, self._settings.seal_after_s / 2), self._seal_if_resting)
            return
        self._sealing = None
        self._is_sealed = True
        self._hand_to_thread([])

    def _sealed(self) -> None:
        self._in_thread -= 1

    def read(self, read: Read) -> BatchesRead | None:
        """The answer at once if memory has it and it is somebody's turn; otherwise it comes through the callback."""
        self._show_given()
        if self._postponed or self._is_turn_over():
            if not self._postponed:
                self._loop.call_soon(self._next_turn)
            self._postponed.append(read)
            return None
        return self._read_now(read)

    def _is_turn_over(self) -> bool:
        if not self._turn_batches:
            self._turn_ends = self._loop.time() + _TURN_S_MAX
            return False
        is_full = self._turn_batches >= _TURN_BATCHES_MAX or self._turn_bytes >= _TURN_BYTES_MAX
        return is_full or self._loop.time() >= self._turn_ends

    def _read_now(self, read: Read) -> BatchesRead | None:
        batches = read_from_memory(self._store, read)
        if batches is None:
            self._reads.put(read)
            return None
        self._turn_batches += len(batches)
        self._turn_bytes += sum([len(batch.data) for batch in batches if isinstance(batch, StoredBatch)])
        return BatchesRead(read.token, batches)

    def _next_turn(self) -> None:
        self._turn_batches = self._turn_bytes = 0
        while self._postponed and not self._is_turn_over():
            answer = self._read_now(self._postponed[0])
            if answer is not None:
                self._read(answer)  # what it leads to is postponed as well: the first of them is still there
            self._postponed.popleft()
        if self._postponed:
            self._loop.call_soon(self._next_turn)

    def read_delayed(self, read: ReadDelayed) -> None:
        self._show_given()
        self._reads.put(read)

    async def close(self) -> bool:
        """Finish what is queued, and what is written because of it; False if the store would not take it (its
        producers were never confirmed). What is asked for later is not taken: others go on sending to a copy that
        stops, and would keep it from ending, or have it say that something was lost."""
        self._stopping = True
        self._hand_over()
        if self.unwritten_bytes:
            await self._finished.wait()
        self._is_closed = True
        if self._sealing is not None:
            self._sealing.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
        if not self._is_sealed:
            self._writes.put([])
        self._writes.put(None)
        self._reads.put(None)
        await self._threads.joined()
        return self.unwritten_bytes == 0

    def _completed(self, tokens: list[int]) -> None:
        self._rest()
        self._written(tokens)
        if self._stopping and not self.unwritten_bytes:
            self._is_closed = True
            self._finished.set()

    def _completed_in_thread(self, tokens: list[int], size_bytes: int, freeing_bytes: int) -> None:
        self._in_thread -= len(tokens)
        self.unwritten_bytes -= size_bytes
        self.freeing_bytes -= freeing_bytes
        self._durable(tokens)
        self._completed(tokens)

    def _broke(self, error: BaseException) -> None:
        self._finished.set()
        self._failed(error)

    # -- in the threads --------------------------------------------------------------------------------

    def _write_loop(self) -> None:
        waiting: deque[_Queued] = deque()
        blocked = False
        while True:
            if blocked:
                is_last = self._take(waiting, 0.0 if self._stopping else self._settings.retry_after_s)
            else:
                is_last = self._take(waiting, 0.0 if waiting else None)
            if not waiting:
                if blocked and self._has_room():
                    blocked = False
                    self._threads.call(self._blocked, "")
                if is_last:
                    return
                continue
            try:
                self._commit_waiting(waiting)
                if blocked:
                    blocked = False
                    self._threads.call(self._blocked, "")
            except Unavailable as error:
                if not blocked:
                    blocked = True
                    self._threads.call(self._blocked, str(error))
                self._commit_freeing(waiting)
                if self._stopping:
                    self._threads.call(self._finished.set)
                    return

    def _take(self, waiting: deque[_Queued], timeout_s: float | None) -> bool:
        """Move what has queued up to `waiting`, after waiting for something if a time is given (None: for ever).
        True: nothing will come any more."""
        try:
            taken = self._writes.get(timeout_s != 0.0, timeout_s)
            while taken is not None:
                if taken:
                    waiting += taken
                else:
                    self._seal()
                taken = self._writes.get_nowait()
        except queue.Empty:
            return False
        return True

    def _commit_waiting(self, waiting: deque[_Queued]) -> None:
        """One group: as many writes as fit, in order. They leave `waiting` only once they are durable."""
        operations: list[Operation] = []
        tokens: list[int] = []
        size_bytes = freeing_bytes = 0
        for queued in waiting:
            if tokens and size_bytes + queued.size_bytes > self._group_bytes_max:
                break
            operations += queued.write.operations
            tokens.append(queued.write.token)
            size_bytes += queued.size_bytes
            if queued.write.freeing:
                freeing_bytes += queued.size_bytes
        self._store.commit(operations)
        for _ in tokens:
            waiting.popleft()
        self._threads.call(self._completed_in_thread, tokens, size_bytes, freeing_bytes)

    def _commit_freeing(self, waiting: deque[_Queued]) -> None:
        going = {write.token for write in overtaking(queued.write for queued in waiting)}
        for queued in [queued for queued in waiting if queued.write.token in going]:
            try:
                self._store.commit(queued.write.operations, reserved=True)
            except Unavailable:
                return
            waiting.remove(queued)
            self._threads.call(self._completed_in_thread, [queued.write.token], queued.size_bytes, queued.size_bytes)

    def _has_room(self) -> bool:
        """Nothing waits to be tried: the writes that did have found room in the reserve, and blocked producers send
        none. So ask the store itself."""
        if self._store.blocked_reason is None:
            return True
        self._store.retry()
        return False

    def _seal(self) -> None:
        with suppress(Unavailable):  # the next commit will meet the same trouble and tell
            self._store.seal()
        self._threads.call(self._sealed)

    def _read_loop(self) -> None:
        while (read := self._reads.get()) is not None:
            if isinstance(read, ReadDelayed):
                self._threads.call(self._delayed, read_delayed(self._store, read))
            else:
                self._threads.call(self._read, BatchesRead(read.token, read_from_store(self._store, read)))

"""A disk in virtual time, with the habits of `runtime/disk.py` over the store that is kept in memory.

    write --> waiting --one group at a time--> staged --after the latency--> synced --a little later--> written
                 └── full: those that make room go first, one by one; the rest is tried again

A crash loses what waits; the group that was staged survives as a whole or not at all. Between `synced` and `written`
lies the moment in which everything is durable and nobody knows.
"""
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.destination.events import BatchesRead, DelayedRead, Read, ReadDelayed, Write
from angarium.core.destination.overtaking import overtaking
from angarium.core.errors import Unavailable
from angarium.core.storage import Operation, Table
from angarium.core.wire.batch import Batch
from angarium.runtime.reading import read_delayed, read_from_memory, read_from_store
from angarium.sim.clock import Clock
from angarium.sim.stream_files import SimStreamFiles
from angarium.sim.trace import Trace
from angarium.store.interface import Item, group_bytes
from angarium.store.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class SimDiskSettings:
    sync_s_min: float = 0.0005
    sync_s_max: float = 0.004
    read_s_max: float = 0.002
    tell_s_max: float = 0.0005  # from the disk's threads back to the loop
    patience_s: float = 0.003
    retry_after_s: float = 0.25
    group_bytes_target: int = 16_384
    # Groups after which memory moves to the disk part: few, so that reads have to go there.
    checkpoint_groups: int = 12
    # What each byte of a group adds to its sync.
    byte_s: float = 0.0


class Audience(Protocol):
    """The broker, as its disk sees it."""

    def written(self, tokens: list[int]) -> None: ...

    def read_done(self, event: BatchesRead | DelayedRead) -> None: ...

    def writes_blocked(self, reason: str) -> None: ...


class SimDisk:
    def __init__(
        self, clock: Clock, trace: Trace, chance: Random, settings: SimDiskSettings,
        synced: Callable[[Sequence[Operation]], None], stream_chance: Random | None = None,
    ) -> None:  # fmt: skip
        self.store = MemoryStore(checkpoint_groups=settings.checkpoint_groups)
        self.stream_files = SimStreamFiles(clock, stream_chance or Random("stream files"))
        self.last_token = 0  # of the writes asked for
        self.slowness = 1.0  # how many times longer everything takes
        self.before_sync: Callable[[], None] | None = None  # a fault that waits for the next group
        self.after_sync: Callable[[], None] | None = None
        self._clock = clock
        self._trace = trace
        self._chance = chance
        self._settings = settings
        self._synced = synced
        self._audience: Audience | None = None
        self._start = 0  # counts starts: what was under way before the last crash is void
        self._clear()

    def _clear(self) -> None:
        self._waiting: deque[Write] = deque()
        self._group: list[Write] = []  # staged
        self._unread: dict[int, Read | ReadDelayed] = {}
        self._outbox: deque[Callable[[Audience], None]] = deque()  # what the loop is to be told, in order
        self._is_blocked = False
        self._is_reserved = False  # the group staged may use the reserve
        self._had_patience = False  # has waited for company
        self._is_retrying = False  # waits before it tries again
        self._retries = 0

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._outbox and not self._unread and self.stream_files.is_idle

    def is_unsynced_up_to(self, token: int) -> bool:
        """Whether some write asked for so far, up to this one, is not durable."""
        return any(write.token <= token for write in self._waiting)

    def unsynced(self) -> Iterator[Operation]:
        """Of all writes asked for so far, what is not durable."""
        return (operation for write in self._waiting for operation in write.operations)

    # -- the broker's side ---------------------------------------------------------------------------

    def open(self, audience: Audience) -> MemoryStore:
        self._audience = audience
        return self.store

    def commit_now(self, operations: Sequence[Operation]) -> None:
        """Before anything runs: the identity of a new start."""
        if operations:
            self.store.fail_commits(0)
            self.store.commit(operations, reserved=True)
            self._synced(operations)

    def write(self, write: Write) -> None:
        self.last_token = write.token
        self._waiting.append(write)
        self._retry() if self._is_retrying else self._begin()

    def read(self, read: Read) -> BatchesRead | None:
        batches = read_from_memory(self.store, read)
        if batches is not None:
            return BatchesRead(read.token, batches)
        self._unread[read.token] = read
        # The reader looks at once, or when it gets round to it: both are allowed.
        early = read_from_store(self.store, read) if self._chance.random() < 0.5 else None
        event = None if early is None else BatchesRead(read.token, early)
        self._later(self._chance.random() * self._settings.read_s_max * self.slowness, partial(self._read, read, event))
        return None

    def _read(self, read: Read, event: BatchesRead | None) -> None:
        del self._unread[read.token]
        answer = event or BatchesRead(read.token, read_from_store(self.store, read))
        assert self._audience is not None
        self._audience.read_done(answer)

    def read_delayed(self, read: ReadDelayed) -> None:
        self._unread[read.token] = read
        delay_s = self._chance.random() * self._settings.read_s_max * self.slowness
        self._later(delay_s, partial(self._read_delayed, read))

    def _read_delayed(self, read: ReadDelayed) -> None:
        del self._unread[read.token]
        assert self._audience is not None
        self._audience.read_done(read_delayed(self.store, read))

    # -- groups --------------------------------------------------------------------------------------

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        start = self._start

        def unless_crashed() -> None:
            if start == self._start:
                action()

        self._clock.after(delay_s, unless_crashed)

    def _begin(self) -> None:
        """Stage the next group, if none is under way."""
        if self._group or not self._waiting or self._is_retrying:
            return
        if not self._had_patience and not self._is_blocked and all(write.patient for write in self._waiting):
            self._had_patience = True
            self._later(self._settings.patience_s, self._begin)
            return
        self._had_patience = False
        group: list[Write] = []
        size_bytes = 0
        for write in self._waiting:
            size_bytes += group_bytes(write.operations)
            if group and size_bytes > self._settings.group_bytes_target:
                break
            group.append(write)
        if not self._stage(group):
            self._set_blocked(self.store.blocked_reason or "the disk is full")
            self._begin_freeing()

    def _begin_freeing(self) -> None:
        first = next(iter(overtaking(self._waiting)), None)
        if first is not None and self._stage([first], reserved=True):
            return
        self._is_retrying = True
        self._retries += 1
        self._later(self._settings.retry_after_s, partial(self._retry_if, self._retries))

    def _retry_if(self, number: int) -> None:
        if self._is_retrying and number == self._retries:
            self._retry()

    def _retry(self) -> None:
        self._is_retrying = False
        self._begin()

    def _stage(self, group: list[Write], *, reserved: bool = False) -> bool:
        operations = [operation for write in group for operation in write.operations]
        try:
            self.store.stage(operations, reserved=reserved)
        except Unavailable:
            return False
        self._group = group
        self._is_reserved = reserved
        settings = self._settings
        sync_s = self._chance.uniform(settings.sync_s_min, settings.sync_s_max)
        if settings.byte_s:
            sync_s += settings.byte_s * group_bytes(operations)
        self._later(sync_s * self.slowness, self._sync)
        return True

    def _sync(self) -> None:
        start = self._start
        if self.before_sync is not None:
            fault, self.before_sync = self.before_sync, None
            fault()
        if start != self._start:
            return
        self.store.sync()
        group, self._group = self._group, []
        for write in group:
            self._waiting.remove(write)
            self._synced(write.operations)
        tokens = [write.token for write in group]
        self._trace.mix(1, b"".join(token.to_bytes(8, "big") for token in tokens))
        if self._trace.is_read:
            self._trace.say("disk", f"synced {tokens}")
        self._tell(lambda audience: audience.written(tokens))
        if not self._is_reserved:
            self._set_blocked("")
        if self.after_sync is not None:
            fault, self.after_sync = self.after_sync, None
            fault()
        if start != self._start:
            return
        if self._is_blocked and overtaking(self._waiting):
            self._begin_freeing()
        elif self._is_blocked and not self._waiting:
            self._later(self._settings.retry_after_s, self._look_for_room)
        else:
            self._begin()

    def _look_for_room(self) -> None:
        """All that waited has found room in the reserve, and who was told to wait sends nothing to be tried."""
        if self._waiting or not self._is_blocked:
            return
        if self.store.blocked_reason is None:
            self._set_blocked("")
        else:
            self.store.retry()
            self._later(self._settings.retry_after_s, self._look_for_room)

    def _set_blocked(self, reason: str) -> None:
        if bool(reason) != self._is_blocked:
            self._is_blocked = bool(reason)
            self._trace.note("disk", f"blocked: {reason}" if reason else "unblocked")
            self._tell(lambda audience: audience.writes_blocked(reason))

    def _tell(self, message: Callable[[Audience], None]) -> None:
        self._outbox.append(message)
        self._later(self._chance.random() * self._settings.tell_s_max, self._deliver)

    def _deliver(self) -> None:
        assert self._audience is not None
        self._outbox.popleft()(self._audience)

    # -- faults --------------------------------------------------------------------------------------

    def crash(self, *, keeps_staged: bool) -> None:
        """The broker's process is gone, or the power. `keeps_staged`: the group under way had reached the disk."""
        self._start += 1
        survivors = self._group if keeps_staged else []
        self.store = self.store.crash(keep_groups=1 if keeps_staged else 0)
        for write in survivors:
            self._synced(write.operations)
        self.stream_files.crash()
        self._clear()
        self._audience = None

    def shut_down(self) -> None:
        """A clean stop: what waits is written first, if the disk takes it."""
        self.finish()
        self.store = self.store.reopen()
        self.stream_files.crash()  # what it was not told to be synced nobody relies on
        self._audience = None

    def finish(self) -> None:
        """What waits is written, if the disk takes it; whoever still reads the store may go on."""
        self._start += 1
        if self._group:
            self.store.sync()
        for write in self._group:  # perhaps one that frees, and has overtaken what a full disk does not take
            self._synced(write.operations)
        for write in self._waiting:
            if write not in self._group:
                try:
                    self.store.commit(write.operations)
                except Unavailable:
                    break
                self._synced(write.operations)
        self._clear()

    def fill(self, full: bool) -> None:
        self.store.full_reason = "no space left on device" if full else None
        self.stream_files.is_full = full

    def fail_next(self, count: int) -> None:
        self.store.fail_commits(count)

    def damage(self, key: bytes) -> int:
        """Spoil a stored batch; how many messages it had."""
        value = self.store.get(Table.BATCH, key)
        assert value is not None
        self.store.damage(Table.BATCH, key)
        return Batch.trusted(value).count

    def sound_batches(self) -> list[bytes]:
        """The keys of the stored batches that can be read."""
        items = self.store.scan(Table.BATCH, b"", b"\xff" * 17, limit=10_000)
        return [item.key for item in items if isinstance(item, Item)]

"""A store that a test holds back, refuses and lets go; and the disk's driver on it, with everything that it says."""
import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from angarium.core.destination.events import BatchesRead, DelayedRead, Write
from angarium.core.errors import Unavailable
from angarium.core.storage import Operation, Put, Table
from angarium.runtime.disk import Disk, DiskSettings
from angarium.runtime.polling import Polling
from angarium.store.interface import Damaged, Item, Overlapped, RecoveryReport, StoreStatistics

_T = TypeVar("_T")
WAIT_S_MAX = 20.0
QUICK = DiskSettings(patience_s=0.0, retry_after_s=0.001, seal_after_s=0.001)


class HeldStore:
    """Commits when it may: each needs a permit, and is refused while `full` or `failing` says so."""

    def __init__(self, *, group_bytes_max: int = 1 << 20) -> None:
        self.recovery = RecoveryReport()
        self.overlapped: Overlapped | None = None
        self.group_bytes_max = group_bytes_max
        self.reserve_bytes = group_bytes_max // 7
        self.groups: list[list[int]] = []  # tokens of each durable group, in order
        self.refusals = 0
        self.seals = 0
        self.full = False  # takes only what is reserved
        self.failing: BaseException | None = None
        self.permits = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)  # one for each commit that waits for its permit
        self.sealed = threading.Event()
        self.free_running = threading.Event()  # no permits needed

    def let_go(self) -> None:
        self.free_running.set()
        self.permits.release()

    def heal(self) -> None:
        """Whatever was held back or refused is no longer."""
        self.full, self.failing = False, None
        for _ in range(1_000):
            self.permits.release()

    def commit(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
        if not self.free_running.is_set():
            self.entered.release()
            self.permits.acquire()
        if self.failing is not None:
            self.refusals += 1
            raise self.failing
        if self.full and not reserved:
            self.refusals += 1
            raise Unavailable("no space left")
        self.groups.append([token_of(operation) for operation in operations])

    def seal(self) -> None:
        self.seals += 1
        self.sealed.set()

    @property
    def blocked_reason(self) -> str | None:
        return "no space left" if self.full else str(self.failing) if self.failing is not None else None

    @property
    def tokens(self) -> list[int]:
        return [token for group in self.groups for token in group]

    # What the driver does not need here.

    def get(self, table: Table, key: bytes) -> bytes | None:
        return None

    def first_at_or_after(self, table: Table, low: bytes, high: bytes) -> Item | Damaged | None:
        return None

    def peek_memory(self, table: Table, low: bytes, high: bytes) -> Item | None:
        return None

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int = 1 << 20
    ) -> list[Item | Damaged]:
        if self.failing is not None:
            raise self.failing
        return []

    def rows(self, table: Table) -> int:
        return 0

    def retry(self) -> None: ...

    def statistics(self) -> StoreStatistics:
        return StoreStatistics()

    def room_bytes(self) -> int:
        return 1 << 40

    def make_room(self) -> None: ...

    def close(self) -> None: ...


class HeldOverlapped:
    """What is given to it is under way until the test says that it is over."""

    def __init__(self, store: "GivingStore") -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.under_way: list[int] = []  # tokens, from `start` to `show` or to the failure
        self.is_refusing = False  # each has to be committed
        self.is_impossible = False  # the same for good, as the store finds out when it is asked
        self.failing: BaseException | None = None  # in `finish`
        self.broken: BaseException | None = None  # in `start`
        self.is_held = True  # else all is over at once
        self._store = store

    def over(self) -> None:
        os.eventfd_write(self.descriptor, 1)

    def start(self, operations: Sequence[Operation]) -> bool:
        tokens = [token_of(operation) for operation in operations]
        assert not self.under_way, "one at a time"
        if self.broken is not None:
            raise self.broken
        if self.is_impossible:
            self._store.overlapped = None
        if self.is_refusing or self.is_impossible:
            return False
        self._store.note("start", tokens)
        self.under_way = tokens
        if not self.is_held:
            self.over()
        return True

    def finish(self) -> None:
        os.eventfd_read(self.descriptor)
        if self.failing is not None:
            self._store.note("fail", self.under_way)
            self.under_way = []
            raise self.failing
        self._store.note("finish", self.under_way)

    def show(self) -> None:
        self._store.note("show", self.under_way)
        self._store.groups.append(self.under_way)
        self.under_way = []


class GivingStore(HeldStore):
    """Has a shorter way for what is little, and a diary of both."""

    def __init__(self, *, group_bytes_max: int = 1 << 20) -> None:
        super().__init__(group_bytes_max=group_bytes_max)
        self.kernel = HeldOverlapped(self)
        self.overlapped = self.kernel
        self.diary: list[str] = []
        self.collisions: list[str] = []  # what came between a start and its show

    def note(self, what: str, tokens: Sequence[int] = ()) -> None:
        self.diary.append(" ".join([what, *map(str, tokens)]))

    def groups_by(self, what: str) -> list[str]:
        return [entry.removeprefix(f"{what} ") for entry in self.diary if entry.startswith(f"{what} ")]

    def heal(self) -> None:
        self.kernel.failing = None
        self.kernel.is_held = False
        if self.kernel.under_way:
            self.kernel.over()
        super().heal()

    def commit(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
        if self.kernel.under_way:
            self.collisions.append("commit")
        super().commit(operations, reserved=reserved)
        self.note("commit", self.groups[-1])

    def seal(self) -> None:
        if self.kernel.under_way:
            self.collisions.append("seal")
        self.note("seal")
        super().seal()

    def close(self) -> None:
        os.close(self.kernel.descriptor)


def write(token: int, *, freeing: bool = False, patient: bool = False, size_bytes: int = 10) -> Write:
    put = Put(Table.NODE, token.to_bytes(4, "big"), bytes(size_bytes))
    return Write(token, [put], freeing, patient)


def token_of(operation: Operation) -> int:
    assert isinstance(operation, Put)
    return int.from_bytes(operation.key, "big")


class Driver:
    """A Disk on a running loop, and everything it has said."""

    def __init__(self, store: HeldStore, settings: DiskSettings, polling: Polling | None = None) -> None:
        self.store = store
        self.written: list[int] = []
        self.calls: list[list[int]] = []
        self.durable: list[int] = []
        self.blocked: list[str] = []
        self.read: list[BatchesRead] = []
        self.delayed: list[DelayedRead] = []
        self.failures: list[BaseException] = []
        self.on_written: Callable[[list[int]], None] = lambda tokens: None
        self.on_durable: Callable[[list[int]], None] = lambda tokens: None
        self._changed = asyncio.Event()
        self.disk = Disk(
            store, settings, durable=self._durable, written=self._written, read=self._noted(self.read.append),
            delayed=self._noted(self.delayed.append),
            blocked=self._noted(self.blocked.append), failed=self._noted(self.failures.append), polling=polling,
        )  # fmt: skip

    def _noted(self, note: Callable[[_T], None]) -> Callable[[_T], None]:
        def call(value: _T) -> None:
            note(value)
            self._changed.set()

        return call

    def _durable(self, tokens: list[int]) -> None:
        assert self.written == self.durable, "what is durable is told to be written before anything else is"
        self.durable += tokens
        self.on_durable(tokens)

    def _written(self, tokens: list[int]) -> None:
        self.calls.append(tokens)
        self.written += tokens
        self.on_written(tokens)
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for callbacks, never for time."""
        while not reached():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), WAIT_S_MAX)

    async def entered(self) -> None:
        """Until a commit waits for its permit."""
        assert await asyncio.to_thread(self.store.entered.acquire, True, WAIT_S_MAX)

    async def close(self) -> bool:
        return await asyncio.wait_for(self.disk.close(), WAIT_S_MAX)


def drive(
    script: Callable[[Driver], Awaitable[None]],
    store: HeldStore,
    settings: DiskSettings = QUICK,
    polling: Callable[[], Polling] | None = None,
) -> None:
    async def main() -> None:
        driver = Driver(store, settings, None if polling is None else polling())
        try:
            await script(driver)
        finally:
            store.heal()
            await driver.close()
            store.close()

    asyncio.run(main())


# -- with a kernel that may be given something -----------------------------------------------------------------

CALM = DiskSettings(patience_s=600.0, retry_after_s=0.001, seal_after_s=600.0)
LARGE_BYTES = 32 * 1024


def drive_giving(script: Callable[[Driver, GivingStore], Awaitable[None]], settings: DiskSettings = CALM) -> None:
    store = GivingStore()
    drive(lambda driver: script(driver, store), store, settings)
    assert store.collisions == []


async def timers_of(seconds: float) -> None:
    """Until every timer has fired that was due by then."""
    fired = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, fired.set)
    await fired.wait()

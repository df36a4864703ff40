"""Goal: of each little group that somebody waits for, whoever waits awake is told, and rests while a thread has work;
and whoever reads when he is told that something is durable finds it, although it is shown only afterwards to others.
Method: a store that keeps a diary, whose kernel is done when the test says so, and which can be read."""
from collections.abc import Awaitable, Callable, Sequence

import pytest

from angarium.core.destination.events import BatchesRead, Read, ReadDelayed, StoredBatch, Write
from angarium.core.storage import Operation, Put, Table, key_of, position_key
from angarium.core.wire.packing import pack
from angarium.runtime.polling import Polling
from angarium.store.interface import Damaged, Item, group_bytes
from angarium.store.memory import MemoryStore
from tests.unit.node.disk_driver import (
    CALM,
    LARGE_BYTES,
    Driver,
    GivingStore,
    HeldOverlapped,
    drive,
    drive_giving,
    write,
)

# -- who waits awake -------------------------------------------------------------------------------------------------


class Told(Polling):
    """Never awake; counts what it is told."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.count = self.rests = 0

    def came(self) -> None:
        self.count += 1

    def rest(self) -> None:
        self.rests += 1


def drive_told(script: Callable[[Driver, GivingStore, Told], Awaitable[None]]) -> None:
    store, made = GivingStore(), list[Told]()

    def polling() -> Told:
        made.append(Told())
        return made[-1]

    drive(lambda driver: script(driver, store, made[-1]), store, CALM, polling)


def of_bytes(token: int, size_bytes: int) -> Write:
    """A write that weighs exactly that much."""
    return write(token, size_bytes=size_bytes - group_bytes(write(token, size_bytes=0).operations))


def test_of_each_little_group_that_somebody_waits_for_he_is_told_once() -> None:
    async def script(driver: Driver, store: GivingStore, told: Told) -> None:
        for token in (1, 2, 3):
            driver.disk.write(write(token))
            assert told.count == 1, "those that gather behind another are not under way"
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        assert told.count == 2, "two in one"
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        assert told.count == 2, "that it is written is nothing new"
        assert told.rests == 0

    drive_told(script)


def test_of_patient_writes_he_is_not_told() -> None:
    async def script(driver: Driver, store: GivingStore, told: Told) -> None:
        driver.disk.write(write(1, patient=True))
        driver.disk.write(write(2, patient=True, freeing=True))
        assert told.count == 0
        driver.disk.write(write(3, freeing=True))
        assert told.count == 1
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        assert told.count == 1, "not of those that went with it"

    drive_told(script)


@pytest.mark.parametrize(("size_bytes", "count"), [(LARGE_BYTES, 1), (LARGE_BYTES + 1, 0), (10 * LARGE_BYTES, 0)])
def test_of_large_writes_he_is_not_told(size_bytes: int, count: int) -> None:
    async def script(driver: Driver, store: GivingStore, told: Told) -> None:
        store.let_go()
        store.kernel.is_held = False
        driver.disk.write(of_bytes(1, size_bytes))
        assert (told.count, told.rests) == (count, 1 - count)
        await driver.until(lambda: driver.written == [1])
        assert bool(store.groups_by("start")) == bool(count), "just of those that are given to the kernel"

    drive_told(script)


def test_he_rests_while_the_thread_has_work() -> None:
    """It needs the interpreter, which whoever waits awake keeps."""

    async def script(driver: Driver, store: GivingStore, told: Told) -> None:
        store.let_go()
        store.kernel.is_refusing = True
        driver.disk.write(write(1))
        assert (told.count, told.rests) == (0, 1)
        await driver.until(lambda: driver.written == [1])
        assert store.groups_by("commit") == ["1"]

    drive_told(script)


def test_of_what_comes_too_late_he_is_not_told() -> None:
    async def script(driver: Driver, store: GivingStore, told: Told) -> None:
        assert await driver.close()
        driver.disk.write(write(1))
        assert told.count == 0

    drive_told(script)


def test_nobody_has_to_wait_awake() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])

    drive_giving(script)


# -- who reads at once -----------------------------------------------------------------------------------------------


class ShowingOverlapped(HeldOverlapped):
    """What is given to it can be read once it is shown."""

    def __init__(self, store: "ReadableStore") -> None:
        super().__init__(store)
        self._readable = store
        self._operations: list[Operation] = []

    def start(self, operations: Sequence[Operation]) -> bool:
        self._operations = list(operations)
        return super().start(operations)

    def show(self) -> None:
        super().show()
        self._readable.rows_of.commit(self._operations)
        if self._readable.is_moved_out:
            self._readable.rows_of.checkpoint()


class ReadableStore(GivingStore):
    def __init__(self, *, is_moved_out: bool = False) -> None:
        super().__init__()
        self.close()
        self.overlapped = self.kernel = ShowingOverlapped(self)
        self.rows_of = MemoryStore()
        self.is_moved_out = is_moved_out  # whatever is shown is not in memory any more

    def peek_memory(self, table: Table, low: bytes, high: bytes) -> Item | None:
        return self.rows_of.peek_memory(table, low, high)

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int = 1 << 20
    ) -> list[Item | Damaged]:
        return self.rows_of.scan(table, low, high, limit, bytes_max)


def message(number: int) -> bytes:
    return pack(b"p" * 16, number, 0, [b"m%d" % number])


def publish(number: int) -> Write:
    """The message at the position before that number, of destination 0: then the key says the token."""
    return Write(number, [Put(Table.BATCH, position_key(0, number), message(number))])


def delay(number: int) -> Write:
    return Write(number, [Put(Table.DELAYED, key_of(0, position_key(0, number)[8:]), message(number))])


def read_upto(end: int) -> Read:
    return Read(70 + end, 0, 0, 1 << 20, end)


def found_upto(end: int) -> BatchesRead:
    return BatchesRead(70 + end, [StoredBatch(number, message(number)) for number in range(1, end + 1)])


def drive_reading(script: Callable[[Driver, ReadableStore], Awaitable[None]], *, is_moved_out: bool = False) -> None:
    store = ReadableStore(is_moved_out=is_moved_out)
    drive(lambda driver: script(driver, store), store, CALM)
    assert store.collisions == []


def test_who_reads_when_it_is_durable_finds_it() -> None:
    async def script(driver: Driver, store: ReadableStore) -> None:
        answers: list[BatchesRead | None] = []

        def read_all(tokens: list[int]) -> None:
            store.note("durable", tokens)
            answers.append(driver.disk.read(read_upto(tokens[-1])))
            store.note("told", tokens)

        driver.on_durable = read_all
        driver.on_written = lambda tokens: store.note("written", tokens)
        for number in (1, 2):
            store.diary.clear()
            driver.disk.write(publish(number))
            store.kernel.over()
            await driver.until(lambda: not driver.disk.unwritten_bytes)
            steps = ["start", "finish", "durable", "show", "told", "written"]
            assert store.diary == [f"{step} {number}" for step in steps], "shown once"
        assert answers == [found_upto(1), found_upto(2)]

    drive_reading(script)


def test_all_of_a_group_is_found_by_whoever_reads_first_and_by_the_next() -> None:
    async def script(driver: Driver, store: ReadableStore) -> None:
        answers: list[BatchesRead | None] = []

        def read_twice(tokens: list[int]) -> None:
            answers.extend(driver.disk.read(read_upto(tokens[-1])) for _ in range(2))

        driver.disk.write(publish(1))
        driver.disk.write(publish(2))
        driver.disk.write(publish(3))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        driver.on_durable = read_twice
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        assert answers == [found_upto(3), found_upto(3)]
        assert store.groups_by("show") == ["1", "2 3"]

    drive_reading(script)


def test_who_has_to_be_answered_by_the_thread_finds_it_as_well() -> None:
    async def script(driver: Driver, store: ReadableStore) -> None:
        answers: list[BatchesRead | None] = []
        driver.on_durable = lambda tokens: answers.append(driver.disk.read(read_upto(1)))
        driver.disk.write(publish(1))
        store.kernel.over()
        await driver.until(lambda: bool(driver.read))
        assert answers == [None]
        assert driver.read == [found_upto(1)]

    drive_reading(script, is_moved_out=True)


def test_who_reads_what_is_kept_beside_the_log_finds_it() -> None:
    async def script(driver: Driver, store: ReadableStore) -> None:
        def read_beside(tokens: list[int]) -> None:
            driver.disk.read_delayed(ReadDelayed(5, 0, 1 << 20))
            assert store.diary[-1] == "show 1", "before the thread can look"

        driver.on_durable = read_beside
        driver.disk.write(delay(1))
        store.kernel.over()
        await driver.until(lambda: bool(driver.delayed))
        assert [value for _, value in driver.delayed[0].items] == [message(1)]

    drive_reading(script)


def test_what_is_not_durable_yet_is_shown_to_nobody() -> None:
    async def script(driver: Driver, store: ReadableStore) -> None:
        driver.disk.write(publish(1))
        assert driver.disk.read(read_upto(1)) is None
        driver.disk.read_delayed(ReadDelayed(5, 0, 1 << 20))
        await driver.until(lambda: bool(driver.read and driver.delayed))
        assert driver.read == [BatchesRead(71, [])]
        assert store.diary == ["start 1"]
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        assert driver.disk.read(read_upto(1)) == found_upto(1)
        assert store.groups_by("show") == ["1"]

    drive_reading(script)


def test_what_was_read_leads_to_the_next_write_behind_the_group() -> None:
    """The kernel has one at a time, and what was shown early is not over yet."""

    async def script(driver: Driver, store: ReadableStore) -> None:
        def read_and_write(tokens: list[int]) -> None:
            if tokens == [1]:
                assert driver.disk.read(read_upto(1)) == found_upto(1)
                driver.disk.write(publish(2))
                store.note("asked", [2])

        driver.on_durable = read_and_write
        driver.on_written = lambda tokens: store.note("written", tokens)
        driver.disk.write(publish(1))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        store.kernel.over()
        await driver.until(lambda: driver.written == [1, 2])
        assert store.diary[2:6] == ["show 1", "asked 2", "written 1", "start 2"]

    drive_reading(script)

"""Goal: a read gives the batches from the wanted position on, the same from memory and from disk, and never waits for a
commit.
Method: the simulator's store with some batches moved out of memory; a store whose commits the test holds back."""
import asyncio

import pytest

from angarium.core.destination.events import BatchesRead, DamagedBatch, Read, StoredBatch
from angarium.core.errors import LocalProtocolError
from angarium.core.storage import Put, Table, position_key
from angarium.core.wire.packing import pack
from angarium.runtime.reading import read_from_memory, read_from_store
from angarium.store.interface import Item
from angarium.store.memory import MemoryStore
from tests.unit.node.disk_driver import Driver, HeldStore, drive, write


def batch(first: int, count: int) -> bytes:
    return pack(b"p" * 16, first + 1, 0, [b"m%d" % number for number in range(first, first + count)])


def store_with(*counts: int, on_disk: int = 0) -> MemoryStore:
    """Batches of so many messages for destination 1, the first few no longer in memory."""
    store = MemoryStore()
    end = 0
    for at, count in enumerate(counts):
        if at == on_disk:
            store.checkpoint()
        end += count
        store.commit([Put(Table.BATCH, position_key(1, end), batch(end - count, count))])
    if on_disk >= len(counts):
        store.checkpoint()
    return store


def ends(batches: list[StoredBatch | DamagedBatch] | None) -> list[int] | None:
    return None if batches is None else [item.end for item in batches]


@pytest.mark.parametrize("position", range(9))
def test_memory_and_disk_answer_alike(position: int) -> None:
    """From the batch that holds the position, wherever in the batch that is."""
    read = Read(1, 1, position, 1 << 20, 9)
    expected = [end for end in (2, 5, 9) if end > position]
    assert ends(read_from_memory(store_with(2, 3, 4), read)) == expected
    assert ends(read_from_store(store_with(2, 3, 4), read)) == expected
    assert ends(read_from_store(store_with(2, 3, 4, on_disk=3), read)) == expected


@pytest.mark.parametrize(
    ("on_disk", "position", "expected"), [(1, 0, None), (1, 2, [5, 9]), (2, 3, None), (3, 8, None)]
)
def test_memory_does_not_answer_when_an_older_batch_is_on_disk(
    on_disk: int, position: int, expected: list[int] | None
) -> None:
    assert ends(read_from_memory(store_with(2, 3, 4, on_disk=on_disk), Read(1, 1, position, 1 << 20, 9))) == expected


def test_a_read_stops_after_the_batch_that_reaches_its_bytes_and_before_its_end() -> None:
    store = store_with(2, 3, 4)
    for answer in (read_from_memory, read_from_store):
        assert ends(answer(store, Read(1, 1, 0, 1, 9))) == [2]
        assert ends(answer(store, Read(1, 1, 0, len(batch(0, 2)) + 1, 9))) == [2, 5]
        assert ends(answer(store, Read(1, 1, 0, 1 << 20, 5))) == [2, 5], "never at or beyond the end"


def test_other_destinations_are_not_read() -> None:
    store = store_with(2)
    store.commit([Put(Table.BATCH, position_key(2, 1), batch(0, 1)), Put(Table.BATCH, position_key(0, 9), batch(0, 1))])
    assert ends(read_from_store(store, Read(1, 1, 0, 1 << 20, 100))) == [2]
    assert ends(read_from_memory(store, Read(1, 1, 0, 1 << 20, 100))) == [2]
    assert read_from_memory(store, Read(1, 3, 0, 1 << 20, 100)) is None


def test_damage_is_told_with_the_bytes_that_were_found() -> None:
    store = store_with(2, 3, 4)
    store.damage(Table.BATCH, position_key(1, 5))
    first, second, third = read_from_store(store, Read(1, 1, 0, 1 << 20, 9))
    assert isinstance(first, StoredBatch) and isinstance(third, StoredBatch)
    assert isinstance(second, DamagedBatch)
    assert second.end == 5
    assert second.raw != batch(2, 3) and len(second.raw) == len(batch(2, 3))


def test_what_memory_cannot_answer_is_answered_from_the_thread() -> None:
    async def script(driver: Driver) -> None:
        assert driver.disk.read(Read(7, 1, 0, 100, 10)) is None
        await driver.until(lambda: bool(driver.read))
        assert driver.read == [BatchesRead(7, [])]

    drive(script, HeldStore())


def test_reads_go_on_while_a_commit_is_held_up() -> None:
    async def script(driver: Driver) -> None:
        driver.disk.write(write(1))
        await driver.entered()
        driver.disk.read(Read(7, 1, 0, 100, 10))
        await driver.until(lambda: bool(driver.read))
        assert driver.written == []

    drive(script, HeldStore())


def test_a_read_that_breaks_stops_the_node_loudly() -> None:
    async def script(driver: Driver) -> None:
        driver.store.failing = LocalProtocolError("closed")
        driver.disk.read(Read(7, 1, 0, 100, 10))
        await driver.until(lambda: bool(driver.failures))

    drive(script, HeldStore())


def backlog_of(count: int) -> MemoryStore:
    """So many batches of one message, all in memory."""
    store = MemoryStore()
    store.commit([Put(Table.BATCH, position_key(1, end), batch(end - 1, 1)) for end in range(1, count + 1)])
    return store


@pytest.mark.parametrize("is_in_memory", [True, False], ids=["memory", "disk"])
def test_one_read_gives_a_bounded_number_of_batches(is_in_memory: bool) -> None:
    store = backlog_of(500)
    if not is_in_memory:
        store.checkpoint()
    batches = read_from_store(store, Read(1, 1, 10, 1 << 20, 500))
    assert ends(batches) == list(range(11, 139))
    assert read_from_memory(store, Read(1, 1, 10, 1 << 20, 500)) == (batches if is_in_memory else None)


def test_a_long_backlog_in_memory_takes_turns_with_everything_else() -> None:
    """Each answer leads to the next read, as delivering does; others must run in between."""

    class Backlog(HeldStore):
        def peek_memory(self, table: Table, low: bytes, high: bytes) -> Item | None:
            return kept.peek_memory(table, low, high)

    kept = backlog_of(5_120)

    async def script(driver: Driver) -> None:
        loop, turns, positions = asyncio.get_running_loop(), 0, {1: 0, 2: 2_560}
        finished = loop.create_future()

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        def ask(token: int) -> None:
            while positions[token] < 5_120:
                answer = driver.disk.read(Read(token, 1, positions[token], 1 << 20, 5_120))
                if answer is None:
                    return
                positions[token] += len(answer.batches)

        def answered(event: BatchesRead) -> None:
            assert len(event.batches) <= 128
            positions[event.token] += len(event.batches)
            gained.append((turns, event.token))
            ask(event.token)
            if positions == {1: 5_120, 2: 5_120}:
                finished.set_result(None)

        gained: list[tuple[int, int]] = []
        driver.disk._read = answered
        turn()
        ask(1)
        assert positions[1] == 128, "the first answer comes at once, the next in a later turn"
        ask(2)
        await asyncio.wait_for(finished, 20)
        numbers = [number for number, _ in gained]
        assert len(set(numbers)) == len(numbers), "one answer of this length in a turn"
        assert [token for _, token in gained[:6]] in ([1, 2] * 3, [2, 1] * 3), "readers take turns"

    drive(script, Backlog())

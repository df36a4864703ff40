"""Goal: what is little is given to the kernel by the event loop itself; nobody can tell from the order, from what is
told and from what is sealed which way a write went, and nothing else touches the store meanwhile.
Method: a store that keeps a diary, and whose kernel is done when the test says so. No test waits for time to pass."""
import asyncio
from random import Random

import pytest

from angarium.core.errors import Unavailable
from angarium.runtime.disk import DiskSettings
from angarium.store.interface import group_bytes
from tests.unit.node.disk_driver import (
    LARGE_BYTES,
    Driver,
    GivingStore,
    drive_giving,
    timers_of,
    write,
)

# -- which way -------------------------------------------------------------------------------------------------------


def test_what_is_little_is_given_to_the_kernel_and_not_to_the_thread() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        for token in (1, 2, 3):
            driver.disk.write(write(token))
            assert store.diary[-1] == f"start {token}", "at once"
            assert token not in driver.written
            store.kernel.over()
            await driver.until(lambda: not driver.disk.unwritten_bytes)
        assert store.groups_by("commit") == []

    drive_giving(script)


def test_what_gathers_meanwhile_is_the_next_group() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        for token in range(1, 8):
            driver.disk.write(write(token))
        assert store.diary == ["start 1"]
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 7)
        assert store.groups_by("start") == ["1", "2 3 4 5 6 7"]
        assert driver.calls == [[1], [2, 3, 4, 5, 6, 7]]
        assert store.groups_by("commit") == []

    drive_giving(script)


def test_what_is_large_goes_to_the_thread_and_what_comes_meanwhile_after_it() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1, size_bytes=LARGE_BYTES))
        await driver.entered()
        driver.disk.write(write(2))
        driver.disk.write(write(3))
        assert store.diary == []
        store.let_go()
        await driver.until(lambda: len(driver.written) == 3)
        assert store.diary == ["commit 1", "commit 2 3"]
        driver.disk.write(write(4))
        assert store.diary[-1] == "start 4", "nothing is under way any more"
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 4)
        assert driver.written == [1, 2, 3, 4]

    drive_giving(script)


def test_what_gathers_to_too_much_goes_to_the_thread() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.let_go()
        driver.disk.write(write(1))
        for token in range(2, 6):
            driver.disk.write(write(token, size_bytes=LARGE_BYTES // 4))
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 5)
        assert store.groups_by("start") == ["1"]
        assert store.groups_by("commit") == ["2 3 4 5"]
        assert driver.written == [1, 2, 3, 4, 5]

    drive_giving(script)


def test_what_the_store_will_not_start_goes_to_the_thread() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.let_go()
        store.kernel.is_refusing = True
        driver.disk.write(write(1))
        await driver.until(lambda: driver.written == [1])
        store.kernel.is_refusing = False
        driver.disk.write(write(2))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1, 2])
        assert store.groups_by("commit") == ["1"]
        assert store.groups_by("start") == ["2"]

    drive_giving(script)


def test_a_store_that_no_longer_can_is_not_asked_again() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.let_go()
        driver.disk.write(write(1))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        store.overlapped = None
        for token in (2, 3):
            driver.disk.write(write(token))
            await driver.until(lambda: not driver.disk.unwritten_bytes)
        assert store.groups_by("start") == ["1"]
        assert store.groups_by("commit") == ["2", "3"]
        assert await driver.close()
        assert store.diary[-1] == "seal"

    drive_giving(script)


def test_a_store_that_finds_out_when_it_is_first_asked() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.let_go()
        store.kernel.is_impossible = True
        for token in (1, 2):
            driver.disk.write(write(token))
            assert store.overlapped is None
            await driver.until(lambda: not driver.disk.unwritten_bytes)
        assert store.diary == ["commit 1", "commit 2"]

    drive_giving(script)


# -- order -----------------------------------------------------------------------------------------------------------


def test_it_is_told_to_be_durable_then_shown_then_told_to_be_written() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.on_durable = lambda tokens: store.note("durable", tokens)
        driver.on_written = lambda tokens: store.note("written", tokens)
        driver.disk.write(write(1))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        assert store.diary == ["start 1", "finish 1", "durable 1", "show 1", "written 1"]
        store.let_go()
        driver.disk.write(write(2, size_bytes=LARGE_BYTES))
        await driver.until(lambda: driver.written == [1, 2])
        assert store.diary[5:] == ["commit 2", "durable 2", "written 2"]

    drive_giving(script)


@pytest.mark.parametrize("seed", range(20))
def test_whichever_way_they_go_writes_keep_their_order(seed: int) -> None:
    """Some are large, some fail, some lead to others: what is told and what is stored is in the order of the writes."""
    random = Random(seed)

    async def script(driver: Driver, store: GivingStore) -> None:
        asked: list[int] = []

        def ask(count: int) -> None:
            for _ in range(count):
                asked.append(len(asked) + 1)
                size_bytes = random.choice((10, 10, 10, 5_000, LARGE_BYTES))
                driver.disk.write(write(asked[-1], size_bytes=size_bytes, patient=random.random() < 0.2))

        def draw() -> None:
            store.kernel.failing = Unavailable("no") if random.random() < 0.3 else None
            store.kernel.is_refusing = random.random() < 0.1

        def react(tokens: list[int]) -> None:
            draw()
            if len(asked) < 150:
                ask(random.randrange(3))

        store.let_go()
        store.kernel.is_held = False
        driver.on_durable = driver.on_written = react
        while len(asked) < 150:
            ask(random.randrange(1, 4))
            if random.random() < 0.5:
                await driver.until(lambda: not driver.disk.unwritten_bytes)
        assert await driver.close()
        assert driver.written == driver.durable == store.tokens == asked == list(range(1, len(asked) + 1))
        assert (driver.disk.unwritten_bytes, driver.disk.freeing_bytes) == (0, 0)
        assert store.groups_by("start") and store.groups_by("commit")

    drive_giving(script, DiskSettings(patience_s=0.0, retry_after_s=0.001, seal_after_s=0.0005))


def test_unwritten_bytes_are_those_that_wait() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        size_bytes = group_bytes(write(1).operations)
        driver.disk.write(write(1, freeing=True))
        driver.disk.write(write(2))
        driver.disk.write(write(3, freeing=True))
        assert (driver.disk.unwritten_bytes, driver.disk.freeing_bytes) == (3 * size_bytes, 2 * size_bytes)
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        assert (driver.disk.unwritten_bytes, driver.disk.freeing_bytes) == (2 * size_bytes, size_bytes)
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        assert (driver.disk.unwritten_bytes, driver.disk.freeing_bytes) == (0, 0)

    drive_giving(script)


# -- patience --------------------------------------------------------------------------------------------------------


def test_what_is_patient_does_not_set_off_when_the_group_before_it_ends() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        driver.disk.write(write(2, patient=True))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        driver.disk.write(write(3))
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        assert store.groups_by("start") == ["1", "2 3"]

    drive_giving(script)


def test_what_is_patient_does_not_set_off_alone_after_a_group_that_another_led_to() -> None:
    """What was awaited went with the write that the end of the group led to: nothing is awaited any more."""

    async def script(driver: Driver, store: GivingStore) -> None:
        def write_next(tokens: list[int]) -> None:
            if tokens == [1]:
                driver.disk.write(write(3))

        driver.on_written = write_next
        driver.disk.write(write(1))
        driver.disk.write(write(2))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        await asyncio.sleep(0)
        driver.disk.write(write(4, patient=True))
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        await asyncio.sleep(0)
        driver.disk.write(write(5))
        if store.kernel.under_way == [4]:
            store.kernel.over()
            await driver.until(lambda: len(driver.written) == 4)
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 5)
        assert store.groups_by("start") == ["1", "2 3", "4 5"]

    drive_giving(script)


def test_what_is_patient_goes_with_what_is_awaited() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        driver.disk.write(write(2, patient=True))
        driver.disk.write(write(3))
        driver.disk.write(write(4, patient=True))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 4)
        assert store.groups_by("start") == ["1", "2 3 4"]

    drive_giving(script)


def test_patience_that_ended_meanwhile_is_over_when_the_kernel_is_done() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        driver.disk.write(write(2, patient=True))
        await timers_of(0.002)
        assert store.diary == ["start 1"]
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        store.kernel.over()
        await driver.until(lambda: driver.written == [1, 2])

    drive_giving(script, DiskSettings(patience_s=0.001, seal_after_s=600.0))


def test_patience_ends_with_the_time_allowed() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.kernel.is_held = False
        driver.disk.write(write(1, patient=True))
        assert store.diary == []
        await driver.until(lambda: driver.written == [1])
        assert store.groups_by("start") == ["1"]

    drive_giving(script, DiskSettings(patience_s=0.001, seal_after_s=600.0))

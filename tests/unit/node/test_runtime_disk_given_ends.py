"""Goal: what was given to the kernel is not lost when that fails, is sealed once, and keeps no disk from closing.
Method: as in test_runtime_disk_given.py."""
import asyncio

import pytest

from angarium.core.errors import LocalProtocolError, Unavailable
from angarium.runtime.disk import DiskSettings
from angarium.store.interface import group_bytes
from tests.unit.node.disk_driver import (
    LARGE_BYTES,
    QUICK,
    WAIT_S_MAX,
    Driver,
    GivingStore,
    drive_giving,
    timers_of,
    write,
)

# -- a kernel that fails -----------------------------------------------------------------------------------------------


def test_a_group_that_failed_goes_to_the_thread_before_what_gathered_meanwhile() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        driver.disk.write(write(2))
        store.kernel.failing = Unavailable("input/output error")
        store.kernel.over()
        await driver.entered()
        assert driver.durable == driver.written == []
        driver.disk.write(write(3))
        assert store.groups_by("start") == ["1"], "the thread is at it"
        store.let_go()
        await driver.until(lambda: len(driver.written) == 3)
        assert store.tokens == driver.written == [1, 2, 3]
        assert "show 1" not in store.diary
        assert driver.blocked == [], "the thread could"
        assert driver.disk.unwritten_bytes == 0

    drive_giving(script)


def test_a_group_that_failed_does_not_take_along_what_is_patient() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        driver.disk.write(write(2, patient=True))
        store.kernel.failing = Unavailable("input/output error")
        store.let_go()
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        store.kernel.failing = None
        driver.disk.write(write(3))
        store.kernel.over()
        await driver.until(lambda: len(driver.written) == 3)
        assert store.groups == [[1], [2, 3]]

    drive_giving(script)


def test_a_store_that_cannot_either_way_is_tried_until_it_can() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.full = True
        store.let_go()
        driver.disk.write(write(1))
        driver.disk.write(write(2, freeing=True))
        store.kernel.failing = Unavailable("input/output error")
        store.kernel.over()
        await driver.until(lambda: driver.written == [2])
        assert driver.blocked == ["no space left"]
        store.full = False
        await driver.until(lambda: driver.written == [2, 1])
        await driver.until(lambda: driver.blocked == ["no space left", ""])

    drive_giving(script)


@pytest.mark.parametrize("is_patient", [False, True])
def test_a_start_that_breaks_is_loud_and_does_not_keep_the_disk_from_closing(is_patient: bool) -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        loud: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: loud.append(context["exception"]))
        store.kernel.broken = LocalProtocolError("key too long")
        try:
            driver.disk.write(write(1, patient=is_patient))
        except LocalProtocolError as error:
            loud.append(error)
        await timers_of(0.002)
        assert [str(error) for error in loud + driver.failures] == ["key too long"]
        assert not await asyncio.wait_for(driver.disk.close(), 3.0)

    drive_giving(script, DiskSettings(patience_s=0.001, seal_after_s=600.0))


@pytest.mark.parametrize("size_bytes", [10, LARGE_BYTES], ids=["given", "thread"])
def test_a_confirm_that_breaks_is_loud_and_does_not_keep_the_disk_from_closing(size_bytes: int) -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        loud = asyncio.Event()

        def breaks(tokens: list[int]) -> None:
            unwritten.append(driver.disk.unwritten_bytes)
            raise LocalProtocolError("no such write")

        unwritten: list[int] = []
        asyncio.get_running_loop().set_exception_handler(lambda *_: loud.set())
        driver.on_durable = breaks
        store.let_go()
        store.kernel.is_held = False
        driver.disk.write(write(1, size_bytes=size_bytes))
        driver.disk.write(write(2, size_bytes=size_bytes))
        await asyncio.wait_for(loud.wait(), WAIT_S_MAX)
        await asyncio.wait_for(driver.disk.close(), 3.0)
        whole = group_bytes(write(1, size_bytes=size_bytes).operations)
        assert unwritten[0] <= whole, "what is durable no longer counts when it is told"

    drive_giving(script)


# -- rest and the end --------------------------------------------------------------------------------------------------


def test_what_was_only_given_is_sealed_once_when_it_comes_to_rest() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.kernel.is_held = False
        driver.disk.write(write(1))
        assert await asyncio.to_thread(store.sealed.wait, WAIT_S_MAX)
        assert store.diary == ["start 1", "finish 1", "show 1", "seal"]
        assert await driver.close()
        assert store.seals == 1

    drive_giving(script, QUICK)


def test_nothing_is_sealed_while_something_is_given() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.on_written = lambda tokens: driver.disk.write(write(2)) if tokens == [1] else None
        driver.disk.write(write(1))
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        for _ in range(5):  # the journal would have been sealed by then
            await timers_of(0.002)
        assert store.seals == 0
        store.kernel.over()
        assert await asyncio.to_thread(store.sealed.wait, WAIT_S_MAX)
        assert store.diary[-4:] == ["start 2", "finish 2", "show 2", "seal"]

    drive_giving(script, QUICK)


def test_what_is_written_after_a_seal_is_sealed_again() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.let_go()
        store.kernel.is_held = False
        for token in (1, 2, 3):
            store.sealed.clear()
            driver.disk.write(write(token))
            assert await asyncio.to_thread(store.sealed.wait, WAIT_S_MAX)
        assert store.seals == 3
        assert store.tokens == [1, 2, 3]

    drive_giving(script, QUICK)


def test_closing_waits_for_what_is_given_and_for_what_gathered() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        driver.disk.write(write(1))
        driver.disk.write(write(2, patient=True))
        closing = asyncio.create_task(driver.disk.close())
        await asyncio.sleep(0)
        assert store.diary == ["start 1"]
        store.kernel.over()
        await driver.until(lambda: driver.written == [1])
        assert not closing.done()
        store.kernel.over()
        assert await asyncio.wait_for(closing, WAIT_S_MAX)
        assert driver.written == [1, 2]
        assert store.diary[-4:] == ["start 2", "finish 2", "show 2", "seal"]
        driver.disk.write(write(3))
        assert store.tokens == [1, 2], "asked for too late"

    drive_giving(script)


def test_closing_waits_for_what_was_given_and_failed() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.let_go()
        driver.disk.write(write(1))
        driver.disk.write(write(2))
        closing = asyncio.create_task(driver.disk.close())
        await asyncio.sleep(0)
        store.kernel.failing = Unavailable("input/output error")
        store.kernel.over()
        assert await asyncio.wait_for(closing, WAIT_S_MAX)
        assert driver.written == store.tokens == [1, 2]

    drive_giving(script)


def test_closing_on_a_full_disk_comes_to_an_end_although_something_was_given() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        store.full = True
        store.let_go()
        driver.disk.write(write(1))
        closing = asyncio.create_task(driver.disk.close())
        await asyncio.sleep(0)
        store.kernel.failing = Unavailable("no space left")
        store.kernel.over()
        assert not await asyncio.wait_for(closing, WAIT_S_MAX)
        assert driver.written == []

    drive_giving(script)


def test_closing_finishes_what_follows_from_what_it_finishes() -> None:
    async def script(driver: Driver, store: GivingStore) -> None:
        def write_next(tokens: list[int]) -> None:
            if tokens[-1] < 200:
                driver.disk.write(write(tokens[-1] + 1))

        driver.on_written = write_next
        store.kernel.is_held = False
        driver.disk.write(write(1))
        assert await driver.close()
        assert driver.written == list(range(1, 201))
        assert store.groups_by("commit") == []

    drive_giving(script)

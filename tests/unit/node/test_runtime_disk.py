"""Goal: the disk's driver loses, repeats and reorders nothing, whatever the store does; what it gathers costs one
commit; it always comes to an end.
Method: a store whose commits the test holds back, refuses and lets go. No test waits for time to pass."""
import asyncio

import pytest

from angarium.core.errors import LocalProtocolError, Unavailable
from angarium.runtime.disk import DiskSettings
from angarium.store.interface import group_bytes
from tests.unit.node.disk_driver import WAIT_S_MAX, Driver, HeldStore, drive, write

# -- groups --------------------------------------------------------------------------------------------------------


def test_what_gathers_during_one_commit_is_the_next_group() -> None:
    async def script(driver: Driver) -> None:
        driver.disk.write(write(1))
        await driver.entered()
        for token in range(2, 8):
            driver.disk.write(write(token))
        assert driver.written == [], "nothing is said before it is durable"
        driver.store.permits.release()
        await driver.entered()
        await driver.until(lambda: driver.written == [1])
        driver.store.permits.release()
        await driver.until(lambda: len(driver.written) == 7)
        assert driver.store.groups == [[1], [2, 3, 4, 5, 6, 7]]
        assert driver.calls == [[1], [2, 3, 4, 5, 6, 7]]

    drive(script, HeldStore())


@pytest.mark.parametrize("limit_of", ["settings", "store"])
def test_a_group_is_bounded_and_a_write_that_exceeds_the_bound_goes_alone(limit_of: str) -> None:
    size_bytes = group_bytes(write(1).operations)
    large_bytes = 10 * size_bytes
    target, most = (3 * size_bytes, 1 << 20) if limit_of == "settings" else (1 << 20, 3 * size_bytes)

    async def script(driver: Driver) -> None:
        driver.disk.write(write(1))
        await driver.entered()
        for token in (2, 3, 4, 5):
            driver.disk.write(write(token))
        driver.disk.write(write(6, size_bytes=large_bytes))
        driver.disk.write(write(7))
        driver.store.let_go()
        await driver.until(lambda: len(driver.written) == 7)
        assert driver.store.groups == [[1], [2, 3, 4], [5], [6], [7]]

    settings = DiskSettings(group_bytes_target=target, patience_s=0.0, retry_after_s=0.001, seal_after_s=0.001)
    drive(script, HeldStore(group_bytes_max=most), settings)


def test_unwritten_bytes_are_those_that_wait() -> None:
    async def script(driver: Driver) -> None:
        size_bytes = group_bytes(write(1).operations)
        for token in (1, 2, 3):
            driver.disk.write(write(token))
        assert driver.disk.unwritten_bytes == 3 * size_bytes
        driver.store.let_go()
        await driver.until(lambda: len(driver.written) == 3)
        assert driver.disk.unwritten_bytes == 0

    drive(script, HeldStore())


def test_leftovers_of_a_full_group_do_not_wait_for_more_to_come() -> None:
    """However the two times are set: what is left over is committed at once."""
    size_bytes = group_bytes(write(1).operations)

    async def script(driver: Driver) -> None:
        driver.disk.write(write(1))
        await driver.entered()
        for token in range(2, 6):
            driver.disk.write(write(token))
        driver.store.let_go()
        await driver.until(lambda: len(driver.written) == 5)

    settings = DiskSettings(group_bytes_target=size_bytes, patience_s=0.0, retry_after_s=60.0, seal_after_s=60.0)
    drive(script, HeldStore(), settings)


# -- patience ------------------------------------------------------------------------------------------------------

PATIENT = DiskSettings(patience_s=600.0, retry_after_s=0.001, seal_after_s=0.001)


def test_a_patient_write_shares_the_group_of_the_next_that_is_not() -> None:
    async def script(driver: Driver) -> None:
        driver.store.let_go()
        driver.disk.write(write(1, patient=True))
        driver.disk.write(write(2, patient=True))
        driver.disk.write(write(3))
        await driver.until(lambda: len(driver.written) == 3)
        assert driver.store.groups == [[1, 2, 3]]

    drive(script, HeldStore(), PATIENT)


def test_patience_ends_with_the_time_allowed() -> None:
    async def script(driver: Driver) -> None:
        driver.store.let_go()
        driver.disk.write(write(1, patient=True))
        await driver.until(lambda: driver.written == [1])

    drive(script, HeldStore(), DiskSettings(patience_s=0.001))


def test_patience_ends_when_a_group_is_full() -> None:
    size_bytes = group_bytes(write(1).operations)

    async def script(driver: Driver) -> None:
        driver.store.let_go()
        for token in range(1, 5):
            driver.disk.write(write(token, patient=True))
        await driver.until(lambda: len(driver.written) >= 2)

    drive(script, HeldStore(), DiskSettings(group_bytes_target=2 * size_bytes, patience_s=600.0))


def test_closing_ends_patience() -> None:
    async def script(driver: Driver) -> None:
        driver.store.let_go()
        driver.disk.write(write(1, patient=True))
        assert await driver.close()
        assert driver.written == [1]

    drive(script, HeldStore(), PATIENT)


# -- a store that cannot ---------------------------------------------------------------------------------------------


def test_a_refused_group_is_tried_again_until_it_is_taken() -> None:
    async def script(driver: Driver) -> None:
        driver.store.failing = Unavailable("input/output error")
        for token in (1, 2, 3):
            driver.disk.write(write(token))
        await driver.entered()
        for _ in range(5):
            driver.store.permits.release()
            await driver.entered()
        assert driver.store.groups == []
        assert driver.written == []
        driver.store.failing = None
        driver.disk.write(write(4))
        driver.store.let_go()
        await driver.until(lambda: len(driver.written) == 4)
        assert driver.store.tokens == driver.written == [1, 2, 3, 4]
        assert driver.store.refusals >= 5
        assert driver.blocked[0] == "input/output error"
        await driver.until(lambda: len(driver.blocked) == 2)
        assert driver.blocked == ["input/output error", ""], "once each"

    drive(script, HeldStore())


def test_on_a_full_disk_writes_that_free_go_first_in_their_order() -> None:
    async def script(driver: Driver) -> None:
        driver.store.full = True
        driver.disk.write(write(1))
        await driver.entered()
        driver.disk.write(write(2, freeing=True))
        driver.disk.write(write(3))
        driver.disk.write(write(4, freeing=True))
        driver.store.let_go()
        await driver.until(lambda: len(driver.written) == 2)
        assert driver.written == [2, 4]
        driver.disk.write(write(5, freeing=True))
        await driver.until(lambda: len(driver.written) == 3)
        driver.store.full = False
        await driver.until(lambda: len(driver.written) == 5)
        assert driver.store.tokens == driver.written == [2, 4, 5, 1, 3]
        await driver.until(lambda: driver.blocked == ["no space left", ""])
        assert driver.disk.unwritten_bytes == 0

    drive(script, HeldStore())


def test_a_freeing_write_that_is_refused_too_is_not_overtaken_by_another() -> None:
    async def script(driver: Driver) -> None:
        driver.store.failing = Unavailable("input/output error")
        driver.disk.write(write(1, freeing=True))
        driver.disk.write(write(2, freeing=True))
        await driver.entered()
        for _ in range(4):
            driver.store.permits.release()
            await driver.entered()
        driver.store.failing = None
        driver.store.let_go()
        await driver.until(lambda: len(driver.written) == 2)
        assert driver.store.tokens == [1, 2]

    drive(script, HeldStore())


def test_producers_are_told_when_the_disk_has_room_again_even_if_nothing_waits() -> None:
    async def script(driver: Driver) -> None:
        driver.store.full = True
        driver.store.let_go()
        driver.disk.write(write(1, freeing=True))
        await driver.until(lambda: driver.written == [1])
        assert driver.blocked == ["no space left"]
        driver.store.full = False
        await driver.until(lambda: len(driver.blocked) == 2)
        assert driver.blocked == ["no space left", ""]

    drive(script, HeldStore())


def test_a_store_that_breaks_stops_the_node_loudly() -> None:
    async def script(driver: Driver) -> None:
        driver.store.failing = LocalProtocolError("group too large")
        driver.store.let_go()
        driver.disk.write(write(1))
        await driver.until(lambda: bool(driver.failures))
        assert isinstance(driver.failures[0], LocalProtocolError)
        assert driver.written == []

    drive(script, HeldStore())


# -- the end -----------------------------------------------------------------------------------------------------------


def test_closing_finishes_what_is_queued() -> None:
    async def script(driver: Driver) -> None:
        for token in range(1, 6):
            driver.disk.write(write(token))
        driver.store.let_go()
        assert await driver.close()
        assert driver.written == [1, 2, 3, 4, 5]

    drive(script, HeldStore())


# Once: the writer saw an empty queue, ended, and left what was written in answer to its last completion.
def test_closing_finishes_what_follows_from_what_it_finishes() -> None:
    async def script(driver: Driver) -> None:
        def write_next(tokens: list[int]) -> None:
            if tokens[-1] < 200:
                driver.disk.write(write(tokens[-1] + 1))

        driver.on_written = write_next
        driver.store.let_go()
        driver.disk.write(write(1))
        assert await driver.close()
        assert driver.written == list(range(1, 201))
        assert driver.disk.unwritten_bytes == 0

    drive(script, HeldStore())


def test_closing_an_idle_disk_is_quick_and_true() -> None:
    async def script(driver: Driver) -> None:
        assert await driver.close()

    drive(script, HeldStore())


def test_closing_on_a_full_disk_comes_to_an_end_and_says_so() -> None:
    async def script(driver: Driver) -> None:
        driver.store.full = True
        driver.store.let_go()
        driver.disk.write(write(1))
        driver.disk.write(write(2, freeing=True))
        assert not await driver.close()
        assert driver.written == [2]
        assert driver.disk.unwritten_bytes > 0

    drive(script, HeldStore())


def test_the_journal_is_sealed_once_when_it_comes_to_rest() -> None:
    async def script(driver: Driver) -> None:
        driver.store.let_go()
        driver.disk.write(write(1))
        assert await asyncio.to_thread(driver.store.sealed.wait, WAIT_S_MAX)
        assert driver.store.groups == [[1]]
        assert await driver.close()
        assert driver.store.seals == 1

    drive(script, HeldStore())


def test_what_is_asked_for_once_it_has_finished_is_not_taken() -> None:
    """Others go on sending to a copy that stops: that neither keeps it from ending nor looks like a loss."""

    async def script(driver: Driver) -> None:
        driver.disk.write(write(1))
        await driver.entered()
        closing = asyncio.create_task(driver.disk.close())
        driver.store.let_go()
        await driver.until(lambda: driver.written == [1])
        driver.disk.write(write(2))
        assert await asyncio.wait_for(closing, WAIT_S_MAX)
        driver.disk.write(write(3))
        assert driver.store.tokens == [1]
        assert driver.disk.unwritten_bytes == 0

    drive(script, HeldStore())


# Once: the sentinel of `close` is taken together with the last write, and closing then waits for the idle time.
def test_closing_seals_what_was_written_last_without_waiting_for_idleness() -> None:
    async def script(driver: Driver) -> None:
        driver.store.let_go()
        driver.disk.write(write(1))
        assert await asyncio.wait_for(driver.disk.close(), 3.0)
        assert driver.store.seals == 1

    drive(script, HeldStore(), DiskSettings(seal_after_s=6.0))

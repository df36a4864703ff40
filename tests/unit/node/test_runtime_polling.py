"""Goal: the loop stays awake while lone messages follow each other closely, gives way each time it has looked, and
sleeps otherwise; where there is no processor to be spent it never stays awake, and nobody is kept from any processor.
Method: a real event loop, of which the test takes one turn after the other, and a clock that goes when the test says
so. The system's own figures are files and answers that the test makes."""
import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from angarium.runtime import polling as polling_module
from angarium.runtime.polling import Polling

WINDOW_S = 2.0  # of the test's own time, in numbers that add up exactly


class Waiting:
    """A polling on the running loop, and how often it has given way."""

    def __init__(
        self, window_s: float = WINDOW_S, near: frozenset[int] = frozenset(), is_allowed: bool = True
    ) -> None:
        self.now = 100.0
        self.gave_way = 0
        self.takes_s = 0.0  # to give way: others have it
        self.is_allowed = is_allowed
        self.asked = 0  # whether it may stay awake
        self.polling = Polling(
            window_s, near=near, clock=lambda: self.now, give_way=self._give_way, may_stay_awake=self._may_stay_awake
        )

    def _give_way(self) -> None:
        self.gave_way += 1
        self.now += self.takes_s

    def _may_stay_awake(self) -> bool:
        self.asked += 1
        return self.is_allowed

    def came(self, *, after_s: float = 0.0) -> None:
        self.now += after_s
        self.polling.came()

    def wake(self) -> None:
        self.came()
        self.came(after_s=1.0)
        assert self.polling.is_awake

    async def turns(self, count: int) -> int:
        """Of the loop; how often it has given way in them."""
        before = self.gave_way
        for _ in range(count):
            await asyncio.sleep(0)
        return self.gave_way - before


def run(script: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await script()

    asyncio.run(main())


# -- awake and asleep ------------------------------------------------------------------------------------------------


def test_one_message_wakes_nobody() -> None:
    async def script() -> None:
        waiting = Waiting()
        waiting.came()
        assert not waiting.polling.is_awake
        assert await waiting.turns(5) == 0

    run(script)


@pytest.mark.parametrize(("after_s", "is_awake"), [(0.0, True), (1.5, True), (2.0, False), (2.5, False)])
def test_the_second_wakes_it_if_it_comes_within_the_window(after_s: float, is_awake: bool) -> None:
    async def script() -> None:
        waiting = Waiting()
        waiting.came()
        waiting.came(after_s=after_s)
        assert waiting.polling.is_awake == is_awake
        assert await waiting.turns(3) == (3 if is_awake else 0)

    run(script)


def test_messages_that_are_never_close_cost_nothing() -> None:
    async def script() -> None:
        waiting = Waiting()
        for _ in range(20):
            waiting.came(after_s=WINDOW_S)
            assert await waiting.turns(2) == 0
        assert waiting.asked == 0, "nobody has to know whether it might"

    run(script)


def test_while_awake_it_looks_and_gives_way_once_in_each_turn_and_others_have_theirs() -> None:
    async def script() -> None:
        waiting = Waiting()
        waiting.wake()
        assert waiting.gave_way == 0, "whoever brought the message is not kept waiting"
        seen: list[int] = []
        for _ in range(10):
            asyncio.get_running_loop().call_soon(lambda: seen.append(waiting.gave_way))
            await asyncio.sleep(0)
        assert seen == list(range(1, 11))

    run(script)


def test_it_sleeps_again_when_the_window_has_passed_since_the_last_message() -> None:
    async def script() -> None:
        waiting = Waiting()
        waiting.wake()
        waiting.came(after_s=1.5)
        waiting.now += 1.75
        assert await waiting.turns(2) == 2, "since the last one, not since it awoke"
        waiting.now += 0.25
        assert await waiting.turns(5) == 0
        assert not waiting.polling.is_awake
        waiting.came(after_s=100.0)
        assert not waiting.polling.is_awake, "it is as if nothing had ever come"
        waiting.came(after_s=1.0)
        assert waiting.polling.is_awake
        assert await waiting.turns(3) == 3

    run(script)


def test_many_messages_wake_it_once() -> None:
    """One chain of calls: in each turn it looks once, however many have come and however often it slept."""

    async def script() -> None:
        waiting = Waiting()
        for _ in range(3):
            for _ in range(10):
                waiting.came(after_s=0.5)
            assert await waiting.turns(4) == 4
            waiting.came()
            assert await waiting.turns(4) == 4
            waiting.now += WINDOW_S
            assert await waiting.turns(4) == 0
        assert waiting.asked == 3

    run(script)


def test_a_message_after_the_window_and_before_it_has_looked_keeps_it_awake_once() -> None:
    """The loop was busy with something else meanwhile."""

    async def script() -> None:
        waiting = Waiting()
        waiting.wake()
        waiting.came(after_s=3.0)
        assert await waiting.turns(3) == 3
        waiting.now += WINDOW_S
        assert await waiting.turns(3) == 0

    run(script)


# -- never -----------------------------------------------------------------------------------------------------------


def test_without_a_window_it_never_stays_awake() -> None:
    async def script() -> None:
        waiting = Waiting(window_s=0.0)
        for _ in range(5):
            waiting.came()
        assert not waiting.polling.is_awake
        assert await waiting.turns(3) == 0

    run(script)


def test_who_may_not_stay_awake_never_does_and_is_asked_anew_each_time() -> None:
    async def script() -> None:
        waiting = Waiting(is_allowed=False)
        for _ in range(5):
            waiting.came(after_s=0.5)
            assert not waiting.polling.is_awake
        assert await waiting.turns(3) == 0
        waiting.is_allowed = True
        waiting.came(after_s=0.5)
        assert await waiting.turns(3) == 3

    run(script)


def test_when_it_is_to_rest_it_sleeps_and_may_be_woken_again() -> None:
    async def script() -> None:
        waiting = Waiting()
        waiting.wake()
        assert await waiting.turns(2) == 2
        waiting.polling.rest()
        assert await waiting.turns(3) == 0
        assert not waiting.polling.is_awake
        waiting.came()
        assert not waiting.polling.is_awake, "the first that comes is as if none had come before"
        waiting.came()
        assert await waiting.turns(3) == 3

    run(script)


@pytest.mark.parametrize(
    ("count", "policy", "expected"),
    [
        (2.0, os.SCHED_OTHER, True),
        (2.0, os.SCHED_BATCH, True),
        (64.0, os.SCHED_OTHER, True),
        (1.5, os.SCHED_OTHER, False),
        (1.0, os.SCHED_OTHER, False),
        (8.0, os.SCHED_FIFO, False),
        (8.0, os.SCHED_RR, False),
        (8.0, os.SCHED_IDLE, False),
    ],
)
def test_it_needs_two_processors_and_somebody_to_give_way_to(
    monkeypatch: pytest.MonkeyPatch, count: float, policy: int, expected: bool
) -> None:
    monkeypatch.setattr(polling_module, "processors", lambda: count)
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: policy)

    async def script() -> None:
        polling = Polling(WINDOW_S, clock=lambda: 1.0, give_way=lambda: None)
        polling.came()
        polling.came()
        assert polling.is_awake == expected
        polling.rest()

    run(script)


# -- who else needs the processor --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given_s", "is_awake"), [(0.0, True), (0.004, True), (0.009, False), (1.0, False)])
def test_it_sleeps_for_a_while_if_others_have_most_of_its_time(given_s: float, is_awake: bool) -> None:
    """Each turn takes 5 ms, but for what others have of it."""

    async def script() -> None:
        waiting = Waiting(window_s=60.0)
        waiting.wake()
        for _ in range(4):
            waiting.now += 0.005
            waiting.takes_s = given_s
            await waiting.turns(1)
        assert waiting.polling.is_awake == is_awake
        if is_awake:
            return
        waiting.takes_s = 0.0
        waiting.came(after_s=0.001)
        assert not waiting.polling.is_awake, "not at once again"
        waiting.came(after_s=0.3)
        assert waiting.polling.is_awake
        assert await waiting.turns(3) == 3

    run(script)


def test_what_others_had_is_forgotten_when_it_has_slept() -> None:
    async def script() -> None:
        waiting = Waiting(window_s=0.5)
        waiting.came()
        waiting.came(after_s=0.1)
        waiting.takes_s = 0.004  # of less time than it judges by
        await waiting.turns(1)
        waiting.takes_s = 0.0
        waiting.now += 1.0
        assert await waiting.turns(2) == 0
        waiting.came()
        waiting.came(after_s=0.1)
        waiting.now += 0.006
        assert await waiting.turns(3) == 3

    run(script)


# -- where -----------------------------------------------------------------------------------------------------------


class Affinity:
    """Which processors the thread may run on, and all that was said about it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *allowed: int) -> None:
        self.allowed = set(allowed)
        self.said: list[set[int]] = []
        self.refuses = False
        monkeypatch.setattr(os, "sched_getaffinity", self._get)
        monkeypatch.setattr(os, "sched_setaffinity", self._set)

    def _get(self, pid: int) -> set[int]:
        assert pid == 0, "this thread alone"
        return set(self.allowed)

    def _set(self, pid: int, allowed: set[int]) -> None:
        assert pid == 0, "this thread alone"
        assert allowed, "nowhere"
        if self.refuses:
            raise PermissionError(1, "a filter of system calls")
        self.said.append(set(allowed))
        self.allowed = set(allowed)


@pytest.mark.parametrize(
    ("near", "moved_to"), [({1}, {1}), ({0, 1, 2}, {0, 1, 2}), ({2, 3, 7}, {2, 3})], ids=["one", "some", "some-barred"]
)
def test_it_goes_where_it_is_told_and_may_leave_again_at_once(
    monkeypatch: pytest.MonkeyPatch, near: set[int], moved_to: set[int]
) -> None:
    affinity = Affinity(monkeypatch, 0, 1, 2, 3)

    async def script() -> None:
        waiting = Waiting(near=frozenset(near))
        waiting.came()
        assert affinity.said == [], "not as long as it sleeps"
        waiting.came()
        assert affinity.said == [moved_to, {0, 1, 2, 3}]
        await waiting.turns(5)
        waiting.came()
        assert len(affinity.said) == 2, "once for each time that it wakes"

    run(script)


@pytest.mark.parametrize("near", [set(), {4, 5}, {0, 1}, {0, 1, 2}], ids=["none", "barred", "all", "all-and-more"])
def test_it_stays_where_it_is_if_nowhere_is_nearer(monkeypatch: pytest.MonkeyPatch, near: set[int]) -> None:
    affinity = Affinity(monkeypatch, 0, 1)

    async def script() -> None:
        waiting = Waiting(near=frozenset(near))
        waiting.wake()
        assert await waiting.turns(2) == 2
        assert affinity.said == []

    run(script)


def test_it_waits_where_it_is_if_it_must_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where services are shut in, this call is often forbidden; the message that woke it has to be written anyway."""
    Affinity(monkeypatch, 0, 1).refuses = True

    async def script() -> None:
        waiting = Waiting(near=frozenset({1}))
        waiting.wake()
        assert await waiting.turns(3) == 3

    run(script)

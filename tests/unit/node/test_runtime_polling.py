"""Goal: the loop stays awake while lone messages follow each other closely, gives way each time it has looked, and
sleeps otherwise; where there is no processor to be spent it never stays awake, and nobody is kept from any processor.
Method: a real event loop, of which the test takes one turn after the other, and a clock that goes when the test says
so. The system's own figures are files and answers that the test makes."""
import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from angarium.runtime import polling as polling_module
from angarium.runtime.polling import Polling, processors

WINDOW_S = 2.0  # of the test's own time, in numbers that add up exactly


class Waiting:
    """A polling on the running loop, and how often it has given way."""

    def __init__(
        self, window_s: float = WINDOW_S, near: frozenset[int] = frozenset(), is_allowed: bool = True
    ) -> None:
        self.now = 100.0
        self.gave_way = 0
        self.is_allowed = is_allowed
        self.asked = 0  # whether it may stay awake
        self.polling = Polling(
            window_s, near=near, clock=lambda: self.now, give_way=self._give_way, may_stay_awake=self._may_stay_awake
        )

    def _give_way(self) -> None:
        self.gave_way += 1

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
    monkeypatch.setattr(polling_module, "_PROCESSORS", count)
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: policy)

    async def script() -> None:
        polling = Polling(WINDOW_S, clock=lambda: 1.0, give_way=lambda: None)
        polling.came()
        polling.came()
        assert polling.is_awake == expected
        polling.rest()

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


# -- how many processors ---------------------------------------------------------------------------------------------


def own_groups(directory: Path, path: str | None) -> Path:
    """What the kernel says of a process; None: of the older kind of groups only."""
    file = directory / "own"
    file.write_text("2:cpu:/old\n1:name=systemd:/old\n" + (f"0::{path}\n" if path is not None else ""))
    return file


@pytest.mark.parametrize(
    ("quotas", "path", "expected"),
    [
        ({}, "/a/b", 8.0),
        ({"a/b": "max 100000"}, "/a/b", 8.0),
        ({"a/b": "150000 100000"}, "/a/b", 1.5),
        ({"a/b": "1600000 100000"}, "/a/b", 8.0),
        ({"a": "200000 100000", "a/b": "max 100000"}, "/a/b", 2.0),
        ({"a": "200000 100000", "a/b": "100000 50000", "": "50000 100000"}, "/a/b", 0.5),
        ({"a": "400000 100000", "a/b": "300000 100000"}, "/a/b", 3.0),
        ({"a/other": "100000 100000"}, "/a/b", 8.0),
        ({"": "300000 100000"}, "/", 3.0),
        ({"a/b": "nonsense"}, "/a/b", 8.0),
        ({"a/b": "100000 100000", "old": "100000 100000"}, None, 8.0),
    ],
    ids=[
        "no-file", "no-quota", "own-quota", "more-than-there-are", "parent", "all-above", "least", "sister", "root",
        "unreadable", "older-groups",
    ],
)  # fmt: skip
def test_processors_are_those_allowed_or_as_much_time_as_the_groups_leave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quotas: dict[str, str], path: str | None, expected: float
) -> None:
    Affinity(monkeypatch, *range(8))
    groups = tmp_path / "groups"
    for group, quota in quotas.items():
        (groups / group).mkdir(parents=True, exist_ok=True)
        (groups / group / "cpu.max").write_text(quota + "\n")
    assert processors(groups, own_groups(tmp_path, path)) == expected


def test_without_groups_processors_are_those_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Affinity(monkeypatch, 1, 3, 5)
    assert processors(tmp_path / "groups", tmp_path / "own") == 3.0


def test_a_quota_outside_of_the_groups_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Affinity(monkeypatch, *range(8))
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert processors(tmp_path / "groups", own_groups(tmp_path, "/a")) == 8.0

"""Goal: a survey of many seeds says what ran and what failed, how to see it again, and ends when it is told to.
Method: `angarium.sim.survey` over quick worlds; one that fails by itself; a process that is interrupted."""
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from angarium.sim import worlds
from angarium.sim.bus_world import BusWorld
from angarium.sim.messages import Violation
from angarium.sim.survey import INTERRUPTED, Survey
from angarium.sim.world import Outcome
from angarium.sim.worlds import WORLDS, Task, world_of

Said = pytest.CaptureFixture[str]


class Failing:
    """Keeps its promise in every third seed only."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self._seed = seed
        self.clock, self.trace = (bus := BusWorld(1)).clock, bus.trace

    def run(self) -> Outcome:
        if self._seed % 3:
            raise Violation("every third seed is fine", f"this is seed {self._seed}")
        return Outcome(self._seed, "", ["flood", "frost"], 5, 4, 1, 1.0, {"floods": 2})


def test_seeds_of_all_worlds_run_in_each_of_them() -> None:
    shares = Counter(map(world_of, range(20_000)))
    assert set(shares) == set(WORLDS)
    assert min(shares.values()) >= 20_000 // 23
    assert sum(shares.values()) == 20_000


def test_it_says_what_ran(capsys: Said) -> None:
    tasks = [Task(world, seed) for seed in range(2) for world in ("bus", "groups", "replicas")]
    assert Survey(tasks, jobs=2).run() == 0
    said = capsys.readouterr().out
    assert "6 of 6 seeds ran" in said and "every promise was kept" in said
    assert all(f"{world}: 2 seeds, 0 failed" in said for world in ("bus", "groups", "replicas"))


@pytest.mark.parametrize("jobs", (1, 2))
def test_it_says_what_failed_and_how_to_see_it_again(
    jobs: int, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(worlds.WORLDS, "bus", Failing)
    assert Survey([Task("bus", seed) for seed in range(6)], jobs).run() == 1
    said = capsys.readouterr().out
    assert "bus: 6 seeds, 4 failed; 8 of 10 messages confirmed" in said
    assert "2 flood, 2 frost; 1 of 1 pairs together" in said
    for seed in (1, 2, 4, 5):
        assert f"  python -m angarium.sim --world bus --seed {seed} --last 100    # every third seed is fine" in said
        assert f"this is seed {seed}" in said


def test_it_ends_when_it_is_interrupted() -> None:
    survey = subprocess.Popen(
        [sys.executable, "-u", "-m", "angarium.sim", "--world", "all", "--seeds", "100000", "--jobs", "2"],
        env=dict(os.environ), stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert survey.stdout is not None
        assert " of 100,000 seeds, " in survey.stdout.readline()
        os.killpg(survey.pid, signal.SIGINT)  # as a terminal does: everybody in front of it
        said, _ = survey.communicate(timeout=60)
    finally:
        if survey.poll() is None:
            os.killpg(survey.pid, signal.SIGKILL)
    assert survey.returncode == INTERRUPTED
    assert "interrupted: " in said and "every promise was kept, as far as it went" in said

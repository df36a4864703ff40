"""Goal: no schedule of faults breaks a promise of group services. Method: one seed draws everything, see sim/groups.

Replay one: python -m angarium.sim --world groups --seed 17 --last 100.
More of them: python -m angarium.sim --world groups --seeds 10000 --jobs 2.
"""
from collections import Counter

import pytest

from angarium.sim.groups.world import GroupsWorld, Outcome
from angarium.sim.messages import Violation

CHUNK = 10
SEEDS = 100


def run(seed: int) -> Outcome | str:
    world = GroupsWorld(seed)
    try:
        return world.run()
    except Violation as broken:
        return f"seed {seed} at {world.clock.now:.3f} s, {world.faults and world.faults.kinds}: {broken}"


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    results = [run(seed) for seed in range(first, first + CHUNK)]
    failures = [result for result in results if isinstance(result, str)]
    assert not failures, "\n".join(failures)


def test_the_runs_are_worth_it() -> None:
    """A seed that causes no trouble shows nothing: in a few of them, everything that can happen does."""
    outcomes = [result for result in map(run, range(1_000, 1_015)) if isinstance(result, Outcome)]
    assert len(outcomes) == 15
    assert len({fault for outcome in outcomes for fault in outcome.faults}) == 19
    seen: Counter[str] = Counter()
    for outcome in outcomes:
        seen.update(outcome.tally)
    assert seen["terms"] > 2 * len(outcomes)
    assert seen["promotions"] >= 5
    assert seen["snapshots"] > 2 * len(outcomes)
    assert seen["starts"] > 6 * len(outcomes)


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in (2, 5):
        assert GroupsWorld(seed).run() == GroupsWorld(seed, is_traced=True).run()
    assert GroupsWorld(2).run().digest != GroupsWorld(5).run().digest

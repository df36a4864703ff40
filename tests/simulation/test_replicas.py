"""Goal: no schedule of faults breaks a promise of replication. Method: one seed draws everything, see sim/replicas.

Faults run first (safety), then all is healed, and every replica has to be in sync and equal (liveness).
Replay one: python -m angarium.sim --world replicas --seed 17 --last 100.
"""
from collections import Counter

import pytest

from angarium.sim.replicas.world import ReplicaWorld

CHUNK = 10
SEEDS = 100


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + CHUNK):
        ReplicaWorld(seed).run()


def test_the_runs_are_worth_it() -> None:
    """A seed that causes no trouble shows nothing: in a few of them, everything that can happen does."""
    outcomes = [ReplicaWorld(seed).run() for seed in range(30)]
    assert len({fault for outcome in outcomes for fault in outcome.faults}) == 14
    seen: Counter[str] = Counter()
    for outcome in outcomes:
        seen.update(outcome.tally)
    assert all(seen[f"groups of {count}"] for count in range(1, 6))
    assert seen["promotions"] > 2 * len(outcomes)
    assert seen["copies"] > len(outcomes)
    assert seen["confirmed"] > 50 * len(outcomes)


def test_a_primary_that_stood_still_tells_late_what_all_have_had() -> None:
    """One of them was put out meanwhile, and is in the middle of a copy: that is nobody's loss."""
    ReplicaWorld(950_143).run()


def test_who_has_been_admitted_does_not_copy_for_what_it_lacked_before() -> None:
    """It is told late, and twice, and has not yet heard that it counts."""
    ReplicaWorld(3_200_357).run()


@pytest.mark.parametrize("seed", (2, 11, 30))
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    assert ReplicaWorld(seed).run() == ReplicaWorld(seed).run()

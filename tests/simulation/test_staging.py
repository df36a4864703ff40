"""Goal: no schedule of faults makes a row that was written by staging appear twice, too early, out of order, or not at
all once its commit was answered; and nothing that is staged stays. Method: a world of queries with tasks that fail, are
begun twice and come too late (angarium/sim/staging.py), and its audit (angarium/sim/staging_audit.py).

Replay one: python -m angarium.sim --world staging --seed 17 --last 100.
"""
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.staging import ClusterStagingWorld
from angarium.sim.staging import StagingWorld, draw_staging_settings
from angarium.sim.world import Failure, Outcome, run_seed
from tests.simulation.test_cluster import SMALL, TWO_GROUPS

CHUNK = 5
SEEDS = 30
FOUND = (6183,)  # a disk so slow that what was staged was dropped before it could be committed, again and again
CLUSTERS_FOUND = (
    802100,  # a copy of a moved destination that was given up for another one: the audit took both
    950058,  # who came back when others decided, whose names made it wait to be dialled, waited for ever
)
KINDS_TOGETHER = (
    ("kill-primary",), ("move-primary", "client-crash"), ("power-cut-of-all", "cut-client"),
    ("kill-at-a-sync", "pause"),  # a primary that stood still delivered before it heard of its successor
)  # fmt: skip


def cluster_world(seed: int, *faults: str, shape: Shape = SMALL) -> ClusterStagingWorld:
    settings = replace(draw_staging_settings(seed), faults=faults, trouble_s=4.0)
    return ClusterStagingWorld(seed, settings, shape=shape)


def said(results: Sequence[Outcome | Failure]) -> str:
    failures = [result for result in results if isinstance(result, Failure)]
    return "\n".join(f"seed {f.seed} at {f.virtual_s:.3f} s: {f.promise}: {f.what}" for f in failures)


@pytest.mark.parametrize("seeds", [*(range(first, first + CHUNK) for first in range(0, SEEDS, CHUNK)), FOUND])
def test_every_promise_is_kept(seeds: Sequence[int]) -> None:
    assert not said([run_seed(seed, StagingWorld) for seed in seeds])


@pytest.mark.parametrize("faults", KINDS_TOGETHER, ids="+".join)
def test_every_promise_is_kept_in_a_cluster(faults: Sequence[str]) -> None:
    """Of two groups, so that a batch is committed in both."""
    assert not said([run_seed(3, lambda seed: cluster_world(seed, *faults, shape=TWO_GROUPS))])


@pytest.mark.parametrize("seed", CLUSTERS_FOUND)
def test_every_promise_is_kept_in_what_was_found(seed: int) -> None:
    assert not said([run_seed(seed, ClusterStagingWorld)])


def test_the_runs_are_worth_it() -> None:
    """In a few of them everything happens that the audit looks at."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        seen.update(StagingWorld(seed).run().tally)
    assert seen["rows moved"] > 500
    assert seen["rows dropped"] > 100
    assert min(seen["batches committed again"], seen["staged in vain"], seen["commits lost"]) > 5
    assert min(seen["commits refused"], seen["attempts given up"]) > 2


def test_the_same_seed_gives_the_same_history() -> None:
    assert StagingWorld(3).run() == StagingWorld(3).run()

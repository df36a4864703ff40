"""Goal: no schedule of faults breaks a promise. Method: one seed draws everything, see angarium/sim.

Faults run first (safety), then all is healed and everything confirmed has to drain (liveness), then every client
leaves and the broker must remember nothing. Replay one: python -m angarium.sim --seed 17 --last 100.
More of them: python -m angarium.sim --seeds 10000 --start 1000 --jobs 2.
"""
from collections import Counter

import pytest

from angarium.sim.world import Failure, Outcome, run_seed

CHUNK = 10
SEEDS = 300


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + CHUNK)]
    failures = [result for result in results if isinstance(result, Failure)]
    assert not failures, "\n".join(f"seed {f.seed} at {f.virtual_s:.3f} s: {f.promise}: {f.what}" for f in failures)


def test_the_runs_are_worth_it() -> None:
    """A seed that causes no trouble shows nothing: in a few of them, everything that can happen does."""
    outcomes = [result for result in map(run_seed, range(20)) if isinstance(result, Outcome)]
    assert len({fault for outcome in outcomes for fault in outcome.faults}) == 16
    seen: Counter[str] = Counter()
    for outcome in outcomes:
        seen.update(outcome.tally)
    assert seen["broker starts"] > 2 * len(outcomes)
    assert seen["consumers resumed"] > 50
    assert seen["redeliveries"] > 50
    assert seen["positions lost"] > 20
    assert sum(outcome.messages - outcome.confirmed for outcome in outcomes) > 50

"""Goal: no schedule of crashes breaks a transaction of several replica groups in two, or leaves one undecided for ever.
Method: a world of trade whose queues are in two or three groups (angarium/sim/spanning.py), and its audit.

Replay one: python -m angarium.sim --world spanning --seed 17 --last 100.
"""
from collections import Counter

import pytest

from angarium.core.destination.events import FromSession
from angarium.core.ids import ANYBODY
from angarium.core.wire import frames
from angarium.sim.spanning import SpanningWorld
from angarium.sim.world import Failure, run_seed

CHUNK = 10
SEEDS = 60


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    results = [run_seed(seed, SpanningWorld) for seed in range(first, first + CHUNK)]
    failures = [result for result in results if isinstance(result, Failure)]
    assert not failures, "\n".join(f"seed {f.seed} at {f.virtual_s:.3f} s: {f.promise}: {f.what}" for f in failures)


@pytest.mark.parametrize("seed", [80, 105, 272])
def test_what_was_found(seed: int) -> None:
    """An abort told twice; a coordinator that waited for ever; what was locked given away: see the unit tests."""
    assert not isinstance(run_seed(seed, SpanningWorld), Failure)


class Counting(SpanningWorld):
    def __init__(self, seed: int) -> None:
        self.seen: Counter[str] = Counter()
        super().__init__(seed)

    def to_manager(self, event: FromSession) -> None:
        through = " through anybody" if event.session == ANYBODY else ""
        self.seen[type(event.frame).__name__ + through] += 1
        super().to_manager(event)


def test_the_runs_are_worth_it() -> None:
    """In a few of them everything happens that the protocol knows."""
    seen: Counter[str] = Counter()
    for seed in range(25):
        world = Counting(seed)
        world.run()
        seen.update(world.seen)
        seen["spanning"] += world.transactions.spanning
    assert seen["spanning"] > 100
    assert min(seen[kind.__name__] for kind in (frames.CommitPrepare, frames.CommitFinal, frames.CommitComplete)) > 100
    assert min(seen["CommitRollback"], seen["CommitQuestion"]) > 5
    assert min(seen["CommitQuestion through anybody"], seen["CommitFinal through anybody"]) > 5
    assert seen["CommitRollback through anybody"] > 0


def test_the_same_seed_gives_the_same_history() -> None:
    assert SpanningWorld(3).run() == SpanningWorld(3).run()

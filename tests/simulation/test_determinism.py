"""One seed, one history: the digest of everything that crossed a seam is the same in every run.

A simulation that cannot be repeated proves nothing: a failing seed has to fail again when somebody looks.
"""
import os
import subprocess
import sys

import pytest

from angarium.core.destination.subscription import Subscription
from angarium.core.destination.subscriptions import Subscriptions
from angarium.core.large_ranges import LargeRanges
from angarium.sim.world import World

# Between them: crashes, cuts at a byte, half-open links, a full disk, damage; several subscriptions at once.
SEEDS = (1, 2, 11, 12, 31)
_PRINT_DIGESTS = f"from angarium.sim.world import World; print(*[World(seed).run().digest for seed in {SEEDS}])"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    assert World(seed).run() == World(seed).run()


@pytest.mark.parametrize("seed", (2, 11, 20))  # holes in plenty
def test_it_makes_no_difference_how_ranges_are_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None has thousands in a simulation: here five are many."""
    as_ever = World(seed).run()
    monkeypatch.setattr("angarium.core.ranges.FLAT_RANGES_MAX", 4)
    monkeypatch.setattr("angarium.core.large_ranges.CHUNK_RANGES", 1)
    made, kept_large = 0, LargeRanges.__init__

    def counted(large: LargeRanges, lows: list[int], highs: list[int]) -> None:
        nonlocal made
        made += 1
        kept_large(large, lows, highs)

    monkeypatch.setattr(LargeRanges, "__init__", counted)
    assert World(seed).run() == as_ever
    assert made


def test_the_seeds_have_what_could_come_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    most, add = 0, Subscriptions.add

    def noted(subscriptions: Subscriptions, subscription: Subscription) -> Subscription:
        nonlocal most
        added = add(subscriptions, subscription)
        most = max(most, len(subscriptions))
        return added

    monkeypatch.setattr(Subscriptions, "add", noted)
    for seed in (1, 11):
        most = 0
        World(seed).run()
        assert most > 1, f"seed {seed} never has two subscriptions of one destination"


def test_another_seed_gives_another_trace() -> None:
    assert World(SEEDS[0]).run().digest != World(SEEDS[1]).run().digest


def test_reading_the_trace_changes_nothing() -> None:
    world = World(SEEDS[0], is_traced=True)
    assert world.run() == World(SEEDS[0]).run()
    assert len(world.trace.lines) > 100


def test_neither_the_process_nor_its_hash_seed_matters() -> None:
    here = [World(seed).run().digest for seed in SEEDS]
    for hash_seed in ("0", "4242"):
        found = subprocess.run(
            [sys.executable, "-c", _PRINT_DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert found.stdout.split() == here

"""Goal: on a node that has limits of its own, of every policy, no schedule of faults loses a message, kills one twice
or in vain, delivers in another order, or lets the node grow without saying so. Method: worlds of post and of trade with
such limits (angarium/sim/crowded.py), their audits, and bugs that are planted.

Replay one: python -m angarium.sim --world crowded-trade --seed 17 --last 100.
"""
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.destination import making_room, message_manager
from angarium.core.destination.limits import Limits
from angarium.core.destination.making_room import RoomMaker
from angarium.core.destination.pending import PendingWrite
from angarium.sim.crowded import CrowdedPostWorld, CrowdedTradeWorld
from angarium.sim.world import Failure, Outcome, draw_settings, run_seed
from tests.simulation.planted import assert_noticed

CHUNK = 5
SEEDS = 30
# Of trade: what had died of a queue's own limit came after what was delivered in its stead, once those who were there
# had resumed; the dying of a queue counted twice, and others died in vain; producers that were to wait instead of being
# refused were not told; room was not made for what came free without a write; a trader who held more than there is room
# for among the dead was blocked until there would be, and its commit waited for itself; the audit took a queue for full
# of which so much was being buried that it was not; dead messages that were damaged could not be discarded, and kept
# all producers waiting.
FOUND_OF_TRADE = (10, 12, 57, 244, 473, 980071, 3000248)
# Of post: what was damaged was set aside for one subscriber and died for another; where nothing had to be written, the
# next portion was not begun; what a passing subscriber was offered, and was not yet sent, was passed over after a cut
# and another message manager.
FOUND_OF_POST = (69, 29, 840)


def assert_kept(kind: type[CrowdedPostWorld | CrowdedTradeWorld], seeds: Sequence[int]) -> None:
    failures = [result for seed in seeds if isinstance(result := run_seed(seed, kind), Failure)]
    assert not failures, "\n".join(f"seed {f.seed} at {f.virtual_s:.3f} s: {f.promise}: {f.what}" for f in failures)


@pytest.mark.parametrize("seeds", [*(range(at, at + CHUNK) for at in range(0, SEEDS, CHUNK)), FOUND_OF_TRADE])
def test_every_promise_is_kept_in_trade(seeds: Sequence[int]) -> None:
    assert_kept(CrowdedTradeWorld, seeds)


@pytest.mark.parametrize("seeds", [*(range(at, at + CHUNK) for at in range(0, SEEDS, CHUNK)), FOUND_OF_POST])
def test_every_promise_is_kept_in_post(seeds: Sequence[int]) -> None:
    assert_kept(CrowdedPostWorld, seeds)


def test_the_runs_are_worth_it() -> None:
    seen: Counter[str] = Counter()
    policies: Counter[str] = Counter()
    for seed in range(12):
        for world in (CrowdedPostWorld(seed), CrowdedTradeWorld(seed)):
            assert isinstance(world.run(), Outcome)
            seen += world.node_audit.seen
            policies[world.settings.node_over_limit] += 1
    assert set(policies) == {"block", "refuse", "oldest"}
    assert min(seen["died"], seen["blocked"], seen["refused"], seen["too much"]) > 20


def test_the_same_seed_gives_the_same_crowd() -> None:
    assert CrowdedTradeWorld(3).run() == CrowdedTradeWorld(3).run()


# -- planted bugs ----------------------------------------------------------------------------------------


def what_is_not_durable_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "durable", Limits.held)


def one_too_many_dies(patch: pytest.MonkeyPatch) -> None:
    oldest = making_room._oldest

    def mutant(destination: Any, lane: Any, asked: Any, count: int, *, prefix: bool) -> Any:
        return oldest(destination, lane, asked, count + 1, prefix=prefix)

    patch.setattr(making_room, "_oldest", mutant)


def no_room_is_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoomMaker, "_begin", lambda self, over, commands: False)


def the_dead_are_settled_and_buried_in_two_writes(patch: pytest.MonkeyPatch) -> None:
    """They are settled at once, and written to the dead message queue when that is durable."""
    moved = RoomMaker._moved

    def mutant(self: RoomMaker, destination: Any, parts: Any, pieces: Any, asked: Any, now: float) -> Any:
        for subscription, ranges in parts.items():
            subscription.discard(*ranges[0], "mutant")
        early = [c for s in parts for c in destination.consuming.save(s, PendingWrite())]
        return early + moved(self, destination, parts, pieces, asked, now)

    patch.setattr(RoomMaker, "_moved", mutant)


def who_fills_a_queue_by_a_commit_is_told_after_the_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message_manager, "_is_flow", lambda command: False)


MUTATIONS: Sequence[Callable[[pytest.MonkeyPatch], None]] = (
    what_is_not_durable_counts, one_too_many_dies, no_room_is_made, the_dead_are_settled_and_buried_in_two_writes,
    who_fills_a_queue_by_a_commit_is_told_after_the_answer,
)  # fmt: skip


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    seeds = (32, *range(60))
    assert_noticed(
        plant.__name__, seeds, lambda seed: CrowdedTradeWorld(seed, replace(draw_settings(seed), check_every=0))
    )

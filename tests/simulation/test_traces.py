"""Goal: whatever fails, a message is traced as ended if and only if it is durably so. Method: the world of trade with
traced queues (angarium/sim/traced_trade.py): transactions, limits, redeliveries, kills, full disks; planted bugs."""
from typing import Any

import pytest

from angarium.core.destination.subscription import Subscription
from angarium.core.destination.tracing import DestinationTrace
from angarium.sim.traced_trade import TracedTradeWorld
from angarium.sim.world import Failure, run_seed

CHUNK = 5
SEEDS = 30


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_end_is_traced_with_it(first: int) -> None:
    results = [run_seed(seed, TracedTradeWorld) for seed in range(first, first + CHUNK)]
    failures = [result for result in results if isinstance(result, Failure)]
    assert not failures, "\n".join(f"seed {f.seed} at {f.virtual_s:.3f} s: {f.promise}: {f.what}" for f in failures)


def test_the_runs_are_worth_it() -> None:
    worlds = [TracedTradeWorld(seed) for seed in range(8)]
    for world in worlds:
        world.run()
    assert sum(len(world.traces.traced) for world in worlds) > 300
    assert any(world.traces.was_held for world in worlds) and any(not world.traces.untraced for world in worlds)


def traces_come_in_a_write_of_their_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DestinationTrace, "flush", lambda self, **_: [])


def a_settlement_leaves_no_trace(patch: pytest.MonkeyPatch) -> None:
    settle = Subscription.settle_locked

    def mutant(self: Subscription, *arguments: Any) -> Any:
        trace, self.trace = self.trace, None
        try:
            return settle(self, *arguments)
        finally:
            self.trace = trace

    patch.setattr(Subscription, "settle_locked", mutant)
    part = Subscription.discard

    def discard(self: Subscription, low: int, high: int, reason: str) -> None:
        trace, self.trace = self.trace, None
        part(self, low, high, reason)
        self.trace = trace

    patch.setattr(Subscription, "discard", discard)


@pytest.mark.parametrize("plant", [traces_come_in_a_write_of_their_own, a_settlement_leaves_no_trace])
def test_a_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = [run_seed(seed, TracedTradeWorld) for seed in range(12)]
    promises = {result.promise for result in found if isinstance(result, Failure)}
    assert promises & {"what is settled is traced", "what is traced is durable"}, f"nobody noticed: {promises}"

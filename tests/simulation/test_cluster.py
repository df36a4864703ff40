"""Goal: no schedule of trouble breaks a promise of a whole cluster. Method: real nodes and clients in virtual time,
see angarium/sim/clusters; one seed draws the cluster's shape, its people and its trouble.

Trouble comes first (safety), then all is healed: everything confirmed has to drain, every copy to be in sync, and equal
(liveness). Replay one: python -m angarium.sim --world cluster --seed 17 --last 100.
More of them: python -m angarium.sim --world cluster --seeds 500 --start 1000 --jobs 2.
"""
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from angarium.sim.clusters.faults import Troubles
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.trade import ClusterTradeWorld
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.world import Failure, Outcome, draw_settings, run_seed

SMALL = Shape({"a": ("n1", "n2", "n3")}, ("n1", "n3"), ("n1", "n2", "n3"))
TWO_GROUPS = Shape({"a": ("n1", "n2", "n3"), "b": ("n2",)}, ("n1", "n3"), ("n1", "n2", "n3"))
KINDS = (
    "kill", "kill-primary", "kill-at-a-sync", "new-disk", "power-cut", "power-cut-of-all", "restart", "pause",
    "partition", "one-way", "cut-link", "cut-client", "loss", "disk-slow", "disk-full", "move-primary", "drain",
    "copies", "clock-set", "client-crash",
)  # fmt: skip
SEEDS = range(2)
TRADE_SEEDS = (1,)  # a slow link stalled a message manager itself


def small_world(seed: int, *faults: str) -> ClusterWorld:
    settings = replace(draw_settings(seed), faults=faults, messages=60, trouble_s=4.0)
    return ClusterWorld(seed, settings, shape=SMALL)


def said(result: Outcome | Failure) -> str:
    return f"{result.promise}: {result.what}" if isinstance(result, Failure) else ""


def test_without_trouble_everything_is_confirmed_and_received() -> None:
    outcome = small_world(1).run()
    assert outcome.confirmed == outcome.messages > 0
    assert outcome.tally["managers started"] == 1


@pytest.mark.parametrize("buses", (("red: a1 a2", "blue: b1 b2"), ("red: cm1", "blue: cm2")), ids=("groups", "cms"))
def test_one_bus_of_two_is_dead_for_a_while(buses: tuple[str, ...]) -> None:
    shape = Shape({"a": ("a1", "a2"), "b": ("b1", "b2")}, ("cm1", "cm2"), ("a1", "b1", "cm1"), buses)

    def world(seed: int) -> ClusterWorld:
        settings = replace(draw_settings(seed), faults=("loss", "kill-primary"), messages=60, trouble_s=4.0)
        return ClusterWorld(seed, settings, shape=shape)

    assert not said(run_seed(5, world))


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_of_trouble(kind: str) -> None:
    assert not said(run_seed(2, lambda seed: small_world(seed, kind)))


def together(kinds: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Runs with so many kinds each, few of them, so that every two kinds come together in some run."""
    missing = set(combinations(kinds, 2))
    runs: list[tuple[str, ...]] = []
    while missing:
        run = list(min(missing))
        while len(run) < size:
            run.append(max(sorted(set(kinds) - set(run)), key=lambda kind: _met(missing, run, kind)))
        missing -= set(combinations(sorted(run), 2))
        runs.append(tuple(sorted(run)))
    return runs


def _met(missing: set[tuple[str, str]], run: Sequence[str], kind: str) -> int:
    return sum((min(kind, other), max(kind, other)) in missing for other in run)


TOGETHER = together(sorted(KINDS), 5)


@pytest.mark.parametrize("run", range(len(TOGETHER)), ids=["+".join(kinds) for kinds in TOGETHER])
def test_every_two_kinds_of_trouble_together(run: int) -> None:
    assert not said(run_seed(run, lambda seed: small_world(seed, *TOGETHER[run])))


@pytest.mark.parametrize(
    "faults", [(), ("kill", "pause"), ("power-cut-of-all",), ("partition", "one-way"), ("new-disk", "restart")],
    ids="+".join,
)  # fmt: skip
def test_voters_are_replaced_again_and_again(faults: tuple[str, ...]) -> None:
    shape = Shape({"a": ("a1", "a2", "a3"), "b": ("b1", "b2")}, ("cm1", "cm2"), ("a1", "b1", "cm1"))

    def world(seed: int) -> ClusterWorld:
        settings = replace(draw_settings(seed), faults=("voters", *faults), messages=60, trouble_s=6.0)
        return ClusterWorld(seed, settings, shape=shape)

    assert not said(run_seed(4, world))


def test_every_kind_is_tried() -> None:
    world = small_world(1)
    assert tuple(sorted(Troubles(world, world.chance("faults")).known)) == tuple(
        sorted((*KINDS, "move-destination", "voters"))
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(seed: int) -> None:
    assert not said(run_seed(seed, ClusterWorld))


@pytest.mark.parametrize("seed", TRADE_SEEDS)
def test_every_promise_of_trade_is_kept(seed: int) -> None:
    assert not said(run_seed(seed, ClusterTradeWorld))


def test_the_same_seed_gives_the_same_history() -> None:
    assert small_world(3, "kill-primary", "loss").run() == small_world(3, "kill-primary", "loss").run()


def test_every_group_of_the_configuration_gets_slots() -> None:
    """They were dealt once, to the groups that were formed by then."""
    world = ClusterWorld(2, replace(draw_settings(2), faults=()), shape=TWO_GROUPS)
    world.start()
    world.run_for(5.0)
    assert all(len(node.front.service.groups) == 2 for node in world.nodes() if node.front is not None)

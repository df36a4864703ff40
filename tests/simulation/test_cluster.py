"""Goal: no schedule of trouble breaks a promise of a whole cluster. Method: real nodes and clients in virtual time,
see angarium/sim/clusters; one seed draws the cluster's shape, its people and its trouble.

Trouble comes first (safety), then all is healed: everything confirmed has to drain, every copy to be in sync, and equal
(liveness). 300 runs and more are made here: each kind of trouble alone, every two together, with people who send and
receive, and with people who trade in transactions; the rest as the seed draws it.
Replay one: python -m angarium.sim --world cluster --seed 17 --last 100.
More of them: python -m angarium.sim --world cluster --seeds 500 --start 1000 --jobs 2.
"""
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from angarium.sim.clusters.faults import Troubles
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.trade import ClusterTradeWorld, MovingTradeWorld
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.world import Failure, Outcome, draw_settings, run_seed

SMALL = Shape({"a": ("n1", "n2", "n3")}, ("n1", "n3"), ("n1", "n2", "n3"))
WIDE = Shape({"a": ("n1", "n2", "n3"), "b": ("n3", "n4", "n5")}, ("n1", "n4"), ("n1", "n2", "n3"))
FIVE_VOTERS = replace(WIDE, voters=("n1", "n2", "n3", "n4", "n5"))
TWO_GROUPS = Shape({"a": ("n1", "n2", "n3"), "b": ("n2",)}, ("n1", "n3"), ("n1", "n2", "n3"))
KINDS = (
    "kill", "kill-primary", "kill-at-a-sync", "new-disk", "power-cut", "power-cut-of-all", "restart", "pause",
    "partition", "one-way", "cut-link", "cut-client", "loss", "disk-slow", "disk-full", "move-primary", "drain",
    "copies", "clock-set", "client-crash", "move-destination", "voters", "copies-elsewhere",
)  # fmt: skip
TRADE_KINDS = tuple(kind for kind in KINDS if kind != "clock-set")  # some messages are due at an hour
SEEDS, TRADE_SEEDS, CHUNK = 130, 100, 5
SMALL_SHAPES, TRADE_SHAPES = (SMALL, WIDE, FIVE_VOTERS), (TWO_GROUPS, FIVE_VOTERS)


def small_world(seed: int, *faults: str, shape: Shape = SMALL) -> ClusterWorld:
    settings = replace(draw_settings(seed), faults=faults, messages=60, trouble_s=4.0)
    return ClusterWorld(seed, settings, shape=shape)


def trading_world(seed: int, *faults: str, shape: Shape = TWO_GROUPS) -> MovingTradeWorld:
    return MovingTradeWorld(seed, replace(draw_settings(seed), faults=faults, trouble_s=4.0), shape=shape)


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
    shape = WIDE if kind in ("move-destination", "voters", "copies-elsewhere") else SMALL
    assert not said(run_seed(2, lambda seed: small_world(seed, kind, shape=shape)))


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
TRADING_TOGETHER = together(sorted(TRADE_KINDS), 5)


@pytest.mark.parametrize("run", range(len(TOGETHER)), ids=["+".join(kinds) for kinds in TOGETHER])
def test_every_two_kinds_of_trouble_together(run: int) -> None:
    assert not said(run_seed(run, lambda seed: small_world(seed, *TOGETHER[run], shape=WIDE)))


@pytest.mark.parametrize("run", range(len(TRADING_TOGETHER)), ids=["+".join(kinds) for kinds in TRADING_TOGETHER])
def test_every_two_kinds_of_trouble_together_under_transactions(run: int) -> None:
    assert not said(run_seed(run, lambda seed: trading_world(seed, *TRADING_TOGETHER[run])))


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
    assert tuple(sorted(Troubles(world, world.chance("faults")).known)) == tuple(sorted(KINDS))


def test_runs_are_as_many_as_promised() -> None:
    assert len(KINDS) + len(TOGETHER) + len(TRADING_TOGETHER) + SEEDS + TRADE_SEEDS >= 300
    for kinds, runs in ((KINDS, TOGETHER), (TRADE_KINDS, TRADING_TOGETHER)):
        assert {pair for run in runs for pair in combinations(run, 2)} == set(combinations(sorted(kinds), 2))


@pytest.mark.parametrize("seed", (0, 1))
def test_every_promise_is_kept_in_clusters_of_any_shape(seed: int) -> None:
    assert not said(run_seed(seed, ClusterWorld))


def test_the_only_voter_does_not_lose_its_disk() -> None:
    """Nobody promises to survive that: two nodes, one of which votes, where voters may be replaced but never are."""
    ClusterTradeWorld(947).run()


def test_a_slow_link_stalls_a_message_manager_itself() -> None:
    assert not said(run_seed(1, ClusterTradeWorld))


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    def world(seed: int) -> ClusterWorld:
        settings = replace(draw_settings(seed), messages=60, trouble_s=4.0)
        return ClusterWorld(seed, settings, shape=SMALL_SHAPES[seed % len(SMALL_SHAPES)])

    results = [run_seed(seed, world) for seed in range(first, first + CHUNK)]
    assert [(result.seed, said(result)) for result in results if said(result)] == []


@pytest.mark.parametrize("first", range(0, TRADE_SEEDS, CHUNK))
def test_every_promise_of_trade_is_kept(first: int) -> None:
    def world(seed: int) -> MovingTradeWorld:
        settings = replace(draw_settings(seed), trouble_s=4.0)
        return MovingTradeWorld(seed, settings, shape=TRADE_SHAPES[seed % len(TRADE_SHAPES)])

    results = [run_seed(seed, world) for seed in range(first, first + CHUNK)]
    assert [(result.seed, said(result)) for result in results if said(result)] == []


def test_the_same_seed_gives_the_same_history() -> None:
    assert small_world(3, "kill-primary", "loss").run() == small_world(3, "kill-primary", "loss").run()


def test_every_group_of_the_configuration_gets_slots() -> None:
    """They were dealt once, to the groups that were formed by then."""
    world = ClusterWorld(2, replace(draw_settings(2), faults=()), shape=TWO_GROUPS)
    world.start()
    world.run_for(5.0)
    assert all(len(node.front.service.groups) == 2 for node in world.nodes() if node.front is not None)

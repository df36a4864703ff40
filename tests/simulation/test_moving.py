"""Goal: destinations that are moved between replica groups, again and again, while clients use them and nodes die or
are cut off, break no promise: nothing confirmed is lost, nothing settled comes back, nobody gets anything twice, the
order of producers holds, and in the end every move is done or given up and no row is left where the destination is not.
Method: whole clusters in virtual time, with the checkers of all such worlds (`test_cluster.py`)."""
from dataclasses import replace

import pytest

from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.staging import ClusterStagingWorld
from angarium.sim.clusters.trade import MovingTradeWorld
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.staging import draw_staging_settings
from angarium.sim.world import Outcome, draw_settings, run_seed
from tests.simulation.test_cluster import said

TOGETHER = Shape({"a": ("n1", "n2", "n3"), "b": ("n2", "n3", "n1")}, ("n1", "n3"), ("n1", "n2", "n3"))
APART = Shape({"a": ("a1", "a2"), "b": ("b1", "b2"), "c": ("c1",)}, ("cm",), ("a1", "b1", "cm"))
MOVE = "move-destination"


def moving_world(seed: int, *faults: str, shape: Shape = TOGETHER) -> ClusterWorld:
    settings = replace(draw_settings(seed), faults=(MOVE, *faults), messages=80, trouble_s=5.0)
    return ClusterWorld(seed, settings, shape=shape)


def test_destinations_are_moved_and_nobody_loses_anything() -> None:
    result = run_seed(2, moving_world)
    assert not said(result) and isinstance(result, Outcome)
    assert result.tally["destinations opened"] >= 2 and result.confirmed == result.messages


@pytest.mark.parametrize(
    "faults",
    [("kill-primary",), ("kill-at-a-sync", "cut-client"), ("partition", "client-crash"), ("pause", "cut-link"),
     ("move-primary", "loss"), ("power-cut-of-all",), ("disk-full", "kill"), ("new-disk", "drain")],
    ids="+".join,
)  # fmt: skip
@pytest.mark.parametrize("shape", [TOGETHER, APART], ids=["together", "apart"])
def test_in_trouble(faults: tuple[str, ...], shape: Shape) -> None:
    assert not said(run_seed(5, lambda seed: moving_world(seed, *faults, shape=shape)))


@pytest.mark.parametrize("faults", [(), ("kill-primary",), ("partition", "cut-client")], ids="+".join)
def test_transactions_are_all_or_nothing_wherever_their_queues_are(faults: tuple[str, ...]) -> None:
    def world(seed: int) -> MovingTradeWorld:
        settings = replace(draw_settings(seed), faults=(MOVE, *faults), trouble_s=5.0)
        return MovingTradeWorld(seed, settings, shape=TOGETHER)

    result = run_seed(2, world)
    assert not said(result) and isinstance(result, Outcome) and result.tally["commits"]


@pytest.mark.parametrize("faults", [(), ("kill-primary",)], ids="+".join)
def test_what_is_staged_goes_along(faults: tuple[str, ...]) -> None:
    def world(seed: int) -> ClusterStagingWorld:
        settings = replace(draw_staging_settings(seed), faults=(MOVE, *faults))
        return ClusterStagingWorld(seed, settings, shape=TOGETHER)

    assert not said(run_seed(2, world))


def test_the_same_seed_moves_the_same() -> None:
    first, second = (moving_world(7, "kill-primary").run() for _ in range(2))
    assert first.digest == second.digest

"""Goal: the checkers of whole clusters can fail. Method: plant a bug of the protocol, and one of a few seeds, in
trouble of the kind that shows it, must catch it. What only luck shows here, such as a lower epoch that is accepted or
an order that is answered too early, the worlds of single parts are tried with (`test_replica_mutations.py` and others);
two more are in `test_cluster_stories.py`.
"""
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from angarium.core.destination.attendance import Attendance
from angarium.core.destination.events import Write
from angarium.node.cluster.front import FrontEnd
from angarium.node.cluster.replica import ReplicaHost
from angarium.sim.clusters.machinery import NodeDisk
from angarium.sim.clusters.trade import ClusterTradeWorld
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.messages import Violation
from angarium.sim.world import draw_settings
from tests.simulation import test_mutations as plain
from tests.simulation import test_spanning_mutations as spanning
from tests.simulation.test_cluster import TWO_GROUPS, small_world

SEEDS_MAX = 6

Plant = Callable[[pytest.MonkeyPatch], None]


class Where(NamedTuple):
    first: int  # a seed that is known to notice
    faults: tuple[str, ...]
    is_trade: bool = False


# -- in the node -------------------------------------------------------------------------------------------


def a_disk_says_that_it_is_durable_before_it_is(patch: pytest.MonkeyPatch) -> None:
    write = NodeDisk.write

    def lie(disk: NodeDisk, asked: Write) -> None:
        write(disk, asked)
        disk._loop.call_soon(disk._written, [asked.token])

    patch.setattr(NodeDisk, "write", lie)
    patch.setattr(NodeDisk, "written", lambda disk, tokens: None)


def a_new_primary_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FrontEnd, "_begin_anew", lambda front, group: None)


def a_dead_client_manager_is_not_spoken_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaHost, "client_manager_gone", lambda host, incarnation: None)


def a_session_is_taken_over_without_a_word(patch: pytest.MonkeyPatch) -> None:
    heard = Attendance.heard

    def mutant(self: Attendance, *said: Any, **turn: Any) -> Any:
        before = heard(self, *said, **turn)
        return before if before is None else []

    patch.setattr(Attendance, "heard", mutant)


CAUGHT: dict[Plant, Where] = {
    a_disk_says_that_it_is_durable_before_it_is: Where(4, ("power-cut-of-all",)),
    a_new_primary_is_not_noticed: Where(2, ("kill-primary",)),
    a_dead_client_manager_is_not_spoken_for: Where(10, ("kill",)),
    a_session_is_taken_over_without_a_word: Where(2, ("cut-client", "pause")),
    plain.confirm_before_durable: Where(0, ("kill-primary",)),
    plain.forget_sequences_on_restart: Where(2, ("kill-primary", "cut-client")),
    spanning.presumed_commit: Where(12, ("kill-primary",), is_trade=True),
    spanning.final_before_the_decision_is_durable: Where(0, ("kill-primary",), is_trade=True),
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first, faults, is_trade = CAUGHT[plant]
    for seed in range(first, first + SEEDS_MAX):
        try:
            world_of(seed, faults, is_trade).run()
        except Violation as caught:  # anything else is a plant that no longer fits the code
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"no promise noticed {plant.__name__} in {SEEDS_MAX} seeds")


def world_of(seed: int, faults: tuple[str, ...], is_trade: bool) -> ClusterWorld:
    if not is_trade:
        return small_world(seed, *faults)
    settings = replace(draw_settings(seed), faults=faults, trouble_s=4.0)
    return ClusterTradeWorld(seed, settings, shape=TWO_GROUPS)


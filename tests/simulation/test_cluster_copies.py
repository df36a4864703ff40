"""Goal: copies of replica groups are removed, their stores deleted, and made anew, there or on other nodes, whatever
happens meanwhile: every promise is kept, no store is deleted that is counted on; and what breaks that is seen.
Method: whole clusters in virtual time; then bugs planted in who decides what to delete."""
from collections.abc import Callable, Coroutine

import pytest

from angarium.core.groups.configuration import GroupConfiguration
from angarium.node.cluster.hosting import Hosting
from angarium.sim.world import Outcome, run_seed
from tests.simulation.planted import assert_noticed
from tests.simulation.test_cluster import WIDE, said, small_world

COPIES = ("copies", "copies", "copies-elsewhere")
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    "faults",
    [(), ("kill",), ("power-cut-of-all",), ("restart", "disk-full"), ("partition", "pause"), ("new-disk", "voters"),
     ("move-primary", "move-destination"), ("kill-at-a-sync", "disk-slow")],
    ids="+".join,
)  # fmt: skip
def test_copies_go_and_come(faults: tuple[str, ...]) -> None:
    result = run_seed(5, lambda seed: small_world(seed, *COPIES, *faults, shape=WIDE))
    assert not said(result) and isinstance(result, Outcome)
    assert result.tally["copies deleted"] and result.tally["copies opened anew"]


def what_was_decided_long_ago_deletes_what_counts_now(patch: pytest.MonkeyPatch) -> None:
    def is_removed(hosting: Hosting, before: GroupConfiguration | None, configuration: GroupConfiguration) -> bool:
        is_held = configuration.group in hosting.replicas and before is not None and configuration.is_formed
        return is_held and before is not None and hosting._name in set(before.members) - set(configuration.members)

    patch.setattr(Hosting, "is_removed", is_removed)


def a_store_is_opened_while_it_is_deleted(patch: pytest.MonkeyPatch) -> None:
    let_go = Hosting.let_go

    def hasty(hosting: Hosting, group: str) -> Coroutine[None, None, None]:
        going = let_go(hosting, group)
        hosting._busy.discard(group)
        return going

    patch.setattr(Hosting, "let_go", hasty)


CAUGHT: dict[Plant, tuple[int, tuple[str, ...]]] = {  # and a seed that is known to notice, with what troubles
    what_was_decided_long_ago_deletes_what_counts_now: (1, ("power-cut-of-all",)),
    a_store_is_opened_while_it_is_deleted: (0, ("pause",)),
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first, faults = CAUGHT[plant]
    seeds = [first, *(seed for seed in range(8) if seed != first)]
    assert_noticed(plant.__name__, seeds, lambda seed: small_world(seed, "copies", "copies", *faults, shape=WIDE))

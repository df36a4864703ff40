"""Goal: the audit of post can fail. Method: plant a bug, and some seed among a few must catch it.

The machines' own invariants (`MessageManager.check`) are switched off here: it is the promises that have to notice.
"""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.destination import delivery, line, publishing
from angarium.core.destination.destination import Destination
from angarium.core.destination.line import Line
from angarium.core.destination.pages import SELECTOR_PAGE
from angarium.core.destination.subscription_record import StoredSubscription
from angarium.core.selector.index import SelectorIndex
from angarium.sim.post import PostWorld
from angarium.sim.world import draw_settings
from tests.simulation.planted import assert_noticed

SEEDS_MAX = 120

Plant = Callable[[pytest.MonkeyPatch], None]


def selectors_of_consumers_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(line, "_wants", lambda consumer, fields, index: True)


def selectors_of_subscriptions_are_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    restore = Destination.restore_subscription

    def mutant(self: Destination, name: str, stored: StoredSubscription, *others: Any, **when: Any) -> Any:
        stored.pages.pop(SELECTOR_PAGE, None)
        return restore(self, name, stored, *others, **when)

    patch.setattr(Destination, "restore_subscription", mutant)


def the_index_finds_everybody(patch: pytest.MonkeyPatch) -> None:
    add = SelectorIndex.add
    patch.setattr(SelectorIndex, "add", lambda self, key, selector: add(self, key, None))


def the_index_finds_nobody_for_the_last_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    match_batch = SelectorIndex.match_batch

    def mutant(self: SelectorIndex[str], messages: Any) -> Any:
        return [*match_batch(self, messages)[:-1], []]

    patch.setattr(SelectorIndex, "match_batch", mutant)


def a_group_is_anybodys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "_owner", lambda self, bucket, fields, index: None)


def a_group_moves_although_its_owner_may_come_back(patch: pytest.MonkeyPatch) -> None:
    leave = Line.leave
    patch.setattr(Line, "leave", lambda self, consumer, *, may_return: leave(self, consumer, may_return=False))


def groups_stay_with_those_who_are_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "_disown", lambda self, keys: None)


def messages_that_are_looked_at_are_taken_backwards(patch: pytest.MonkeyPatch) -> None:
    look = delivery._look

    def mutant(subscription: Any, batch: Any, base: int, free: Any, behind: Any, result: Any) -> None:
        for low, high in reversed(free):
            for position in reversed(range(low, high)):
                look(subscription, batch, base, [(position, position + 1)], behind, result)

    patch.setattr(delivery, "_look", mutant)


def later_ones_are_given_to_who_waits_for_earlier_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(delivery, "is_behind", lambda subscription, consumer, position: False)


def every_priority_has_the_same_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publishing, "split_by_lane", lambda batch: ((0, batch),))


MUTATIONS: Sequence[Plant] = (
    selectors_of_consumers_are_ignored, selectors_of_subscriptions_are_forgotten_on_restart, the_index_finds_everybody,
    the_index_finds_nobody_for_the_last_of_a_batch, a_group_is_anybodys,
    a_group_moves_although_its_owner_may_come_back, groups_stay_with_those_who_are_gone,
    messages_that_are_looked_at_are_taken_backwards, later_ones_are_given_to_who_waits_for_earlier_ones,
    every_priority_has_the_same_lane,
)  # fmt: skip


# Where to begin, for those that take luck: a seed that is known to notice.
FIRST = {
    "selectors_of_subscriptions_are_forgotten_on_restart": 11, "groups_stay_with_those_who_are_gone": 28,
    "later_ones_are_given_to_who_waits_for_earlier_ones": 59,
}  # fmt: skip


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seeds = range(FIRST.get(plant.__name__, 0), SEEDS_MAX)
    assert_noticed(plant.__name__, seeds, lambda seed: PostWorld(seed, replace(draw_settings(seed), check_every=0)))

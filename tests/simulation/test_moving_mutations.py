"""Goal: what is promised of destinations that are moved can be seen to be broken. Method: plant a bug in a step of the
move, and one of a few seeds must catch it."""
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from angarium.core.destination.destination import Destination
from angarium.core.destination.destinations import Destinations
from angarium.core.destination.events import Write
from angarium.core.moving import departures
from angarium.core.moving.departures import Departure, Departures
from angarium.core.moving.moves import Moves
from angarium.core.session.client_manager import ClientManager
from angarium.core.storage import Table
from tests.simulation.planted import assert_noticed
from tests.simulation.test_moving import moving_world

SEEDS_MAX = 8
Plant = Callable[[pytest.MonkeyPatch], None]


class Where(NamedTuple):
    first: int  # a seed that is known to notice
    faults: tuple[str, ...] = ()


def _without(patch: pytest.MonkeyPatch, *tables: Table) -> None:
    patch.setattr(departures, "_TABLES", tuple(table for table in departures._TABLES if table not in tables))


def the_sequences_of_producers_stay_behind(patch: pytest.MonkeyPatch) -> None:
    _without(patch, Table.PRODUCER)


def what_is_settled_stays_behind(patch: pytest.MonkeyPatch) -> None:
    _without(patch, Table.SUBSCRIPTION, Table.PAGE)


def who_held_what_stays_behind(patch: pytest.MonkeyPatch) -> None:
    _without(patch, Table.ATTACHED)


def the_source_goes_on_while_it_is_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Destinations, "_forget", lambda manager, destination: None)


def it_is_copied_before_its_last_write_is_durable(patch: pytest.MonkeyPatch) -> None:
    take_out = Departures._take_out

    def hasty(self: Departures, departure: Departure, destination: Destination, now: float) -> Any:
        return [*take_out(self, departure, destination, now), *self._emptied(departure, now)]

    patch.setattr(Departures, "_take_out", hasty)


def nobody_is_told_that_it_has_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientManager, "_destinations_moved", lambda manager, groups, is_unsure: [])


def the_source_keeps_what_has_moved(patch: pytest.MonkeyPatch) -> None:
    departed = Moves._departed

    def mutant(self: Moves, name: str, now: float) -> Any:
        commands = departed(self, name, now)
        is_gone = self._place(name) != self._group
        return [
            msgspec.structs.replace(command, operations=[]) if is_gone and isinstance(command, Write) else command
            for command in commands
        ]

    patch.setattr(Moves, "_departed", mutant)


CAUGHT: dict[Plant, Where] = {
    the_sequences_of_producers_stay_behind: Where(5),
    what_is_settled_stays_behind: Where(0),
    who_held_what_stays_behind: Where(0),
    the_source_goes_on_while_it_is_copied: Where(0),
    it_is_copied_before_its_last_write_is_durable: Where(10),
    nobody_is_told_that_it_has_moved: Where(0),
    the_source_keeps_what_has_moved: Where(0),
}


@pytest.mark.parametrize("plant", CAUGHT, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    where = CAUGHT[plant]
    seeds = [where.first, *(seed for seed in range(SEEDS_MAX) if seed != where.first)]
    assert_noticed(plant.__name__, seeds, lambda seed: moving_world(seed, *where.faults))

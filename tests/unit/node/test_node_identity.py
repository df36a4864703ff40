"""Goal: no two ids are ever equal, across restarts of a node and among nodes, also when the clock goes back.
Method: many starts of one node on one store, with clocks that jump; every id that was made is kept."""
from random import Random

import pytest

from angarium.core.ids import NODE_MAX
from angarium.core.storage import Put, Table
from angarium.node.identity import Identity, take_up_identity

NOW_MS = 1_700_000_000_000


def start(stored: dict[bytes, bytes], *, wall_ms: int, chance: int = 5, site: int = 0) -> Identity:
    """A start of the node, as far as its identity goes: what has to be written is written first."""
    identity = take_up_identity(stored, site=site, wall_ms=wall_ms, chance=chance)
    for operation in identity.operations:
        assert isinstance(operation, Put)
        assert operation.table == Table.NODE
        stored[operation.key] = operation.value
    return identity


@pytest.mark.parametrize("seed", range(30))
def test_ids_are_unique_across_restarts_whatever_the_clock_does(seed: int) -> None:
    random = Random(seed)
    stored: dict[bytes, bytes] = {}
    made: list[bytes] = []
    wall_ms = NOW_MS
    for _ in range(50):
        wall_ms += random.choice([0, 0, 1, 1_000, -1, -1_000, -100_000_000])
        identity = start(stored, wall_ms=wall_ms, chance=random.getrandbits(64))
        made += [identity.incarnation, *(identity.ids.next() for _ in range(random.randint(0, 5)))]
    assert len(set(made)) == len(made)
    assert made == sorted(made), "later ids of one node sort behind earlier ones"


def test_the_number_is_drawn_once_and_kept() -> None:
    stored: dict[bytes, bytes] = {}
    first = start(stored, wall_ms=NOW_MS, chance=1 << 70 | 77)
    second = start(stored, wall_ms=NOW_MS + 10, chance=99)
    assert first.incarnation[8:11] == second.incarnation[8:11] == (77).to_bytes(3, "big")


def test_nodes_that_start_in_the_same_millisecond_differ_by_their_numbers() -> None:
    made = {start({}, wall_ms=NOW_MS, chance=number).incarnation for number in (0, 1, NODE_MAX)}
    assert len(made) == 3
    assert start({}, wall_ms=NOW_MS, chance=0, site=1).incarnation not in made


def test_what_was_not_written_before_a_crash_was_not_used_either() -> None:
    """A start whose operations were lost may be repeated: the next one makes the same ids, and nobody has seen them."""
    stored: dict[bytes, bytes] = {}
    start(stored, wall_ms=NOW_MS)
    before = dict(stored)
    first = take_up_identity(stored, site=0, wall_ms=NOW_MS - 5, chance=1)
    assert stored == before, "taking up an identity writes nothing by itself"
    assert take_up_identity(stored, site=0, wall_ms=NOW_MS - 5, chance=2).incarnation == first.incarnation


@pytest.mark.parametrize("wall_ms", [0, -1, -NOW_MS])
def test_a_clock_before_1970_still_makes_ids(wall_ms: int) -> None:
    stored: dict[bytes, bytes] = {}
    made = [start(stored, wall_ms=wall_ms).incarnation for _ in range(3)]
    assert len(set(made)) == 3

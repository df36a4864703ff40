"""Goal: ids are unique and sort as they were made; names allow what the protocol says, and nothing else."""
import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.errors import Rejected
from angarium.core.ids import (
    COUNTER_BITS,
    DESTINATION_BITS,
    GLOBAL_ID_BYTES,
    GROUP_MAX,
    NODE_MAX,
    SITE_MAX,
    GlobalIds,
    destination_id,
    format_id,
    group_of,
    message_id,
)
from angarium.core.names import NAME_CHARACTERS_MAX, check_name, dead_message_queue_of, group_named
from tests.unit.core.core_settings import THOROUGH


def test_ids_of_one_incarnation_ascend_and_never_repeat() -> None:
    ids = GlobalIds(start_ms=1_700_000_000_000, site=1, node=2)
    made = [ids.next() for _ in range(1_000)]
    assert all(a < b for a, b in pairwise(made))
    assert {len(identity) for identity in made} == {GLOBAL_ID_BYTES}


@THOROUGH
@given(
    st.lists(
        st.tuples(st.integers(0, (1 << 48) - 2), st.integers(0, SITE_MAX), st.integers(0, NODE_MAX)),
        min_size=2, max_size=6, unique=True,
    )
)  # fmt: skip
def test_ids_of_different_starts_sites_and_nodes_never_meet(makers: list[tuple[int, int, int]]) -> None:
    generators = [GlobalIds(start_ms=start, site=site, node=node) for start, site, node in makers]
    made = [generator.next() for generator in generators for _ in range(3)]
    assert len(set(made)) == len(made)


@given(st.integers(0, GROUP_MAX), st.integers(0, (1 << DESTINATION_BITS) - 1))
def test_a_destinations_id_tells_its_group(group: int, number: int) -> None:
    identity = destination_id(group, number)
    assert group_of(identity) == group
    assert identity.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize("group", [-1, GROUP_MAX + 1])
def test_a_group_that_has_no_ids(group: int) -> None:
    with pytest.raises(ValueError, match="group"):
        destination_id(group, 1)


def test_an_overflowing_counter_moves_on_to_the_next_millisecond() -> None:
    ids = GlobalIds(start_ms=5, site=0, node=7)
    ids._counter = (1 << COUNTER_BITS) - 1
    last, first = ids.next(), ids.next()
    assert last < first
    assert first == GlobalIds(start_ms=6, site=0, node=7).next()


@pytest.mark.parametrize(("site", "node"), [(-1, 0), (SITE_MAX + 1, 0), (0, -1), (0, NODE_MAX + 1)])
def test_numbers_that_would_spill_into_their_neighbours_are_refused(site: int, node: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        GlobalIds(start_ms=1, site=site, node=node)


@THOROUGH
@given(st.binary(min_size=16, max_size=16), st.integers(0, (1 << 64) - 1))
def test_what_people_see_of_an_id_names_it_alone(identity: bytes, sequence: int) -> None:
    for value in (identity, message_id(identity, sequence)):
        text = format_id(value)
        assert text.startswith("ID:")
        padded = text[3:] + "=" * (-len(text[3:]) % 8)
        assert base64.b32decode(padded) == value


@pytest.mark.parametrize("name", ["a", "orders", "a.b.c", "A-1_x.9", "x" * NAME_CHARACTERS_MAX, "a._b"])
def test_good_names_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "bad-name"), (".", "bad-name"), ("a.", "bad-name"), (".a", "bad-name"), ("a..b", "bad-name"),
        ("a b", "bad-name"), ("a\n", "bad-name"), ("ä", "bad-name"), ("a/b", "bad-name"), ("#a", "bad-name"),
        ("x" * (NAME_CHARACTERS_MAX + 1), "bad-name"), ("_ADMIN", "reserved-name"), ("_", "reserved-name"),
    ],
)  # fmt: skip
def test_bad_names_are_refused_with_a_stable_code(name: str, code: str) -> None:
    with pytest.raises(Rejected) as refusal:
        check_name(name)
    assert refusal.value.code == code


_ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@THOROUGH
@given(st.one_of(st.text(max_size=8), st.text("aZ9-_. ä\n", max_size=8)))
def test_a_name_is_dot_separated_segments_or_it_is_rejected(name: str) -> None:
    good = all(segment and set(segment) <= _ALLOWED for segment in name.split(".")) and name[0] != "-"
    expected = "bad-name" if not good else "reserved-name" if name.startswith("_") else ""
    try:
        check_name(name)
        code = ""
    except Rejected as refusal:
        code = refusal.code
    assert code == expected


def test_a_groups_dead_message_queue_may_be_read_and_no_more() -> None:
    assert [group_named(name) for name in ("_DMQ.2", "_DMQ", "_DMQ.0", "_DMQ.x", "_DMQ.2.3", "orders.2")] == [
        2, None, None, None, None, None
    ]  # fmt: skip
    check_name(dead_message_queue_of(12), reading=True)
    for name in ("_DMQ.x", "_DMQ.0"):
        with pytest.raises(Rejected):
            check_name(name, reading=True)
    with pytest.raises(Rejected):
        check_name("_DMQ.2", sending=True)

"""Goal: a RangeSet is a set of integers, and Redeliveries a count for each integer, whatever is done to them.
Method: the same operations on a plain set and a plain dict; everything readable is compared after each."""
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.destination.redeliveries import Redeliveries
from angarium.core.ranges import Range, RangeSet
from tests.unit.core.core_settings import THOROUGH

_END = 24  # small enough that ranges touch, nest and cross all the time
_bounds = st.tuples(st.integers(0, _END), st.integers(0, _END))
_operations = st.lists(st.tuples(st.sampled_from(["add", "remove"]), _bounds), max_size=40)


def members(ranges: list[Range]) -> list[int]:
    """The integers of ranges, which must be proper, ascending and disjoint."""
    found: list[int] = []
    for low, high in ranges:
        assert low < high, f"{ranges} has an empty range"
        assert not found or low > found[-1], f"{ranges} does not ascend"
        found += range(low, high)
    return found


def as_ranges(values: set[int]) -> list[Range]:
    """The one way to write a set of integers as merged ranges."""
    starts = [value for value in sorted(values) if value - 1 not in values]
    ends = [value + 1 for value in sorted(values) if value + 1 not in values]
    return list(zip(starts, ends, strict=True))


@pytest.fixture(params=[(2_000, 512), (3, 1), (4, 2)], ids=["flat", "chunks of 1", "chunks of 2"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets become large, and small again, within a few steps."""
    flat, chunk = request.param
    monkeypatch.setattr("angarium.core.ranges.FLAT_RANGES_MAX", flat)
    monkeypatch.setattr("angarium.core.large_ranges.CHUNK_RANGES", chunk)


@pytest.mark.usefixtures("sizes")
@THOROUGH
@given(_operations, _bounds)
def test_a_range_set_is_a_set_of_integers(operations: list[tuple[str, Range]], window: Range) -> None:
    ranges, model = RangeSet(), set[int]()
    for operation, (low, high) in operations:
        touched = set(range(low, high))
        if operation == "add":
            ranges.add(low, high)
            model |= touched
        else:
            assert members(ranges.remove(low, high)) == sorted(model & touched)
            model -= touched
        assert list(ranges) == as_ranges(model), "ranges are sorted, disjoint, and neighbours are merged"
        assert ranges.count == len(model)
        assert len(ranges) == len(as_ranges(model))
        assert bool(ranges) == bool(model)
        assert ranges.first() == next(iter(as_ranges(model)), None)
    assert [value in ranges for value in range(-1, _END + 2)] == [value in model for value in range(-1, _END + 2)]
    low, high = window
    wanted = set(range(low, high))
    assert ranges.first_in(low, high) == next(iter(ranges.overlap(low, high)), None)
    merged = as_ranges(model)
    assert ranges.starting_in(low, high) == [part for part in merged if low <= part[0] < high]
    reached = [part[0] for part in merged if part[0] < high and part[1] > low]
    assert ranges.beginnings_in_reach(low, high) == (reached if low < high else [])
    adjacent = [part[0] for part in merged if part[0] <= high and part[1] >= low]
    assert ranges.beginnings_in_reach(low, high, touching=True) == adjacent or low > high
    assert members(ranges.gaps(low, high)) == sorted(wanted - model)
    if low < high:
        assert members(ranges.overlap(low, high)) == sorted(wanted & model)
    assert ranges == RangeSet(as_ranges(model)), "equality is that of the integers, not of the history"


@pytest.mark.usefixtures("sizes")
@THOROUGH
@given(st.lists(_bounds, max_size=12), st.lists(_bounds, max_size=12))
def test_range_sets_are_equal_when_their_integers_are(first: list[Range], second: list[Range]) -> None:
    values = [{value for bounds in ranges for value in range(*bounds)} for ranges in (first, second)]
    assert (RangeSet(first) == RangeSet(second)) == (values[0] == values[1])


# Once: inside a range, an empty window overlaps with an empty range: [(5, 5)] instead of [].
@pytest.mark.parametrize("window", [(5, 5), (6, 4)])
def test_an_empty_window_overlaps_with_nothing(window: Range) -> None:
    assert RangeSet([(3, 8)]).overlap(*window) == []


def test_a_large_set_is_one_that_was_never_large() -> None:
    """At its real size: settled in no order, and then back to one range."""
    positions, model, ranges = list(range(0, 12_000, 2)), RangeSet(), RangeSet()
    random.Random(7).shuffle(positions)
    for count, position in enumerate(positions, 1):
        ranges.add(position, position + 1)
        assert len(ranges) == ranges.count == count
    assert list(ranges) == [(position, position + 1) for position in sorted(positions)]
    assert ranges != model
    for position in positions:
        ranges.add(position + 1, position + 2)
    assert list(ranges) == [(0, 12_000)] and len(ranges) == 1
    for position in positions:
        assert ranges.remove(position, position + 1) == [(position, position + 1)]
    assert list(ranges) == [(position + 1, position + 2) for position in sorted(positions)]
    assert ranges.remove(1_000, 11_000)[:2] == [(1_001, 1_002), (1_003, 1_004)] and ranges.count == 1_000


def test_memory_follows_holes_not_integers() -> None:
    ranges = RangeSet()
    for low in range(0, 10_000, 10):
        ranges.add(low, low + 10)
    assert list(ranges) == [(0, 10_000)]


_calls = st.lists(
    st.tuples(st.sampled_from(["raise", "mark", "drop", "store"]), st.integers(0, _END), st.integers(1, 8)),
    max_size=30,
)


@THOROUGH
@given(_calls)
def test_redeliveries_are_a_count_for_each_position(calls: list[tuple[str, int, int]]) -> None:
    redeliveries, model = Redeliveries(), dict[int, int]()
    for call, low, length in calls:
        high = low + length
        match call:
            case "raise":
                redeliveries.raise_by_one(low, high)
                model.update({position: model.get(position, 0) + 1 for position in range(low, high)})
            case "mark":
                redeliveries.mark_delivered(low, high)
                model.update({position: model.get(position, 1) for position in range(low, high)})
            case "drop":
                redeliveries.drop(low, high)
                model = {position: count for position, count in model.items() if not low <= position < high}
            case "store":
                stored, redeliveries = redeliveries.starting_in(0, 2 * _END), Redeliveries()
                for count, ranges in stored.items():
                    redeliveries.restore(count, ranges)
        assert redeliveries.count == len(model)
        assert redeliveries.of(low, high) in (
            [model.get(position, 0) for position in range(low, high)],
            [] if not model.keys() & set(range(low, high)) else None,
        ), "counts in order; empty only when all are zero"
        everything = redeliveries.of(0, 2 * _END)
        assert (everything or [0] * 2 * _END) == [model.get(position, 0) for position in range(2 * _END)]
        levels = redeliveries.starting_in(0, 2 * _END)
        assert all(levels.values()), "no level is kept for nothing"
        assert sum(high - low for ranges in levels.values() for low, high in ranges) == len(model)


def test_releasing_a_backlog_costs_one_range() -> None:
    redeliveries = Redeliveries()
    for low in range(0, 1_000, 10):
        redeliveries.raise_by_one(low, low + 10)
    redeliveries.raise_by_one(0, 1_000)
    assert redeliveries.starting_in(0, 1_000) == {2: [(0, 1_000)]}

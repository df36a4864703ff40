"""Goal: the layer in memory behaves like a set of keys, and does not grow while a prefix is freed again and again."""
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store import sorted_keys
from angarium.store.memtable import KeyRanges, Layer, Memtable, merged
from angarium.store.sorted_keys import SortedKeys

ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30)


def key(number: int) -> bytes:
    return b"%02d" % number


@given(ranges)
@settings(max_examples=200, deadline=None)
def test_ranges_like_a_set(added: list[tuple[int, int]]) -> None:
    model: set[int] = set()
    found = KeyRanges()
    for low, high in added:
        found.add(key(low), key(high))
        model.update(range(low, high))
        assert {n for n in range(41) if found.end_of(key(n)) is not None} == model
    bounds = list(found)
    assert all(low < high for low, high in bounds)
    assert all(before[1] < after[0] for before, after in pairwise(bounds))  # they neither overlap nor touch


@given(ranges, st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_overlapping(added: list[tuple[int, int]], low: int, high: int) -> None:
    whole = KeyRanges((key(a), key(b)) for a, b in added)
    expected = [(a, b) for a, b in whole if a < key(high) and b > key(low)] if low < high else []
    assert list(whole.overlapping(key(low), key(high))) == expected


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.integers(0, 99)), max_size=60)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_sorted_keys_like_a_set(taken: list[tuple[bool, int, int]]) -> None:
    model: set[bytes] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_keys, "CHUNK_KEYS_MAX", 4)
        found = SortedKeys()
        for adds, first, second in taken:
            low, high = key(first), key(second)
            if adds and low not in model:
                found.add(low)
                model.add(low)
            elif not adds:
                assert found.remove(low, high) == sorted(at for at in model if low <= at < high)
                model = {at for at in model if not low <= at < high}
            assert list(found) == sorted(model)
            assert list(found.between(low, high)) == sorted(at for at in model if low <= at < high)
            assert found.at_or_before(low) == max((at for at in model if at <= low), default=None)
            assert len(found) == len(model)


def test_freeing_a_growing_prefix_keeps_one_tombstone() -> None:
    memtable = Memtable()
    for end in range(1, 1_000):
        memtable.apply([Put(Table.BATCH, position_key(5, end), b"batch")])
        memtable.apply([DeleteRange(Table.BATCH, key_of(5), position_key(5, end + 1))])
    assert len(memtable[Table.BATCH].tombstones) == 1
    assert len(memtable[Table.BATCH].keys) == 0
    assert memtable.memory_bytes == 0


def test_adjacent_tombstones_merge() -> None:
    memtable = Memtable()
    for end in range(1, 1_000):
        memtable.apply([DeleteRange(Table.BATCH, position_key(5, end), position_key(5, end + 1))])
    assert len(memtable[Table.BATCH].tombstones) == 1


def test_merged_jumps_over_what_the_upper_layer_deleted() -> None:
    top, bottom = Layer(), Layer()
    for number in range(30):
        bottom.put(key(number), b"old")
    top.delete(key(5), key(20))
    top.put(key(10), b"new")
    found = merged(top, bottom, key(3), key(23), limit=100, bytes_max=1 << 20)
    assert [item.key for item in found] == [key(n) for n in (3, 4, 10, 20, 21, 22)]
    assert found[2].value == b"new"

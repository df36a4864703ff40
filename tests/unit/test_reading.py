"""Goal: of what was read, a damaged batch costs nothing but itself, also if its key is what was damaged.
Method: a store that answers a scan with what the test says."""
from collections.abc import Sequence
from typing import cast

import pytest

from angarium.core.destination.events import DamagedBatch, Read, StoredBatch
from angarium.core.storage import Table, position_key
from angarium.core.wire.packing import pack
from angarium.runtime.reading import read_from_store
from angarium.store.interface import Damaged, Item, Store

TEN = pack(b"p" * 16, 1, 0, [b"x"] * 10)


class Found:
    def __init__(self, items: Sequence[Item | Damaged]) -> None:
        self._items = items

    def scan(self, _: Table, low: bytes, high: bytes, limit: int, bytes_max: int) -> Sequence[Item | Damaged]:
        found: list[Item | Damaged] = []
        for item in self._items:
            if low <= item.key < high and len(found) < limit and bytes_max > 0:
                found.append(item)
                bytes_max -= len(item.value if isinstance(item, Item) else item.raw)
        return found


def whole(end: int) -> Item:
    return Item(position_key(1, end), TEN)


def damaged(end: int) -> Damaged:
    return Damaged(position_key(1, end), b"raw")


@pytest.mark.parametrize(
    ("items", "ends"),
    [
        ([whole(10), damaged(20), whole(30)], [10, 20, 30]),
        ([whole(10), damaged(27), whole(30)], [10, 20, 30]),  # it would reach into the last one
        ([damaged(10), damaged(27), whole(30)], [10, 20, 30]),
        ([whole(10), damaged(27)], [10]),  # what it reaches into is read with it next time
        ([damaged(10), damaged(20)], [10]),
        ([damaged(27)], [27]),
        ([], []),
    ],
)
def test_a_damaged_batch_does_not_reach_into_the_next_one(items: Sequence[Item | Damaged], ends: list[int]) -> None:
    read = read_from_store(cast(Store, Found(items)), Read(0, 1, 0, 1 << 20, 30))
    assert [batch.end for batch in read] == ends
    kinds = [DamagedBatch if isinstance(item, Damaged) else StoredBatch for item in items][: len(ends)]
    assert [type(batch) for batch in read] == kinds


def test_a_damaged_batch_that_is_as_long_as_a_read_does_not_reach_into_the_next_one() -> None:
    """Once it was read alone: what of the next one came before the end that its key told was set aside with it."""
    store = Found([whole(10), damaged(27), whole(30)])
    read = read_from_store(cast(Store, store), Read(0, 1, 10, len(b"raw"), 30))
    assert [(type(batch), batch.end) for batch in read] == [(DamagedBatch, 20), (StoredBatch, 30)]

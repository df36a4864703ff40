"""Goal: of what was read, a damaged batch costs nothing but itself, also if its key is what was damaged.
Method: a store that answers a scan with what the test says."""
from collections.abc import Sequence
from typing import Any, cast

import pytest

from angarium.core.destination.events import DamagedBatch, Read, StoredBatch
from angarium.core.storage import position_key
from angarium.core.wire.packing import pack
from angarium.runtime.reading import read_from_store
from angarium.store.interface import Damaged, Item, Store

TEN = pack(b"p" * 16, 1, 0, [b"x"] * 10)


class Found:
    def __init__(self, items: Sequence[Item | Damaged]) -> None:
        self._items = items

    def scan(self, *_: object, **__: Any) -> Sequence[Item | Damaged]:
        return self._items


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

"""What a durable subscription remembers of single positions, filed in pages: a write stores only those that it changes.

A run of positions is on the page of its first one, whole, however long it is: so settling a long stretch changes one
page, and many holes are divided among many. A page holds what begins on it:

    settled        beyond the cursor of its lane
    redeliveries   delivered before, by how often
    doomed         to be buried, by reason
    passed over    never delivered, or given back unseen, although something later in its lane was

`NotedRanges` is a set of ranges that notes on which pages something has changed. Whoever writes a subscription writes
its record and all pages noted, in one write. So pages are never written without the record: on a full disk the rule
for records (`overtaking`) keeps them in order, too.
"""
from collections.abc import Iterable

import msgspec

from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import DeleteRange, Table, key_of

PAGE_BITS = 10  # positions of a page: at most half as many runs begin there, each of a few bytes
SELECTOR_PAGE = (1 << 64) - 1  # not of positions: the subscription's selector, which is written once
_PAGE_BYTES = 8


class PageRecord(msgspec.Struct, array_like=True, frozen=True):
    """Positions count from the beginning of the page."""

    settled: list[Range] = []
    redeliveries: dict[int, list[Range]] = {}
    doomed: dict[str, list[Range]] = {}
    passed_over: list[Range] = []


def page_of(position: int) -> int:
    return position >> PAGE_BITS


def positions_of(page: int) -> Range:
    return page << PAGE_BITS, (page + 1) << PAGE_BITS


class NotedRanges(RangeSet):
    __slots__ = ("_pages",)

    def __init__(self, pages: set[int], ranges: Iterable[Range] = ()) -> None:
        self._pages = pages
        super().__init__(ranges)

    def add(self, low: int, high: int) -> None:
        if low >= high:
            return
        self._pages.update(map(page_of, self.beginnings_in_reach(low, high, touching=True)))
        self._pages.add(page_of(low))
        super().add(low, high)

    def remove(self, low: int, high: int) -> list[Range]:
        if low >= high:
            return []
        if beginnings := self.beginnings_in_reach(low, high):
            self._pages.update(map(page_of, beginnings))
            self._pages.add(page_of(high))  # what is left of the last run begins there
        return super().remove(low, high)


def page_prefix(destination: int, name: str) -> bytes:
    encoded = name.encode()
    return key_of(destination, len(encoded).to_bytes(2, "big") + encoded)


def page_key(destination: int, name: str, page: int) -> bytes:
    return page_prefix(destination, name) + page.to_bytes(_PAGE_BYTES, "big")


def parse_page_key(key: bytes) -> tuple[int, str, int]:
    """Destination, subscription, page."""
    name_end = 10 + int.from_bytes(key[8:10], "big")
    return int.from_bytes(key[:8], "big"), key[10:name_end].decode(), int.from_bytes(key[name_end:], "big")


def delete_pages(destination: int, name: str) -> DeleteRange:
    prefix = page_prefix(destination, name)
    return DeleteRange(Table.PAGE, prefix, prefix + b"\xff" * (_PAGE_BYTES + 1))

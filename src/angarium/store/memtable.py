"""The effects of one journal segment, in memory: for each table the values put, in key order, and the ranges deleted.

A memtable is a layer over older layers (another memtable, LMDB). A deletion removes what the layer itself holds and is
remembered as a *tombstone* for what lies beneath. So every value present was put after every tombstone that covers it,
and the layer may be written down as "tombstones first, then values".

Touching tombstones merge: freeing a growing prefix again and again keeps one range, not one for each call.

The number of keys and tombstones is bounded by the segment: each came from an operation of at least 16 bytes there.
"""
from collections.abc import Iterable, Iterator, Sequence

from angarium.core.storage import Operation, Put, Table
from angarium.store.interface import Item
from angarium.store.sorted_keys import SortedKeys

KEY_OVERHEAD_BYTES = 150  # measured: dict entry, list slot, two bytes objects' headers


class KeyRanges:
    """Disjoint, never touching half-open ranges of keys."""

    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._lows = SortedKeys()
        self._highs: dict[bytes, bytes] = {}  # low -> high
        for low, high in ranges:
            self.add(low, high)

    def __len__(self) -> int:
        return len(self._highs)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return ((low, self._highs[low]) for low in self._lows)

    def add(self, low: bytes, high: bytes) -> None:
        if low >= high:
            return
        highs = self._highs
        before = self._lows.at_or_before(low)
        if before is not None and highs[before] >= low:
            if highs[before] >= high:
                return
            low = before
        else:
            self._lows.add(low)
        # Whatever begins inside or where this one ends becomes part of it.
        for swallowed in self._lows.remove(low + b"\0", high + b"\0"):
            high = max(high, highs.pop(swallowed))
        highs[low] = high

    def end_of(self, key: bytes) -> bytes | None:
        """Where the range that covers `key` ends; None when none does."""
        low = self._lows.at_or_before(key)
        return self._highs[low] if low is not None and key < self._highs[low] else None

    def overlapping(self, low: bytes, high: bytes) -> "KeyRanges":
        """A copy of those ranges that have a key in [low, high)."""
        found = KeyRanges()
        if low < high:
            before = self._lows.at_or_before(low)
            if before is not None and self._highs[before] > low:
                found.add(before, self._highs[before])
            for begin in self._lows.between(low, high):
                found.add(begin, self._highs[begin])
        return found

    def update(self, other: "KeyRanges") -> None:
        for low, high in other:
            self.add(low, high)


class Layer:
    """One table of a memtable."""

    __slots__ = ("keys", "tombstones", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys = SortedKeys()  # the keys of `values`
        self.tombstones = KeyRanges()

    def put(self, key: bytes, value: bytes) -> int:
        """Returns by how many bytes the layer grew."""
        old = self.values.get(key)
        self.values[key] = value
        if old is not None:
            return len(value) - len(old)
        self.keys.add(key)
        return len(key) + len(value) + KEY_OVERHEAD_BYTES

    def delete(self, low: bytes, high: bytes) -> int:
        """Returns by how many bytes the layer shrank."""
        self.tombstones.add(low, high)
        return self.remove(low, high)

    def remove(self, low: bytes, high: bytes) -> int:
        """Like `delete`, for a layer with nothing beneath."""
        freed = 0
        for key in self.keys.remove(low, high):
            freed += len(key) + len(self.values.pop(key)) + KEY_OVERHEAD_BYTES
        return freed


class Memtable:
    __slots__ = ("_layers", "memory_bytes")

    def __init__(self) -> None:
        self._layers = [Layer() for _ in range(max(Table) + 1)]  # indexed by table
        self.memory_bytes = 0

    def __getitem__(self, table: Table) -> Layer:
        return self._layers[table]

    def apply(self, operations: Sequence[Operation]) -> None:
        layers = self._layers
        grown = 0
        for operation in operations:
            if isinstance(operation, Put):
                grown += layers[operation.table].put(operation.key, operation.value)
            else:
                grown -= layers[operation.table].delete(operation.low, operation.high)
        self.memory_bytes += grown


def merged(top: Layer, bottom: Layer | None, low: bytes, high: bytes, limit: int, bytes_max: int) -> list[Item]:
    """The first items in [low, high) of `top` laid over `bottom`: at most `limit`, and none more after `bytes_max`."""
    items: list[Item] = []
    size = 0
    top_keys = top.keys.between(low, high)
    bottom_keys = iter(()) if bottom is None else bottom.keys.between(low, high)
    top_key, bottom_key = next(top_keys, None), next(bottom_keys, None)
    while len(items) < limit and size < bytes_max:
        if bottom is not None and bottom_key is not None and (top_key is None or bottom_key < top_key):
            covered_to = top.tombstones.end_of(bottom_key)
            if covered_to is not None:
                bottom_keys = bottom.keys.between(covered_to, high)
                bottom_key = next(bottom_keys, None)
                continue
            item = Item(bottom_key, bottom.values[bottom_key])
            bottom_key = next(bottom_keys, None)
        elif top_key is not None:
            item = Item(top_key, top.values[top_key])
            if bottom_key == top_key:
                bottom_key = next(bottom_keys, None)
            top_key = next(top_keys, None)
        else:
            break
        items.append(item)
        size += len(item.value)
    return items

"""Which of many sets of points contain a given point: one property of an index, one type of value.

A set of subscriptions is a Python int with a bit for each: such an int is and'ed and xor'ed at memory speed. Every
edge of every set lies on the line, with the bits that change there. Edges are kept in blocks, with the answer before
each block:

    bases        0            b1           b2        (answer behind the last edge)
    blocks       [e0 e1 e2]   [e3 e4 e5]   …

To answer for a point is to take the base at the nearer end of its block and xor the bits of the edges between: at
most `BLOCK_EDGES_MAX` / 2 of them, of however many. Adding a set and removing it are the same operation, xor being
its own inverse.
"""
from bisect import bisect_left, bisect_right
from functools import reduce
from operator import xor
from typing import Generic

from angarium.core.selector.valueset import Point, Spans

BLOCK_EDGES_MAX = 4  # more makes answers slower; fewer cost memory: a base has a bit for each subscription


class Line(Generic[Point]):
    __slots__ = ("_bases", "_bits", "_edges", "_starts")

    def __init__(self) -> None:
        self._starts: list[Point] = []  # the first edge of each block
        self._edges: list[list[Point]] = []
        self._bits: list[list[int]] = []  # parallel to the edges
        self._bases: list[int] = [0]  # before each block, and behind the last

    def at(self, point: Point) -> int:
        block = bisect_right(self._starts, point) - 1
        if block < 0:
            return self._bases[0]
        edges, bits = self._edges[block], self._bits[block]
        passed = bisect_right(edges, point)
        if 2 * passed <= len(edges):
            answer, between = self._bases[block], bits[:passed]
        else:
            answer, between = self._bases[block + 1], bits[passed:]
        for bit in between:
            answer ^= bit
        return answer

    def toggle(self, spans: Spans[Point], bit: int) -> None:
        """Put a set on the line under its bit, or take it off again."""
        bounds: list[Point | None] = list(spans.edges)
        if spans.inside:
            bounds.insert(0, None)
        if len(bounds) % 2:
            bounds.append(None)
        for low, high in zip(bounds[::2], bounds[1::2], strict=True):
            self._toggle(low, high, bit)

    def _toggle(self, low: Point | None, high: Point | None, bit: int) -> None:
        first = -1 if low is None else self._put(low, bit)
        last = len(self._edges) if high is None else self._put(high, bit)
        for at in range(first + 1, last + 1):
            self._bases[at] ^= bit
        if high is not None:
            self._tidy(last)
        if low is not None and first != last:
            self._tidy(first)

    def _put(self, edge: Point, bit: int) -> int:
        """Change the bit at the edge and say in which block; the bases are left to the caller."""
        if not self._starts:
            self._starts.append(edge)
            self._edges.append([])
            self._bits.append([])
            self._bases.append(self._bases[0])
        block = max(0, bisect_right(self._starts, edge) - 1)
        edges, bits = self._edges[block], self._bits[block]
        at = bisect_left(edges, edge)
        if at < len(edges) and edges[at] == edge:
            bits[at] ^= bit
            if not bits[at]:
                del edges[at], bits[at]
        else:
            edges.insert(at, edge)
            bits.insert(at, bit)
        if edges:
            self._starts[block] = edges[0]
        return block

    def _tidy(self, block: int) -> None:
        """Split a block that has grown too long; drop one that is empty."""
        edges, bits = self._edges[block], self._bits[block]
        if not edges:
            del self._starts[block], self._edges[block], self._bits[block], self._bases[block]
        elif len(edges) > BLOCK_EDGES_MAX:
            half = len(edges) // 2
            self._bases.insert(block + 1, reduce(xor, bits[:half], self._bases[block]))
            self._starts.insert(block + 1, edges[half])
            self._edges[block : block + 1] = [edges[:half], edges[half:]]
            self._bits[block : block + 1] = [bits[:half], bits[half:]]

"""Ranges of trace records folded into runs: consecutive messages that the same became of.

Messages come, go and are settled by the batch, so that a run has some hundreds of messages: an audit costs what its
records cost, and not what its messages do. A block of positions is folded at once, all of its messages side by side in
arrays, whatever the number and the order of its records.
"""
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from angarium.core.destination.tracing import Trace

BLOCK_BITS = 16  # of a position, for the place within its block
DUE, WAITS, UNKNOWN = -1, -2, -3  # events that no record tells of; the others are kinds of records
EVENTS = (
    "identity bigint, subscription string, low bigint, high bigint, event int, place bigint, at_ms bigint, "
    "consumer string, reason string, marked boolean, bytes double"
)
RUNS = (
    "identity bigint, subscription string, low bigint, high bigint, deliveries bigint, settlements bigint, "
    "ends bigint, waits boolean, unknown boolean, confirmed_ms bigint, bytes double, delivered_last bigint, "
    "settled_first bigint, first_place bigint, first_ms bigint, first_consumer string, first_marked boolean, "
    "last_ms bigint, last_reason string, last_consumer string"
)
_NOBODY = -1

Counts = NDArray[np.int64]


def folded(table: Any) -> Any:
    """The runs of one subscription's messages within one block, of those that are due to it."""
    block = _Block(table)
    delivered, settled = block.of(Trace.DELIVERED), block.of(Trace.SETTLED)
    ended = block.of(Trace.SETTLED, Trace.ENDED)
    due = block.covers(block.of(DUE)) > 0
    deliveries, settlements, ends = (block.covers(rows) for rows in (delivered, settled, ended))
    waits, unknown = (block.covers(block.of(event)) > 0 for event in (WAITS, UNKNOWN))
    confirmed = block.last_of(block.of(Trace.CONFIRMED), by=block.at_ms)
    first, delivered_last = block.first_of(delivered), block.last_of(delivered, by=block.place)
    settled_first, last = block.first_of(settled), block.last_of(ended, by=block.place)
    facts = [
        due, deliveries, settlements, ends, waits, unknown, confirmed, first, delivered_last, settled_first, last,
    ]  # fmt: skip
    begins = _begins(facts)
    stops = np.append(begins[1:], block.size)[due[begins]]
    begins = begins[due[begins]]

    def taken(column: str, of: Counts) -> Any:
        rows = of[begins]
        return table.column(column).take(pa.array(rows, mask=rows == _NOBODY))

    return pa.table([
        pa.repeat(table.column("identity")[0], len(begins)), pa.repeat(table.column("subscription")[0], len(begins)),
        pa.array(begins + block.base), pa.array(stops + block.base),
        *(pa.array(counts[begins]) for counts in (deliveries, settlements, ends, waits, unknown)),
        taken("at_ms", confirmed), taken("bytes", confirmed), taken("place", delivered_last),
        taken("place", settled_first), taken("place", first), taken("at_ms", first), taken("consumer", first),
        taken("marked", first), taken("at_ms", last), taken("reason", last), taken("consumer", last),
    ], names=[part.split()[0] for part in RUNS.split(", ")])  # fmt: skip


class _Block:
    """Ranges of positions, from the lowest on; what is asked for is told of each position."""

    def __init__(self, table: Any) -> None:
        low, high = (table.column(name).to_numpy() for name in ("low", "high"))
        self.base = int(low.min())
        self.size = int(high.max()) - self.base
        self.place, self.at_ms = (
            table.column(name).fill_null(0).to_numpy() for name in ("place", "at_ms")
        )  # of a range that needs it
        self._low, self._high = low - self.base, high - self.base
        self._event = table.column("event").to_numpy()

    def of(self, *events: int) -> Counts:
        """Which ranges are of these kinds."""
        return np.flatnonzero(np.isin(self._event, [int(event) for event in events]))

    def covers(self, rows: Counts) -> Counts:
        """By how many of the ranges."""
        change = np.bincount(self._low[rows], minlength=self.size + 1)
        change -= np.bincount(self._high[rows], minlength=self.size + 1)
        return np.cumsum(change[:-1])

    def first_of(self, rows: Counts) -> Counts:
        """Which of the ranges came first."""
        return self._painted(rows[np.argsort(-self.place[rows], kind="stable")])

    def last_of(self, rows: Counts, *, by: Counts) -> Counts:
        return self._painted(rows[np.argsort(by[rows], kind="stable")])

    def _painted(self, rows: Counts) -> Counts:
        """Each over those before it."""
        found = np.full(self.size, _NOBODY, np.int64)
        lengths = self._high[rows] - self._low[rows]
        begins = np.repeat(self._low[rows] - (np.cumsum(lengths) - lengths), lengths)
        found[begins + np.arange(len(begins))] = np.repeat(rows, lengths)
        return found


def _begins(facts: list[NDArray[Any]]) -> Counts:
    """Where any of them changes."""
    changes = np.zeros(len(facts[0]), bool)
    changes[0] = True
    for fact in facts:
        changes[1:] |= fact[1:] != fact[:-1]
    return np.flatnonzero(changes)

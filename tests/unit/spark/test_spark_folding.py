"""Goal: runs say of every message what its records say.
Method: a message at a time, with plain Python, is the oracle; any records, in any order, over each other."""
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.destination.tracing import Trace
from angarium.spark.pipelines.folding import DUE, EVENTS, RUNS, UNKNOWN, WAITS, folded

BASE, SIZE = 5 << 16, 24
KINDS = [DUE, WAITS, UNKNOWN, Trace.CONFIRMED, Trace.DELIVERED, Trace.SETTLED, Trace.ENDED]
_ARROW = {
    "int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "boolean": pa.bool_(), "double": pa.float64(),
}  # fmt: skip
NAMES = [part.split()[0] for part in EVENTS.split(", ")]
TYPES = [_ARROW[part.split()[1]] for part in EVENTS.split(", ")]


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    record = st.tuples(st.sampled_from(KINDS), st.integers(0, SIZE - 1), st.integers(1, SIZE))
    drawn = draw(st.lists(record, max_size=25))
    places = draw(st.permutations(range(len(drawn))))
    rows: list[dict[str, Any]] = [event(DUE, 0, SIZE)]
    for (kind, low, length), place in zip(drawn, places, strict=True):
        row = event(kind, low, min(low + length, SIZE))
        if kind >= 0:
            row |= {"place": place, "at_ms": 1_000 + 3 * place, "consumer": f"c{place % 3}"}
            row |= {"reason": f"r{place}", "marked": place % 2 == 0, "bytes": place / 2}
        rows.append(row)
    return rows


def event(kind: int, low: int, high: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(NAMES)
    return row | {"identity": 7, "subscription": "s", "low": BASE + low, "high": BASE + high, "event": int(kind)}


def told_of(position: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    here = [row for row in rows if row["low"] <= position < row["high"]]

    def of(*kinds: int) -> list[dict[str, Any]]:
        return sorted((row for row in here if row["event"] in kinds), key=lambda row: row["place"] or 0)

    def fact(rows: list[dict[str, Any]], at: int, name: str) -> Any:
        return rows[at][name] if rows else None

    confirmed, delivered, settled = of(Trace.CONFIRMED), of(Trace.DELIVERED), of(Trace.SETTLED)
    ended = of(Trace.SETTLED, Trace.ENDED)
    return {
        "identity": 7, "subscription": "s", "deliveries": len(delivered), "settlements": len(settled),
        "ends": len(ended), "waits": bool(of(WAITS)), "unknown": bool(of(UNKNOWN)),
        "confirmed_ms": fact(confirmed, -1, "at_ms"), "bytes": fact(confirmed, -1, "bytes"),
        "delivered_last": fact(delivered, -1, "place"), "settled_first": fact(settled, 0, "place"),
        "first_place": fact(delivered, 0, "place"), "first_ms": fact(delivered, 0, "at_ms"),
        "first_consumer": fact(delivered, 0, "consumer"), "first_marked": fact(delivered, 0, "marked"),
        "last_ms": fact(ended, -1, "at_ms"), "last_reason": fact(ended, -1, "reason"),
        "last_consumer": fact(ended, -1, "consumer"),
    }  # fmt: skip


def fold(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in zip(NAMES, TYPES, strict=True)]
    made = folded(pa.table(columns, names=NAMES))
    assert made.schema.names == [part.split()[0] for part in RUNS.split(", ")]
    assert made.schema.types == [_ARROW[part.split()[1]] for part in RUNS.split(", ")]
    runs: list[dict[str, Any]] = made.to_pylist()
    return runs


@given(events())
def test_runs_say_what_the_records_say(rows: list[dict[str, Any]]) -> None:
    found = {
        position: {name: value for name, value in run.items() if name not in ("low", "high")}
        for run in fold(rows)
        for position in range(run["low"], run["high"])
    }
    assert found == {BASE + place: told_of(BASE + place, rows) for place in range(SIZE)}


def test_what_is_not_due_is_left_out() -> None:
    rows = [event(DUE, 3, 5), event(WAITS, 0, SIZE)]
    assert [(run["low"], run["high"]) for run in fold(rows)] == [(BASE + 3, BASE + 5)]
    assert fold(rows[1:]) == []


def test_what_went_together_is_one_run() -> None:
    rows = [event(DUE, 0, SIZE)]
    rows += [
        event(kind, 0, SIZE) | {"place": place, "at_ms": place}
        for place, kind in enumerate((Trace.CONFIRMED, Trace.DELIVERED, Trace.SETTLED))
    ]
    assert len(fold(rows)) == 1

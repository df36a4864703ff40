"""Trace records (`core/destination/tracing.py`) as rows, one for each range of positions.

A message of `_TRACE` holds many records; `place` orders all records of one log. Ranges stay ranges here: few rows come
out of Python, and Spark's own code makes messages of them.
"""
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from angarium.client import blocking
from angarium.core.destination.tracing import VERSION, Trace, trace_name
from angarium.core.errors import ConfigError, Rejected
from angarium.core.ids import format_id, group_of, origin_of
from angarium.core.names import TRACE_PREFIX
from angarium.spark.pipelines import places

PLACE_BITS = 20  # of a place, for the record within its message
SCHEMA = (
    "kind int, identity bigint, at_ms bigint, place bigint, subscription string, consumer string, low bigint, "
    "high bigint, reason string, redelivered boolean, producer string, sequence bigint, sent_ms bigint, bytes bigint, "
    "node string, name string, flags int"
)
_NAMES = [part.strip().split(" ")[0] for part in SCHEMA.split(",")]
_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
_TYPES = [_ARROW[part.strip().split(" ")[1]] for part in SCHEMA.split(",")]
DURABLE, SELECTS, ANEW = 1, 2, 4  # flags
_ALL = -1  # as `high`: of the whole destination or subscription
_decode = msgspec.msgpack.Decoder(tuple[int, int, list[list[Any]]]).decode

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subscribed:
    name: str
    durable: bool
    selects: bool  # it leaves out some: the record that says so may be older than the period
    unsettled: tuple[tuple[int, int], ...]
    until: tuple[int, ...]  # from these on, in their lanes, nothing is known: pending


@dataclass(frozen=True, slots=True)
class TracedState:
    """What the broker says of a destination at the moment up to which it is audited."""

    name: str
    identity: int
    kind: str
    lanes: tuple[tuple[int, int], ...]  # first and end
    subscriptions: tuple[Subscribed, ...]
    trace_messages: int = 0  # messages of traces with lower numbers tell only of what was before
    logs: tuple[str, ...] = ()  # that have traces of it


@dataclass(slots=True)
class Traces:
    records: DataFrame
    states: list[TracedState] = field(default_factory=list)


def state_of(told: dict[str, Any]) -> TracedState:
    subscriptions = tuple(
        Subscribed(
            each["name"],
            each["durable"],
            each.get("selects", False),  # brokers of before do not tell
            tuple(zip(each["unsettled"][::2], each["unsettled"][1::2], strict=True)),
            tuple(each["until"]),
        )
        for each in told["subscriptions"]
    )
    lanes = tuple((first, end) for first, end in told["lanes"])
    before = told.get("trace_messages", 0)  # brokers of before do not tell
    logs = (trace_name(told.get("group", group_of(told["identity"]))),)
    return TracedState(told["name"], told["identity"], told["kind"], lanes, subscriptions, before, logs)


def traced_states(connection: blocking.Connection, wanted: Sequence[str]) -> list[TracedState]:
    """Of those that are traced; one that is named and is not, is an error. From the moment of the answer on, all that
    was traced before is there to be read."""
    found: list[TracedState] = []
    moved: set[int] = set()
    for log in places.described(connection, wanted or ["**"]):
        if log.name.startswith("_"):
            continue
        try:
            told = connection.request("trace.describe", {"name": log.name}).result
            moved |= {told["identity"]} if told.get("moved") else set()
            found.append(state_of(told))
        except Rejected as refused:
            if refused.code != "not-traced" or log.name in wanted:
                raise
    if not found:
        raise ConfigError("no destination is traced: angarium alter NAME --traced, and audit what comes then")
    if not moved:
        return found
    # Where one has been nobody remembers: in some of the replica groups, each of which has told of its time there.
    logs = tuple(log.name for log in places.described(connection, [f"{TRACE_PREFIX}*"]))
    return [replace(state, logs=logs) if state.identity in moved else state for state in found]


def check_traced(address: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise what would come to light otherwise when Spark has started."""
    with places.asked(address) as connection:
        traced_states(connection, wanted)


def read_traces(
    spark: SparkSession, address: Sequence[str], states: Sequence[TracedState], from_ms: int | None
) -> Traces:
    """All records from that time on; without one, from the oldest that is kept."""
    logs = sorted({log for state in states for log in state.logs})
    reader = spark.read.format("angarium").option("address", ",".join(address)).option("subscribe", ",".join(logs))
    if from_ms is not None:
        reader = reader.option("startingTimestamp", from_ms)
    bodies = reader.option("columns", "body").load()
    return Traces(bodies.mapInArrow(_decoded, SCHEMA), list(states))


def _decoded(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        rows = [row for body in batch.column("body").to_pylist() for row in rows_of(body)]
        columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in zip(_NAMES, _TYPES, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=_NAMES)


def rows_of(body: bytes) -> Iterator[Row]:
    version, number, records = _decode(body)
    if version != VERSION:
        raise ConfigError(f"traces of version {version}, and this release reads version {VERSION}; use a newer one")
    for index, (kind, identity, at_ms, *facts) in enumerate(records):
        common = {"kind": kind, "identity": identity, "at_ms": at_ms, "place": number << PLACE_BITS | index}
        for row in _ROWS[Trace(kind)](facts):
            yield common | row


def _begun(facts: list[Any]) -> Iterator[Row]:
    name, _, ends, anew = facts
    for end in ends:
        yield {"name": name, "low": end, "high": _ALL, "flags": ANEW if anew else 0}


def _confirmed(facts: list[Any]) -> Iterator[Row]:
    low, count, producer, sequences, sent_ms, size_bytes, session = facts
    row = {"producer": format_id(producer), "sent_ms": sent_ms, "node": _node(session)}
    if isinstance(sequences, int):
        yield row | {"low": low, "high": low + count, "sequence": sequences, "bytes": size_bytes}
        return
    for index, sequence in enumerate(sequences):
        position = low + index
        share = size_bytes // count + (index < size_bytes % count)
        yield row | {"low": position, "high": position + 1, "sequence": sequence, "bytes": share}


def _node(session: bytes | None) -> str | None:
    """Of the client manager that has the session."""
    return None if session is None else origin_of(session)


def _consumer(session: bytes, number: int) -> str:
    return f"{format_id(session).removeprefix('ID:')}/{number}"


def _delivered(facts: list[Any]) -> Iterator[Row]:
    subscription, session, consumer, ranges, redeliveries = facts
    row = {"subscription": subscription, "consumer": _consumer(session, consumer), "node": _node(session)}
    at = 0
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        counts = redeliveries[at : at + high - low] if redeliveries else []
        at += high - low
        if not any(counts):
            yield row | {"low": low, "high": high, "redelivered": False}
        else:
            for position, count in zip(range(low, high), counts, strict=True):
                yield row | {"low": position, "high": position + 1, "redelivered": count > 0}


def _settled(facts: list[Any]) -> Iterator[Row]:
    subscription, session, consumer, ranges = facts
    row = {"subscription": subscription, "consumer": _consumer(session, consumer), "reason": "settled"}
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        yield row | {"low": low, "high": high}


def _ended(facts: list[Any]) -> Iterator[Row]:
    subscription, reason, ranges = facts
    for low, high in zip(ranges[::2], ranges[1::2], strict=True):
        yield {"subscription": subscription, "reason": reason, "low": low, "high": high}


def _subscribed(facts: list[Any]) -> Iterator[Row]:
    subscription, durable, selects, begins = facts
    row = {"subscription": subscription, "flags": DURABLE * durable | SELECTS * selects}
    for begin in begins or [0]:
        yield row | {"low": begin, "high": _ALL}


_ROWS: dict[Trace, Callable[[list[Any]], Iterator[Row]]] = {
    Trace.BEGUN: _begun,
    Trace.CONFIRMED: _confirmed,
    Trace.DELIVERED: _delivered,
    Trace.SETTLED: _settled,
    Trace.ENDED: _ended,
    Trace.SUBSCRIBED: _subscribed,
    Trace.UNSUBSCRIBED: lambda facts: iter([{"subscription": facts[0]}]),
    Trace.REMOVED: lambda facts: iter([{}]),
    Trace.DROPPED: lambda facts: iter([{"bytes": facts[0]}]),
    Trace.HELD: lambda facts: iter([{"bytes": 1}]),
    Trace.CAUGHT_UP: lambda facts: iter([{"bytes": -1}]),
}

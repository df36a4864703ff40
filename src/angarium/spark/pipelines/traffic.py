"""What flows where, from traces: messages and bytes by destination, producer, client manager and message manager over
time; which of them is the bottleneck, and what one more would change.

Everything is counted by ranges, as traces have them: no message is looked at. How many bytes are delivered follows from
the mean size of a destination's messages, and how often a producer's messages are delivered from the mean of the
destinations that it sends to.
"""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from angarium.client import blocking
from angarium.core.destination.tracing import Trace
from angarium.core.errors import Rejected
from angarium.core.ids import DESTINATION_BITS
from angarium.spark.pipelines.audit import SLACK_MS
from angarium.spark.pipelines.judging import Period, of_kind
from angarium.spark.pipelines.plots import figure
from angarium.spark.pipelines.traces import TracedState, read_traces, traced_states

ALONE = "broker"  # what one that is no cluster is called
BUCKETS = 60  # of a plot
SHOWN_MAX = 1_000  # producers and the like
FOLLOWED_MAX = 20  # of each kind, over time: the busiest
_COUNTED = ("messages_in", "bytes_in", "messages_out", "bytes_out")


@dataclass(frozen=True, slots=True)
class Place:
    """A message manager: the replica group's name, and how many copies it has."""

    name: str
    copies: int


@dataclass(slots=True)
class TrafficResult:
    seconds: float = 0.0
    destinations: list[dict[str, Any]] = field(default_factory=list)
    producers: list[dict[str, Any]] = field(default_factory=list)
    client_managers: list[dict[str, Any]] = field(default_factory=list)
    message_managers: list[dict[str, Any]] = field(default_factory=list)
    # By "destination", "producer", "node" (a client manager) and "number" (a message manager): the busiest of each.
    over_time: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)  # sentences


def traffic(
    spark: SparkSession,
    address: Sequence[str],
    destinations: Sequence[str],
    period: Period,
    output: Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> TrafficResult:
    with blocking.connect(address, name="traffic") as connection:
        progress("asking what is traced")
        states = traced_states(connection, destinations)
        groups, fronts = _places(connection)
    from_ms = None if period.from_ms is None else max(0, period.from_ms - SLACK_MS)
    records = read_traces(spark, address, states, from_ms).records
    return measured(records, states, groups, period, output, progress, fronts)


def _places(connection: blocking.Connection) -> tuple[dict[int, Place], dict[str, str] | None]:
    """Message managers by number, and the names of client managers by what their ids have in common. A broker that is
    alone is group 0, with one copy, and all client managers that there are."""
    try:
        told = connection.request("cluster.status", {}).result
    except Rejected:
        return {0: Place(ALONE, 1)}, None
    groups = {group["number"]: Place(group["group"], max(1, group.get("copies", 1))) for group in told["groups"]}
    return groups, {row["origin"]: row["name"] for row in told["nodes"] if row.get("origin")}


def measured(
    records: DataFrame,
    states: Sequence[TracedState],
    groups: Mapping[int, Place],
    period: Period,
    output: Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
    fronts: Mapping[str, str] | None = None,
) -> TrafficResult:
    """`fronts`: names of client managers; one that is not there any more keeps its number. None: a broker alone."""
    progress("reading traces")
    flows = _flows(records, states, period).cache()
    try:
        ends = flows.agg(f.min("at_ms").alias("low"), f.max("at_ms").alias("high")).first()
        if ends is None or ends.low is None:
            return TrafficResult(advice=["nothing was sent or delivered in that time"])
        seconds = max(1.0, (ends.high - ends.low) / 1_000)
        progress("counting")
        views = {
            "destination": flows,
            "producer": _passed_on(flows.where("producer IS NOT NULL")),
            "node": flows.where("node IS NOT NULL"),
            "number": flows,
        }
        found = {key: _by(view, key) for key, view in views.items()}
        result = TrafficResult(
            seconds=seconds,
            destinations=found["destination"],
            producers=found["producer"],
            client_managers=found["node"],
            message_managers=found["number"],
        )
        progress("looking at time")
        for key, view in views.items():
            result.over_time[key] = _over_time(view, key, found[key], ends.low, ends.high)
        if output is not None:
            progress(f"writing {output}")
            flows.write.mode("overwrite").parquet(str(output))
    finally:
        flows.unpersist()
    for row in result.message_managers:
        place = groups.get(row["number"], Place(f"group {row['number']}", 1))
        row["name"], row["copies"] = place.name, place.copies
    for row in (*result.client_managers, *result.over_time["node"]):
        row["node"] = ALONE if fronts is None else fronts.get(row["node"], row["node"])
    result.advice = advice(result)
    return result


def _flows(records: DataFrame, states: Sequence[TracedState], period: Period) -> DataFrame:
    """A row for each range that was confirmed or delivered: how many messages in or out, and bytes."""
    names = f.create_map(*(f.lit(part) for state in states for part in (state.identity, state.name)))
    found = of_kind(records, Trace.CONFIRMED, Trace.DELIVERED).where(
        f.col("identity").isin([state.identity for state in states])
    )
    if period.from_ms is not None:
        found = found.where(f.col("at_ms") >= period.from_ms)
    if period.to_ms is not None:
        found = found.where(f.col("at_ms") < period.to_ms)
    count, comes = f.col("high") - f.col("low"), f.col("kind") == int(Trace.CONFIRMED)
    came, went = f.sum(f.when(comes, count)), f.sum(f.when(~comes, count))
    sizes = found.groupBy("identity").agg(
        (f.sum(f.when(comes, f.col("bytes"))) / came).alias("size"),
        (f.coalesce(went, f.lit(0)) / came).alias("receivers"),
    )
    return found.join(f.broadcast(sizes), "identity", "left").select(
        "at_ms",
        names[f.col("identity")].alias("destination"),
        f.shiftright("identity", DESTINATION_BITS).alias("number"),
        "producer",
        "node",
        f.when(comes, count).otherwise(0).alias("messages_in"),
        f.when(comes, f.col("bytes")).otherwise(0).alias("bytes_in"),
        f.when(comes, 0).otherwise(count).alias("messages_out"),
        f.when(comes, 0.0).otherwise(count * f.coalesce("size", f.lit(0.0))).alias("bytes_out"),
        "receivers",
    )


def _passed_on(sent: DataFrame) -> DataFrame:
    """What producers have sent, with how much of it was delivered: as of all that the destination has got."""
    return sent.withColumns({
        "messages_out": f.col("messages_in") * f.col("receivers"),
        "bytes_out": f.col("bytes_in") * f.col("receivers"),
    })  # fmt: skip


def _sums() -> list[Column]:
    return [f.round(f.sum(name)).cast("bigint").alias(name) for name in _COUNTED]


def _by(flows: DataFrame, key: str) -> list[dict[str, Any]]:
    """The busiest first."""
    summed = flows.groupBy(key).agg(*_sums()).orderBy(f.desc(f.col("bytes_in") + f.col("bytes_out")), key)
    found = [row.asDict() for row in summed.limit(SHOWN_MAX).collect()]
    return [row | {"fan_out": _fan_out(row)} for row in found]


def _fan_out(row: Mapping[str, Any]) -> float | None:
    return row["messages_out"] / row["messages_in"] if row["messages_in"] else None


def _over_time(
    flows: DataFrame, key: str, found: Sequence[Mapping[str, Any]], low_ms: int, high_ms: int
) -> list[dict[str, Any]]:
    """The busiest first, each with a row for every piece of the time, also where nothing was."""
    width_ms = max(1_000, -(-(high_ms - low_ms + 1) // BUCKETS))
    bucket = (f.floor((f.col("at_ms") - low_ms) / width_ms) * width_ms + low_ms).alias("from_ms")
    busiest = [row[key] for row in found[:FOLLOWED_MAX]]
    summed = flows.where(f.col(key).isin(busiest)).groupBy(key, bucket).agg(*_sums()).collect()
    known = {(row[key], row.from_ms): row.asDict() for row in summed}
    told: list[dict[str, Any]] = []
    for name in busiest:
        for from_ms in range(low_ms, high_ms + 1, width_ms):
            nothing = {key: name, "from_ms": from_ms, **dict.fromkeys(_COUNTED, 0)}
            row = known.get((name, from_ms), nothing)
            told.append(row | {"width_ms": width_ms, "fan_out": _fan_out(row)})
    return told


def advice(result: TrafficResult) -> list[str]:
    """What is the bottleneck, and what one more of each would change."""
    told: list[str] = []
    managers, fronts = result.message_managers, result.client_managers
    total = sum(map(_load, managers))
    if not total:
        return told
    busiest = managers[0]
    share = _load(busiest) / total
    alone = len(managers) == 1
    told.append(_bottleneck(result))
    told.append(
        f"message manager {busiest['name']!r} carries "
        + ("everything" if alone else f"{share:.0%} of all bytes, where an even share is {1 / len(managers):.0%}")
    )
    largest = result.destinations[0]
    part = (largest["bytes_in"] + largest["bytes_out"]) / total
    even = 1 / (len(managers) + 1)
    after = max(even, part)
    if round(100 * after) < round(100 * share):  # as it is told
        told.append(f"one more message manager: the busiest would carry {after:.0%} instead of {share:.0%}")
    else:
        told.append(
            f"one more message manager changes little: {largest['destination']!r} alone has {part:.0%} of all bytes, "
            "and one destination stays with one message manager; spread it over several destinations"
        )
    if fronts:
        loads = [_load(row) for row in fronts]
        now, then = max(loads) / sum(loads), 1 / (len(fronts) + 1)
        told.append(
            f"one more client manager: the busiest of {len(fronts)} carries {now:.0%} of what clients send and get; "
            f"with clients evenly spread it would be {then:.0%}"
        )
    written = sum(row["bytes_in"] * row["copies"] for row in managers)
    more = sum(row["bytes_in"] for row in managers)
    told.append(
        f"one more copy of every group: {more / written:.0%} more is written in all, and a confirm waits for one more "
        "disk; what is published still crosses the bus once"
    )
    return told


def _bottleneck(result: TrafficResult) -> str:
    """Who has most to do at his worst moment. All that a client manager passes on a message manager has, too, and
    writes: so of two with the same load it is the message manager."""
    names = {row["number"]: row["name"] for row in result.message_managers}
    told: list[tuple[float, str]] = []
    for kind, key in (("message manager", "number"), ("client manager", "node")):
        rates = [(_load(row) * 1_000 / row["width_ms"], row[key]) for row in result.over_time.get(key, ())]
        if rates:
            rate, who = max(rates)
            told.append((rate, f"{kind} {names.get(who, who)!r} has {figure(rate)} bytes a second in and out"))
    told.sort(key=lambda one: -one[0])
    return f"the bottleneck: at its busiest {', '.join(sentence for _, sentence in told)}"


def _load(row: Mapping[str, Any]) -> float:
    return float(row["bytes_in"] + row["bytes_out"])


def summary(result: TrafficResult) -> dict[str, Any]:
    """For programs."""
    return {
        "seconds": result.seconds,
        "destinations": result.destinations,
        "producers": result.producers,
        "client_managers": result.client_managers,
        "message_managers": result.message_managers,
        "over_time": result.over_time,
        "advice": result.advice,
    }

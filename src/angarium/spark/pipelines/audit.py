"""The delivery audit: by traces, what was confirmed, delivered, settled, lost, duplicated, reordered, and how late.

The broker is asked first what it still has, which also makes sure that everything traced before can be read; then its
traces are read, and every message is judged (`judging`).
"""
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from angarium.client import blocking
from angarium.core.destination.tracing import Trace
from angarium.spark.pipelines import judging
from angarium.spark.pipelines.judging import Period
from angarium.spark.pipelines.traces import Traces, read_traces, traced_states

SLACK_MS = 60_000  # clocks of the cluster's nodes differ by less
FINDINGS_MAX = 1_000  # shown of each kind; counted are all
BUCKETS = 60  # of a plot
ALWAYS = Period()
_QUANTILES = (0.5, 0.99, 1.0)
_DEAD = ("rejected", "redelivery-limit", "limit-exceeded", "node-limit", "damaged")
_PASSED_OVER = ("purged", "dropped", "superseded", "unselected")


@dataclass(frozen=True, slots=True)
class AuditSettings:
    address: tuple[str, ...]
    destinations: tuple[str, ...] = ()  # names and globs; none: all that are traced
    period: Period = ALWAYS
    output: Path | None = None  # where Parquet is written


@dataclass(slots=True)
class AuditResult:
    destinations: list[dict[str, Any]] = field(default_factory=list)  # one for each subscription
    consumers: list[dict[str, Any]] = field(default_factory=list)
    stored_twice: list[dict[str, Any]] = field(default_factory=list)  # ids, and how often
    copies_too_many: int = 0  # of all of those, also where they are too many to be shown
    replaced: list[dict[str, Any]] = field(default_factory=list)  # positions that were given twice
    replaced_messages: int = 0  # of all of those
    findings: list[dict[str, Any]] = field(default_factory=list)  # messages that something is wrong with
    over_time: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0  # trace records that could not be kept

    def total(self, name: str) -> int:
        return sum(row[name] for row in self.destinations)

    @property
    def lost(self) -> int:
        return (0 if self.dropped else self.total("lost")) + self.replaced_messages

    @property
    def duplicated(self) -> int:
        return self.total("duplicated") + self.copies_too_many

    @property
    def broken(self) -> list[str]:
        """Which guarantees did not hold. Where records were dropped, nothing can be said to be lost."""
        counted = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "reordered": self.total("reordered"),
        }
        return [f"{count:,} {what}" for what, count in counted.items() if count]


def audit(
    spark: SparkSession, settings: AuditSettings, progress: Callable[[str], None] = lambda step: None
) -> AuditResult:
    with blocking.connect(settings.address, name="audit") as connection:
        progress("asking what is not settled")
        states = traced_states(connection, settings.destinations)
    from_ms = settings.period.from_ms
    traces = read_traces(spark, settings.address, states, None if from_ms is None else max(0, from_ms - SLACK_MS))
    return judge(spark, traces, settings.period, settings.output, progress)


def judge(
    spark: SparkSession,
    traces: Traces,
    period: Period,
    output: Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> AuditResult:
    progress("reading traces")
    records = traces.records.where(f.col("identity").isin([0, *(state.identity for state in traces.states)])).cache()
    traces = Traces(records, traces.states)
    judged = judging.fates(spark, traces, period).cache()
    late = judging.reordered(judged).cache()
    twice, replaced = judging.stored_twice(traces, period).cache(), judging.replaced(traces, period).cache()
    try:
        dropped = judging.of_kind(records, Trace.DROPPED, Trace.HELD, Trace.CAUGHT_UP).agg(f.sum("bytes")).first()
        progress("judging messages")
        result = AuditResult(
            destinations=_summary(judged, late),
            consumers=_dicts(_by_consumer(judged)),
            stored_twice=_dicts(_named(twice, traces)),
            copies_too_many=_sum(twice, f.col("copies") - 1 - f.col("died")),
            replaced=_dicts(_named(replaced, traces)),
            replaced_messages=_sum(replaced, f.col("messages") - 1),
            dropped=int(dropped[0] or 0) if dropped is not None else 0,
        )
        progress("looking at time")
        result.over_time = _over_time(judged)
        result.findings = _findings(judged, late)
        if output is not None:
            progress(f"writing {output}")
            _write(spark, judged, late, result, output)
    finally:
        for cached in (replaced, twice, late, judged, records):
            cached.unpersist()
    return result


def _summary(judged: DataFrame, late: DataFrame) -> list[dict[str, Any]]:
    key = ["destination", "subscription"]
    counted = judged.groupBy(*key).agg(
        f.first("kind").alias("kind"),
        f.sum("messages").alias("confirmed"),
        _counted(f.col("deliveries") > 0).alias("delivered"),
        _counted(f.col("reason") == "settled").alias("settled"),
        _counted(f.col("reason") == "expired").alias("expired"),
        _counted(f.col("reason").isin(*_DEAD)).alias("dead"),
        _counted(f.col("reason").isin(*_PASSED_OVER)).alias("passed_over"),
        _counted(f.col("waits")).alias("unsettled"),
        *(_counted(f.col(name)).alias(name) for name in ("lost", "missed", "duplicated", "redelivered")),
        _quantiles(f.col("delivered_ms") - f.col("confirmed_ms"), f.col("has_confirm")).alias("latency_ms"),
        _quantiles(f.col("ended_ms") - f.col("delivered_ms"), f.col("reason") == "settled").alias("held_ms"),
    )
    too_late = late.groupBy(*key).agg(f.sum("messages").alias("messages"))
    out_of_order = {(row.destination, row.subscription): row.messages for row in too_late.collect()}
    found = _dicts(counted.orderBy(*key))
    for row in found:
        row["reordered"] = out_of_order.get((row["destination"], row["subscription"]), 0)
    return found


def _quantiles(value: Any, condition: Any) -> Any:
    """Half, 99 of 100, all of them took about that time or less, in milliseconds: between two, it is interpolated."""
    found = f.percentile(f.when(condition, value), list(_QUANTILES), f.col("messages"))
    return f.transform(found, lambda each: f.ceil(each))


def _counted(condition: Any) -> Any:
    """How many messages it is true of."""
    return f.sum(f.when(condition, f.col("messages")).otherwise(0))


def _by_consumer(judged: DataFrame) -> DataFrame:
    got = judged.where("consumer IS NOT NULL").groupBy("destination", "subscription", "consumer")
    return got.agg(
        _counted(f.col("deliveries") > 0).alias("delivered"),
        _counted(f.col("reason") == "settled").alias("settled"),
        _quantiles(f.col("delivered_ms") - f.col("confirmed_ms"), f.col("has_confirm")).alias("latency_ms"),
        _quantiles(f.col("ended_ms") - f.col("delivered_ms"), f.col("reason") == "settled").alias("held_ms"),
    ).orderBy("destination", "subscription", f.desc("delivered")).limit(FINDINGS_MAX)  # fmt: skip


def _sum(frame: DataFrame, value: Any) -> int:
    row = frame.agg(f.sum(value)).first()
    return int(row[0] or 0) if row is not None else 0


def _named(found: DataFrame, traces: Traces) -> DataFrame:
    names = {state.identity: state.name for state in traces.states}
    named = f.create_map(*(f.lit(part) for pair in names.items() for part in pair))
    return found.withColumn("destination", named[f.col("identity")]).limit(FINDINGS_MAX)


def _findings(judged: DataFrame, late: DataFrame) -> list[dict[str, Any]]:
    columns = ("destination", "subscription", "position", "consumer", "confirmed_ms", "delivered_ms", "ended_ms")
    found: list[dict[str, Any]] = []
    wrong = {"lost": judged.where("lost"), "duplicated": judged.where("duplicated"), "reordered": late}
    for what, frame in wrong.items():
        rows = judging.exploded(frame).select(*columns).orderBy("destination", "subscription", "position")
        found += [{"finding": what, **row} for row in _dicts(rows.limit(FINDINGS_MAX))]
    return found


def _over_time(judged: DataFrame) -> list[dict[str, Any]]:
    """Messages and latencies in up to `BUCKETS` pieces of the time, by destination."""
    ends = judged.agg(f.min("confirmed_ms").alias("low"), f.max("confirmed_ms").alias("high")).first()
    if ends is None or ends.low is None:
        return []
    width_ms = max(1, -(-(ends.high - ends.low + 1) // BUCKETS))
    bucket = (f.floor((f.col("confirmed_ms") - ends.low) / width_ms) * width_ms + ends.low).alias("from_ms")
    rows = judged.where("confirmed_ms IS NOT NULL").groupBy("destination", "subscription", bucket).agg(
        f.sum("messages").alias("confirmed"),
        _counted(f.col("reason") == "settled").alias("settled"),
        _quantiles(f.col("delivered_ms") - f.col("confirmed_ms"), f.col("has_confirm")).alias("latency_ms"),
    )  # fmt: skip
    return [{**row, "width_ms": width_ms} for row in _dicts(rows.orderBy("destination", "subscription", "from_ms"))]


def _write(spark: SparkSession, judged: DataFrame, late: DataFrame, result: AuditResult, output: Path) -> None:
    for frame, name in ((judged, "messages"), (late, "reordered")):
        messages = judging.exploded(frame).drop("place", "low", "high", "messages")
        messages.write.mode("overwrite").parquet(str(output / name))
    if result.destinations:
        kinds = {"latency_ms": "array<bigint>", "held_ms": "array<bigint>"}
        kinds |= dict.fromkeys(("destination", "subscription", "kind"), "string")
        names = list(result.destinations[0])
        schema = ", ".join(f"{name} {kinds.get(name, 'bigint')}" for name in names)
        rows = [tuple(row[name] for name in names) for row in result.destinations]
        spark.createDataFrame(rows, schema).write.mode("overwrite").parquet(str(output / "summary"))


def _dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def summary(result: AuditResult) -> dict[str, Any]:
    """For programs."""
    return {
        "holds": not result.broken,
        "broken": result.broken,
        "dropped": result.dropped,
        "destinations": result.destinations,
        "stored_twice": result.stored_twice,
        "copies_too_many": result.copies_too_many,
        "replaced": result.replaced,
        "replaced_messages": result.replaced_messages,
        "findings": result.findings,
    }


def sentence(result: AuditResult) -> str:
    """What the audit found, in one line."""
    counts = {"lost": result.lost, "duplicated": result.duplicated, "reordered": result.total("reordered")}
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return f"{result.total('confirmed'):,} to be delivered: {told}; {result.total('unsettled'):,} not settled yet"


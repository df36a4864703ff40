"""What became of every message, by its traces: one row for each message and each subscription that had to get it.

    lost         it was confirmed, nothing ended it, and the broker does not have it for the subscription any more
    duplicated   it was delivered after it had been settled, or settled twice; or stored twice under one id
    reordered    a consumer got it for the first time that anybody did, after one that lies behind it
    redelivered  delivered again before it was settled: allowed, and marked by the broker

Nothing of this takes the broker's word but one thing: which messages it still has (`TracedState.unsettled`). Positions
are given without gaps, so that those from where tracing began to where the log ends are the messages that were
confirmed, with or without a record. Subscriptions that select leave out what no record names. Those that are not
durable may lose: what they did not get is `missed`.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from angarium.core.destination.log import LANE_BITS
from angarium.core.destination.tracing import Trace
from angarium.spark.pipelines.traces import ANEW, DURABLE, SELECTS, TracedState, Traces

_ENDS = (Trace.SETTLED, Trace.ENDED)
_KEY = ("identity", "subscription", "position")


@dataclass(frozen=True, slots=True)
class Period:
    """By when messages were confirmed; the end is excluded."""

    from_ms: int | None = None
    to_ms: int | None = None


def of_kind(records: DataFrame, *kinds: Trace) -> DataFrame:
    return records.where(f.col("kind").isin([int(kind) for kind in kinds]))


def exploded(frame: DataFrame) -> DataFrame:
    """A row for each position of the ranges."""
    return frame.withColumn("position", f.explode(f.sequence("low", f.col("high") - 1)))


def lane(position: str = "position") -> Column:
    return f.shiftright(position, LANE_BITS)


def confirmed(records: DataFrame) -> DataFrame:
    """Each message that has a record of it: identity, position, confirmed_ms, producer, sequence, bytes."""
    found = exploded(of_kind(records, Trace.CONFIRMED))
    count = f.col("high") - f.col("low")
    return found.select(
        "identity",
        "position",
        f.col("at_ms").alias("confirmed_ms"),
        "producer",
        (f.col("sequence") + f.col("position") - f.col("low")).alias("sequence"),
        "sent_ms",
        (f.col("bytes") / count).alias("bytes"),
    )


def expected(spark: SparkSession, traces: Traces) -> DataFrame:
    """Every message that was confirmed while it was traced: identity, position, and what is known of it."""
    records = traces.records
    began = of_kind(records, Trace.BEGUN, Trace.CONFIRMED).groupBy("identity", lane("low").alias("lane"))
    is_anew = (f.col("kind") == int(Trace.BEGUN)) & (f.col("flags").bitwiseAND(ANEW) > 0)
    begins = began.agg(f.coalesce(f.max(f.when(is_anew, f.col("low"))), f.min("low")).alias("begin"))
    lanes = [(state.identity, end >> LANE_BITS, end) for state in traces.states for _, end in state.lanes]
    ends = spark.createDataFrame(lanes, "identity bigint, lane bigint, end bigint")
    dense = begins.join(f.broadcast(ends), ["identity", "lane"]).where("begin < end")
    dense = dense.select("identity", f.explode(f.sequence("begin", f.col("end") - 1)).alias("position"))
    return dense.join(confirmed(records), ["identity", "position"], "left")


def subscriptions(spark: SparkSession, traces: Traces) -> DataFrame:
    """Each subscription, where it begins and where it ended, and what may be demanded of it."""
    records = traces.records
    seen = of_kind(records, Trace.SUBSCRIBED, Trace.DELIVERED, *_ENDS)
    came = f.col("kind") == int(Trace.SUBSCRIBED)
    named = seen.groupBy("identity", "subscription").agg(
        f.max(f.when(came, f.col("flags"))).alias("flags"),
    )
    now = [
        (state.identity, each.name, each.durable, list(each.until))
        for state in traces.states
        for each in state.subscriptions
    ]
    columns = "identity bigint, subscription string, is_durable boolean, until array<bigint>"
    present = spark.createDataFrame(now, columns)
    gone = _left_last(records)
    kinds = [(state.identity, state.name, state.kind) for state in traces.states]
    destinations = spark.createDataFrame(kinds, "identity bigint, destination string, kind string")
    key = ["identity", "subscription"]
    flags = f.coalesce(f.col("flags"), f.lit(DURABLE))
    return (
        named.join(present, key, "full")
        .join(gone, key, "left")
        .join(destinations, "identity")
        .select(
            "identity",
            "destination",
            "kind",
            "subscription",
            f.coalesce("is_durable", flags.bitwiseAND(DURABLE) > 0).alias("is_durable"),
            (flags.bitwiseAND(SELECTS) > 0).alias("selects"),
            (f.col("left_last").isNotNull() & f.col("is_durable").isNull()).alias("has_left"),
            "until",
        )
    )


def _left_last(records: DataFrame) -> DataFrame:
    left = of_kind(records, Trace.UNSUBSCRIBED).groupBy("identity", "subscription")
    return left.agg(f.max("place").alias("left_last"))


def _begins(records: DataFrame) -> DataFrame:
    """Where subscriptions begin in each lane; where nothing is known, with all that is traced. One that ended and came
    again is another one."""
    came = of_kind(records, Trace.SUBSCRIBED).join(_left_last(records), ["identity", "subscription"], "left")
    came = came.where("left_last IS NULL OR place > left_last")
    return came.groupBy("identity", "subscription", lane("low").alias("lane")).agg(f.min("low").alias("subscribed_at"))


def _waiting(spark: SparkSession, states: Sequence[TracedState]) -> DataFrame:
    rows = [
        (state.identity, each.name, low, high)
        for state in states
        for each in state.subscriptions
        for low, high in each.unsettled
    ]
    frame = spark.createDataFrame(rows, "identity bigint, subscription string, low bigint, high bigint")
    return exploded(frame)


def fates(spark: SparkSession, traces: Traces, period: Period) -> DataFrame:
    """One row for each message and subscription."""
    records = traces.records
    known = subscriptions(spark, traces).cache()
    messages = expected(spark, traces)
    due = messages.join(f.broadcast(known.select("identity", "subscription")), "identity")
    due = due.withColumn("lane", lane()).join(
        f.broadcast(_begins(records)), ["identity", "subscription", "lane"], "left"
    )
    due = due.where("subscribed_at IS NULL OR position >= subscribed_at")
    events = (
        due.select(*_KEY, f.lit(1).alias("due"), "confirmed_ms", "bytes")
        .unionByName(_happened(records), allowMissingColumns=True)
        .unionByName(_waiting(spark, traces.states).select(*_KEY, f.lit(1).alias("waits")), allowMissingColumns=True)
    )
    judged = _aggregated(events).where("due = 1").join(f.broadcast(known), ["identity", "subscription"])
    return _in_period(_judged(judged), period)


def _happened(records: DataFrame) -> DataFrame:
    """Deliveries and ends."""
    found = exploded(of_kind(records, Trace.DELIVERED, *_ENDS))
    return found.select(*_KEY, "kind", "place", "at_ms", "consumer", "reason", f.col("redelivered").alias("marked"))


def _aggregated(events: DataFrame) -> DataFrame:
    kind, place = f.col("kind"), f.col("place")
    is_delivery, is_end = kind == int(Trace.DELIVERED), kind.isin([int(each) for each in _ENDS])
    is_settlement = kind == int(Trace.SETTLED)
    first = f.min(f.when(is_delivery, f.struct("place", "at_ms", "consumer", "marked")))
    last = f.max(f.when(is_end, f.struct("place", "at_ms", "reason", "consumer")))
    return events.groupBy(*_KEY).agg(
        f.max("due").alias("due"),
        f.max("confirmed_ms").alias("confirmed_ms"),
        f.max("bytes").alias("bytes"),
        f.count(f.when(is_delivery, 1)).alias("deliveries"),
        f.count(f.when(is_settlement, 1)).alias("settlements"),
        f.count(f.when(is_end, 1)).alias("ends"),
        f.max(f.when(is_delivery, place)).alias("delivered_last"),
        f.min(f.when(is_settlement, place)).alias("settled_first"),
        f.max("waits").alias("waits"),
        first.alias("first"),
        last.alias("last"),
    )


def _judged(found: DataFrame) -> DataFrame:
    lanes_until = f.filter("until", lambda at: f.shiftright(at, LANE_BITS) == lane())
    unknown = f.coalesce(f.col("position") >= f.get(lanes_until, 0), f.lit(False))
    missing = (f.col("ends") == 0) & f.col("waits").isNull() & ~unknown & ~f.col("selects") & ~f.col("has_left")
    again = (f.col("delivered_last") > f.col("settled_first")) | (f.col("settlements") > 1)
    return found.select(
        *_KEY, "destination", "kind", "deliveries", "bytes",
        f.coalesce("confirmed_ms", "first.at_ms", "last.at_ms").alias("confirmed_ms"),
        f.col("confirmed_ms").isNotNull().alias("has_confirm"),
        # One that is marked as redelivered was delivered before, even if a crash took the record of it.
        f.when(~f.col("first.marked"), f.col("first.place")).alias("place"),
        f.col("first.at_ms").alias("delivered_ms"),
        f.coalesce("first.consumer", "last.consumer").alias("consumer"),
        f.col("last.at_ms").alias("ended_ms"),
        f.col("last.reason").alias("reason"),
        (f.col("waits").isNotNull() & (f.col("ends") == 0) | unknown).alias("waits"),
        (missing & f.col("is_durable")).alias("lost"),
        (missing & ~f.col("is_durable")).alias("missed"),
        f.coalesce(again, f.lit(False)).alias("duplicated"),
        (f.col("deliveries") > 1).alias("redelivered"),
    )  # fmt: skip


def _in_period(found: DataFrame, period: Period) -> DataFrame:
    """What has no time of its own, since a crash took the record and nobody has got it yet, belongs to every period."""
    at = f.col("confirmed_ms")
    if period.from_ms is not None:
        found = found.where(at.isNull() | (at >= period.from_ms))
    if period.to_ms is not None:
        found = found.where(at.isNull() | (at < period.to_ms))
    return found


def reordered(judged: DataFrame) -> DataFrame:
    """The messages that came too late, by who got them first."""
    of_consumer = Window.partitionBy("identity", "subscription", "consumer", lane())
    before = of_consumer.orderBy("place", "position").rowsBetween(Window.unboundedPreceding, -1)
    marked = judged.where("place IS NOT NULL").withColumn("highest", f.max("position").over(before))
    return marked.where("position < highest").drop("highest")


def stored_twice(traces: Traces) -> DataFrame:
    """Ids that lie at several positions of one destination, beyond those that died there and were sent again."""
    records = traces.records
    died = exploded(of_kind(records, Trace.ENDED)).where("reason <> 'unselected'")
    died = died.select("identity", "position").distinct()
    copies = confirmed(records).join(died.withColumn("died", f.lit(1)), ["identity", "position"], "left")
    counted = copies.groupBy("identity", "producer", "sequence").agg(
        f.count("*").alias("copies"), f.count("died").alias("died"), f.max("position").alias("position")
    )
    return counted.where("copies - 1 > died")

"""What became of every message, by its traces, and for each subscription that had to get it.

    lost         it was confirmed, nothing ended it, and the broker does not have it for the subscription any more; or
                 its position was given to another one later
    duplicated   it was delivered after it had been settled, or settled twice; or stored twice under one id
    reordered    a consumer got it for the first time that anybody did, after one that lies behind it
    redelivered  delivered again before it was settled: allowed, and marked by the broker

Nothing of this takes the broker's word but one thing: which messages it still has (`TracedState.unsettled`). Positions
are given without gaps, so that those from where tracing began to where the log ends are the messages that were
confirmed, with or without a record; and those behind the end that a record tells of. Subscriptions that select leave
out what no record names. Those that are not durable may lose: what they did not get is `missed`.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from angarium.core.destination.log import LANE_BITS
from angarium.core.destination.tracing import Trace
from angarium.spark.pipelines.folding import BLOCK_BITS, DUE, EVENTS, RUNS, UNKNOWN, WAITS, folded
from angarium.spark.pipelines.traces import ANEW, DURABLE, PLACE_BITS, SELECTS, TracedState, Traces

_ENDS = (Trace.SETTLED, Trace.ENDED)
_SUBSCRIPTION = ["identity", "subscription"]


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


def lane(position: str) -> Column:
    return f.shiftright(position, LANE_BITS)


def expected(spark: SparkSession, traces: Traces) -> DataFrame:
    """The positions of every message that was confirmed while it was traced: identity, lane, low, high."""
    began = of_kind(traces.records, Trace.BEGUN, Trace.CONFIRMED).groupBy("identity", lane("low").alias("lane"))
    is_anew = (f.col("kind") == int(Trace.BEGUN)) & (f.col("flags").bitwiseAND(ANEW) > 0)
    begins = began.agg(f.coalesce(f.max(f.when(is_anew, f.col("low"))), f.min("low")).alias("low"))
    lanes = [(state.identity, end >> LANE_BITS, end) for state in traces.states for _, end in state.lanes]
    ends = spark.createDataFrame(lanes, "identity bigint, lane bigint, end bigint")
    found = begins.join(f.broadcast(ends), ["identity", "lane"], "left")
    found = found.join(f.broadcast(_confirmed_ends(spark, traces)), ["identity", "lane"], "left")
    return found.withColumn("high", f.greatest("end", "confirmed_end")).where("low < high")


def _confirmed_ends(spark: SparkSession, traces: Traces) -> DataFrame:
    """Up to where records tell that messages were confirmed before the broker said where its logs end."""
    limits = [(state.identity, state.trace_messages << PLACE_BITS) for state in traces.states]
    before = f.broadcast(spark.createDataFrame(limits, "identity bigint, place_end bigint"))
    confirmed = of_kind(traces.records, Trace.CONFIRMED).join(before, "identity").where("place < place_end")
    return confirmed.groupBy("identity", lane("low").alias("lane")).agg(f.max("high").alias("confirmed_end"))


def subscriptions(spark: SparkSession, traces: Traces) -> DataFrame:
    """Each subscription, where it begins and where it ended, and what may be demanded of it."""
    records = traces.records
    seen = of_kind(records, Trace.SUBSCRIBED, Trace.DELIVERED, *_ENDS)
    came = f.col("kind") == int(Trace.SUBSCRIBED)
    named = seen.groupBy("identity", "subscription").agg(
        f.max(f.when(came, f.col("flags"))).alias("flags"),
    )
    now = [
        (state.identity, each.name, each.durable, each.selects)
        for state in traces.states
        for each in state.subscriptions
    ]
    present = spark.createDataFrame(now, "identity bigint, subscription string, is_durable boolean, selects boolean")
    gone = _lives(records).where("left_at IS NOT NULL")
    kinds = [(state.identity, state.name, state.kind) for state in traces.states]
    destinations = spark.createDataFrame(kinds, "identity bigint, destination string, kind string")
    flags = f.coalesce(f.col("flags"), f.lit(DURABLE))
    return (
        named.join(present, _SUBSCRIPTION, "full")
        .join(gone, _SUBSCRIPTION, "left")
        .join(destinations, "identity")
        .select(
            "identity",
            "destination",
            "kind",
            "subscription",
            f.coalesce("is_durable", flags.bitwiseAND(DURABLE) > 0).alias("is_durable"),
            (f.coalesce("selects", f.lit(False)) | (flags.bitwiseAND(SELECTS) > 0)).alias("selects"),
            (f.col("left_at").isNotNull() & f.col("is_durable").isNull()).alias("has_left"),
        )
    )


def _lives(records: DataFrame) -> DataFrame:
    """Of each subscription that is told of: after which place it came for the last time, and the place at which it left
    then. What went before is another one's, which had the same name."""
    comes, goes = (f.col("kind") == int(kind) for kind in (Trace.SUBSCRIBED, Trace.UNSUBSCRIBED))
    seen = of_kind(records, Trace.SUBSCRIBED, Trace.UNSUBSCRIBED)
    every = Window.partitionBy("identity", "subscription")
    came = seen.withColumn("came_last", f.max(f.when(comes, f.col("place"))).over(every))
    before = goes & (f.col("place") < f.col("came_last"))
    return came.groupBy("identity", "subscription").agg(
        f.coalesce(f.max(f.when(before, f.col("place"))), f.lit(-1)).alias("life_after"),
        f.max(f.when(goes & ~f.coalesce(before, f.lit(False)), f.col("place"))).alias("left_at"),
    )


def _begins(records: DataFrame, lives: DataFrame) -> DataFrame:
    """Where subscriptions begin in each lane; where nothing is known, with all that is traced."""
    came = of_kind(records, Trace.SUBSCRIBED).join(f.broadcast(lives), _SUBSCRIPTION).where("place > life_after")
    return came.groupBy(*_SUBSCRIPTION, lane("low").alias("lane")).agg(f.min("low").alias("subscribed_at"))


def _left_before(records: DataFrame, lives: DataFrame) -> DataFrame:
    """How far each lane was when a subscription left. A crash may have taken the record that a message was confirmed:
    one that it was delivered tells as much."""
    left = f.broadcast(lives.where("left_at IS NOT NULL"))
    confirmed = of_kind(records, Trace.CONFIRMED).drop("subscription").join(left, "identity")
    happened = of_kind(records, Trace.DELIVERED, *_ENDS).join(left, _SUBSCRIPTION)
    there = confirmed.unionByName(happened).where("place < left_at")
    return there.groupBy(*_SUBSCRIPTION, lane("low").alias("lane")).agg(f.max("high").alias("left_before"))


def _told(spark: SparkSession, states: Sequence[TracedState]) -> DataFrame:
    """What the broker says it still has, and of what it cannot say."""
    rows = []
    for state in states:
        for each in state.subscriptions:
            rows += [(state.identity, each.name, low, high, WAITS) for low, high in each.unsettled]
            ends = {end >> LANE_BITS: end for _, end in state.lanes}
            unknown = [(at, ends.get(at >> LANE_BITS, at)) for at in each.until]
            rows += [(state.identity, each.name, at, end, UNKNOWN) for at, end in unknown if at < end]
    return spark.createDataFrame(rows, "identity bigint, subscription string, low bigint, high bigint, event int")


def fates(spark: SparkSession, traces: Traces, period: Period) -> DataFrame:
    """What became of each message, for each subscription: a row for consecutive ones that the same became of, from
    `low` to before `high`."""
    records = traces.records
    known, lives = subscriptions(spark, traces), _lives(records)
    each = f.broadcast(known.select("identity", "subscription"))
    due = expected(spark, traces).join(f.broadcast(known.select(*_SUBSCRIPTION, "has_left")), "identity")
    for bound in (_begins(records, lives), _left_before(records, lives)):
        due = due.join(f.broadcast(bound), [*_SUBSCRIPTION, "lane"], "left")
    until = f.when(f.col("has_left"), f.col("left_before")).otherwise(f.col("high"))
    due = due.withColumns({"low": f.greatest("low", "subscribed_at"), "high": until}).where("low < high")
    confirmed = of_kind(records, Trace.CONFIRMED).drop("subscription").join(each, "identity")
    happened = of_kind(records, Trace.DELIVERED, *_ENDS).withColumn("bytes", f.lit(None))
    happened = happened.join(f.broadcast(lives), _SUBSCRIPTION, "left")
    happened = happened.where("life_after IS NULL OR place > life_after")
    events = _events(due.withColumn("event", f.lit(DUE)))
    events = events.unionByName(_events(_told(spark, traces.states)))
    for frame in (confirmed, happened):
        events = events.unionByName(_events(frame.withColumnsRenamed({"kind": "event", "redelivered": "marked"})))
    runs = _by_block(events).groupBy("identity", "subscription", "block").applyInArrow(folded, RUNS)
    return _in_period(_judged(runs.join(f.broadcast(known), ["identity", "subscription"])), period)


def _events(frame: DataFrame) -> DataFrame:
    """With the columns that are folded; those that it does not have are NULL."""
    columns = []
    for part in EVENTS.split(", "):
        name, kind = part.split()
        value = f.col(name) if name in frame.columns else f.lit(None)
        if name == "bytes":
            value = value / (f.col("high") - f.col("low"))  # of each message
        columns.append(value.cast(kind).alias(name))
    return frame.select(*columns)


def _by_block(events: DataFrame) -> DataFrame:
    """Ranges cut where a block ends."""
    blocks = f.sequence(f.shiftright("low", BLOCK_BITS), f.shiftright(f.col("high") - 1, BLOCK_BITS))
    cut = events.where("low < high").withColumn("block", f.explode(blocks))
    begin, end = f.shiftleft("block", BLOCK_BITS), f.shiftleft(f.col("block") + 1, BLOCK_BITS)
    return cut.withColumns({"low": f.greatest("low", begin), "high": f.least("high", end)})


def _judged(runs: DataFrame) -> DataFrame:
    excused = f.col("waits") | f.col("unknown") | f.col("selects") | f.col("has_left")
    missing = (f.col("ends") == 0) & ~excused
    again = (f.col("delivered_last") > f.col("settled_first")) | (f.col("settlements") > 1)
    return runs.select(
        "identity", "subscription", "low", "high", (f.col("high") - f.col("low")).alias("messages"),
        "destination", "kind", "deliveries", "bytes",
        f.coalesce("confirmed_ms", "first_ms", "last_ms").alias("confirmed_ms"),
        f.col("confirmed_ms").isNotNull().alias("has_confirm"),
        # One that is marked as redelivered was delivered before, even if a crash took the record of it.
        f.when(~f.col("first_marked"), f.col("first_place")).alias("place"),
        f.col("first_ms").alias("delivered_ms"),
        f.coalesce("first_consumer", "last_consumer").alias("consumer"),
        f.col("last_ms").alias("ended_ms"),
        f.col("last_reason").alias("reason"),
        (f.col("waits") & (f.col("ends") == 0) | f.col("unknown")).alias("waits"),
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
    of_consumer = Window.partitionBy("identity", "subscription", "consumer", lane("low"))
    before = of_consumer.orderBy("place", "low").rowsBetween(Window.unboundedPreceding, -1)
    highest = f.max(f.col("high") - 1).over(before)
    late = judged.where("place IS NOT NULL").withColumn("highest", highest).where("low < highest")
    late = late.withColumn("high", f.least("high", "highest")).drop("highest")
    return late.withColumn("messages", f.col("high") - f.col("low"))


def stored_twice(traces: Traces, period: Period) -> DataFrame:
    """Ids that lie at several positions of one destination, beyond those that died there and were sent again; those of
    which the last came within the period."""
    records = traces.records
    died = exploded(of_kind(records, Trace.ENDED)).where("reason <> 'unselected'")
    died = died.select("identity", "position").distinct()
    copies = exploded(_overlapping(of_kind(records, Trace.CONFIRMED)))
    copies = copies.withColumn("sequence", f.col("sequence") + f.col("position") - f.col("low"))
    copies = copies.join(died.withColumn("died", f.lit(1)), ["identity", "position"], "left")
    counted = copies.groupBy("identity", "producer", "sequence").agg(
        f.count("*").alias("copies"), f.count("died").alias("died"), f.max("position").alias("position"),
        f.max("at_ms").alias("confirmed_ms"),
    )  # fmt: skip
    return _in_period(counted.where("copies - 1 > died"), period)


def replaced(traces: Traces, period: Period) -> DataFrame:
    """Positions that were given to several messages, one after the other: all but the last of them are lost."""
    of_lane = Window.partitionBy("identity", lane("low")).orderBy("low", "high")
    before = f.max("high").over(of_lane.rowsBetween(Window.unboundedPreceding, -1))
    meets = (before > f.col("low")) | (f.lead("low").over(of_lane) < f.col("high"))
    found = exploded(of_kind(traces.records, Trace.CONFIRMED).withColumn("meets", meets).where("meets"))
    found = found.withColumn("sequence", f.col("sequence") + f.col("position") - f.col("low"))
    counted = found.groupBy("identity", "position").agg(
        f.count_distinct("producer", "sequence").alias("messages"), f.max("at_ms").alias("confirmed_ms")
    )
    return _in_period(counted.where("messages > 1"), period)


def _overlapping(confirmed: DataFrame) -> DataFrame:
    """The records that have an id in common with another."""
    end = f.col("sequence") + f.col("high") - f.col("low")
    of_producer = Window.partitionBy("identity", "producer").orderBy("sequence", "low")
    before = f.max(end).over(of_producer.rowsBetween(Window.unboundedPreceding, -1))
    meets = (before > f.col("sequence")) | (f.lead("sequence").over(of_producer) < end)
    return confirmed.withColumn("meets", meets).where("meets")

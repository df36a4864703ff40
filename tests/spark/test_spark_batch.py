"""Goal: `spark.read.format("angarium")` gives what was sent: all of it, once, and nothing else."""
import time

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.spark_messages import Orders, bodies_of, digest

pytestmark = pytest.mark.timeout(600)  # on a machine that does other things, too


def test_a_read_equals_what_was_sent(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    sent = orders.send("a", 20_000)
    orders.take("a", 5_000)
    frame = orders.read(spark, subscribe=name, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    found = bodies_of(frame)
    assert len(found) == 20_000 and digest(found) == digest(sent)
    facts = frame.agg(
        f.min("position"), f.max("position"), f.countDistinct("message_id"), f.countDistinct("position")
    ).first()
    assert facts is not None and tuple(facts) == (0, 19_999, 20_000, 20_000)


def test_columns_say_what_messages_say(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    began_ms = int(time.time() * 1_000)
    orders.send("a", 1, priority=9, correlation_id="c-1", type="order", ttl_s=3_600.0)
    (row,) = orders.read(spark, subscribe=name, includeHeaders=True).collect()
    assert row.destination == name and row.priority == 9 and row.correlation_id == "c-1" and row.type == "order"
    assert row.properties == {"n": "0", "even": "true"} and row.headers["type"] == "order"
    assert row.message_id.startswith("ID:") and row.reply_to is None
    assert abs(row.timestamp.timestamp() * 1_000 - began_ms) < 60_000
    assert 3_500 < (row.expiration - row.timestamp).total_seconds() < 3_700


def test_only_what_is_asked_for(spark: SparkSession, orders: Orders) -> None:
    orders.create("a"), orders.create("b"), orders.create("c.d")
    orders.send("a", 100), orders.send("b", 50), orders.send("c.d", 10)

    def counts(**options: object) -> dict[str, int]:
        rows = orders.read(spark, columns="destination", **options).groupBy("destination").count().collect()
        return {row.destination.removeprefix(orders.prefix + "."): row["count"] for row in rows}

    assert counts(subscribePattern=orders.name("*")) == {"a": 100, "b": 50}
    assert counts(subscribeRegex=f"{orders.prefix}\\.[bc].*") == {"b": 50, "c.d": 10}
    assert counts(subscribe=f"{orders.name('a')},{orders.name('c.d')}") == {"a": 100, "c.d": 10}
    assert counts(subscribe=orders.name("a"), selector="n >= 90 AND even = TRUE") == {"a": 5}
    where = f'{{"{orders.name("a")}": 10, "{orders.name("b")}": -1}}'
    assert counts(subscribePattern=orders.name("*"), startingOffsets=where) == {"a": 90}
    until = f'{{"{orders.name("a")}": 25}}'
    assert counts(subscribePattern=orders.name("*"), startingOffsets=where, endingOffsets=until) == {"a": 15}


def test_by_time(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    orders.send("a", 300)
    time.sleep(0.02)
    middle_ms = int(time.time() * 1_000)
    time.sleep(0.02)
    orders.send("a", 200)
    assert orders.read(spark, subscribe=name, startingTimestamp=middle_ms).count() == 200
    assert orders.read(spark, subscribe=name, endingTimestamp=middle_ms).count() == 300
    where = f'{{"{name}": {middle_ms}}}'
    assert orders.read(spark, subscribe=name, startingOffsetsByTimestamp=where).count() == 200


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topic": "x", "subscribe": "a"}, "unknown option 'topic'; valid are address"),
        ({"subscribe": "no.such.destination"}, "there is no destination 'no.such.destination'"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "it is for spark.readStream"),
    ],
)
def test_mistakes_are_told(spark: SparkSession, orders: Orders, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        orders.read(spark, **options).count()


def test_ends_and_schemas_that_cannot_be_are_told(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    orders.send("a", 20)
    places = {"startingOffsets": f'{{"{name}": 10}}', "endingOffsets": f'{{"{name}": 5}}'}
    with pytest.raises(Exception, match="from position 10, and up to 5: it would end before it begins"):
        orders.read(spark, subscribe=name, **places).count()
    reader = spark.read.format("angarium").options(address=orders.address, subscribe=name)
    with pytest.raises(Exception, match="column 'position' is of bigint, not string"):
        reader.schema("position string, body binary").load().count()


def test_what_is_gone_is_not_passed_over_in_silence(spark: SparkSession, orders: Orders) -> None:
    name = orders.create(messages_max=0)  # retains nothing
    orders.send("a", 100)
    orders.take("a", 40)
    where = f'{{"{name}": 0}}'
    assert orders.read(spark, subscribe=name).count() == 60
    with pytest.raises(Exception, match="positions 0 to 39 are gone"):
        orders.read(spark, subscribe=name, startingOffsets=where).count()
    assert orders.read(spark, subscribe=name, startingOffsets=where, failOnDataLoss=False).count() == 60


def test_filters_are_pushed_down_if_asked_for(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    orders.send("a", 100, type="x")
    orders.send("a", 10, type="y", priority=9)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = orders.read(spark, subscribe=name, pushFilters=True)
        assert frame.filter("position >= 90 AND position < 95").count() == 5
        many = orders.read(spark, subscribe=name, pushFilters=True, minPartitions=20, selector="n < 93")
        few = many.filter("position >= 90 AND position < 95")
        assert few.rdd.getNumPartitions() == 5, "the others are not read"
        assert few.count() == 3, "beside a selector of the user's own"
        assert frame.filter("priority > 4 AND type = 'y'").count() == 10
        assert frame.filter(f"destination = '{name}' AND timestamp > timestamp'2020-01-01 00:00:00'").count() == 110
        assert frame.filter("type IN ('x', 'z') AND properties['n'] = '7'").count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

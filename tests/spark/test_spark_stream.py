"""Goal: a stream over logs reads every message once, through restarts of either side, growth, purge and removal."""
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from angarium.cli.commands import app
from tests.process.process_broker import running
from tests.spark.spark_messages import STARTS_MAX, TOO_SLOW, Orders, bodies_of, digest

pytestmark = pytest.mark.timeout(600)  # on a machine that does other things, too


def test_exactly_once_over_restarts_of_the_query(spark: SparkSession, orders: Orders) -> None:
    name = orders.create()
    frame = orders.stream(spark, subscribe=name, maxOffsetsPerTrigger=1_500)
    orders.send("a", 4_000)
    orders.drain(frame)
    assert len(bodies_of(orders.drained(spark))) == 4_000
    orders.send("a", 1_000)
    orders.take("a", 2_000)
    orders.drain(orders.stream(spark, subscribe=name))
    orders.drain(orders.stream(spark, subscribe=name, readerName="nightly"))  # nothing new
    (reader,) = orders.request("destination.describe", name=name)["readers"]
    assert (reader["name"], reader["lag"]) == ("nightly", 0)
    found = bodies_of(orders.drained(spark))
    assert len(found) == 5_000 and digest(found) == digest(orders.sent[name])


def test_destinations_that_appear_while_the_query_is_down(spark: SparkSession, orders: Orders) -> None:
    orders.create("a")
    orders.send("a", 100)
    orders.drain(orders.stream(spark, subscribePattern=orders.name("*"), maxOffsetsPerTrigger=30))
    orders.create("b")
    orders.send("b", 70)
    orders.send("a", 10, priority=9)
    orders.drain(orders.stream(spark, subscribePattern=orders.name("*"), maxOffsetsPerTrigger=30))
    found = bodies_of(orders.drained(spark))
    sent = [body for bodies in orders.sent.values() for body in bodies]
    assert len(found) == 180 and digest(found) == digest(sent)


@pytest.mark.parametrize("how", ["purged", "made anew", "removed"])
def test_loss_while_the_query_is_down_is_told_and_can_be_accepted(
    spark: SparkSession, orders: Orders, how: str
) -> None:
    name = orders.create("a")
    orders.send("a", 100)
    orders.drain(orders.stream(spark, subscribe=name))
    orders.send("a", 20)
    orders.request("destination.purge" if how == "purged" else "destination.remove", name=name)
    if how == "made anew":
        orders.create("a")
    orders.session = orders.connection.session()
    later = orders.send("a", 30) if how != "removed" else []
    told = "positions 100 to 119 are gone" if how == "purged" else f"was removed{' and made anew' * (how != 'removed')}"
    with pytest.raises(Exception, match=rf"{told}\. .*failOnDataLoss"):
        orders.drain(orders.stream(spark, subscribe=name))
    orders.drain(orders.stream(spark, subscribe=name, failOnDataLoss=False))
    found = bodies_of(orders.drained(spark))
    assert digest(found) == digest([*orders.sent[name][:100], *later])


def test_progress_and_lag_are_shown_by_the_broker(
    spark: SparkSession, orders: Orders, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANGARIUM_SPARK", raising=False)  # which is for these tests, and none of the command's settings
    name = orders.create("a")
    orders.send("a", 500)

    def shown() -> str:
        capfd.readouterr()
        app(["ls", "-a", orders.address], standalone_mode=False)
        (line,) = (line for line in capfd.readouterr().out.splitlines() if name in line)
        return line

    assert "nightly" not in shown()
    orders.drain(orders.stream(spark, subscribe=name, maxOffsetsPerTrigger=200, readerName="nightly"))
    assert "nightly reads, 0 behind" in shown(), "also when the last batch is done and no other follows"
    orders.send("a", 30)
    assert "nightly reads, 30 behind" in shown()


def test_a_running_query_survives_a_kill_of_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path) as broker, Orders(broker.address, "r", tmp_path) as orders:
        orders.create()
        seen: list[bytes] = []

        def take(batch: DataFrame, number: int) -> None:
            seen.extend(bodies_of(batch))

        frame = orders.stream(spark, subscribe=orders.name("a"))
        orders.send("a", 500)
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = _started(writer.trigger(processingTime="0 seconds"))
        try:
            orders.send("a", 500)
            _until(lambda: len(seen) >= 1_000)
            broker.kill()
            broker.start()
            orders.send("a", 1_000)
            _until(lambda: len(seen) >= 2_000)
            progress = query.lastProgress
            assert progress is not None and orders.name("a") in str(progress["sources"][0]["latestOffset"])
        finally:
            query.stop()
        assert digest(seen) == digest(orders.sent[orders.name("a")])


def _started(writer: DataStreamWriter) -> StreamingQuery:
    """A query that runs; see `TOO_SLOW`."""
    for _ in range(STARTS_MAX):
        query = writer.start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.05)
        if query.isActive:
            return query
        assert TOO_SLOW in str(query.exception()), query.exception()
    raise AssertionError(f"Spark could not start a process in {STARTS_MAX} attempts")


def _until(condition: object, timeout_s: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        time.sleep(0.05)

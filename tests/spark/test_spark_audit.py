"""Goal: an audit finds losses, duplicates and reorderings exactly, and none where there are none.
Method: real traffic through a real broker, with crashes; then the same traces with mistakes planted in them."""
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import angarium
from angarium import blocking
from angarium.cli import failure
from angarium.cli.commands import app
from angarium.core.destination.tracing import Trace
from angarium.core.errors import ConfigError, Rejected
from angarium.spark.pipelines import audit as pipeline
from angarium.spark.pipelines.audit import AuditResult, AuditSettings, audit, judge
from angarium.spark.pipelines.judging import Period
from angarium.spark.pipelines.traces import SCHEMA, Traces, read_traces, traced_states
from tests.process.process_broker import Broker, running
from tests.spark.spark_messages import Orders

pytestmark = pytest.mark.timeout(600)
Plant = Callable[[list[dict[str, Any]]], None]


def settings(orders: Orders, *names: str, **more: Any) -> AuditSettings:
    return AuditSettings(address=(orders.address,), destinations=names or (f"{orders.prefix}.*",), **more)


@pytest.fixture(scope="module")
def traffic(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Orders, list[dict[str, Any]], Traces]]:
    """400 messages, settled by two consumers, and 100 that wait; their records, and what the broker says."""
    with Orders(broker.address, "audited", tmp_path_factory.mktemp("audited")) as orders:
        name = orders.create("a", traced=True)
        for _ in range(5):
            orders.send("a", 100)
        for _ in range(2):
            orders.take("a", 200)
        with blocking.connect(broker.address) as connection:
            states = traced_states(connection, [name])
        traces = read_traces(spark, [broker.address], states, None)
        rows = [row.asDict() for row in traces.records.collect() if row.identity == states[0].identity]
        yield orders, sorted(rows, key=lambda row: row["place"]), traces


def of(rows: list[dict[str, Any]], kind: Trace) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def split(rows: list[dict[str, Any]], kind: Trace, position: int) -> dict[str, Any]:
    """The record of that position alone, taken out of the range that it is in, and put behind it."""
    (row,) = [row for row in of(rows, kind) if row["low"] <= position < row["high"]][:1]
    at = rows.index(row)
    first = row.get("sequence") or 0
    parts = [(row["low"], position), (position, position + 1), (position + 1, row["high"])]
    made = [row | {"low": low, "high": high, "sequence": first + low - row["low"]} for low, high in parts]
    rows[at : at + 1] = [part for part in made if part["low"] < part["high"]]
    return next(part for part in rows if part is made[1])


def judged(spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces], plant: Plant) -> AuditResult:
    _, rows, traces = traffic
    planted = [dict(row) for row in rows]
    plant(planted)
    frame = spark.createDataFrame([tuple(row[name] for name in rows[0]) for row in planted], SCHEMA)
    return judge(spark, Traces(frame, traces.states), Period())


def counts(result: AuditResult) -> dict[str, int]:
    (row,) = result.destinations
    return {name: row[name] for name in ("confirmed", "settled", "unsettled", "lost", "duplicated", "reordered")}


CLEAN = {"confirmed": 500, "settled": 400, "unsettled": 100, "lost": 0, "duplicated": 0, "reordered": 0}


def test_nothing_is_found_where_nothing_is_wrong(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    result = audit(spark, settings(traffic[0]))
    assert counts(result) == CLEAN and result.broken == [] and result.findings == [] and result.stored_twice == []
    (row,) = result.destinations
    assert row["delivered"] >= 400 and 0 <= row["latency_ms"][0] <= row["latency_ms"][2] < 60_000
    assert sum(each["settled"] for each in result.consumers) == 400 and len(result.over_time) >= 1
    assert counts(judged(spark, traffic, lambda rows: None)) == CLEAN


def test_losses_are_found_exactly(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    lost = sorted(random.Random(7).sample(range(400), 5))

    def plant(rows: list[dict[str, Any]]) -> None:
        for position in lost:
            rows.remove(split(rows, Trace.SETTLED, position))

    result = judged(spark, traffic, plant)
    assert counts(result) == CLEAN | {"settled": 395, "lost": 5}
    assert [found["position"] for found in result.findings if found["finding"] == "lost"] == lost
    assert result.broken == ["5 lost"]


def test_an_end_of_the_log_that_is_lost_is_found(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    """As if the broker had forgotten the last 40, of which none was settled; or others had come in their place."""
    _, rows, traces = traffic
    (state,) = traces.states
    ((_, end),) = state.lanes
    (subscribed,) = state.subscriptions
    unsettled = tuple((low, min(high, end - 40)) for low, high in subscribed.unsettled)
    shorter = replace(state, lanes=((0, end - 40),), subscriptions=(replace(subscribed, unsettled=unsettled),))
    records = spark.createDataFrame([tuple(row[name] for name in rows[0]) for row in rows], SCHEMA)
    result = judge(spark, Traces(records, [shorter]), Period())
    assert counts(result) == CLEAN | {"unsettled": 60, "lost": 40} and result.broken == ["40 lost"]
    later = replace(shorter, trace_messages=0)
    assert judge(spark, Traces(records, [later]), Period()).broken == [], "what came after the broker was asked"

    def plant(planted: list[dict[str, Any]]) -> None:
        last = max(planted, key=lambda row: row["place"])
        planted += [
            dict.fromkeys(last) | {
                "kind": int(Trace.CONFIRMED), "identity": last["identity"], "at_ms": last["at_ms"],
                "place": last["place"] + 1, "low": 460, "high": 500, "producer": "ID:other", "sequence": 1, "bytes": 9,
            }
        ]  # fmt: skip

    result = judged(spark, traffic, plant)
    assert result.broken == ["40 lost"] and len(result.replaced) == 40
    assert {row["position"] for row in result.replaced} == set(range(460, 500))


def test_duplicates_are_found_exactly(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    def plant(rows: list[dict[str, Any]]) -> None:
        end = max(row["place"] for row in rows)
        again = split(rows, Trace.DELIVERED, 17)
        rows.append(again | {"place": end + 1})  # delivered after it was settled
        rows.append(split(rows, Trace.SETTLED, 99) | {"place": end + 2})  # settled twice
        rows.append(split(rows, Trace.DELIVERED, 450) | {"place": end + 3})  # not settled: that is a redelivery

    result = judged(spark, traffic, plant)
    assert counts(result) == CLEAN | {"duplicated": 2}
    assert [found["position"] for found in result.findings] == [17, 99]


def test_what_is_stored_twice_is_found(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    def plant(rows: list[dict[str, Any]]) -> None:
        first, second = split(rows, Trace.CONFIRMED, 3), split(rows, Trace.CONFIRMED, 8)
        second["producer"], second["sequence"] = first["producer"], first["sequence"]

    result = judged(spark, traffic, plant)
    assert [row["copies"] for row in result.stored_twice] == [2] and result.broken == ["1 duplicated"]


def test_all_that_is_stored_twice_is_counted_and_some_of_it_shown(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "FINDINGS_MAX", 3)

    def plant(rows: list[dict[str, Any]]) -> None:
        first = split(rows, Trace.CONFIRMED, 3)
        for position in (8, 9):  # three of one id
            split(rows, Trace.CONFIRMED, position).update(producer=first["producer"], sequence=first["sequence"])
        for position in range(20, 26):  # two of each
            again = split(rows, Trace.CONFIRMED, position + 100)
            again["producer"], again["sequence"] = "ID:other", position
            split(rows, Trace.CONFIRMED, position).update(producer="ID:other", sequence=position)

    result = judged(spark, traffic, plant)
    assert len(result.stored_twice) == 3 and result.broken == ["8 duplicated"]
    assert "8 duplicated" in pipeline.sentence(result)


def test_reorderings_are_found_exactly(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    def plant(rows: list[dict[str, Any]]) -> None:
        early, late = split(rows, Trace.DELIVERED, 50), split(rows, Trace.DELIVERED, 51)
        for place, row in enumerate(rows):
            row["place"] = place << 20
        early["place"], late["place"] = late["place"], early["place"]

    result = judged(spark, traffic, plant)
    assert counts(result) == CLEAN | {"reordered": 1}
    assert [(found["finding"], found["position"]) for found in result.findings] == [("reordered", 50)]


def test_records_that_were_dropped_leave_no_accusation(
    spark: SparkSession, traffic: tuple[Orders, list[dict[str, Any]], Traces]
) -> None:
    def plant(rows: list[dict[str, Any]]) -> None:
        rows.remove(split(rows, Trace.SETTLED, 5))
        nothing = dict.fromkeys(rows[0])
        rows.append(nothing | {"kind": int(Trace.DROPPED), "identity": 0, "at_ms": 1, "place": 1 << 40, "bytes": 12})

    result = judged(spark, traffic, plant)
    assert result.dropped == 12 and result.broken == []


def test_a_crash_takes_nothing_from_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path) as broker, Orders(broker.address, "crashed", tmp_path) as orders:
        orders.create("a", traced=True)
        orders.create("b", "topic", traced=True)
        topic = angarium.Topic(orders.name("b"))
        for name in ("one", "two"):
            orders.session.consume(topic, durable=name).close()
        for number in range(4):
            orders.send("a", 250)
            orders.send("b", 100)
            with orders.session.consume(orders.name("a")) as consumer:
                for _ in range(150):
                    message = consumer.receive(timeout_s=10)
                    assert message is not None
                    message.settle()
                if number < 3:
                    broker.kill()
                    broker.start()
        with orders.session.consume(topic, durable="one") as consumer:
            for _ in range(300):
                message = consumer.receive(timeout_s=10)
                assert message is not None
                message.settle()
        result = audit(spark, settings(orders, output=tmp_path / "out"))
        found = {(row["destination"][-1], row["subscription"]): row for row in result.destinations}
        assert {key: (row["confirmed"], row["settled"], row["unsettled"]) for key, row in found.items()} == {
            ("a", ""): (1_000, 600, 400), ("b", "one"): (400, 300, 100), ("b", "two"): (400, 0, 400),
        }  # fmt: skip
        assert result.broken == []
        assert spark.read.parquet(str(tmp_path / "out/messages")).count() == 1_800


def test_a_period_is_judged_alone(spark: SparkSession, orders: Orders) -> None:
    orders.create("a", traced=True)
    orders.send("a", 100)
    orders.take("a", 100)
    time.sleep(0.3)
    middle_ms = int(time.time() * 1_000)
    time.sleep(0.3)
    orders.send("a", 40)
    before = audit(spark, settings(orders, period=Period(to_ms=middle_ms)))
    after = audit(spark, settings(orders, period=Period(from_ms=middle_ms)))
    assert (before.total("confirmed"), after.total("confirmed")) == (100, 40)
    assert before.broken == after.broken == []


def test_what_a_selector_leaves_out_is_not_lost_whenever_it_was_subscribed(
    spark: SparkSession, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it selects was traced before the period."""
    monkeypatch.setattr(pipeline, "SLACK_MS", 0)
    topic = angarium.Topic(orders.create("b", "topic", traced=True))
    with orders.session.consume(topic, durable="few", selector="n < 10") as consumer:
        orders.send("b", 1)
        time.sleep(0.3)
        from_ms = int(time.time() * 1_000)
        orders.send("b", 29)
        for _ in range(10):
            message = consumer.receive(timeout_s=10)
            assert message is not None
            message.settle()
        orders.session.sync()
        result = audit(spark, settings(orders, period=Period(from_ms=from_ms)))
    (row,) = result.destinations
    assert (row["settled"], row["lost"], result.broken) == (9, 0, [])


def test_what_was_not_traced_is_not_judged(spark: SparkSession, orders: Orders) -> None:
    name, topic = orders.create("a", traced=True), angarium.Topic(orders.create("b", "topic", traced=True))
    for traced in (False, True):
        orders.send("a", 10)
        orders.take("a", 10)
        orders.request("destination.alter", name=name, traced=traced)
    orders.session.consume(topic, durable="one").close()
    orders.send("b", 10)
    orders.session.unsubscribe(topic, "one")
    orders.send("b", 10)
    orders.session.consume(topic, durable="one").close()
    orders.send("b", 10)
    orders.send("a", 5)
    result = audit(spark, settings(orders))
    found = {row["destination"]: (row["confirmed"], row["unsettled"]) for row in result.destinations}
    assert found == {name: (5, 5), orders.name("b"): (10, 10)} and result.broken == []


def test_a_subscription_is_judged_by_its_own_time_alone(spark: SparkSession, orders: Orders) -> None:
    """One that left has no part in what came before or afterwards, and one that is made anew is not the one before."""
    topic = angarium.Topic(orders.create("a", "topic", traced=True, retain_s=3_600))
    orders.send("a", 10)
    with orders.session.consume(topic, durable="left"):
        orders.send("a", 7)
    orders.session.unsubscribe(topic, "left")
    for _ in range(2):
        with orders.session.consume(topic, durable="again", start="oldest") as consumer:
            for _ in range(17):
                message = consumer.receive(timeout_s=10)
                assert message is not None
                message.settle()
        orders.session.sync()
        orders.session.unsubscribe(topic, "again")
    with orders.session.consume(topic, durable="again"):
        orders.send("a", 5)
    result = audit(spark, settings(orders))
    found = {row["subscription"]: (row["confirmed"], row["settled"], row["unsettled"]) for row in result.destinations}
    assert found == {"left": (7, 0, 0), "again": (5, 0, 5)} and result.broken == []


def test_the_command_reports(spark: SparkSession, orders: Orders, capfd: pytest.CaptureFixture[str]) -> None:
    name = orders.create("a", traced=True)
    orders.send("a", 50)
    orders.take("a", 50)
    report = orders.directory / "audit.html"
    app(["pipeline", "audit", name, "-a", orders.address, "--report", str(report)], standalone_mode=False)
    done = capfd.readouterr()
    assert "50 to be delivered: 0 lost, 0 duplicated, 0 reordered" in done.err
    text = report.read_text()
    assert "<svg" in text and name in text and "http://" not in text.replace("http://www.w3.org", "")
    app(["pipeline", "audit", name, "-a", orders.address, "--json"], standalone_mode=False)
    assert json.loads(capfd.readouterr().out)["holds"] is True


def test_the_command_fails_if_a_guarantee_was_broken(
    spark: SparkSession, orders: Orders, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    name = orders.create("a", traced=True)
    orders.send("a", 50)
    orders.take("a", 50)

    def forgetful(*arguments: Any) -> Traces:
        """As if it had never been settled, and the broker does not have it either."""
        traces = read_traces(*arguments)
        return Traces(traces.records.where(f"kind <> {int(Trace.SETTLED)}"), traces.states)

    monkeypatch.setattr(pipeline, "read_traces", forgetful)
    report = orders.directory / "audit.html"
    command = ["pipeline", "audit", name, "-a", orders.address, "--report", str(report), "--json"]
    with pytest.raises(SystemExit) as ended:
        failure.run(lambda: app(command, standalone_mode=False))
    assert ended.value.code == 1
    done = capfd.readouterr()
    assert json.loads(done.out)["broken"] == ["50 lost"] and "broken: 50 lost" in done.err
    assert "Broken: 50 lost." in report.read_text()


def test_mistakes_are_told(spark: SparkSession, orders: Orders) -> None:
    name = orders.create("a")
    with pytest.raises(Rejected, match="is not traced; angarium alter"):
        audit(spark, settings(orders, name))
    with pytest.raises(ConfigError, match="no destination is traced"):
        audit(spark, settings(orders, f"{orders.prefix}.*"))

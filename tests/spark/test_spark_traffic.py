"""Goal: traffic is counted as it was, and what is said of it follows."""
import asyncio
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import angarium
from angarium.cli.commands import app
from angarium.core.destination.tracing import Trace
from angarium.spark.pipelines.judging import Period
from angarium.spark.pipelines.traces import TracedState
from angarium.spark.pipelines.traffic import BUCKETS, FOLLOWED_MAX, Place, TrafficResult, advice, measured, traffic
from angarium.spark.pipelines.traffic_report import traffic_page
from tests.process.cluster_processes import running_cluster
from tests.spark.spark_messages import Orders

pytestmark = pytest.mark.timeout(600)


def test_what_flows_is_counted(spark: SparkSession, orders: Orders, capfd: pytest.CaptureFixture[str]) -> None:
    queue, topic = orders.create("a", traced=True), orders.create("b", "topic", traced=True)
    consumers = [orders.session.consume(angarium.Topic(topic)) for _ in range(3)]
    sent = {name: sum(map(len, orders.send(short, 200))) for short, name in (("a", queue), ("b", topic))}
    orders.take("a", 200)
    for consumer in consumers:
        for _ in range(200):
            assert consumer.receive(timeout_s=10) is not None
        consumer.close()
    result = traffic(spark, (orders.address,), (f"{orders.prefix}.*",), Period())
    found = {row["destination"]: row for row in result.destinations}
    assert {name: row["bytes_in"] for name, row in found.items()} == sent
    assert found[queue]["messages_in"] == found[topic]["messages_in"] == 200
    assert found[topic]["messages_out"] == 600 and found[topic]["fan_out"] == 3.0
    assert sum(row["messages_in"] for row in result.producers) == 400 and len(result.producers) == 2
    assert sorted(row["fan_out"] for row in result.producers) == [1.0, 3.0], "as of the destination that each sends to"
    (manager,), (front,) = result.message_managers, result.client_managers
    assert manager["name"] == "broker" and manager["messages_in"] == 400
    assert front["messages_in"] == 400 and front["messages_out"] == manager["messages_out"]
    totals = {
        "destination": result.destinations, "producer": result.producers, "node": result.client_managers,
        "number": result.message_managers,
    }  # fmt: skip
    for key, rows in totals.items():
        for what in ("messages_in", "bytes_in", "messages_out"):
            followed = [row for row in result.over_time[key] if row[key] == rows[0][key]]
            assert sum(row[what] for row in followed) == rows[0][what], f"{what} over time by {key}"
    assert front["node"] == "broker"
    report = orders.directory / "traffic.html"
    arguments = [f"{orders.prefix}.*", "-a", orders.address, "--report", str(report)]
    app(["pipeline", "traffic", *arguments], standalone_mode=False)
    done = capfd.readouterr()
    assert "fan-out" in done.out and "message manager 'broker' carries everything" in done.err
    assert "the bottleneck: at its busiest message manager 'broker' has" in done.err
    text = report.read_text()
    assert text.count("<svg") == 4 * 6, "of each kind bars, and five plots over time"
    assert all(row["producer"][:32] in text for row in result.producers) and front["node"] in text


def test_time_has_no_holes_and_follows_the_busiest(spark: SparkSession) -> None:
    nobody = [None] * 9
    sent = [(f"d{n:02}", at_ms, n + 1) for n in range(FOLLOWED_MAX + 5) for at_ms in (0, 600_000)]
    records = spark.createDataFrame(
        [(int(Trace.CONFIRMED), int(name[1:]), at_ms, 0, count, f"p-{name}", 10 * count, *nobody)
         for name, at_ms, count in sent],
        "kind int, identity bigint, at_ms bigint, low bigint, high bigint, producer string, bytes bigint, "
        + ", ".join(f"{name} string" for name in ("node", "subscription", "consumer", "b", "c", "d", "e", "g", "h")),
    )  # fmt: skip
    states = [TracedState(name, int(name[1:]), "queue", (), ()) for name in sorted({name for name, _, _ in sent})]
    result = measured(records, states, {0: Place("broker", 1)}, Period())
    busiest = [f"d{n:02}" for n in range(FOLLOWED_MAX + 4, 4, -1)]
    assert list(dict.fromkeys(row["destination"] for row in result.over_time["destination"])) == busiest
    of_one = [row for row in result.over_time["destination"] if row["destination"] == busiest[0]]
    assert len(of_one) == BUCKETS and [row["messages_in"] for row in of_one] == [25, *[0] * (BUCKETS - 2), 25]
    text = traffic_page(result)
    assert f">{busiest[0]}</text>" in text and text.count("<polyline") == 6 * (4 + 1) * 2 + 5


def test_managers_of_both_kinds_are_told_by_name_in_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    with running_cluster(tmp_path, groups=2, copies=1) as cluster:
        sender, receiver = cluster.addresses
        with Orders(sender, "c", tmp_path) as sending, Orders(receiver, "c", tmp_path) as taking:
            names = [sending.create(f"a{number}", traced=True) for number in range(6)]
            for number in range(6):
                sending.send(f"a{number}", 50)
                taking.take(f"a{number}", 50)
            result = traffic(spark, (sender,), ("c.*",), Period())
            groups = {name: asyncio.run(cluster.group_of(name)) for name in names}
    found = {row["node"]: (row["messages_in"], row["messages_out"]) for row in result.client_managers}
    assert found == {"cm1": (300, 0), "cm2": (0, 300)}
    sent = Counter(groups.values())
    assert {row["name"]: row["messages_in"] for row in result.message_managers} == {
        group: 50 * count for group, count in sent.items()
    }


def row(load: int, **names: object) -> dict[str, object]:
    return {"bytes_in": load, "bytes_out": 0, "messages_in": load, "messages_out": 0, **names}


def test_advice_follows_from_what_flows() -> None:
    managers = [row(600, name="a", number=0, copies=3), row(200, name="b", number=1, copies=3)]
    result = TrafficResult(
        destinations=[row(300, destination="x"), row(300, destination="y"), row(200, destination="z")],
        message_managers=managers,
        client_managers=[row(800, node="1")],
    )
    result.over_time = {
        "number": [row(60, number=0, width_ms=1_000), row(9, number=1, width_ms=100)],
        "node": [row(60, node="1", width_ms=500)],
    }
    told = advice(result)
    assert "client manager '1' has 120 bytes a second in and out, message manager 'b' has 90 bytes" in told[0]
    assert "'a' carries 75% of all bytes, where an even share is 50%" in told[1]
    assert "would carry 38% instead of 75%" in told[2]
    assert "100% of what clients send and get" in told[3] and "50%" in told[3]
    assert "33% more is written" in told[4]
    result.destinations = [row(600, destination="x"), row(200, destination="z")]
    assert "changes little: 'x' alone has 75%" in advice(result)[2]
    result.message_managers = [row(1_000, name="a", number=0, copies=1)]
    result.destinations = [row(998, destination="x"), row(2, destination="z")]
    assert "changes little: 'x' alone has 100%" in advice(result)[2], "not 100% instead of 100%"

"""Goal: traffic is counted as it was, and what is said of it follows."""
import pytest
from pyspark.sql import SparkSession

import angarium
from angarium.cli.commands import app
from angarium.spark.pipelines.judging import Period
from angarium.spark.pipelines.traffic import TrafficResult, advice, traffic
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
    (manager,), (front,) = result.message_managers, result.client_managers
    assert manager["name"] == "broker" and manager["messages_in"] == 400
    assert front["messages_in"] == 400 and front["messages_out"] == manager["messages_out"]
    report = orders.directory / "traffic.html"
    arguments = [f"{orders.prefix}.*", "-a", orders.address, "--report", str(report)]
    app(["pipeline", "traffic", *arguments], standalone_mode=False)
    done = capfd.readouterr()
    assert "fan-out" in done.out and "message manager 'broker' carries everything" in done.err
    assert report.read_text().count("<svg") >= 5


def row(load: int, **names: object) -> dict[str, object]:
    return {"bytes_in": load, "bytes_out": 0, "messages_in": load, "messages_out": 0, **names}


def test_advice_follows_from_what_flows() -> None:
    managers = [row(600, name="a", copies=3), row(200, name="b", copies=3)]
    result = TrafficResult(
        destinations=[row(300, destination="x"), row(300, destination="y"), row(200, destination="z")],
        message_managers=managers,
        client_managers=[row(800, node="1")],
    )
    told = advice(result)
    assert "'a' carries 75% of all bytes, where an even share is 50%" in told[0]
    assert "would carry 38% instead of 75%" in told[1]
    assert "100% of what clients send and get" in told[2] and "50%" in told[2]
    assert "33% more is written" in told[3]
    result.destinations = [row(600, destination="x"), row(200, destination="z")]
    assert "changes little: 'x' alone has 75%" in advice(result)[1]

"""Goal: an audit of a destination that was moved between replica groups while it was used says that nothing was lost,
duplicated or reordered; and a mistake that was made on the way is found, whichever group has told of it. Method: what
two message managers have traced, judged by Spark; and a real cluster."""
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from angarium import blocking
from angarium.core.destination.tracing import Trace
from angarium.spark.pipelines.audit import AuditSettings, audit, judge
from angarium.spark.pipelines.judging import Period
from angarium.spark.pipelines.traces import SCHEMA, Traces, rows_of, state_of, traced_states
from tests.process.cluster_processes import running_cluster
from tests.process.process_broker import WAIT_S
from tests.unit.core.core_moving import SOURCE, TARGET, Pair
from tests.unit.core.test_core_moving_traces import bodies, go_on, traced

pytestmark = pytest.mark.timeout(600)
_NAMES = [part.split()[0] for part in SCHEMA.split(", ")]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def moved() -> tuple[list[Row], list[dict[str, Any]]]:
    """Rows of both logs, and what the broker says: 10 messages, moved, 2 more, and back; 11 of them are settled."""
    pair = Pair()
    queue, producer, consumer = traced(pair)
    pair.move()
    go_on(pair, TARGET, producer, consumer, (3, 5))
    consumer.settle((3, 8))
    producer.publish(b"m10", b"m11")
    pair.move("q", SOURCE)
    go_on(pair, SOURCE, producer, consumer, (8, 12))
    consumer.settle((8, 11))
    pair.source.advance(1.0)
    described = pair.source.request("trace.describe", name="q").result
    rows = [row for group in (SOURCE, TARGET) for body in bodies(pair, group) for row in rows_of(body)]
    return [row for row in rows if row["identity"] in (0, queue)], [described]


def counts(spark: SparkSession, rows: list[Row], states: list[dict[str, Any]]) -> dict[str, int]:
    frame = spark.createDataFrame([tuple(row.get(name) for name in _NAMES) for row in rows], SCHEMA)
    result = judge(spark, Traces(frame, [state_of(told) for told in states]), Period())
    (row,) = result.destinations
    names = ("confirmed", "settled", "unsettled", "lost", "duplicated", "reordered")
    of_all = {"twice": result.copies_too_many, "replaced": result.replaced_messages}
    return {name: row[name] for name in names} | of_all


FINE = {
    "confirmed": 12, "settled": 11, "unsettled": 1, "lost": 0, "duplicated": 0, "reordered": 0, "twice": 0,
    "replaced": 0,
}  # fmt: skip


def test_nothing_is_wrong(spark: SparkSession, moved: tuple[list[Row], list[dict[str, Any]]]) -> None:
    assert counts(spark, *moved) == FINE


def delivered_again(rows: list[Row]) -> list[Row]:
    """At the target, what was settled at the source."""
    first = next(row for row in rows if row["kind"] == Trace.DELIVERED and row["low"] >= 5)
    return [*rows, first | {"low": 1, "high": 2}]


def never_settled(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not (row["kind"] == Trace.SETTLED and row["low"] <= 3 < row["high"])]


@pytest.mark.parametrize(("plant", "found"), [(delivered_again, "duplicated"), (never_settled, "lost")])
def test_what_is_wrong_is_found(
    spark: SparkSession, moved: tuple[list[Row], list[dict[str, Any]]], plant: Callable[[list[Row]], list[Row]],
    found: str,
) -> None:  # fmt: skip
    rows, states = moved
    assert counts(spark, plant(rows), states)[found] > 0


def test_a_real_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """Sent and settled in one group, moved, and the same in the other; what each has told is found and joined."""
    with running_cluster(tmp_path, client_managers=1, groups=2, copies=1) as cluster:
        with blocking.connect(cluster.addresses) as connection:
            connection.request("destination.create", {"name": "audited", "traced": True})
            for first in (0, 200, 400):
                with connection.session() as session:
                    for number in range(first, first + 200):
                        session.send("audited", b"%d" % number)
                    session.sync()
                    for _ in range(150):
                        message = session.receive("audited", WAIT_S)
                        assert message is not None
                        message.settle()
                    session.sync()
                if first < 400:
                    _moved_to_the_other(connection)
            assert {state.logs for state in traced_states(connection, ["audited"])} == {("_TRACE.1", "_TRACE.2")}
        result = audit(spark, AuditSettings(address=tuple(cluster.addresses), destinations=("audited",)))
    (row,) = result.destinations
    assert (row["confirmed"], row["settled"], row["unsettled"]) == (600, 450, 150)
    assert not result.broken and not result.dropped


def _moved_to_the_other(connection: blocking.Connection) -> None:
    group = {"a": "b", "b": "a"}[connection.request("cluster.where", {"name": "audited"}).result["group"]]
    connection.request("cluster.move-destination", {"name": "audited", "group": group})
    deadline = time.monotonic() + WAIT_S
    while connection.request("cluster.moves", {}).result["moving"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)

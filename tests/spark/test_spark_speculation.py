"""Goal: rows are in the broker once although Spark runs a slow task a second time beside the first.

Spark does that only where tasks run in processes of their own: `make spark-standalone`. The slow task waits until a
second attempt of it has begun, and the second until the first has handed over all: so both stage rows at the same time.
"""
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from angarium.spark.pipelines.session import setting
from tests.spark.spark_messages import Orders
from tests.spark.test_spark_write import numbers, rows, write, written

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("ANGARIUM_SPARK") != "standalone", reason="local[2] does not speculate"),
]
ROWS = 4_000
SLOW = 1  # the partition
WAIT_S_MAX = 200.0


def slowly(directory: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What passes rows on, and leaves in the directory what each attempt of the slow task has done."""

    def wait_for(name: str) -> None:
        until = time.monotonic() + WAIT_S_MAX
        while not (Path(directory) / name).exists():
            if time.monotonic() > until:
                raise TimeoutError(f"no {name!r} within {WAIT_S_MAX:g} s")
            time.sleep(0.05)

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber() if context.partitionId() == SLOW else None
        for number, batch in enumerate(batches):
            if attempt is not None and number == 1:  # its first rows are on their way to the broker
                (Path(directory) / f"attempt {attempt} stages").write_text(str(context.stageId()))
                wait_for("attempt 1 stages" if attempt == 0 else "attempt 0 has handed over all")
            yield batch
        if attempt is not None:
            (Path(directory) / f"attempt {attempt} has handed over all").touch()

    return passed


def slow_rows(spark: SparkSession, directory: Path) -> DataFrame:
    directory.mkdir()
    return rows(spark, ROWS).mapInArrow(slowly(str(directory)), "body binary")


def check_speculated(spark: SparkSession, directory: Path) -> None:
    """Both have staged at the same time; by Spark's own account the second was speculative, and one of them has won.
    One that has staged all, too, and is refused the commit, counts as failed: Spark may begin a third for it."""
    found = {path.name for path in directory.iterdir()}
    assert {"attempt 0 stages", "attempt 1 stages", "attempt 0 has handed over all"} <= found
    stage = int((directory / "attempt 1 stages").read_text())
    until = time.monotonic() + WAIT_S_MAX
    while True:  # what has happened is noted a moment later
        tasks = spark.sparkContext._jsc.sc().statusStore().taskList(stage, 0, 100)
        attempts = [tasks.apply(at) for at in range(tasks.size())]
        won = [one for one in attempts if one.status() == "SUCCESS"]
        if len(won) == 2:
            break
        assert time.monotonic() < until, [one.status() for one in attempts]
        time.sleep(0.05)
    assert sorted(one.partitionId() for one in won) == [0, SLOW]
    told = sorted((one.partitionId(), one.attempt(), one.speculative()) for one in attempts)
    assert told[:3] == [(0, 0, False), (SLOW, 0, False), (SLOW, 1, True)]
    assert {partition for partition, _, _ in told[3:]} <= {SLOW}


def test_a_batch_is_written_once_by_two_attempts_of_a_task(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    name = orders.create()
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "500"):
        write(slow_rows(spark, tmp_path / "marks"), orders, destination=name, jobId="job")
    check_speculated(spark, tmp_path / "marks")
    assert written(orders, name) == numbers(ROWS)
    write(rows(spark, ROWS), orders, destination=name, jobId="job")
    assert written(orders, name) == numbers(ROWS), "what the other attempt has staged is not published later either"

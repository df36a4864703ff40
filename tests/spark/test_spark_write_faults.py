"""Goal: whatever dies while Spark writes, each row is in the broker once.

The JVM is killed inside a batch, before the sink's commit, and between it and Spark's own; a task fails when it has
staged all, a worker is killed while it writes; brokers are killed and started again, primaries lost.
"""
import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.process.cluster_processes import running_cluster
from tests.process.process_broker import running
from tests.spark.spark_faulty import KILLS_JVM, OF_TASKS
from tests.spark.spark_messages import TOO_SLOW, Orders
from tests.spark.test_spark_write import numbers, rows, write, written

pytestmark = pytest.mark.timeout(900)  # on a machine that does other things, too
RUNS_MAX = 10


@pytest.mark.soak
def test_a_stream_is_written_once_whoever_is_killed(orders: Orders, tmp_path: Path) -> None:
    source, target = orders.create("a"), orders.create("b")
    orders.send("a", 2_000)
    (tmp_path / "faults").write_text("\n".join([*KILLS_JVM, *OF_TASKS]))
    arguments = [orders.address, source, target, str(tmp_path)]
    command = [sys.executable, "-m", "tests.spark.spark_faulty", *arguments]
    failures = 0
    for _ in range(RUNS_MAX):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            break
        failures += TOO_SLOW not in done.stderr
        assert failures <= len(KILLS_JVM), done.stderr[-3_000:]
    assert not (tmp_path / "faults").read_text(), "all have struck"
    assert written(orders, target) == Counter(orders.sent[source])
    assert orders.request("destination.describe", name=target)["staged_dropped"] == 0


def write_until_done(spark: SparkSession, orders: Orders, name: str, count: int, job: str) -> None:
    """As a user would: again under the same id, until it succeeds."""
    for patience in reversed(range(5)):
        try:
            write(rows(spark, count, 4).orderBy(f.rand()), orders, destination=name, jobId=job)
        except Exception:
            if not patience:
                raise
        else:
            return


@pytest.mark.parametrize("after_s", [0.5, 1.5])
def test_a_broker_that_is_killed_meanwhile(spark: SparkSession, tmp_path: Path, after_s: float) -> None:
    count = 60_000
    with running(tmp_path) as broker, Orders(broker.address, "x", tmp_path) as orders:
        name = orders.create()
        write(rows(spark, 10), orders, destination=orders.create("warm"))

        def kill_and_start() -> None:
            time.sleep(after_s)
            broker.kill()
            broker.start()

        killing = threading.Thread(target=kill_and_start)
        killing.start()
        for number in range(3):
            write_until_done(spark, orders, name, count // 3, f"job {number}")
        killing.join()
        assert written(orders, name) == Counter(dict.fromkeys(numbers(count // 3), 3))


def test_primaries_that_are_lost_while_it_is_staged_and_committed(spark: SparkSession, tmp_path: Path) -> None:
    count = 20_000
    with running_cluster(tmp_path) as cluster, Orders(",".join(cluster.addresses), "c", tmp_path) as orders:
        name = orders.create()
        group = asyncio.run(cluster.group_of(name))
        asyncio.run(cluster.until_in_sync(group, 3))
        write(rows(spark, 10), orders, destination=orders.create("warm"))

        def lose_primaries() -> None:
            for pause_s in (1.0, 3.0):
                time.sleep(pause_s)
                primary = asyncio.run(cluster.primary_of(group))
                cluster.kill(primary)
                cluster.start(primary)
                asyncio.run(cluster.until_in_sync(group, 3))

        killing = threading.Thread(target=lose_primaries)
        killing.start()
        jobs = 0
        while killing.is_alive():
            write_until_done(spark, orders, name, count, f"job {jobs}")
            jobs += 1
        killing.join()
        assert written(orders, name) == Counter(dict.fromkeys(numbers(count), jobs))

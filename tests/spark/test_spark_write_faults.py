"""Goal: whatever dies while Spark writes, each row is in the broker once.

The JVM is killed inside a batch, before the sink's commit, and between it and Spark's own; a task fails when it has
staged all, a worker is killed while it writes; brokers are killed and started again, primaries lost: while something
is on its way to be staged, while a commit is under way, and when it is done and its answer has not arrived.
"""
import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.process.cluster_processes import running_cluster
from tests.process.process_broker import running
from tests.process.stage_proxy import Moment, StageProxy
from tests.spark.spark_faulty import KILLS_JVM, OF_TASKS
from tests.spark.spark_messages import TOO_SLOW, Orders
from tests.spark.test_spark_write import numbers, rows, write, written

pytestmark = pytest.mark.timeout(900)  # on a machine that does other things, too
RUNS_MAX = 10
ROWS = 20_000


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


def write_until_done(
    spark: SparkSession, orders: Orders, name: str, count: int, job: str, proxy: StageProxy
) -> None:
    """As a user would: again under the same id, until it succeeds."""
    for patience in reversed(range(5)):
        frame = rows(spark, count, 4).orderBy(f.rand())
        try:
            write(frame, orders, destination=name, jobId=job, address=proxy.address)
        except Exception:
            if not patience:
                raise
        else:
            return


def check_struck(proxy: StageProxy, moment: Moment) -> None:
    """That it was killed with a commit under way, or before any was asked for."""
    assert proxy.has_struck.is_set()
    assert proxy.commits_held == (moment is not Moment.STAGING)


@pytest.mark.parametrize("moment", Moment)
def test_a_broker_that_is_killed_inside_a_write(spark: SparkSession, tmp_path: Path, moment: Moment) -> None:
    with running(tmp_path) as broker, Orders(broker.address, "x", tmp_path) as orders:
        name = orders.create()

        def kill() -> None:
            broker.kill()
            broker.start()

        with StageProxy(broker.address, moment, kill) as proxy:
            for job in range(2):
                write_until_done(spark, orders, name, ROWS, f"job {job}", proxy)
            check_struck(proxy, moment)
        assert written(orders, name) == Counter(dict.fromkeys(numbers(ROWS), 2))


@pytest.mark.parametrize("moment", Moment)
def test_a_primary_that_is_lost_inside_a_write(spark: SparkSession, tmp_path: Path, moment: Moment) -> None:
    """Spark's way is over a client manager, which stays."""
    with running_cluster(tmp_path) as cluster, Orders(",".join(cluster.addresses), "c", tmp_path) as orders:
        name = orders.create()
        group = asyncio.run(cluster.group_of(name))
        asyncio.run(cluster.until_in_sync(group, 3))
        primary = asyncio.run(cluster.primary_of(group))
        with StageProxy(cluster.addresses[0], moment, lambda: cluster.kill(primary)) as proxy:
            for job in range(2):
                write_until_done(spark, orders, name, ROWS, f"job {job}", proxy)
            check_struck(proxy, moment)
        assert asyncio.run(cluster.primary_of(group)) != primary
        assert written(orders, name) == Counter(dict.fromkeys(numbers(ROWS), 2))

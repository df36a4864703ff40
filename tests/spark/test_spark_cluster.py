"""Goal: Spark reads a cluster's logs from its backups, and all of them while a primary is killed."""
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.process.cluster_processes import Cluster, running_cluster
from tests.spark.spark_messages import Orders, bodies_of, digest

pytestmark = pytest.mark.timeout(600)  # on a machine that does other things, too
COUNT = 10_000
WAIT_S_MAX = 120.0


def pages_told(cluster: Cluster) -> dict[str, tuple[bool, int]]:
    """By node of a replica group: whether it is primary, and how many pages its backup has told."""
    nodes = asyncio.run(cluster.status())["nodes"]
    return {node["name"]: (node["primary"], node["log_pages"]) for node in nodes if node["group"]}


def waiting(seconds_max: float) -> Callable[[Path], None]:
    def wait_for(path: Path) -> None:
        until = time.monotonic() + seconds_max
        while not path.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"no {path} within {seconds_max:g} s")
            time.sleep(0.02)

    return wait_for


def kill_when_read(directory: Path, cluster: Cluster, primary: str) -> None:
    waiting(WAIT_S_MAX)(directory / "read")
    cluster.kill(primary)
    (directory / "killed").touch()


def held(directory: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What passes rows on; the first task is held up, once it has some, until the primary is gone."""
    wait_for = waiting(WAIT_S_MAX)  # a function inside one travels as a whole: workers know nothing of tests

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        for batch in batches:
            if context is not None and context.partitionId() == 0:
                (Path(directory) / "read").touch()
                wait_for(Path(directory) / "killed")
            yield batch

    return passed


def test_a_read_from_backups_survives_the_loss_of_the_primary(spark: SparkSession, tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster, Orders(",".join(cluster.addresses), "c", tmp_path) as orders:
        name = orders.create()
        sent = orders.send("a", COUNT)
        orders.take("a", COUNT)
        group = asyncio.run(cluster.group_of(name))
        asyncio.run(cluster.until_in_sync(group, 3))
        found = bodies_of(orders.read(spark, subscribe=name, minPartitions=4))
        assert len(found) == COUNT and digest(found) == digest(sent)
        told = pages_told(cluster)
        assert all(pages == 0 for is_primary, pages in told.values() if is_primary)
        assert any(pages > 0 for is_primary, pages in told.values() if not is_primary)
        (primary,) = (node for node, (is_primary, _) in told.items() if is_primary)
        frame = orders.read(spark, subscribe=name, minPartitions=16)
        killing = threading.Thread(target=kill_when_read, args=(tmp_path, cluster, primary), daemon=True)
        killing.start()
        again = bodies_of(frame.select("body").mapInArrow(held(str(tmp_path)), "body binary"))
        killing.join()
        assert len(again) == COUNT and digest(again) == digest(sent)
        assert asyncio.run(cluster.primary_of(group)) != primary
        assert bodies_of(frame.filter("position < 10")) == sent[:10], "and afterwards"

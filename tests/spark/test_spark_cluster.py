"""Goal: Spark reads a cluster's logs from its backups, and all of them while a primary is killed."""
import asyncio
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.cluster_processes import Cluster, running_cluster
from tests.spark.spark_messages import Orders, bodies_of, digest

pytestmark = pytest.mark.timeout(600)  # on a machine that does other things, too
COUNT = 10_000


def pages_told(cluster: Cluster) -> dict[str, tuple[bool, int]]:
    """By node of a replica group: whether it is primary, and how many pages its backup has told."""
    nodes = asyncio.run(cluster.status())["nodes"]
    return {node["name"]: (node["primary"], node["log_pages"]) for node in nodes if node["group"]}


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
        killing = threading.Timer(0.5, cluster.kill, [primary])
        killing.start()
        frame = orders.read(spark, subscribe=name, minPartitions=16)
        again = bodies_of(frame)
        killing.join()
        assert len(again) == COUNT and digest(again) == digest(sent)
        assert bodies_of(frame.filter("position < 10")) == sent[:10], "and afterwards"

"""One Spark session and one broker for all tests of this directory: each takes long to start.

The session is `local[2]`; with ANGARIUM_SPARK=standalone it is one of a master, two workers and their executors, all
processes of their own (`make spark-standalone`).
"""
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.process_broker import Broker, running
from tests.spark.spark_messages import Orders
from tests.spark.spark_standalone import standalone

# Where there are several executors, a task that is left when half of the others are done is run a second time.
SPECULATION: dict[str, bool | float | int | str | None] = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "0.1",
    "spark.speculation.minTaskRuntime": "3s",
}


@pytest.fixture(scope="session")
def spark_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later, and there is none: install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers have to be of the same environment
    with contextlib.ExitStack() as started:
        kind = os.environ.get("ANGARIUM_SPARK", "local")
        assert kind in ("local", "standalone"), f"ANGARIUM_SPARK is {kind!r}; it is local or standalone"
        yield "local[2]" if kind == "local" else started.enter_context(standalone(tmp_path_factory.mktemp("spark")))


@pytest.fixture(scope="session")
def spark(spark_master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master(spark_master)
        .appName("angarium-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Of two attempts of a task Spark refuses one, which it counts as failed. A local master repeats nothing at all.
        .config("spark.task.maxFailures", "2")
        .config("spark.driver.memory", "1g")
        # Hundreds of small queries, each with code of its own: to compile it well takes longer than to run it.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config(map=SPECULATION)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def orders(broker: Broker, tmp_path: Path) -> Iterator[Orders]:
    """Destinations of this test's own, and what was sent to them."""
    with Orders(broker.address, tmp_path.name.replace("_", "-"), tmp_path) as made:
        yield made

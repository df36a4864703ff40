"""One Spark session and one broker for all tests of this directory: each takes long to start."""
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.process_broker import Broker, running
from tests.spark.spark_messages import Orders


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later, and there is none: install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers have to be of the same environment
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("angarium-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(warehouse))
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

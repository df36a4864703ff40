"""Goal: the demonstration ends with Spark's own verdict on what went through the kills."""
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from tests.process.cli_node import environment

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]


def test_what_went_through_the_kills_is_archived_and_audited(spark: SparkSession) -> None:
    del spark  # there is Java, or this is skipped
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--seconds", "2", "--within", "400"],
        capture_output=True, text=True, env=environment(), timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PROVED" in done.stdout
    assert "0 lost, 0 duplicated: computed by Spark from the traces" in done.stdout


def test_it_does_not_wait_for_a_spark_that_takes_too_long(spark: SparkSession) -> None:
    del spark
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--seconds", "2", "--within", "1"],
        capture_output=True, text=True, env=environment(), timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.index("PROVED") < done.stdout.index("it ends without all of that")
    assert "computed by Spark" not in done.stdout

"""A Spark session for one command: `local[*]`, or the master that is given; quiet, and in UTC."""
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
"""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    # A queue may be named like a number or a date, and stays what it is.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """For a while: the session may be somebody else's."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


@contextmanager
def spark_session(name: str, master: str = "", settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """The one that is there, if there is one: then it is not ours to stop."""
    if (known := SparkSession.getActiveSession()) is not None:
        yield known
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have to be of the same environment
    with tempfile.TemporaryDirectory(prefix="angarium-spark-") as directory:
        quiet = Path(directory) / "log4j2.properties"
        quiet.write_text(_QUIET)
        wanted = _SETTINGS | {
            "spark.sql.warehouse.dir": directory,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        }
        if not master or master.startswith("local"):
            wanted["spark.driver.host"] = "127.0.0.1"
        builder = SparkSession.builder.master(master or "local[*]").appName(f"angarium-{name}")
        for key, value in (wanted | dict(settings or {})).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()

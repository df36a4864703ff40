"""A Spark session for one command: `local[*]`, or the master that is given; quiet, and in UTC.

What Java says goes to a file that is gone with the session: an error reaches whoever asked as an exception. A session
that is interrupted is not asked to stop, which would have it tell of every task that it gives up: its process is ended.
"""
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from angarium.core.errors import Unavailable

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
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet} -Djava.io.tmpdir={directory}",
            "spark.local.dir": directory,  # what a process that is killed leaves behind goes with ours
        }
        if not master or master.startswith("local"):
            wanted["spark.driver.host"] = "127.0.0.1"
        wanted |= {"spark.master": master or "local[*]", "spark.app.name": f"angarium-{name}", **(settings or {})}
        builder = SparkSession.builder
        for key, value in wanted.items():
            builder = builder.config(key, value)
        try:
            _start_java(SparkConf(loadDefaults=False).setAll(list(wanted.items())), Path(directory) / "java.log")
            session = builder.getOrCreate()
            yield session
            session.stop()
        except KeyboardInterrupt:
            _end_java()
            raise
        except Exception:
            if (begun := SparkSession.getActiveSession()) is not None:
                begun.stop()
            raise


def _start_java(conf: SparkConf, log: Path) -> None:
    """Unless it runs already. In a session of its own: Ctrl-C is ours to answer."""
    if SparkContext._gateway is not None:
        return
    is_told = os.environ.get("ANGARIUM_TRACEBACK") == "1"
    with log.open("wb") as said, _noted() as processes:
        streams = {} if is_told else {"stdout": said, "stderr": said}
        try:
            gateway = java_gateway.launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"start_new_session": True, **streams}
            )
            SparkContext._ensure_initialized(gateway=gateway)
        except BaseException as error:
            for process in processes:  # it would not notice that nobody is there any more
                process.kill()
                process.wait()
            if not isinstance(error, PySparkRuntimeError):
                raise
            told = [line.strip() for line in log.read_text(errors="replace").splitlines()]
            why = next((line for line in told if line and not line.startswith("WARNING")), "it ended without a word")
            raise Unavailable(f"Spark's Java could not be started: {why}") from None


@contextmanager
def _noted() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that PySpark starts meanwhile, which it names to nobody before they are ready."""
    found: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        with _uninterrupted():  # else there might be one that nobody knows
            found.append(subprocess.Popen(*arguments, **named))
        return found[-1]

    vars(java_gateway)["Popen"] = start
    try:
        yield found
    finally:
        vars(java_gateway)["Popen"] = subprocess.Popen


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is begun is finished; a signal that came meanwhile is heard then. Threads but the main one hear none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _end_java() -> None:
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None:  # else it was there before us
        process.kill()
        process.wait()

"""A stream into a broker, in a process of its own, whose sink is struck by one fault at a time:

    python -m tests.spark.spark_faulty ADDRESS SOURCE TARGET DIRECTORY

`DIRECTORY/faults` has their names, one a line. Each strikes once; those that kill the JVM end this program, too: start
it again and it goes on with the next. It ends by itself when all of the source is in the target.
"""
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from angarium.spark.sink import Staged, StreamWriter
from angarium.spark.source import AngariumDataSource

_DIRECTORY = "FAULTY_DIRECTORY"  # inherited by all processes of Spark
KILLS_JVM = ("killed inside a batch", "killed before the commit", "killed after the commit")
OF_TASKS = ("task fails after staging", "task is killed while it writes")


def strikes(name: str) -> bool:
    """Whether it is the turn of that fault; it is not, again."""
    directory = Path(os.environ[_DIRECTORY])
    left = (directory / "faults").read_text().splitlines()
    if left[:1] != [name]:
        return False
    try:
        (directory / f"struck {name}").touch(exist_ok=False)  # tasks may come at the same time
    except FileExistsError:
        return False
    (directory / "faults").write_text("\n".join(left[1:]))
    return True


def kill_jvm() -> None:
    os.kill(int((Path(os.environ[_DIRECTORY]) / "jvm").read_text()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyWriter(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> Staged:
        staged = super().write(self._rows(iterator))
        if strikes("task fails after staging"):
            raise RuntimeError("planted")
        if strikes("killed inside a batch"):
            kill_jvm()
        return staged

    def _rows(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for rows in iterator:
            yield rows
            if strikes("task is killed while it writes"):
                os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if strikes("killed before the commit"):
            kill_jvm()
        super().commit(messages, batchId)
        if strikes("killed after the commit"):
            kill_jvm()


class FaultySource(AngariumDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return FaultyWriter(super().streamWriter(schema, overwrite)._options)


def main(address: str, source: str, target: str, directory: str) -> None:
    os.environ[_DIRECTORY] = directory
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,4]")  # a task may fail four times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    assert spark.sparkContext._jvm is not None
    (Path(directory) / "jvm").write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(FaultySource)
    frame = (
        spark.readStream.format("angarium")
        .options(address=address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=400)
        .option("minPartitions", 2)
        .load()
    )
    query = (
        frame.writeStream.format("faulty")
        .options(address=address, destination=target, checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""How fast Spark reads a log, beside the same rows in Parquet: in batches, and as a stream that reads what there is.

    python -m benchmarks.spark_read --count 1000000

Both sides answer the same question over the same columns, or give all columns to nobody (`noop`). Of Parquet, Spark
reads only those that are asked for; ours are named by the option `columns`, as Spark does not tell a source in Python.
What a source in Python could reach at most is told by one that reads some rows and gives them to Spark again and again.
The best of `--rounds` counts. A round that is not counted comes first: it starts Python processes and loads classes.
A stream starts one of them each time all the same, which counts: that is how Spark runs sources in Python.
`--unix-sockets` sets `spark.python.unix.domain.socket.enabled`, which is off unless a user sets it: by default Spark
talks to its Python processes over TCP. Parquet has no use for either.
Needs `pip install '.[spark]'`.
"""
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from angarium import blocking
from angarium.spark.options import parse_options
from angarium.spark.source import AngariumDataSource, AngariumReader, RangesPartition
from benchmarks.processes import Broker, Launch, free_port

NAME = "rows"
POOL_BYTES = 32 << 20
THREE = "position,timestamp,body"
SIX = f"{THREE},message_id,priority,type"


def fill(address: str, count: int, size: int) -> None:
    with blocking.connect(address) as connection, connection.session() as session:
        connection.request("destination.create", {"name": NAME, "kind": "queue", "retain_s": 3_600})
        # Parquet would keep bodies that repeat soon only once, and answer from that.
        pool = os.urandom(POOL_BYTES)
        places = islice(cycle(range(0, POOL_BYTES - size + 1, size)), count)
        session.send_many(NAME, (pool[place : place + size] for place in places))


def asked(frame: DataFrame, columns: str) -> DataFrame:
    told = [f.sum(f.length("body")), f.max("position"), f.max("timestamp")]
    more = [f.max("message_id"), f.max("priority"), f.count("type")] if columns == SIX else []
    return frame.agg(*told, *more)


class AgainReader(AngariumReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangesPartition)
        left = sum(part.high - part.low for part in partition.ranges)
        some = next(super().read(partition))
        while left > 0:
            yield some.slice(0, left)
            left -= some.num_rows


class Again(AngariumDataSource):
    """As many rows as there are, always the first ones: what it costs to give them to Spark, and nothing else."""

    @classmethod
    def name(cls) -> str:
        return "again"

    def reader(self, schema: StructType) -> AgainReader:
        return AgainReader(parse_options(dict(self._given)), schema)


def quiet_session(cores: int, *, unix_sockets: bool = False) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", str(unix_sockets).lower())
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def timed(action: Callable[[], object], rounds: int) -> float:
    action()
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def passed(frame: DataFrame) -> None:
    """All there is, into nothing."""
    frame.write.format("noop").mode("overwrite").save()


def drained(frame: DataFrame, directory: Path) -> None:
    """All there is, as a stream, into nothing."""
    checkpoint = tempfile.mkdtemp(dir=directory)
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def main(
    count: Annotated[int, typer.Option(help="Messages.")] = 1_000_000,
    size: Annotated[int, typer.Option(help="Bytes of a body.")] = 200,
    rounds: Annotated[int, typer.Option(help="Of each, of which the best counts.")] = 3,
    cores: Annotated[int, typer.Option(help="Of Spark.")] = 2,
    unix_sockets: Annotated[bool, typer.Option(help="Between Spark and its Python processes.")] = False,
) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once, not in every process
    directory, listen = Path(tempfile.mkdtemp()), f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "angarium.cli.main", "up", "--data", str(directory / "data"), "--listen", listen]
    try:
        with Broker(Launch(command, "ready"), directory / "broker.log"):
            fill(f"angarium://{listen}", count, size)
            spark = quiet_session(cores, unix_sockets=unix_sockets)
            compare(spark, f"angarium://{listen}", directory, count, rounds)
            spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def compare(spark: SparkSession, address: str, directory: Path, count: int, rounds: int) -> None:
    options = {"address": address, "subscribe": NAME}
    spark.dataSource.register(Again)
    ours, again = (spark.read.format(source).options(**options).load() for source in ("angarium", "again"))
    three, again_three = (
        spark.read.format(source).options(**options, columns=THREE).load() for source in ("angarium", "again")
    )
    six, again_six = (
        spark.read.format(source).options(**options, columns=SIX).load() for source in ("angarium", "again")
    )
    files = str(directory / "parquet")
    ours.write.parquet(files)
    parquet = spark.read.parquet(files)
    stream = spark.readStream.format("angarium").options(**options, startingOffsets="earliest").load()
    parquet_stream = spark.readStream.schema(parquet.schema).parquet(files)
    # A new question each time: Spark would answer the same one from the shuffle files of the first.
    cases: list[tuple[str, Callable[[DataFrame], object], list[DataFrame]]] = [
        ("batch, three columns", lambda frame: asked(frame, THREE).collect(), [parquet, three, again_three]),
        ("batch, six columns", lambda frame: asked(frame, SIX).collect(), [parquet, six, again_six]),
        ("batch, all columns", passed, [parquet, ours, again]),
        ("stream, all columns", lambda frame: drained(frame, directory), [parquet_stream, stream]),
    ]
    for name, action, frames in cases:  # told one by one: on a busy machine Spark may give up on the next
        theirs, mine, *least = (timed(partial(action, frame), rounds) for frame in frames)
        figures = f"{count / mine:,.0f} rows/s, Parquet {count / theirs:,.0f}: ratio {theirs / mine:.2f}"
        bound = f"; of a source that only gives rows {theirs / least[0]:.2f}" if least else ""
        typer.echo(f"{name}: {figures}{bound}")


if __name__ == "__main__":
    typer.run(main)

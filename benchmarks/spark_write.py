"""How fast Spark writes rows to a destination exactly once, beside the same rows into Parquet.

    python -m benchmarks.spark_write --count 1000000

The rows lie in Parquet files, so that reading them costs both sides the same; the best of `--rounds` counts, in turns.
A round that is not counted comes first: it starts Python processes and loads classes. Needs
`pip install '.[spark]'`.
"""
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from angarium import blocking
from benchmarks.processes import Broker, Launch, cpu_of_all_s, cpu_s, free_port

NAME = "rows"


def made(spark: SparkSession, directory: Path, count: int, size: int, tasks: int) -> DataFrame:
    """Rows whose only column is a body of so many bytes."""
    files = str(directory / "rows")
    text = f.rpad(f.col("id").cast("string"), size, "x")
    spark.range(0, count, 1, tasks).select(text.cast("binary").alias("body")).write.parquet(files)
    return spark.read.parquet(files)


def write(rows: DataFrame, address: str) -> float:
    began = time.perf_counter()
    rows.write.format("angarium").mode("append").options(address=address, destination=NAME).save()
    return time.perf_counter() - began


def write_parquet(rows: DataFrame, directory: Path) -> float:
    target = tempfile.mkdtemp(dir=directory)
    began = time.perf_counter()
    rows.write.mode("overwrite").parquet(target)
    took_s = time.perf_counter() - began
    shutil.rmtree(target)
    return took_s


def stored(address: str) -> int:
    with blocking.connect(address) as connection:
        return sum(lane.end - lane.first for lane in connection.log(NAME).describe().lanes)


def main(
    count: Annotated[int, typer.Option(help="Rows.")] = 1_000_000,
    size: Annotated[int, typer.Option(help="Bytes of a body.")] = 200,
    rounds: Annotated[int, typer.Option(help="Of each, of which the best counts.")] = 3,
    cores: Annotated[int, typer.Option(help="Of Spark, and files of rows.")] = 2,
) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory, listen = Path(tempfile.mkdtemp()), f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "angarium.cli.main", "up", "--data", str(directory / "data"), "--listen", listen]
    address = f"angarium://{listen}"
    try:
        with Broker(Launch(command, "ready"), directory / "broker.log") as broker:
            spark = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false").getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
            compare(made(spark, directory, count, size, cores), address, directory, count, rounds, broker.pid)
            spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def compare(rows: DataFrame, address: str, directory: Path, count: int, rounds: int, broker: int) -> None:
    ours: list[float] = []
    parquet: list[float] = []
    cpu: list[tuple[float, float]] = []  # of the broker, and of all but it, so far
    for number in range(rounds + 1):
        cpu.append((cpu_s(broker), cpu_of_all_s(os.getpid()) - cpu_s(broker)))
        ours.append(write(rows, address))
        cpu.append((cpu_s(broker), cpu_of_all_s(os.getpid()) - cpu_s(broker)))
        parquet.append(write_parquet(rows, directory))
        if (found := stored(address)) != count * (number + 1):
            raise SystemExit(f"{found:,} rows are in the log where {count * (number + 1):,} were written")
    mine, theirs = min(ours[1:]), min(parquet[1:])
    figures = f"{count / mine:,.0f} rows/s, Parquet {count / theirs:,.0f}: ratio {theirs / mine:.2f}"
    typer.echo(f"batch, exactly once: {figures}")
    spent = [(after[0] - before[0], after[1] - before[1]) for before, after in zip(cpu[2::2], cpu[3::2], strict=True)]
    broker_us, spark_us = (min(each) / count * 1e6 for each in zip(*spent, strict=True))
    typer.echo(f"CPU of a row: broker {broker_us:.2f} µs, Spark with its Python workers {spark_us:.2f} µs")


if __name__ == "__main__":
    typer.run(main)

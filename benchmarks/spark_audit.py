"""What tracing costs a broker, and how long the audit of what was traced takes.

    python -m benchmarks.spark_audit --count 10000000

The messages pass from one producer to one consumer, first untraced, then traced; then Spark judges every one of them.
It has to find that nothing was lost, duplicated or reordered, or this ends with an error. Needs
`pip install '.[spark]'`.
"""
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from angarium import blocking
from angarium.spark.pipelines.audit import AuditSettings, audit, sentence
from angarium.spark.pipelines.session import spark_session
from benchmarks.cases import Throughput, pass_through
from benchmarks.processes import Broker, free_port
from benchmarks.systems.contract import Work
from benchmarks.systems.ours import QUEUE, Ours

TIME_S_MAX = 900.0


def main(
    count: Annotated[int, typer.Option(help="Messages that are traced and judged.")] = 10_000_000,
    compared: Annotated[int, typer.Option(help="Messages of a round, with and without tracing.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Of each, of which the best counts.")] = 3,
    size: Annotated[int, typer.Option(help="Bytes of a body.")] = 100,
    cores: Annotated[int, typer.Option(help="Of Spark.")] = 2,
) -> None:
    compare_tracing(compared, rounds, size)
    directory, port = Path(tempfile.mkdtemp()), free_port()
    try:
        with Broker(Ours().launch(directory / "data", port), directory / "broker.log") as broker:
            _create(port, traced=True)
            passed = pass_through(Ours(), broker, Work(port, "client", count, size, TIME_S_MAX))
            typer.echo(f"{count:,} messages, traced: {passed.rate:,.0f} a second")
            judge(f"angarium://127.0.0.1:{port}", count, cores)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def compare_tracing(count: int, rounds: int, size: int) -> None:
    best: dict[bool, Throughput] = {}
    for _ in range(rounds):
        for traced in (False, True):
            directory, port = Path(tempfile.mkdtemp()), free_port()
            try:
                with Broker(Ours().launch(directory / "data", port), directory / "broker.log") as broker:
                    _create(port, traced=traced)
                    passed = pass_through(Ours(), broker, Work(port, "client", count, size, TIME_S_MAX))
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            if traced not in best or passed.rate > best[traced].rate:
                best[traced] = passed
    without, with_it = best[False], best[True]
    rates = f"{with_it.rate:,.0f} messages/s of {size} bytes, {without.rate:,.0f} without"
    cpu = f"CPU of the broker {with_it.cpu_us:.2f} µs, {without.cpu_us:.2f} without"
    typer.echo(f"tracing: {rates} ({with_it.rate / without.rate - 1:+.0%}); {cpu}")


def judge(address: str, count: int, cores: int) -> None:
    began = time.perf_counter()
    with spark_session("audit", f"local[{cores}]") as spark:
        typer.echo(f"Spark's own start: {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        result = audit(spark, AuditSettings((address,), (QUEUE,)), lambda step: typer.echo(f"  {step} ...", err=True))
        took_s = time.perf_counter() - began
    typer.echo(f"audit of {count:,} messages: {took_s:.1f} s, {count / took_s:,.0f} a second: {sentence(result)}")
    if result.broken or result.dropped or result.total("settled") != count:
        raise SystemExit(f"it should have found {count:,} settled and nothing wrong: {result.destinations}")


def _create(port: int, *, traced: bool) -> None:
    with blocking.connect(f"angarium://127.0.0.1:{port}") as connection:
        connection.request("destination.create", {"name": QUEUE, "kind": "queue", "traced": traced})


if __name__ == "__main__":
    typer.run(main)

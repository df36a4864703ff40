"""`angarium pipeline audit`."""
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from angarium.cli import failure, options, output
from angarium.cli.failure import Failure
from angarium.cli.pipeline import Config, Destinations, Master, need_spark, spark_for
from angarium.cli.pipeline_traces import From, To, TraceSettings
from angarium.cli.usage import given_path

if TYPE_CHECKING:
    from angarium.spark.pipelines.audit import AuditResult


def audit(
    destinations: Destinations = None,
    from_time: From = None,
    to_time: To = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page with plots: audit.html.", path_type=str, callback=given_path
        ),
    ] = None,
    result_to: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="DIRECTORY", help="Write every message's fate as Parquet.", path_type=str,
            callback=given_path,
        ),
    ] = None,
    config: Config = None,
    master: Master = None,
    address: options.Address = [],  # noqa: B006
    as_json: options.Json = False,
) -> None:
    """Say what became of every message. From the traces of destinations that are traced.

    What was confirmed, delivered, settled, lost, duplicated, reordered, and how late. Exit code 1 if a guarantee was
    broken. Without destinations, all that are traced.

        angarium alter orders --traced

        angarium pipeline audit orders --from 24h --report audit.html
    """
    settings = TraceSettings("audit", config, destinations, from_time, to_time, report, result_to)
    need_spark()
    from angarium.spark.pipelines import audit as pipeline
    from angarium.spark.pipelines.audit_report import audit_page
    from angarium.spark.pipelines.judging import Period
    from angarium.spark.pipelines.traces import check_traced

    wanted = pipeline.AuditSettings(
        address=settings.addresses(address),
        destinations=tuple(settings.get("destinations", ())),
        period=Period(settings.from_ms, settings.to_ms),
        output=settings.output,
    )
    check_traced(wanted.address, wanted.destinations)
    with spark_for("audit", settings, master) as spark:
        with output.steps() as step:
            result = pipeline.audit(spark, wanted, step)
        told = pipeline.summary(result)
        told_in_short = pipeline.sentence(result)
    settings.write_report(lambda: audit_page(result))
    if as_json:
        output.write_json(told)
    else:
        _show(result, told_in_short)
    if result.broken:
        raise Failure(f"broken: {', '.join(result.broken)}")


def _show(result: "AuditResult", told: str) -> None:
    header = ("destination", "subscription", "confirmed", "delivered", "settled", "unsettled", "dead", "redelivered",
              "lost", "duplicated", "reordered", "ms to delivery", "99 %", "ms unsettled", "99 %")  # fmt: skip
    rows = [
        (row["destination"], row["subscription"], *(f"{row[name]:,}" for name in header[2:11]),
         *(_milliseconds(times, at) for times in (row["latency_ms"], row["held_ms"]) for at in (0, 1)))
        for row in result.destinations
    ]  # fmt: skip
    output.write_table(header, rows, left=(0, 1))
    if result.dropped:
        failure.say(f"{failure.plural(result.dropped, 'trace record')} could not be kept: losses cannot be judged")
    failure.say(told)


def _milliseconds(times: list[float] | None, at: int) -> str:
    return "" if times is None else f"{times[at]:,.0f}"

"""`angarium pipeline audit`."""
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from angarium.cli import failure, options, output
from angarium.cli.durations import parse_seconds
from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.pipeline import Config, Destinations, Master, spark_for
from angarium.cli.pipeline_settings import PipelineSettings

if TYPE_CHECKING:
    from angarium.spark.pipelines.audit import AuditResult

From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="What was confirmed from then on: 2h (ago), 2026-11-16T08:00."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="What was confirmed before.")]


def parse_time_ms(option: str, text: str | None) -> int | None:
    """A time ago, or a time as ISO 8601 writes it: UTC, unless it says otherwise."""
    if text is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?\s*(s|min|h|d)", text.strip()):
        return int((time.time() - parse_seconds(option, text)) * 1_000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        reason = f"{option} {text!r}: use a time ago, as 90s or 2h, or a time such as 2026-11-16T08:00"
        raise Failure(reason, EXIT_USAGE) from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def audit(
    destinations: Destinations = None,
    from_time: From = None,
    to_time: To = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with plots: audit.html.")] = None,
    result_to: Annotated[
        Path | None, typer.Option("--output", metavar="DIRECTORY", help="Write every message's fate as Parquet.")
    ] = None,
    config: Config = None,
    master: Master = None,
    address: options.Address = [],  # noqa: B006
    as_json: options.Json = False,
) -> None:
    """Say what became of every message, from the traces of destinations that are traced.

    What was confirmed, delivered, settled, lost, duplicated, reordered, and how late. Exit code 1 if a guarantee was
    broken. Without destinations, all that are traced.

        angarium alter orders --traced

        angarium pipeline audit orders --from 24h --report audit.html
    """
    given = {
        "destinations": destinations, "from": from_time, "to": to_time,
        "report": None if report is None else str(report), "output": None if result_to is None else str(result_to),
    }  # fmt: skip
    kinds = {"destinations": list, "from": str, "to": str, "report": str, "output": str}
    settings = PipelineSettings("audit", config, given, kinds)
    from_ms = parse_time_ms("--from", settings.get("from", None))
    to_ms = parse_time_ms("--to", settings.get("to", None))
    with spark_for("audit", settings, master) as spark:
        from angarium.spark.pipelines import audit as pipeline
        from angarium.spark.pipelines.audit_report import audit_page
        from angarium.spark.pipelines.judging import Period

        directory = settings.get("output", None)
        wanted = pipeline.AuditSettings(
            address=settings.addresses(address),
            destinations=tuple(settings.get("destinations", ())),
            period=Period(from_ms, to_ms),
            output=None if directory is None else Path(directory).absolute(),
        )
        with output.steps() as step:
            result = pipeline.audit(spark, wanted, step)
        told = pipeline.summary(result)
        told_in_short = pipeline.sentence(result)
    if (page := settings.get("report", None)) is not None:
        Path(page).write_text(audit_page(result), encoding="utf-8")
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

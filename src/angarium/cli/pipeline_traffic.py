"""`angarium pipeline traffic`."""
from pathlib import Path
from typing import Annotated, Any

import typer

from angarium.cli import failure, options, output
from angarium.cli.pipeline import Config, Destinations, Master, need_spark, spark_for
from angarium.cli.pipeline_traces import From, To, TraceSettings
from angarium.cli.usage import given_path


def traffic(
    destinations: Destinations = None,
    from_time: From = None,
    to_time: To = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page with plots: traffic.html.", path_type=str, callback=given_path
        ),
    ] = None,
    result_to: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="DIRECTORY", help="Write what was counted as Parquet.", path_type=str,
            callback=given_path,
        ),
    ] = None,
    config: Config = None,
    master: Master = None,
    address: options.Address = [],  # noqa: B006
    as_json: options.Json = False,
) -> None:
    """Say what flows where and what the bottleneck is. And what one more node would change.

    Messages and bytes by destination, producer, client manager and message manager, from the traces of destinations
    that are traced.

        angarium pipeline traffic --from 1h --report traffic.html
    """
    settings = TraceSettings("traffic", config, destinations, from_time, to_time, report, result_to)
    need_spark()
    from angarium.spark.pipelines import traffic as pipeline
    from angarium.spark.pipelines.judging import Period
    from angarium.spark.pipelines.traces import check_traced
    from angarium.spark.pipelines.traffic_report import traffic_page

    addresses, names = settings.addresses(address), tuple(settings.get("destinations", ()))
    check_traced(addresses, names)
    period = Period(settings.from_ms, settings.to_ms)
    with spark_for("traffic", settings, master) as spark, output.steps() as step:
        result = pipeline.traffic(spark, addresses, names, period, settings.output, step)
    settings.write_report(lambda: traffic_page(result))
    told = pipeline.summary(result)
    if as_json:
        output.write_json(told)
    else:
        _show(told)


def _show(told: dict[str, Any]) -> None:
    rows = [
        (what, str(row[key]), *_rates(row, told["seconds"]))
        for what, key, found in (
            ("destination", "destination", told["destinations"]),
            ("message manager", "name", told["message_managers"]),
            ("client manager", "node", told["client_managers"]),
            ("producer", "producer", told["producers"][:10]),
        )
        for row in found
    ]
    if rows:
        output.write_table(("", "", "in/s", "bytes in/s", "out/s", "bytes out/s", "fan-out"), rows, left=(0, 1))
    for sentence in told["advice"]:
        failure.say(sentence)


def _rates(row: dict[str, Any], seconds: float) -> list[str]:
    fan_out = "" if row["fan_out"] is None else f"{row['fan_out']:.1f}"
    return [
        f"{row['messages_in'] / seconds:,.0f}", output.human_bytes(row["bytes_in"] / seconds),
        f"{row['messages_out'] / seconds:,.0f}", output.human_bytes(row["bytes_out"] / seconds), fan_out,
    ]  # fmt: skip

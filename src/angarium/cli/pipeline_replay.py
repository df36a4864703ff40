"""`angarium pipeline replay`."""
from pathlib import Path
from typing import Annotated

import typer

from angarium.cli import failure, options, output
from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.pipeline import Config, Destinations, Master, need_spark, spark_for, watched
from angarium.cli.pipeline_settings import PipelineSettings
from angarium.cli.pipeline_traces import is_ago, parse_period_ms
from angarium.cli.usage import at_most_whole, given_path

_KINDS = {
    "destinations": list, "archive": str, "name": str, "into": str, "from": str, "to": str, "from_position": int,
    "to_position": int, "selector": str, "rate": float,
}  # fmt: skip


def replay(
    destinations: Destinations = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="The archive that is replayed.", path_type=str, callback=given_path
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of this replay: run again under the same, it goes on where it was."),
    ] = None,
    into: Annotated[
        str | None, typer.Option(metavar="DESTINATION", help="Where all of it goes; else to where each message was.")
    ] = None,
    from_time: Annotated[str | None, typer.Option("--from", metavar="TIME", help="What was sent from then on.")] = None,
    to_time: Annotated[str | None, typer.Option("--to", metavar="TIME", help="What was sent before.")] = None,
    from_position: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="From that position on.", callback=at_most_whole)
    ] = None,
    to_position: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="What lies before it.", callback=at_most_whole)
    ] = None,
    selector: options.Selector = None,
    rate: Annotated[
        float | None, typer.Option(min=0, metavar="N", show_default="no limit", help="Messages a second.")
    ] = None,
    config: Config = None,
    master: Master = None,
    address: options.Address = [],  # noqa: B006
    as_json: options.Json = False,
) -> None:
    """Send what an archive has to destinations again. By time, selector or position, at a rate, once.

    It may be ended at any time; run again under the same name, it goes on where it was, and with what was archived
    since.

    \b
        angarium pipeline replay orders --archive /srv/archive --name monday --from 2026-11-16 --to 2026-11-17
        angarium pipeline replay orders --archive /srv/archive --name test --into orders-copy --rate 500
    """
    given = {
        "destinations": destinations, "archive": None if archive is None else str(archive), "name": name, "into": into,
        "from": from_time, "to": to_time, "from_position": from_position, "to_position": to_position,
        "selector": selector, "rate": rate,
    }  # fmt: skip
    settings = PipelineSettings("replay", config, given, _KINDS)
    root = Path(settings.required("archive", "--archive")).absolute()
    called = settings.required("name", "--name")
    from_ms, to_ms = parse_period_ms(settings.get("from", None), settings.get("to", None))
    low, high = settings.get("from_position", None), settings.get("to_position", None)
    if low is not None and high is not None and high <= low:
        raise Failure(f"--to-position {high} does not lie behind --from-position {low}", EXIT_USAGE)
    need_spark()
    from angarium.spark.pipelines import replay as pipeline

    selection = pipeline.ReplaySelection(
        destinations=tuple(settings.get("destinations", ())),
        into=settings.get("into", ""),
        from_ms=from_ms,
        to_ms=to_ms,
        position_from=low,
        position_to=high,
        selector=settings.get("selector", ""),
        ago=tuple(f"{key}_ms" for key in ("from", "to") if is_ago(settings.get(key, ""))),
    )
    wanted = pipeline.ReplaySettings(settings.addresses(address), root, called, selection, settings.get("rate", 0.0))
    pipeline.check(wanted)
    with spark_for("replay", settings, master) as spark, watched("replaying") as progress:
        result = pipeline.replay(spark, wanted, progress)
    if as_json:
        output.write_json({"sent": result.sent, "bodies_elsewhere": result.bodies_elsewhere})
        return
    if result.sent:
        rows = [(into, f"{count:,}") for into, count in sorted(result.sent.items())]
        output.write_table(("destination", "replayed"), rows)
    if result.bodies_elsewhere:
        count = failure.plural(result.bodies_elsewhere, "message")
        failure.say(f"{count} were sent as streams, are archived without their bodies, and not replayed")
    failure.say(f"{failure.plural(sum(result.sent.values()), 'message')} replayed")

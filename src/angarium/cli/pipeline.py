"""`angarium pipeline`: what Spark does with messages, as commands. Each may be ended at any time, and run again."""
import logging
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from angarium.cli import failure, options, output
from angarium.cli.failure import Failure
from angarium.cli.pipeline_settings import PipelineSettings
from angarium.cli.usage import at_most_whole, given_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINES_MAX, _CHARACTERS_MAX = 3, 600  # of what Spark says

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", exists=True, dir_okay=False, path_type=str, callback=given_path,
                 help="TOML with a table for the pipeline; options that are given win."),
]  # fmt: skip
Master = Annotated[
    str | None, typer.Option(metavar="MASTER", show_default="local[*]", help="Spark's master: spark://HOST:PORT, …")
]
Destinations = Annotated[
    list[str] | None,
    typer.Argument(metavar="DESTINATION", show_default=False, autocompletion=options.complete_destination,
                   help="Names and globs: orders, 'prices.*'."),
]  # fmt: skip


def need_spark() -> None:
    """Raise if it is not installed. Importing it takes a moment; starting it comes later, and takes ten seconds."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise Failure(f"{error.name} is not installed: pip install '.[spark]' in the source of Angarium") from None


@contextmanager
def spark_for(name: str, settings: PipelineSettings, master: str | None) -> Iterator["SparkSession"]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from angarium.spark.pipelines.session import spark_session

    try:
        with _ended_by_signals() as ready_for_them, ExitStack() as started:
            with output.steps() as step:
                step("starting Spark")
                spark = started.enter_context(spark_session(name, master or settings.master, settings.spark))
            ready_for_them()  # Spark has taken over that of Ctrl-C
            yield spark
    except Ended as ended:
        what = "interrupted" if ended.number == signal.SIGINT else f"ended by {signal.Signals(ended.number).name}"
        raise Failure(f"{what}; it may be run again at any time", 128 + ended.number) from None
    except (Py4JError, PySparkException) as error:
        raise Failure(reason_of(str(error))) from error


class Ended(KeyboardInterrupt):
    """By Ctrl-C or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], None]]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def take() -> None:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # else a shell has us ignore it
                signal.signal(number, _end)

    take()
    try:
        yield take
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    logging.disable(logging.CRITICAL)  # what Py4J, whose call is given up, would say about it
    raise Ended(number)


def reason_of(text: str) -> str:
    """What Spark says when a task has failed is pages long: ours, if one of our tasks has said what is wrong, or what
    Spark begins with."""
    ours = re.findall(r"^angarium\.[\w.]+: (.+)$", text, re.MULTILINE)
    if ours:
        return str(ours[0])
    told = [line.strip(" :\t") for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return f"Spark failed: {' '.join(told[:_LINES_MAX])[:_CHARACTERS_MAX]}; ANGARIUM_TRACEBACK=1 shows where"


@contextmanager
def watched(label: str) -> Iterator[Callable[[int, int], None]]:
    """How far it is: a bar for a person; nothing in a pipe."""
    watches: list[output.Watch] = []

    def tell(done: int, total: int) -> None:
        if not watches:
            watches.append(output.Watch(label, total))
        watches[0].advance(done - watches[0].done)

    try:
        yield tell
    finally:
        for watch in watches:
            watch.__exit__(None, None, None)


def archive(
    destinations: Destinations = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Where the archive is, or will be.", path_type=str, callback=given_path
        ),
    ] = None,
    messages_per_step: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default="2000000", help="Between two notes of how far it is.",
            callback=at_most_whole,
        ),
    ] = None,
    allow_gaps: Annotated[
        bool | None,
        typer.Option("--allow-gaps/--no-allow-gaps", show_default="no", help="Go on without what is gone already."),
    ] = None,
    compact: Annotated[
        bool | None, typer.Option("--compact/--no-compact", show_default="yes", help="Put small files together.")
    ] = None,
    config: Config = None,
    master: Master = None,
    address: options.Address = [],  # noqa: B006
    as_json: options.Json = False,
) -> None:
    """Archive destinations as Parquet. By destination and day, every message once.

    It archives what there is when it starts, and goes on from there the next time. It may be ended at any time.

        angarium pipeline archive orders 'prices.*' --to /srv/archive

    Or with a file, for a run that is repeated:

    \b
        [archive]
        destinations = ["orders", "prices.*"]
        to = "/srv/archive"
    """
    given = {
        "destinations": destinations, "to": None if to is None else str(to), "messages_per_step": messages_per_step,
        "allow_gaps": allow_gaps, "compact": compact,
    }  # fmt: skip
    kinds = {"destinations": list, "to": str, "messages_per_step": int, "allow_gaps": bool, "compact": bool}
    settings = PipelineSettings("archive", config, given, kinds)
    target = Path(settings.required("to", "--to")).absolute()
    names = tuple(settings.required("destinations", "DESTINATION"))
    need_spark()
    from angarium.spark.pipelines import archive as pipeline

    wanted = pipeline.ArchiveSettings(
        address=settings.addresses(address),
        destinations=names,
        to=target,
        messages_per_step=settings.get("messages_per_step", pipeline.MESSAGES_PER_STEP),
        allow_gaps=settings.get("allow_gaps", False),
        compact=settings.get("compact", True),
    )
    pipeline.check(wanted)
    with spark_for("archive", settings, master) as spark, watched("archiving") as progress:
        told = pipeline.summary(pipeline.archive(spark, wanted, progress))
    if as_json:
        output.write_json(told)
    else:
        _show_archive(target, told)


def _show_archive(target: Path, told: dict[str, Any]) -> None:
    rows = [(name, f"{count:,}") for name, count in sorted(told["archived"].items())]
    if rows:
        output.write_table(("destination", "archived"), rows)
    for gap in told["gaps"]:
        failure.say(f"gone before it was archived: {gap}")
    if told["bodies_elsewhere"]:
        count = failure.plural(told["bodies_elsewhere"], "message")
        failure.say(f"{count} sent as streams: archived without their bodies")
    new = failure.plural(sum(told["archived"].values()), "message")
    held = f"{failure.plural(told['rows'], 'message')} in {failure.plural(told['files'], 'file')}"
    failure.say(f"{new} archived; {target} has {held}, {output.human_bytes(told['bytes'])}")

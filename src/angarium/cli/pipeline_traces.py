"""What the pipelines that read traces are told: which destinations, of which time, and where to write what is found."""
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from angarium.cli.durations import parse_seconds
from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.pipeline_settings import PipelineSettings

_KINDS = {"destinations": list, "from": str, "to": str, "report": str, "output": str}
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="What was confirmed from then on: 2h (ago), 2026-11-16T08:00."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="What was confirmed before.")]


def is_ago(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?\s*(s|min|h|d)", text.strip()) is not None


def parse_time_ms(option: str, text: str | None) -> int | None:
    """A time ago, or a time as ISO 8601 writes it: UTC, unless it says otherwise."""
    if text is None:
        return None
    if is_ago(text):
        return int((time.time() - parse_seconds(option, text)) * 1_000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        reason = f"{option} {text!r}: use a time ago, as 90s or 2h, or a time such as 2026-11-16T08:00"
        raise Failure(reason, EXIT_USAGE) from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def parse_period_ms(from_time: str | None, to_time: str | None) -> tuple[int | None, int | None]:
    """One in which nothing can lie is refused: that nothing was found in it would be taken for good news."""
    from_ms, to_ms = parse_time_ms("--from", from_time), parse_time_ms("--to", to_time)
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise Failure(f"--to {to_time} does not lie behind --from {from_time}: nothing is between them", EXIT_USAGE)
    return from_ms, to_ms


class TraceSettings(PipelineSettings):
    def __init__(
        self, pipeline: str, config: Path | None, destinations: list[str] | None, from_time: str | None,
        to_time: str | None, report: Path | None, output: Path | None,
    ) -> None:  # fmt: skip
        given = {
            "destinations": destinations, "from": from_time, "to": to_time,
            "report": None if report is None else str(report), "output": None if output is None else str(output),
        }  # fmt: skip
        super().__init__(pipeline, config, given, _KINDS)
        self.from_ms, self.to_ms = parse_period_ms(self.get("from", None), self.get("to", None))
        path = self.get("report", None)
        if path is not None and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
            raise Failure(f"--report {path}: name a file in a directory that is there")

    @property
    def output(self) -> Path | None:
        """Where what was found is written."""
        directory = self.get("output", None)
        return None if directory is None else Path(directory).absolute()

    def write_report(self, page: Callable[[], str]) -> None:
        """If one was asked for."""
        if (path := self.get("report", None)) is not None:
            Path(path).write_text(page(), encoding="utf-8")

"""What commands write: bodies and JSON on standard output, progress on standard error.

Standard output carries only what was asked for, so that it can be piped. Progress appears when a person watches
standard error and the work has lasted `PROGRESS_AFTER_S`.
"""
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from angarium.cli.failure import Failure, OutputClosed

if TYPE_CHECKING:  # rich is imported by those who need it: most commands start faster without
    from rich.progress import Progress

PROGRESS_AFTER_S = 0.5
PIPE_COLUMNS = 1_000  # rows are never wrapped or cut where a program reads them


def write(data: bytes) -> None:
    """To standard output, through to whoever reads it: after this, the data is no longer ours to lose."""
    rest = memoryview(data)
    try:
        sys.stdout.flush()
        while rest:  # past Python's buffer, which would offer again at the end what was refused here
            rest = rest[os.write(sys.stdout.fileno(), rest) :]
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise Failure(f"standard output: {error.strerror}") from None


def write_json(value: Any) -> None:
    write(json_line(value) + b"\n")


def json_line(value: Any) -> bytes:
    """One JSON value without line breaks."""
    return msgspec.json.encode(value)


def write_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> None:
    """Columns aligned without borders, numbers to the right; `left` are the columns of text."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    is_terminal = Console().is_terminal
    # Into memory: what rich itself writes to standard output, even nothing, may fail without saying where.
    console = Console(
        file=io.StringIO(), force_terminal=is_terminal, width=None if is_terminal else PIPE_COLUMNS,
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    with console.capture() as capture:
        console.print(table)
    lines = (line.rstrip() for line in capture.get().splitlines())
    write("".join(f"{line}\n" for line in lines).encode())


def write_facts(facts: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in facts)
    write("".join(f"{name:<{width}}  {plain(value)}\n".rstrip() + "\n" for name, value in facts).encode())


def plain(text: str) -> str:
    """Control characters would move the cursor of the reader's terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def human_bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} TB"


def human_seconds(seconds: float) -> str:
    whole = int(seconds)
    parts = [(whole // 86_400, "d"), (whole // 3_600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0 s"


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """What is being done, for a person who watches; silent in a pipe."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


class Watch:
    """Progress of one piece of work, for a person; silent in a pipe and for what is done at once."""

    def __init__(self, label: str, total: int | None, *, of_bytes: bool = False, reads_input: bool = False) -> None:
        """`reads_input`: what a person may be typing, in the place where progress would be shown."""
        self._label = label
        self._total = total
        self._of_bytes = of_bytes
        self._started = time.monotonic()
        self._progress: Progress | None = None
        self._enabled = sys.stderr.isatty() and not (reads_input and sys.stdin.isatty())
        self.done = 0

    def advance(self, count: int) -> None:
        self.done += count
        if not self._enabled:
            return
        elapsed_s = time.monotonic() - self._started
        if self._progress is None:
            if elapsed_s < PROGRESS_AFTER_S:
                return
            self._progress = self._start()
        of = f" of {self._amount(self._total)}" if self._total else ""
        rate = f"{self._amount(self.done / elapsed_s)}/s"
        self._progress.update(self._task, completed=self.done, done=f"{self._amount(self.done)}{of}", rate=rate)

    def _amount(self, count: float) -> str:
        return human_bytes(count) if self._of_bytes else f"{count:,.0f}"

    def _start(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn() if self._total else SpinnerColumn(),
            TextColumn("{task.fields[done]}"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = progress.add_task(self._label, total=self._total, done="", rate="")
        progress.start()
        return progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

"""Where the bodies of `angarium send` come from: one argument, a file, or each line of standard input.

Lines stream: one chunk of a few megabytes is in memory at a time. What is there is sent at once, so a slow
writer's lines do not wait for a chunk to fill.
"""
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from angarium.cli import failure, streams
from angarium.cli.failure import Failure

REPEAT_COUNT = 20_000  # bodies of --count that are prepared at a time
_NUMBER = re.compile(rb"\{\{n\}\}|\{n\}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the bodies come from: one argument, one file, or lines (of a file, or of standard input)."""

    body: str | None
    file: Path | None
    lines: bool
    count: int | None  # None: once, and as it is written

    def check(self) -> None:
        if self.body is None and self.file is None and not self.lines:
            raise Failure("nothing to send: give a BODY, --file, --lines or --stream", failure.EXIT_USAGE)
        if self.body is not None and (self.file is not None or self.lines):
            raise Failure("a BODY cannot be combined with --file or --lines", failure.EXIT_USAGE)
        if self.lines and self.count is not None:
            raise Failure("--count repeats one body and cannot be combined with --lines", failure.EXIT_USAGE)

    @property
    def reads_input(self) -> bool:
        """Standard input, and no file."""
        return str(self.file) == "-" or (self.lines and self.file is None)

    @property
    def total(self) -> int | None:
        return None if self.lines else self.count or 1

    async def chunks(self, bytes_max: int) -> AsyncIterator[list[bytes]]:
        """`bytes_max`: the longest body that the broker takes."""
        if self.lines:
            with _opened(self.file) as descriptor:
                async for chunk in streams.read_lines(descriptor):
                    yield chunk
            return
        if self.file is not None:
            body, numbered = await _read_one(self.file, bytes_max), False
        else:
            assert self.body is not None
            body = os.fsencode(self.body)  # the bytes that the shell passed, whatever the locale
            numbered = self.count is not None and b"{n}" in body
        count = self.count or 1
        for low in range(1, count + 1, REPEAT_COUNT):
            high = min(low + REPEAT_COUNT, count + 1)
            yield [_numbered(body, n) for n in range(low, high)] if numbered else [body] * (high - low)


def _numbered(body: bytes, number: int) -> bytes:
    """`{n}` becomes the number; `{{n}}` is how to write it."""
    return _NUMBER.sub(lambda found: b"{n}" if len(found[0]) > 3 else b"%d" % number, body)


async def _read_one(file: Path, bytes_max: int) -> bytes:
    """One message, refused before a long file has been read."""
    with _opened(file) as descriptor:
        found = os.fstat(descriptor)
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        body = await streams.read_all(descriptor, bytes_max) if size <= bytes_max else b""
        if max(size, len(body)) > bytes_max:
            length = f"{size:,}" if size > bytes_max else f"more than {bytes_max:,}"
            raise Failure(
                f"{file}: {length} bytes exceed the broker's body_bytes_max {bytes_max:,}; send it with --stream, "
                "which takes any length"
            )
        return body


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    """A file, or standard input for none and for `-`."""
    if file is None or str(file) == "-":
        yield 0
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise Failure(f"{file}: is a directory")
        yield descriptor
    finally:
        os.close(descriptor)

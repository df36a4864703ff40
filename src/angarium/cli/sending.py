"""`angarium send`: one body, a file, or each line of standard input, confirmed before the command ends.

Lines stream: one chunk of a few megabytes is in memory at a time. What is there is sent at once, so a slow
writer's lines do not wait for a chunk to fill.
"""
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import angarium
from angarium.cli import failure, options, output, streams
from angarium.cli.failure import Failure
from angarium.cli.properties import parse_properties

REPEAT_COUNT = 20_000  # bodies of --count that are prepared at a time
STALLED_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where the bodies come from: one argument, one file, or lines (of a file, or of standard input)."""

    body: str | None
    file: Path | None
    lines: bool
    count: int

    def check(self) -> None:
        if self.body is None and self.file is None and not self.lines:
            raise Failure("nothing to send: give a BODY, --file or --lines", failure.EXIT_USAGE)
        if self.body is not None and (self.file is not None or self.lines):
            raise Failure("a BODY cannot be combined with --file or --lines", failure.EXIT_USAGE)
        if self.lines and self.count != 1:
            raise Failure("--count repeats one body and cannot be combined with --lines", failure.EXIT_USAGE)

    @property
    def total(self) -> int | None:
        return None if self.lines else self.count

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        if self.lines:
            with _opened(self.file) as descriptor:
                async for chunk in streams.read_lines(descriptor):
                    yield chunk
            return
        if self.file is not None:
            body = sys.stdin.buffer.read() if str(self.file) == "-" else self.file.read_bytes()
            numbered = False
        else:
            assert self.body is not None
            body = os.fsencode(self.body)  # the bytes that the shell passed, whatever the locale
            numbered = b"{n}" in body
        for low in range(1, self.count + 1, REPEAT_COUNT):
            high = min(low + REPEAT_COUNT, self.count + 1)
            yield [body.replace(b"{n}", b"%d" % n) for n in range(low, high)] if numbered else [body] * (high - low)


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    """A file, or standard input for none and for `-`."""
    if file is None or str(file) == "-":
        yield 0
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def send(
    destination: options.Destination,
    body: Annotated[str | None, typer.Argument(help="The message; {n} becomes its number.", metavar="BODY")] = None,
    address: options.Address = [],  # noqa: B006
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="PATH", help="One message; - is stdin.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Send each line of stdin, or of --file.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="Send so many messages.")] = 1,
    properties: Annotated[
        list[str], typer.Option("--property", "-p", metavar="KEY=VALUE", help="May be repeated. KEY:=JSON is exact.")
    ] = [],  # noqa: B006
    priority: Annotated[int, typer.Option(min=0, max=9, metavar="0-9", help="9 is the highest.")] = 4,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Expires after so long.")] = None,
    topic: options.Topic = False,
    as_json: options.Json = False,
) -> int:
    """Send messages; end when all are confirmed.

    Exit code 0 means that the broker has confirmed every message: they are on its disk.

        angarium send orders 'hello'

        angarium send orders 'number {n}' --count 1000

        seq 1000000 | angarium send orders --lines
    """
    source = Source(body, file, lines, count)
    source.check()
    fields: dict[str, Any] = {"properties": parse_properties(properties) or None, "priority": priority, "ttl_s": ttl}
    to = angarium.Topic(destination) if topic else destination
    with output.Watch(f"sending to {destination}", source.total) as watch:
        try:
            options.run(lambda: _send(address, to, source, fields, watch))
        except KeyboardInterrupt:
            failure.say(f"interrupted; {watch.done:,} messages were confirmed, others may be stored")
            raise
        except (angarium.AngariumError, OSError, Failure) as error:
            if not watch.done:
                raise
            text = failure.describe(error) if isinstance(error, OSError) else str(error)
            raise Failure(f"{text}; {watch.done:,} messages were confirmed before") from error
    if as_json:
        output.write_json({"destination": destination, "confirmed": watch.done})
    else:
        failure.say(f"{watch.done:,} {'message' if watch.done == 1 else 'messages'} confirmed")
    return 0


async def _send(
    addresses: list[str], to: angarium.Topic | str, source: Source, fields: dict[str, Any], watch: output.Watch
) -> None:
    async with (
        options.connected(addresses, give_up_after_s=STALLED_S_MAX) as connection,
        connection.session() as session,
    ):
        async for chunk in source.chunks():
            watch.advance(await session.send_many(to, chunk, **fields))

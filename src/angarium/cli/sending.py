"""`angarium send`: one body, a file, or each line of standard input, confirmed before the command ends.

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
from typing import Annotated, Any

import typer

import angarium
from angarium.cli import failure, files, options, output, streams
from angarium.cli.failure import Failure
from angarium.cli.properties import parse_properties

REPEAT_COUNT = 20_000  # bodies of --count that are prepared at a time
STALLED_S_MAX = 60.0
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
            raise Failure("nothing to send: give a BODY, --file or --lines", failure.EXIT_USAGE)
        if self.body is not None and (self.file is not None or self.lines):
            raise Failure("a BODY cannot be combined with --file or --lines", failure.EXIT_USAGE)
        if self.lines and self.count is not None:
            raise Failure("--count repeats one body and cannot be combined with --lines", failure.EXIT_USAGE)

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
        if stat.S_ISDIR(found.st_mode):
            raise Failure(f"{file}: is a directory")
        body = await streams.read_all(descriptor, bytes_max) if size <= bytes_max else b""
        if max(size, len(body)) > bytes_max:
            length = f"{size:,}" if size > bytes_max else f"more than {bytes_max:,}"
            raise Failure(
                f"{file}: {length} bytes exceed the broker's body_bytes_max {bytes_max:,}; split it, or raise "
                "session.body_bytes_max in the broker's settings"
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
        yield descriptor
    finally:
        os.close(descriptor)


def send(
    destination: options.Destination,
    body: Annotated[str | None, typer.Argument(help="The message.", metavar="BODY")] = None,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="PATH", help="One message; - is stdin.")] = None,
    stream: Annotated[
        Path | None, typer.Option("--stream", metavar="PATH", help="One message of any length; - is stdin.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Send each line of stdin, or of --file.")] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", show_default="1",
            help="Send so many messages; in BODY, {n} becomes the number of each, {{n}} stays {n}.",
        ),
    ] = None,
    properties: Annotated[
        list[str], typer.Option("--property", "-p", metavar="KEY=VALUE", help="May be repeated. KEY:=JSON is exact.")
    ] = [],  # noqa: B006
    priority: Annotated[int, typer.Option(min=0, max=9, metavar="0-9", help="9 is the highest.")] = 4,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Expires after so long.")] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Is not delivered before so long after now.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Message group: all of one go to the same consumer.")
    ] = None,
    deduplication_id: Annotated[
        str | None, typer.Option(metavar="ID", help="A second message with this id is dropped, for some time.")
    ] = None,
    last_value_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Replaces the message with this key, where last values are kept.")
    ] = None,
    correlation_id: Annotated[str | None, typer.Option(metavar="ID", help="What it answers, or belongs to.")] = None,
    reply_to: Annotated[str | None, typer.Option(metavar="NAME", help="Where an answer is expected.")] = None,
    message_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The header JMSType.")] = None,
    topic: options.Topic = False,
    as_json: options.Json = False,
) -> int:
    """Send messages; end when all are confirmed.

    Exit code 0 means that the broker has confirmed every message: they are on its disk.

        angarium send orders 'hello'

        angarium send orders 'number {n}' --count 1000

        seq 1000000 | angarium send orders --lines

        angarium send backups --stream backup.tar
    """
    options.check_seconds("--ttl", ttl)
    options.check_seconds("--delay", delay)
    if deduplication_id is not None and (lines or count is not None):
        raise Failure("--deduplication-id is of one message: all others would be dropped", failure.EXIT_USAGE)
    fields: dict[str, Any] = {
        "properties": parse_properties(properties) or None, "priority": priority, "ttl_s": ttl, "delay_s": delay,
        "group": group, "deduplication_id": deduplication_id, "last_value_key": last_value_key,
        "correlation_id": correlation_id, "reply_to": reply_to, "type": message_type,
    }  # fmt: skip
    to = angarium.Topic(destination) if topic else destination
    if stream is not None:
        if body is not None or file is not None or lines or count is not None:
            raise Failure("--stream sends one file, and nothing else", failure.EXIT_USAGE)
        size = options.run(lambda: files.send_file(options.Broker(address, wait), to, stream, fields))
        if as_json:
            output.write_json({"destination": destination, "confirmed": 1, "bytes": size})
        else:
            failure.say(f"1 message of {size:,} bytes confirmed")
        return 0
    source = Source(body, file, lines, count)
    source.check()
    with output.Watch(f"sending to {destination}", source.total) as watch:
        try:
            options.run(lambda: _send(options.Broker(address, wait), to, source, fields, watch))
        except KeyboardInterrupt:
            failure.say(f"interrupted; {_confirmed(watch.done)}, others may be stored")
            raise
        except (angarium.AngariumError, OSError, Failure) as error:
            if not watch.done:
                raise
            text = failure.describe(error) if isinstance(error, OSError) else str(error)
            raise Failure(f"{text}; {_confirmed(watch.done)} before") from error
    if as_json:
        output.write_json({"destination": destination, "confirmed": watch.done})
    else:
        failure.say(f"{failure.plural(watch.done, 'message')} confirmed")
    return 0


def _confirmed(count: int) -> str:
    return f"{failure.plural(count, 'message')} {'was' if count == 1 else 'were'} confirmed"


async def _send(
    broker: options.Broker, to: angarium.Topic | str, source: Source, fields: dict[str, Any], watch: output.Watch
) -> None:
    async with (
        options.connected(broker, give_up_after_s=STALLED_S_MAX) as connection,
        connection.session() as session,
    ):
        async for chunk in source.chunks(connection.limits.body_bytes_max):
            watch.advance(await session.send_many(to, chunk, **fields))

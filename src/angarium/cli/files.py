"""Messages as files: `angarium send --stream` and `angarium receive --output-dir`, for bodies of any length.

A file appears under its name only when all of it is on disk, and the message is settled after that: so what is settled
is there, and what is there is whole.
"""
import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import angarium
from angarium.cli import failure, options, output, streams
from angarium.cli.failure import Failure
from angarium.cli.waiting import LOOK_S, TOLD_AFTER_S, why_silent
from angarium.client.stream_sending import OutgoingStream
from angarium.core.ids import format_id

WRITE_BYTES = 4 << 20  # gathered before a thread writes it: a trip to the thread costs more than many pieces


@dataclass(frozen=True, slots=True)
class Sent:
    """One file that becomes one message."""

    to: angarium.Topic | str
    name: str  # of the destination
    path: Path  # `-` is standard input
    fields: dict[str, Any]
    timeout_s: float  # without anything being stored


def send_file(broker: options.Broker, sent: Sent) -> int:
    """Its content as one message; returns how many bytes that was."""
    descriptor = 0 if str(sent.path) == "-" else os.open(sent.path, os.O_RDONLY)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise Failure(f"{sent.path}: is a directory")
        total = found.st_size if stat.S_ISREG(found.st_mode) else None
        with output.Watch(f"sending to {sent.name}", total, of_bytes=True, reads_input=not descriptor) as watch:
            outgoing = _Outgoing(sent, descriptor, watch)
            try:
                return options.run(lambda: outgoing.send(broker))
            except (KeyboardInterrupt, failure.Terminated):
                became = "the message may be stored" if outgoing.is_whole else "there is no message"
                failure.say(f"interrupted after {output.human_bytes(watch.done)}; {became}")
                raise
    finally:
        if descriptor:
            os.close(descriptor)


class _Outgoing:
    """A stream on its way, and whoever watches it: a person, or the clock."""

    def __init__(self, sent: Sent, descriptor: int, watch: output.Watch) -> None:
        self._sent = sent
        self._descriptor = descriptor
        self._watch = watch
        self._stream: OutgoingStream | None = None
        self._is_reading = False  # it waits for whoever writes our standard input, not for the broker
        self._told = ""
        self.is_whole = False

    async def send(self, broker: options.Broker) -> int:
        async with (
            options.connected(broker, give_up_after_s=self._sent.timeout_s) as connection,
            connection.session() as session,
        ):
            writing = asyncio.ensure_future(self._write(session))
            try:
                await self._look_after(connection, writing)
                return await writing
            finally:
                if not writing.done():
                    writing.cancel()
                    await asyncio.wait([writing])

    async def _write(self, session: angarium.Session) -> int:
        async with session.open_stream(self._sent.to, **self._sent.fields) as stream:
            self._stream, self._is_reading = stream, True
            async for chunk in streams.read_chunks(self._descriptor):
                self._is_reading = False
                await stream.write(chunk)
                self._is_reading = True
            self._is_reading = False
        self.is_whole = True
        assert stream.sending is not None
        await stream.sending
        return stream.bytes

    async def _look_after(self, connection: options.Connection, writing: "asyncio.Future[int]") -> None:
        """Show how far it is; give up if nothing more is stored."""
        heard = time.monotonic()
        while not writing.done():
            await asyncio.wait([writing], timeout=LOOK_S)
            stored = self._stream.stored_bytes if self._stream is not None else 0
            if stored > self._watch.done or self._is_reading or writing.done():
                self._watch.advance(stored - self._watch.done)
                heard, self._told = time.monotonic(), ""
                continue
            silent_s = time.monotonic() - heard
            reason = self._stream.blocked_reason if self._stream is not None else ""
            if silent_s >= self._sent.timeout_s:
                why = reason or await why_silent(connection, self._sent.name)
                raise Failure(f"{self._sent.name!r}: nothing more was stored within {self._sent.timeout_s:g} s: {why}")
            if silent_s >= TOLD_AFTER_S and not self._told:
                self._told = reason or await why_silent(connection, self._sent.name)
                failure.say(f"waiting for {self._sent.name!r}: {self._told}")


def make_directory(option: str, directory: Path) -> None:
    """With whatever is missing above it."""
    for path in (directory, *directory.parents):
        if path.exists() and not path.is_dir():
            raise Failure(f"{option} {directory}: {path} is a file; name a directory")
    directory.mkdir(parents=True, exist_ok=True)


async def save(message: angarium.Message, directory: Path) -> Path:
    """The body as a file of its own, named by the message's id."""
    path = directory / format_id(message.id).removeprefix("ID:")
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("wb") as file:
            async with message.open() as stream:
                async for piece in _gathered(stream):
                    await asyncio.to_thread(file.write, piece)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        partial.rename(path)
    except OSError as error:  # one of writing does not say where
        partial.unlink(missing_ok=True)
        raise Failure(f"{path}: {error.strerror}; the message is left where it was") from None
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


async def _gathered(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    size = 0
    async for part in stream:
        parts.append(part)
        size += len(part)
        if size >= WRITE_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)

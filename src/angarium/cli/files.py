"""Messages as files: `angarium send --stream` and `angarium receive --output-dir`, for bodies of any length.

A file appears under its name only when all of it is on disk, and the message is settled after that: so what is settled
is there, and what is there is whole.
"""
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import angarium
from angarium.cli import options, output, streams
from angarium.cli.failure import Failure
from angarium.core.ids import format_id

WRITE_BYTES = 4 << 20  # gathered before a thread writes it: a trip to the thread costs more than many pieces


async def send_file(broker: options.Broker, to: angarium.Topic | str, path: Path, fields: dict[str, Any]) -> int:
    """The content of the file (`-` is standard input) as one message; returns how many bytes that was."""
    descriptor = 0 if str(path) == "-" else os.open(path, os.O_RDONLY)
    try:
        async with options.connected(broker, give_up_after_s=60.0) as connection, connection.session() as session:
            async with session.open_stream(to, **fields) as stream:
                async for chunk in streams.read_chunks(descriptor):
                    await stream.write(chunk)
            assert stream.sending is not None
            await stream.sending
            return stream.bytes
    finally:
        if descriptor:
            os.close(descriptor)


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


async def save_all(messages: list[angarium.Message], directory: Path, *, as_json: bool) -> None:
    """... and tell where each is, one a line."""
    for message in messages:
        path = await save(message, directory)
        facts = {"id": format_id(message.id), "path": str(path), "bytes": path.stat().st_size, "type": message.type,
                 "properties": message.properties, **death(message)}  # fmt: skip
        await streams.pour(output.json_line(facts) + b"\n" if as_json else os.fsencode(path) + b"\n")


def death(message: angarium.Message) -> dict[str, Any]:
    """Of a dead message, where and why it died; of another one nothing."""
    return {} if (letter := message.dead_letter) is None else {"dead_letter": letter}

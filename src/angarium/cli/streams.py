"""Standard streams without blocking the event loop, and without threads.

A command that waits for its standard input, or for whoever reads its output, must go on answering the broker's
heartbeats. A thread would do that, but one that is stuck in a read or write keeps Ctrl-C from ending the process.
"""
import asyncio
import errno
import os
import select
import stat
from collections.abc import AsyncIterator, Callable

from angarium.cli.failure import Failure, OutputClosed

STDIN, STDOUT = 0, 1
CHUNK_BYTES = 4 << 20  # read at a time
LINE_BYTES_MAX = 64 << 20  # a longer line is no line; the broker's own limit is usually lower
PIPE_BYTES = select.PIPE_BUF  # a pipe that is ready takes so much without blocking
FILE_BYTES = 1 << 20


async def pour(data: bytes) -> None:
    """Write all of it to standard output: after this, the data is no longer ours to lose."""
    piece_bytes = FILE_BYTES if stat.S_ISREG(os.fstat(STDOUT).st_mode) else PIPE_BYTES
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    try:
        while rest:
            if not select.select([], [STDOUT], [], 0)[1]:
                await _ready(STDOUT, loop.add_writer, loop.remove_writer)
            rest = rest[os.write(STDOUT, rest[:piece_bytes]) :]
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise Failure(f"standard output: {error.strerror}") from None


def check_reader() -> None:
    """Raise OutputClosed if the reader of our output has gone: a command that has nothing to write would not notice."""
    if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
        poll = select.poll()
        poll.register(STDOUT, 0)  # a pipe that nobody reads is told in any case
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise OutputClosed


async def read_all(descriptor: int, bytes_max: int) -> bytes:
    """All that comes, or one byte more than `bytes_max` at least."""
    parts, size = [], 0
    while size <= bytes_max and (data := await _read_available(descriptor)):
        parts.append(data)
        size += len(data)
    return b"".join(parts)


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines without their newline, in chunks of what is there."""
    rest = b""
    while data := await _read_available(descriptor):
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise Failure(f"a line is longer than {LINE_BYTES_MAX:,} bytes; send it with --file")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Everything, as it comes."""
    while data := await _read_available(descriptor):
        yield data


async def _read_available(descriptor: int) -> bytes:
    """Wait for data, then take what is there, up to a chunk; empty at the end."""
    loop = asyncio.get_running_loop()
    await _ready(descriptor, loop.add_reader, loop.remove_reader)
    data = _read(descriptor, CHUNK_BYTES)
    parts, size = [data], len(data)
    while data and size < CHUNK_BYTES and select.select([descriptor], [], [], 0)[0]:
        data = _read(descriptor, CHUNK_BYTES - size)
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def _read(descriptor: int, bytes_max: int) -> bytes:
    try:
        return os.read(descriptor, bytes_max)
    except OSError as error:
        if descriptor != STDIN:
            raise
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise Failure(f"standard input: {reason}") from None


async def _ready(
    descriptor: int, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]
) -> None:
    event = asyncio.Event()
    try:
        add(descriptor, event.set)
    except PermissionError:
        return  # a file on disk cannot be waited for: it is always ready
    try:
        await event.wait()
    finally:
        remove(descriptor)

"""Goal: lines arrive whole whatever the pieces, a slow writer's lines are not held back, and memory stays bounded."""
import asyncio
import os
import random
from pathlib import Path

import pytest

from angarium.cli import streams
from angarium.cli.failure import Failure, OutputClosed


async def _collect(descriptor: int) -> list[bytes]:
    return [line async for chunk in streams.read_lines(descriptor) for line in chunk]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\n\0\xff\n", [b"a\r", b"\0\xff"]),
    ],
)
def test_a_file_is_read_line_by_line(tmp_path: Path, data: bytes, lines: list[bytes]) -> None:
    file = tmp_path / "lines"
    file.write_bytes(data)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert asyncio.run(_collect(descriptor)) == lines
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("seed", range(10))
def test_pieces_of_a_pipe_join_into_the_same_lines(seed: int) -> None:
    chance = random.Random(seed)
    lines = [chance.randbytes(chance.randrange(50)).replace(b"\n", b"-") for _ in range(200)]
    data = b"".join(line + b"\n" for line in lines)

    async def write_in_pieces(descriptor: int) -> None:
        at = 0
        while at < len(data):
            size = chance.randrange(1, 300)
            os.write(descriptor, data[at : at + size])
            at += size
            await asyncio.sleep(0)
        os.close(descriptor)

    async def main() -> list[bytes]:
        reader, writer = os.pipe()
        try:
            return (await asyncio.gather(_collect(reader), write_in_pieces(writer)))[0]
        finally:
            os.close(reader)

    assert asyncio.run(main()) == lines


def test_what_is_there_comes_before_the_pipe_ends() -> None:
    async def main() -> list[bytes]:
        reader, writer = os.pipe()
        os.write(writer, b"first\nsec")
        try:
            async with asyncio.timeout(30):
                return await anext(streams.read_lines(reader))
        finally:
            os.close(reader)
            os.close(writer)

    assert asyncio.run(main()) == [b"first"]


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINE_BYTES_MAX", 1_000)
    file = tmp_path / "long"
    file.write_bytes(b"x" * 1_001)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with pytest.raises(Failure, match="longer than 1,000 bytes"):
            asyncio.run(_collect(descriptor))
    finally:
        os.close(descriptor)


def test_a_reader_that_takes_its_time_gets_everything_and_holds_up_no_other_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = random.Random(1).randbytes(500_000)  # more than a pipe holds

    async def main() -> tuple[bytes, int]:
        reader, writer = os.pipe()
        monkeypatch.setattr(streams, "STDOUT", writer)
        pouring = asyncio.create_task(streams.pour(data))
        turns, taken = 0, b""
        while not pouring.done():
            await asyncio.sleep(0)  # pour gives up the loop while the pipe is full: else this would never go on
            turns += 1
            if turns % 3 == 0:
                taken += os.read(reader, 4_096)
        os.close(writer)
        while piece := os.read(reader, 65_536):
            taken += piece
        os.close(reader)
        return taken, turns

    taken, turns = asyncio.run(main())
    assert taken == data
    assert turns > 10


def test_a_reader_that_went_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(streams, "STDOUT", writer)
    try:
        with pytest.raises(OutputClosed):
            asyncio.run(streams.pour(b"x"))
    finally:
        os.close(writer)

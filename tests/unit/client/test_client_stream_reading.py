"""Goal: no byte of a stream is lost between two reads, however the first one ended.
Method: a stream that is given its fragments by hand."""
import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from angarium.client.stream_reading import IncomingStream
from angarium.core.errors import Rejected


def opened(size: int) -> IncomingStream:
    desk: Any = SimpleNamespace(loop=asyncio.get_running_loop(), session=1, handle=lambda event: None)
    return IncomingStream(desk, 1, size)


async def cancelled(stream: IncomingStream) -> None:
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)  # it has taken what is there, and waits
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


# Once: what a cancelled read() had taken was gone.
def test_a_cancelled_read_of_everything_loses_nothing() -> None:
    async def scenario() -> None:
        stream = opened(9)
        stream.on_fragment(b"abc", is_last=False)
        assert await stream.read(1) == b"a"
        await cancelled(stream)
        stream.on_fragment(b"def", is_last=False)
        await cancelled(stream)
        assert await stream.read(2) == b"bc"
        stream.on_fragment(b"ghi", is_last=True)
        assert await stream.read() == b"defghi"
        assert await stream.read() == b""

    asyncio.run(scenario())


def test_pieces_go_on_where_a_cancelled_read_began() -> None:
    async def scenario() -> None:
        stream = opened(6)
        stream.on_fragment(b"abc", is_last=False)
        await cancelled(stream)
        stream.on_fragment(b"def", is_last=True)
        assert [piece async for piece in stream] == [b"abc", b"def"]

    asyncio.run(scenario())


def test_what_came_before_an_error_can_still_be_read() -> None:
    async def scenario() -> None:
        stream = opened(6)
        stream.on_fragment(b"abc", is_last=False)
        stream.on_ended(Rejected("stream-damaged", "its third fragment"))
        with pytest.raises(Rejected, match="third"):
            await stream.read()
        assert await stream.read(6) == b"abc"
        with pytest.raises(Rejected, match="third"):
            await stream.read(6)

    asyncio.run(scenario())

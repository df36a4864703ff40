"""Goal: the body of a stream is what was written, also when a write was given up while the broker took no more.
Method: an outgoing stream at a desk that only notes what is put; the limits are given by hand."""
import asyncio
from collections.abc import Awaitable
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from angarium.client.stream_desk import StreamDesk
from angarium.client.stream_sending import AHEAD_FRAGMENTS, OutgoingStream
from angarium.core.client import stream_events
from angarium.core.errors import LocalProtocolError
from tests.unit.client.client_running import Runner

FRAGMENT_BYTES = 4


class Desk:
    """Takes fragments, and publishes at once."""

    session = 1

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.put: list[stream_events.PutFragment] = []
        self.stream = OutgoingStream(cast(StreamDesk, self), 1, "films")
        self.published: list[Any] = []

    def handle(self, event: stream_events.PutFragment) -> None:
        self.put.append(event)

    def publish(self, stream: OutgoingStream, options: Any) -> Any:
        self.published.append(options)
        return SimpleNamespace()

    def ready(self) -> None:
        self.stream.on_ready(b"s" * 16, FRAGMENT_BYTES)

    def allow(self, limit: int) -> None:
        self.stream.on_advanced(stream_events.StreamAdvanced(1, 1, len(self.put), limit, "", ""))

    @property
    def body(self) -> bytes:
        return b"".join(event.payload for event in self.put)


async def given_up(work: Awaitable[object]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work, 0.01)


async def finished(desk: Desk) -> None:
    task = asyncio.create_task(desk.stream.finish())
    for _ in range(10):
        await asyncio.sleep(0)
        desk.allow(1_000)
    await task
    assert [event.is_last for event in desk.put] == [False] * (len(desk.put) - 1) + [True]
    assert all(len(event.payload) == FRAGMENT_BYTES for event in desk.put[:-1])
    assert len(desk.put[-1].payload) < FRAGMENT_BYTES


def test_a_write_that_is_given_up_is_in_the_body_once(run: Runner) -> None:
    async def main() -> None:
        desk = Desk()
        desk.ready()
        data = bytes(range(4 * FRAGMENT_BYTES + 4 * AHEAD_FRAGMENTS + 3))
        await given_up(desk.stream.write(data))
        assert 0 < len(desk.put) < len(data) // FRAGMENT_BYTES
        assert desk.stream.bytes == len(data), "it is taken, and waits for its turn"
        desk.allow(1_000)
        await desk.stream.write(b"more")
        await finished(desk)
        assert desk.body == data + b"more"
        assert desk.stream.bytes == len(desk.body)

    run(main())


def test_what_a_given_up_write_left_goes_with_the_end(run: Runner) -> None:
    async def main() -> None:
        desk = Desk()
        desk.ready()
        data = bytes(range(8 * FRAGMENT_BYTES + 1))
        await given_up(desk.stream.write(data))
        await finished(desk)
        assert desk.body == data

    run(main())


def test_a_write_behind_one_that_was_given_up_is_taken_when_that_has_left(run: Runner) -> None:
    async def main() -> None:
        desk = Desk()
        await given_up(desk.stream.write(b"never"))
        assert desk.stream.bytes == 0, "it was not even open"
        desk.ready()
        data = bytes(range(8 * FRAGMENT_BYTES))
        await given_up(desk.stream.write(data))
        await given_up(desk.stream.write(b"not this"))
        assert desk.stream.bytes == len(data)
        await finished(desk)
        assert desk.body == data

    run(main())


def test_an_end_that_is_given_up_is_put_once_and_nothing_follows_it(run: Runner) -> None:
    async def main() -> None:
        desk = Desk()
        desk.ready()
        desk.allow(100)
        await desk.stream.write(b"abc")
        await given_up(desk.stream.finish())
        with pytest.raises(LocalProtocolError, match="finish"):
            await desk.stream.write(b"d")
        await finished(desk)
        assert (desk.body, len(desk.published)) == (b"abc", 1)

    run(main())


def test_a_source_that_was_given_up_leaves_no_stream_with_a_hole(run: Runner) -> None:
    async def main() -> None:
        desk = Desk()
        desk.ready()
        await given_up(desk.stream.write_from(BytesIO(bytes(100))))
        with pytest.raises(LocalProtocolError, match="given up"):
            await desk.stream.finish()

    run(main())

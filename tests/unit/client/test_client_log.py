"""Goal: a reader of a log gets every position once, in order, however pages are cut; and is told what is gone."""
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from angarium.client.log import ATTEMPTS_MAX, PAGES_AHEAD, Answer, Log, LogGone, LogPage, list_logs, priority_of
from angarium.core.errors import Rejected, RemoteProtocolError, Unavailable
from angarium.core.storage import position_key
from tests.unit.core.core_manager import World

Request = Callable[[str, dict[str, Any]], Awaitable[Answer]]


def asking(world: World, *, losing: int = 0, log: list[dict[str, Any]] | None = None) -> Request:
    """Of a real message manager; the first so many requests are lost on the way."""
    lost = iter(range(losing))

    async def request(command: str, arguments: dict[str, Any]) -> Answer:
        await asyncio.sleep(0)
        if log is not None:
            log.append(arguments)
        if next(lost, None) is not None:
            raise Unavailable("the connection was lost")
        reply, payload = world.request_with_payload(command, **arguments)
        if reply.code:
            raise Rejected(reply.code, reply.reason)
        return Answer(reply.result, payload)

    return request


async def pages_of(log: Log, *arguments: Any, **options: Any) -> list[LogPage]:
    return [page async for page in log.pages(*arguments, **options)]


def positions(pages: list[LogPage]) -> list[int]:
    return [position for page in pages for piece in page.pieces for position in piece.positions]


def test_pages_follow_each_other_to_the_end_and_some_are_fetched_early() -> None:
    async def scenario() -> None:
        world = World()
        producer = world.producer(world.locate("q"))
        for _ in range(10):
            producer.publish(bytes(400_000), bytes(400_000))
        asked: list[dict[str, Any]] = []
        log = Log(asking(world, log=asked), "q")
        pages = log.pages()
        first = await anext(pages)
        for _ in range(20):
            await asyncio.sleep(0)
        assert first.next == 4 and [arguments["position"] for arguments in asked] == [0, 4, 8, 12]
        assert len(asked) == 1 + PAGES_AHEAD
        assert positions([first, *[page async for page in pages]]) == list(range(20))
        assert len(asked) == 5 and positions(await pages_of(log, 3, 11)) == list(range(3, 11))

    asyncio.run(scenario())


def test_a_reader_that_stops_early_asks_for_no_more() -> None:
    async def scenario() -> None:
        world = World()
        producer = world.producer(world.locate("q"))
        for _ in range(20):
            producer.publish(bytes(400_000), bytes(400_000))
        asked: list[dict[str, Any]] = []
        pages = Log(asking(world, log=asked), "q").pages()
        await anext(pages)
        await pages.aclose()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(asked) <= 1 + PAGES_AHEAD
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_what_arrives_meanwhile_is_not_followed_and_an_end_beyond_the_log_is_no_wait() -> None:
    async def scenario() -> None:
        world = World()
        queue = world.queue_with(3)
        log = Log(asking(world), "q")
        pages = log.pages()
        first = await anext(pages)
        world.producer(queue).publish(b"later")
        assert positions([first, *[page async for page in pages]]) == [0, 1, 2]
        assert positions(await pages_of(log, 0, 100)) == [0, 1, 2, 3]
        assert positions(await pages_of(log, 4, 100)) == []

    asyncio.run(scenario())


def test_what_is_gone_is_told_before_anything_later_is_read() -> None:
    async def scenario() -> None:
        world = World()
        queue = world.queue_with(6)
        world.consumer(queue).settle((0, 4))
        log = Log(asking(world), "q")
        with pytest.raises(LogGone, match="positions 1 to 3 are gone") as gone:
            await pages_of(log, 1, 6)
        assert (gone.value.low, gone.value.high, gone.value.code) == (1, 4, "positions-gone")
        with pytest.raises(LogGone) as gone:
            await pages_of(log, 1, 3)
        assert gone.value.high == 3, "of what was asked for"
        assert positions(await pages_of(log, 4, 6)) == [4, 5]

    asyncio.run(scenario())


def test_what_is_damaged_is_told_after_what_lies_before_it() -> None:
    async def scenario() -> None:
        world = World()
        queue = world.queue_with(2, 2, 2)
        world.disk.damaged.add(position_key(queue, 4))
        log, before = Log(asking(world), "q"), []
        with pytest.raises(LogGone, match="positions 2 to 3 are damaged") as gone:
            async for page in log.pages(1):
                before.append(page)
        assert positions(before) == [1] and before[-1].next == gone.value.low == 2
        assert positions(await pages_of(log, gone.value.high)) == [4, 5]
        with pytest.raises(LogGone) as gone:
            await pages_of(log, 3, 4)
        assert (gone.value.low, gone.value.high) == (3, 4), "of what was asked for"

    asyncio.run(scenario())


def test_lost_requests_are_asked_again_but_not_for_ever() -> None:
    async def scenario() -> None:
        world = World()
        world.queue_with(3)
        assert positions(await pages_of(Log(asking(world, losing=ATTEMPTS_MAX - 1), "q"))) == [0, 1, 2]
        with pytest.raises(Unavailable):
            await Log(asking(world, losing=ATTEMPTS_MAX), "q").describe()
        found = await list_logs(asking(world, losing=2))
        assert [described.name for described in found] == ["q"]

    asyncio.run(scenario())


def test_refusals_are_raised() -> None:
    async def scenario() -> None:
        world = World()
        world.queue_with(1)
        log = Log(asking(world), "q")
        with pytest.raises(Rejected) as refused:
            await pages_of(log, identity=77)
        assert refused.value.code == "destination-removed"
        with pytest.raises(Rejected) as refused:
            await pages_of(log, selector="n >")
        assert refused.value.code == "bad-selector"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"identity": 1, "parts": "x", "next": 0, "first": 0, "end": 0},
        {"identity": 1, "parts": [[0, 1, 5]], "next": 1, "first": 0, "end": 1},
        {"identity": 1, "parts": [], "next": 1, "first": 0, "end": 1},  # and a payload that nobody described
        {"identity": 1, "parts": [], "next": -1, "first": 0, "end": 1},
        {"identity": 1, "parts": [], "next": 1, "first": 0, "end": 1, "missing": [0]},
    ],
)
def test_answers_that_cannot_be_are_the_brokers_mistake(result: Any) -> None:
    async def request(command: str, arguments: dict[str, Any]) -> Answer:
        return Answer(result, b"" if result and "missing" in result else b"short")

    with pytest.raises(RemoteProtocolError):
        asyncio.run(Log(request, "q").page())


def test_a_position_tells_its_priority() -> None:
    assert [priority_of(lane << 56) for lane in (0, 5, 6)] == [4, 9, 0]

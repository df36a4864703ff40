"""Goal: browsing shows what lies there, page by page, and takes nothing; what it shows cannot be settled.
Method: the fake broker behind a real server, on stock asyncio and on uvloop, and from a thread."""
import asyncio
from typing import Any

import pytest

import angarium
from angarium import blocking
from angarium.client import browsing
from angarium.client.log import Answer
from angarium.core.wire.frames import LANE_BITS
from angarium.core.wire.lanes import place_of
from angarium.core.wire.packing import pack
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.client_fake_server import FakeServer
from tests.unit.client.client_running import Runner, until, with_session
from tests.unit.client.test_client_blocking import ServerThread


def test_browsing_shows_all_and_takes_nothing(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PAGE_MESSAGES", 3)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"%d" % n for n in range(10)])
        first = await session.receive("orders", timeout_s=5)
        assert first is not None
        first.settle()
        await session.sync()
        seen = [message async for message in session.browse("orders")]
        assert [message.body for message in seen] == [b"%d" % n for n in range(1, 10)]
        assert [message.position for message in seen] == list(range(1, 10))
        assert {message.destination for message in seen} == {"orders"}
        subscription = server.broker.log("orders").subscriptions[""]
        assert (subscription.held, subscription.settled.count) == ({}, 1)
        assert [m.body async for m in session.browse(angarium.Queue("orders"), "7")] == [b"7"]
        assert [m.body async for m in session.browse("nothing.here")] == []

    with_session(run, scenario)


def test_what_arrives_while_browsing_is_not_followed(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PAGE_MESSAGES", 2)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"0", b"1", b"2"])
        count = 0
        async for message in session.browse("orders"):
            await session.send("orders", b"more")
            count += 1
            assert message.body != b"more"
        assert count == 3

    with_session(run, scenario)


def test_where_it_began_a_browser_ends() -> None:
    """Pages as a broker has them: priority 9, then 4. With each it names the ends that the first has told."""
    urgent, usual = 5 << LANE_BITS, 0
    ends = [place_of(urgent + 2), place_of(usual + 2)]
    pages = {0: (urgent, 2), 2: (usual, 2)}
    asked: list[dict[str, Any]] = []

    async def request(command: str, arguments: dict[str, Any]) -> Answer:
        asked.append(arguments)
        position, count = pages[arguments["place"]]
        data = pack(bytes(16), 1, 0, [b"%d" % n for n in range(count)])
        part = {"position": position, "count": count, "bytes": len(data)}
        result = {"parts": [part], "next": place_of(position + count), "ends": ends, "end": ends[-1]}
        return Answer(result, data)

    async def look() -> list[int]:
        browser = browsing.Browser(request, "q", "", lambda position, size: None)  # type: ignore[arg-type,return-value]
        return [message.position async for message in browser]

    assert asyncio.run(look()) == [urgent, urgent + 1, usual, usual + 1]
    assert [(page["place"], page.get("ends")) for page in asked] == [(0, None), (2, ends)]


def test_what_was_only_looked_at_cannot_be_settled_in_any_mode(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", "x", type="t")
        [message] = [each async for each in session.browse("orders")]
        assert (message.text, message.type, message.lost, message.delivery_count) == ("x", "t", False, 1)
        for answer in (message.settle, message.reject, message.release, message.acknowledge):
            with pytest.raises(angarium.LocalProtocolError, match="browsed"):
                answer()
        assert await message.open().read() == b"x"

    with_session(run, scenario)


def test_browsing_goes_on_after_a_cut(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PAGE_MESSAGES", 2)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", [b"%d" % n for n in range(5)])
        bodies = []
        async for message in session.browse("orders"):
            bodies.append(message.body)
            server.cut_all()
            await until(lambda: not server.links)
        assert bodies == [b"%d" % n for n in range(5)]

    with_session(run, scenario)


def test_browsing_without_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PAGE_MESSAGES", 2)
    server = ServerThread(FakeBroker())
    try:
        with blocking.connect(server.address) as connection, connection.session() as session:
            session.send_many("orders", [b"%d" % n for n in range(5)], timeout_s=5)
            messages = list(session.browse("orders", timeout_s=5))
            assert [message.body for message in messages] == [b"%d" % n for n in range(5)]
            assert [message.body for message in session.browse("orders", "3")] == [b"3"]
            for answer in (messages[0].settle, messages[0].release, messages[0].acknowledge):
                with pytest.raises(angarium.LocalProtocolError, match="browsed"):
                    answer()
            assert messages[0].open().read() == b"0"
    finally:
        server.stop()

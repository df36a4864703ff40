"""Goal: what is sent is confirmed, refused or said to wait, over real sockets, in order and within bounds.
Method: the fake broker behind a real server, on stock asyncio and on uvloop."""
import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import angarium
from angarium.client import buffer
from angarium.core.wire import frames
from angarium.core.wire.codec import FrameParser
from tests.unit.client.client_fake_broker import BODY_BYTES_MAX
from tests.unit.client.client_fake_server import FakeServer
from tests.unit.client.client_running import Runner, until, with_session


def test_send_and_confirm(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        handle = session.send("orders", b"first")
        assert not handle.done and handle.message_id is None
        identity = await handle
        assert handle.done and handle.message_id == identity and len(identity) == 24
        assert await handle == identity  # as often as one likes
        assert (await session.send("orders", "second"))[-1] == 2
        assert server.broker.log("orders").bodies() == [b"first", b"second"]

    with_session(run, scenario)


def test_what_is_sent_in_one_turn_is_one_batch(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"open")
        handles = [session.send("orders", b"%d" % n) for n in range(1_000)]
        await asyncio.gather(*handles[::7])
        assert server.broker.publishes == 2
        assert server.broker.log("orders").bodies()[1:] == [b"%d" % n for n in range(1_000)]

    with_session(run, scenario)


def test_a_lone_message_leaves_in_the_next_turn_of_the_loop(run: Runner) -> None:
    """No timer has a part in it: what lingers for company costs each lone message that time."""

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"open")
        transport = RecordingTransport()
        link = session.driver.link
        assert link is not None and link.transport is not None
        theirs, link.transport = link.transport, cast(asyncio.Transport, transport)
        for number in range(1, 4):
            session.send("orders", b"alone")
            await asyncio.sleep(0)  # a turn
            assert transport.publishes() == number, "it has not left"
        link.transport = theirs
        theirs.writelines(transport.written)
        await session.flush()

    with_session(run, scenario)


class RecordingTransport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def writelines(self, buffers: list[bytes]) -> None:
        self.written += buffers

    def publishes(self) -> int:
        received = FrameParser(frame_bytes_max=1 << 20).feed(b"".join(self.written))
        return sum(isinstance(each.frame, frames.Publish) for each in received)


def test_many_turns_at_once_stay_in_order(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        for n in range(5_000):
            session.send("orders", b"%d" % n)
            if n % 50 == 0:
                await asyncio.sleep(0)
        await session.flush()
        assert server.broker.log("orders").bodies() == [b"%d" % n for n in range(5_000)]

    with_session(run, scenario)


def test_send_many_in_bounded_memory(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "SEND_BUFFER_BYTES_MAX", 1_000_000)

    async def bodies() -> AsyncIterator[bytes]:
        for n in range(10):
            yield b"%d" % n

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        assert await session.send_many("orders", (b"x" * 10_000 for _ in range(1_000))) == 1_000
        assert await session.send_many("orders", bodies()) == 10
        assert len(server.broker.log("orders").bodies()) == 1_010

    with_session(run, scenario)


def test_the_send_buffer_is_bounded_and_says_so(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "SEND_BUFFER_BYTES_MAX", 3_000_000)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        with pytest.raises(angarium.Unavailable, match=r"await flush\(\) first"):
            for _ in range(10_000):
                session.send("orders", b"x" * 1_000)
        await session.flush()
        await session.send("orders", b"there is room again")

    with_session(run, scenario)


@pytest.mark.parametrize(
    ("code", "arguments", "options"),
    [
        ("bad-name", ("no spaces", b""), {}),
        ("reserved-name", ("_LOG", b""), {}),
        ("body-too-long", ("q", b"x" * (BODY_BYTES_MAX + 1)), {}),
        ("bad-body", ("q", 17), {}),
        ("bad-priority", ("q", b""), {"priority": 10}),
        ("bad-priority", ("q", b""), {"priority": 1.5}),
        ("bad-ttl", ("q", b""), {"ttl_s": 0}),
        ("bad-property", ("q", b""), {"properties": {"a": [1]}}),
        ("bad-property", ("q", b""), {"properties": {1: 1}}),
        ("bad-property", ("q", b""), {"properties": {"a": 1 << 64}}),
        ("message-too-long", ("q", b""), {"properties": {"a": "x" * (8 << 20)}}),
    ],
)  # fmt: skip
def test_what_can_never_be_sent_is_rejected_at_once(
    run: Runner, code: str, arguments: tuple[Any, Any], options: dict[str, Any]
) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        session.send("q", b"before")
        with pytest.raises(angarium.Rejected) as caught:
            session.send(*arguments, **options)
        assert caught.value.code == code
        session.send("q", b"after")
        await session.flush()
        assert server.broker.log("q").bodies() == [b"before", b"after"]

    with_session(run, scenario)


def test_a_refusal_fails_those_messages_only(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"fine")
        refused = session.send("orders", b"refuse me")
        with pytest.raises(angarium.Rejected, match="the fake refuses this") as caught:
            await refused
        assert caught.value.code == "bad-taste"
        await session.send("orders", b"fine again")
        assert refused.done
        with pytest.raises(angarium.Rejected):
            await refused
        await session.flush()  # it was seen
        session.send("orders", b"refuse me")
        with pytest.raises(angarium.Rejected, match="the fake refuses this"):
            await session.flush()  # this one was not
        await session.flush()

    with_session(run, scenario)


def test_a_failure_that_nobody_saw_is_raised_by_the_close(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        session.send("orders", b"refuse me")

    with pytest.raises(angarium.Rejected, match="the fake refuses this"):
        with_session(run, scenario)


def test_a_producer_that_ended_is_followed_by_another(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        first = await session.send("orders", b"fine")
        for handle in (session.send("orders", b"end me"), session.send("orders", b"too late")):
            with pytest.raises(angarium.Rejected, match="removed") as caught:
                await handle
            assert caught.value.code == "removed"
        second = await session.send("orders", b"fine")
        assert first[:16] != second[:16] and second[-1] == 1

    with_session(run, scenario)


def test_a_flush_tells_of_a_producer_that_ended(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        session.send("orders", b"end me")
        with pytest.raises(angarium.Rejected, match="removed"):
            await session.flush()
        await session.flush()

    with_session(run, scenario)


def test_a_wrong_kind_is_refused(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send(angarium.Queue("orders"), b"1")
        with pytest.raises(angarium.Rejected) as caught:
            await session.send(angarium.Topic("orders"), b"2")
        assert caught.value.code == "wrong-kind"
        with pytest.raises(angarium.Rejected) as caught:
            await anext(session.consume(angarium.Topic("orders")))
        assert caught.value.code == "wrong-kind"

    with_session(run, scenario)


def test_blocked_destinations_make_sends_wait(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        server.broker.log("orders").blocked = True
        session.send("orders", b"1")
        await until(lambda: session.is_blocked("orders"))
        assert session.blocked_reason("orders") == "destination-full: the fake is full"
        handle = session.send("orders", b"2")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not handle.done
        server.broker.log("orders").blocked = False
        server.cut_all()
        await handle
        assert not session.is_blocked("orders")

    with_session(run, scenario)


def test_idle_producers_are_closed_for_new_ones(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "PRODUCERS_MAX", 3)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        for n in range(10):
            await session.send(f"reply.{n}", b"1")
        await session.send("reply.0", b"2")
        assert len(server.links[0].peer.sessions[1].producers) == 3
        for n in range(3):
            session.send(f"busy.{n}", b"3")
        with pytest.raises(angarium.Unavailable, match="await flush"):
            session.send("busy.4", b"4")

    with_session(run, scenario)


def test_who_gives_up_waiting_for_a_blocked_destination_or_for_room_leaves_nothing_behind(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "SEND_BUFFER_BYTES_MAX", 10_000)

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        server.broker.log("orders").blocked = True
        session.send("orders", b"open")
        await until(lambda: session.is_blocked("orders"))
        session.send("orders", b"x" * 8_000)
        for _ in range(20):
            for wait in (session.unblocked("orders"), session.room()):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait, 0.001)
        assert not session._buffer.flow._waiters and not session._buffer._room_waiters
        waiting = [asyncio.ensure_future(wait) for wait in (session.unblocked("orders"), session.room())]
        await asyncio.sleep(0.001)
        server.broker.log("orders").blocked = False
        server.cut_all()
        await asyncio.gather(*waiting)

    with_session(run, scenario)

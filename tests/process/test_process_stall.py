"""Goal: one slow or stalled client delays no one else, and costs the broker a bounded amount of memory.
Method: clients by hand that never read their socket, with the smallest receive buffer, beside honest ones that are
measured. What fails the bounds is a broker that waits or piles up, not a busy machine (process_delay.py)."""
import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import angarium
from angarium.core.wire import frames
from angarium.core.wire.codec import encode
from tests.process.process_broker import MIB, WAIT_S, Broker, RssWatch, running, until
from tests.process.process_client import client_process, read_line
from tests.process.process_delay import Delay
from tests.process.process_ledger import Inbox, assert_same, body_of
from tests.process.process_wire import RECEIVE_BUFFER_BYTES_MIN, RawClient, stalled_consumer

_ROUND_TRIPS = 150
_P99_S_MAX = 0.5
_SLOWEST_S_MAX = 1.5
_FLOOD_MB = 100  # more than the broker may keep
_RSS_BYTES_MAX = 128 * MIB


async def round_trips(broker: Broker, queue: str, count: int) -> list[float]:
    """Seconds from send to receipt, one message at a time."""
    taken: list[float] = []
    async with angarium.connect(broker.address) as connection, connection.session() as session:
        consumer = session.consume(queue, prefetch=10)
        for number in range(count):
            delay = Delay(broker.pid)
            session.send(queue, b"%d" % number)
            message = await consumer.receive(timeout_s=WAIT_S)
            taken.append(delay.seconds())
            assert message is not None and message.body == b"%d" % number
            message.settle()
    return sorted(taken)


@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
def test_a_stalled_consumer_and_a_flood_delay_nobody_else(tmp_path: Path, topic: bool) -> None:
    with running(tmp_path) as broker, contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(stalled_consumer(broker.port, "flooded", topic=topic))
        flood = stack.enter_context(client_process("flood", broker.address, "flooded", 1_000))
        for _ in range(10):
            read_line(flood)
        taken = asyncio.run(round_trips(broker, "other", _ROUND_TRIPS))
        for _ in range(_FLOOD_MB):
            read_line(flood)
        rss_bytes = broker.rss_bytes()
        assert taken[int(0.99 * len(taken))] < _P99_S_MAX, f"slowest {taken[-5:]}"
        assert rss_bytes < _RSS_BYTES_MAX, f"{rss_bytes:,} bytes after a flood of {_FLOOD_MB} MB"


def test_a_stalled_consumer_is_passed_over_on_its_own_queue(tmp_path: Path) -> None:
    bodies = [body_of("p", number, 1_000) for number in range(40_000)]
    inbox = Inbox("healthy")

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            with stalled_consumer(broker.port, "shared"):
                consumer = session.consume("shared")
                await consumer.opened()
                await session.send_many("shared", bodies)
                described = (await connection.request("destination.describe", {"name": "shared"})).result
                await receive(consumer, inbox, lambda: len(inbox.bodies) >= len(bodies) - 12_000)
                # What the stalled one was given before it stalled fits into some socket buffers; new messages pass by.
                await session.send_many("shared", [body_of("late", number) for number in range(1_000)])
                late = Inbox("late")
                await receive(consumer, late, lambda: sum(b"late" in body[:4] for body in late.bodies) == 1_000)
                inbox.bodies += [body for body in late.bodies if not body.startswith(b"late")]
                described = (await connection.request("destination.describe", {"name": "shared"})).result
                assert described["in_flight"] == described["messages"] > 0
            # Its connection has ended: what it was given comes back.
            await receive(consumer, inbox, lambda: len(inbox.bodies) == len(bodies))
            await session.sync()

    with running(tmp_path, {"destination.resume_grace_s": 0.2}) as broker:
        asyncio.run(run())
    assert_same(inbox.bodies, bodies)


async def receive(consumer: angarium.Consumer, inbox: Inbox, done: Callable[[], bool]) -> None:
    while not done():
        messages = await consumer.receive_batch(1_000, timeout_s=WAIT_S)
        assert messages, f"{inbox.name}: nothing came for {WAIT_S:g} s after {len(inbox.bodies)} messages"
        for message in messages:
            inbox.take(message)
            message.settle()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    async def fill() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("full", [bytes(10_000)] * 200)

    with running(tmp_path_factory.mktemp("stall")) as broker:
        asyncio.run(fill())
        yield broker
        assert broker.stop() == 0


def _pings() -> Iterator[bytes]:
    yield from itertools.repeat(encode(0, frames.Ping(1)) * 1_000)


def _statuses() -> Iterator[bytes]:
    for number in itertools.count(1, 100):
        yield b"".join(encode(0, frames.Request(n, "node.status", {})) for n in range(number, number + 100))


def _browsings(number: int = 1, count: int = 1_000_000) -> Iterator[bytes]:
    arguments = {"name": "full", "count": 1_000_000}
    for first in range(number, number + count, 100):
        yield b"".join(
            encode(0, frames.Request(n, "destination.browse", arguments)) for n in range(first, first + 100)
        )


def _some_browsings() -> Iterator[bytes]:
    """No more than a client may ask at once; the answers would be 900 MB."""
    return _browsings(count=900)


def _some_pages_of_a_log() -> Iterator[bytes]:
    """The same of the log."""
    yield b"".join(encode(0, frames.Request(n, "log.read", {"name": "full"})) for n in range(1, 900))


def _sessions() -> Iterator[bytes]:
    yield from itertools.repeat((encode(1, frames.SessionOpen()) + encode(1, frames.SessionClose())) * 500)


@pytest.mark.parametrize(
    "make",
    [
        _pings,
        _sessions,
        _statuses,
        _browsings,
        _some_browsings,
        _some_pages_of_a_log,
    ],
)
def test_a_client_that_asks_and_never_reads_costs_little_and_delays_nobody(
    shared_broker: Broker, make: Callable[[], Iterator[bytes]]
) -> None:
    broker = shared_broker
    ended = threading.Event()
    asking = threading.Thread(target=ask_without_reading, args=(broker.port, make(), ended))
    with RssWatch(broker.pid) as watch:
        asking.start()
        try:
            taken = asyncio.run(round_trips(broker, "other", 50))
        finally:
            ended.set()
            asking.join()
    assert taken[-1] < _SLOWEST_S_MAX, f"slowest {taken[-5:]}"
    grown = watch.highest_bytes - watch.first_bytes
    assert grown < 64 * MIB, f"{grown:,} bytes for a client that does not read"


def ask_without_reading(port: int, questions: Iterator[bytes], ended: threading.Event) -> None:
    """As much as the broker takes, until `ended`; a broker may also close the connection on somebody like this."""
    with RawClient(port, receive_buffer_bytes=RECEIVE_BUFFER_BYTES_MIN) as client:
        client.hello()
        client.socket.setblocking(False)
        rest = b""
        while not ended.is_set():
            rest = rest or next(questions, b"")
            try:
                rest = rest[client.socket.send(rest) :]
            except BlockingIOError:
                pass
            except ConnectionError:
                return
            if not rest or len(rest) > 1_000:
                ended.wait(0.002)


def test_a_client_that_pings_as_fast_as_it_can_and_never_reads_is_heard_no_more(tmp_path: Path) -> None:
    """What the broker has taken of it when it stops is what it and the system may keep."""
    bounds = {"low": 1 << 12, "high": 1 << 14, "max": 1 << 16}
    settings = {f"listener.output_bytes_{which}": bytes_ for which, bytes_ in bounds.items()}
    with running(tmp_path, settings) as broker, RawClient(broker.port) as client:
        client.hello()
        client.socket.settimeout(1.0)
        taken_bytes, pings = 0, encode(0, frames.Ping(1)) * 10_000
        with contextlib.suppress(TimeoutError):
            while taken_bytes < _RSS_BYTES_MAX:
                taken_bytes += client.socket.send(pings)
        assert taken_bytes < _RSS_BYTES_MAX, "it is still read from"
        assert max(asyncio.run(round_trips(broker, "other", 20))) < _SLOWEST_S_MAX
        client.socket.settimeout(WAIT_S)
        assert client.expect(frames.Pong) == frames.Pong(1)
        print(f"{taken_bytes:,} bytes of Pings were taken")


def test_a_client_that_does_not_read_keeps_its_connection_as_long_as_its_host_answers(tmp_path: Path) -> None:
    """What its application does is not what is judged (ADR 3)."""
    silence_s = 1.0
    settings = {"listener.silence_s_max": silence_s, "session.heartbeat_s": 0.2}
    with running(tmp_path, settings) as broker, stalled_consumer(broker.port, "stalled") as client:

        async def fill_and_wait() -> None:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                await session.send_many("stalled", [bytes(1_000)] * 1_000)
                await asyncio.sleep(3 * silence_s)  # the point: longer than a host may be silent
                described = (await connection.request("destination.describe", {"name": "stalled"})).result
                assert described["consumers"] == 1 and described["in_flight"] > 0

        asyncio.run(fill_and_wait())
        client.send(0, frames.Ping(77))
        assert client.expect(frames.Pong) == frames.Pong(77)


def test_a_stalled_client_that_breaks_the_protocol_is_cut_in_the_end(tmp_path: Path) -> None:
    """Its Failure waits behind what it does not read: the broker does not wait with it."""
    with (
        running(tmp_path, {"listener.closing_s_max": 0.3}) as broker,
        stalled_consumer(broker.port, "stalled") as client,
    ):

        async def flood() -> None:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                await session.send_many("stalled", [bytes(1_000)] * 20_000)

        asyncio.run(flood())
        client.send(1, frames.Stall(True))
        until(lambda: "unexpected-frame" in broker.log(), "the violation is noticed")
        until(lambda: _is_cut(client), "the connection is cut, although nobody reads from it")


def _is_cut(client: RawClient) -> bool:
    """Writing finds out, without reading anything."""
    try:
        client.send(0, frames.Ping(1))
    except ConnectionError:
        return True
    return False

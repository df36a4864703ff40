"""Goal: whatever arrives on one connection closes that connection, with a code, and disturbs nobody.
Method: one broker for the module. Each case is a client that goes wrong in one way; beside it an honest client sends
and receives, and must not notice. At the end of the module the broker stops cleanly."""
import asyncio
import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import angarium
from angarium.core.wire import frames
from angarium.core.wire.codec import encode
from angarium.core.wire.frames import DestinationKind
from tests.process.process_broker import MIB, Broker, running, until
from tests.process.process_wire import RawClient, batch

_CODES = Path(__file__).parents[2] / "docs" / "protocol" / "codes.md"
_FRAME_BYTES_MAX = 8 * MIB


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # Segments large enough for the documented frame_bytes_max.
    with running(tmp_path_factory.mktemp("bad-input"), {"store.segment_bytes": 16 * MIB}) as broker:
        yield broker
        assert broker.is_running
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()


def greeted(client: RawClient) -> None:
    client.hello()


def in_session(client: RawClient) -> None:
    client.hello()
    client.open_session()


def publishing(client: RawClient) -> bytes:
    in_session(client)
    return client.open_producer("bad.input")


def head(length: int, kind: int, *, zero: int = 0, session: int = 0, meta_bytes: int = 0) -> bytes:
    return struct.pack("<IBBHII", length, kind, zero, 0, session, meta_bytes)


def _raw(data: bytes) -> Callable[[RawClient], None]:
    return lambda client: client.send_bytes(data)


def _after_hello(data: bytes) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        client.hello()
        client.send_bytes(data)

    return act


def _in_session(*sent: frames.Frame) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        in_session(client)
        # In one piece: the broker sees the last before it has acted on the first.
        client.send_bytes(b"".join(encode(1, frame) for frame in sent))

    return act


def _publish(make: Callable[[bytes], bytes]) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        identity = publishing(client)
        client.send(1, frames.Publish(1), make(identity))

    return act


def _flipped(data: bytes) -> bytes:
    return data[:70] + bytes([data[70] ^ 1]) + data[71:]


def _settle_what_does_not_exist(client: RawClient) -> None:
    in_session(client)
    client.send(1, frames.ConsumerOpen(1, "bad.input", DestinationKind.QUEUE, credit=0))
    client.expect(frames.ConsumerOpened)
    client.send(1, frames.Settle(1, 1, frames.Outcome.SETTLE, [(1 << 40, (1 << 40) + 1)]))


def _too_much_unconfirmed(client: RawClient) -> None:
    """A client that pays no attention to the window; the broker may also confirm quickly enough to let it pass."""
    identity = publishing(client)
    body = bytes(MIB)
    for sequence in range(1, 200):
        client.send(1, frames.Publish(1), batch(identity, sequence, [body] * 1))


_HELLO = encode(0, frames.Hello(frames.PROTOCOL_VERSION, "raw", "test"))
_OPEN = frames.ProducerOpen(1, "bad.input", DestinationKind.QUEUE)
_CONSUME = frames.ConsumerOpen(1, "bad.input", DestinationKind.QUEUE)

CASES: dict[str, tuple[str, Callable[[RawClient], None]]] = {
    "http": ("frame-too-long", _raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    "tls": ("frame-too-long", _raw(bytes.fromhex("160301020001000001fc0303") + os.urandom(512))),
    "oversized": ("frame-too-long", _after_hello(head(_FRAME_BYTES_MAX + 1, 22, session=1, meta_bytes=2))),
    "longest-possible": ("frame-too-long", _raw(head(0xFFFFFFFF, 1))),
    "shorter-than-header": ("bad-frame", _raw(head(3, 1))),
    "meta-beyond-frame": ("bad-frame", _raw(head(100, 1, meta_bytes=1_000) + bytes(100))),
    "reserved-bits": ("bad-frame", _raw(head(12, 1, zero=1))),
    "empty-meta": ("bad-frame", _after_hello(head(12, 3))),
    "meta-of-wrong-types": ("bad-frame", _after_hello(head(15, 3, meta_bytes=3) + b"\x91\xa1x")),
    "meta-nested-deeply": ("bad-frame", _after_hello(head(12 + 90_000, 40, meta_bytes=90_000) + b"\x91" * 90_000)),
    "unknown-kind": ("unknown-frame", _after_hello(head(13, 200, meta_bytes=1) + b"\x90")),
    "not-hello-first": ("unexpected-frame", _raw(encode(0, frames.Ping(1)))),
    "session-before-hello": ("unexpected-frame", _raw(encode(1, frames.SessionOpen()))),
    "hello-twice": ("unexpected-frame", _after_hello(_HELLO)),
    "another-version": ("version-unsupported", _raw(encode(0, frames.Hello(99, "raw", "test")))),
    "broker-frame": ("unexpected-frame", _in_session(frames.Confirm(1, 1))),
    "bus-frame": ("unexpected-frame", _in_session(frames.Locate("x", DestinationKind.QUEUE))),
    "bus-frame-ended": ("unexpected-frame", _in_session(frames.SessionEnded(True))),
    "bus-frame-stall": ("unexpected-frame", _in_session(frames.Stall(True))),
    "produce-on-connection": ("unexpected-frame", _after_hello(encode(0, _OPEN))),
    "consume-on-connection": ("unexpected-frame", _after_hello(encode(0, _CONSUME))),
    "session-unknown": ("not-open", _after_hello(encode(7, frames.Publish(1), b"x"))),
    "session-close-unknown": ("not-open", _after_hello(encode(7, frames.SessionClose()))),
    "session-close-connection": ("not-open", _after_hello(encode(0, frames.SessionClose()))),
    "session-twice": ("number-in-use", _in_session(frames.SessionOpen())),
    "session-identity-short": ("bad-frame", _after_hello(encode(1, frames.SessionOpen(b"short")))),
    "publish-unopened": ("not-open", _in_session(frames.Publish(1))),
    "publish-while-opening": ("not-open", _in_session(_OPEN, frames.Publish(1))),
    "producer-twice": ("number-in-use", _in_session(_OPEN, _OPEN)),
    "producer-number-negative": (
        "bad-frame", _in_session(frames.ProducerOpen(-1, "bad.input", DestinationKind.QUEUE)),
    ),
    "producer-identity-short": (
        "bad-frame", _in_session(frames.ProducerOpen(1, "bad.input", DestinationKind.QUEUE, b"short")),
    ),
    "producer-confirmed-negative": (
        "bad-frame", _in_session(frames.ProducerOpen(1, "bad.input", DestinationKind.QUEUE, b"", -1)),
    ),
    "consumer-twice": ("number-in-use", _in_session(_CONSUME, _CONSUME)),
    "consumer-held-backwards": (
        "bad-range",
        _in_session(frames.ConsumerOpen(1, "bad.input", DestinationKind.QUEUE, resumed=True, held=[(5, 2)])),
    ),
    "credit-unopened": ("not-open", _in_session(frames.Credit(1, 10))),
    "settle-unopened": ("not-open", _in_session(frames.Settle(1, 1, frames.Outcome.SETTLE, [(0, 1)]))),
    "settle-what-does-not-exist": ("bad-range", _settle_what_does_not_exist),
    # A queue that does not exist yet: it opens only after a write to the disk.
    "credit-flood-while-opening": (
        "too-many-frames",
        _in_session(frames.ConsumerOpen(1, "not.yet", DestinationKind.QUEUE), *[frames.Credit(1, 0)] * 10_000),
    ),
    "batch-empty": ("bad-batch", _publish(lambda identity: b"")),
    "batch-random": ("bad-batch", _publish(lambda identity: os.urandom(5_000))),
    "batch-flipped": ("bad-batch", _publish(lambda identity: _flipped(batch(identity, 1, [b"x" * 50])))),
    "batch-cut": ("bad-batch", _publish(lambda identity: batch(identity, 1, [b"x" * 50])[:-1])),
    "batch-of-another": ("bad-batch", _publish(lambda identity: batch(bytes(16), 1, [b"x"]))),
    "batch-sequence-zero": ("bad-batch", _publish(lambda identity: batch(identity, 0, [b"x"]))),
    "batch-with-a-gap": ("sequence-gap", _publish(lambda identity: batch(identity, 2, [b"x"]))),
    "body-too-long": ("body-too-long", _publish(lambda identity: batch(identity, 1, [bytes(5 * MIB)]))),
}  # fmt: skip


def test_every_code_that_is_tested_is_documented() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)`", _CODES.read_text(encoding="utf-8"), re.MULTILINE))
    assert {code for code, _ in CASES.values()} <= documented


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_with_its_code_and_logged(broker: Broker, case: str) -> None:
    code, act = CASES[case]
    before = broker.log().count(f" {code}: ")
    with RawClient(broker.port) as client:
        act(client)
        assert client.expect(frames.Failure).code == code
        assert client.next() is None
        assert client.is_closed
    # One line: who, and why.
    until(lambda: broker.log().count(f" {code}: ") > before, f"a log line with {code}")


def test_a_client_that_says_we_failed_is_let_go_and_logged(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        in_session(client)
        client.send(0, frames.Failure("bad-delivery", "the broker sent nonsense"))
        assert client.next() is None
        assert client.is_closed
    until(lambda: "bad-delivery: " in broker.log(), "a log line")


def test_a_client_that_ignores_the_window_is_closed_or_held_back(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        with suppress(ConnectionError, TimeoutError):
            _too_much_unconfirmed(client)
        seen = [received.frame for received in iter(lambda: client.next(0.5), None)]
    failures = [frame.code for frame in seen if isinstance(frame, frames.Failure)]
    assert failures in ([], ["window-exceeded"])
    honest(broker, 10)


@pytest.mark.parametrize("data", [b"", b"\x00", _HELLO[:3], _HELLO[:-1], head(1_000, 1, meta_bytes=900)])
def test_a_connection_that_ends_in_the_middle_of_a_frame_is_forgotten(broker: Broker, data: bytes) -> None:
    for _ in range(20):
        with RawClient(broker.port) as client:
            client.send_bytes(data)
    with RawClient(broker.port) as client:
        client.hello()

        def connections() -> int:
            result = client.request(next(numbers), "node.status", {}).result
            return int(result["connections"])

        numbers = iter(range(1, 10_000))
        until(lambda: connections() == 1, "the broken connections are gone")


def test_a_client_that_never_says_hello_is_shown_the_door(tmp_path: Path) -> None:
    with (
        running(tmp_path, {"listener.greeting_s_max": 0.3}) as broker,
        RawClient(broker.port) as silent,
        RawClient(broker.port) as polite,
    ):
        polite.hello()
        assert silent.expect(frames.Failure).code == "no-greeting"
        assert silent.next() is None
        assert polite.request(1, "node.status", {}).code == ""


def test_announcing_large_frames_costs_the_broker_nothing(broker: Broker) -> None:
    """A length is a promise: memory follows the bytes that come, not those that are announced."""
    before = broker.rss_bytes()
    clients = [RawClient(broker.port) for _ in range(200)]
    try:
        for client in clients:
            client.hello()
            client.send_bytes(head(_FRAME_BYTES_MAX - 4, 22, session=1, meta_bytes=2) + b"\x91\x01" + bytes(100))
        with RawClient(broker.port) as probe:  # behind them all
            probe.hello()
        grown = broker.rss_bytes() - before
    finally:
        for client in clients:
            client.close()
    assert grown < 64 * MIB, f"200 half-sent frames cost {grown:,} bytes"


def test_fuzzing_hundreds_of_connections_disturbs_nobody(broker: Broker) -> None:
    chance = random.Random(7)

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            fuzzing = asyncio.create_task(asyncio.to_thread(_fuzz, broker.port, chance, 500))
            consumer = session.consume("honest")
            count = 0
            while not fuzzing.done():
                body = b"%d" % count
                await session.send("honest", body)
                message = await consumer.receive(timeout_s=10)
                assert message is not None and message.body == body
                await message.settle()
                count += 1
            await fuzzing
            await session.sync()
            assert count > 0

    asyncio.run(run())
    assert broker.is_running
    honest(broker, 100)


def _fuzz(port: int, chance: random.Random, count: int) -> None:
    identity = chance.randbytes(16)
    batches = [batch(identity, sequence, [chance.randbytes(20)] * 3) for sequence in (1, 4, 7)]
    seeds = [_HELLO, encode(1, frames.SessionOpen()), encode(1, _OPEN), encode(1, _CONSUME),
             encode(1, frames.Credit(1, 5)), encode(0, frames.Request(1, "destination.list", {})),
             encode(0, frames.Request(2, "destination.browse", {"name": "honest", "count": 5})),
             encode(1, frames.Settle(1, 1, frames.Outcome.SETTLE, [(0, 2)])), encode(1, frames.SessionClose()),
             *(encode(1, frames.Publish(1), block) for block in batches), encode(0, frames.Goodbye("x"))]  # fmt: skip
    for _ in range(count):
        data = bytearray()
        for _ in range(chance.randrange(1, 12)):
            data += chance.choice(seeds)
        for _ in range(chance.randrange(0, 6)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(0, 4)] = chance.randbytes(chance.randrange(0, 4))
        with RawClient(port) as client, suppress(ConnectionError, AssertionError):  # it may be quick to close
            how_far = chance.random()
            if how_far > 0.2:
                client.hello()
            if how_far > 0.4:
                client.open_session()
            if how_far > 0.6:
                client.open_producer("bad.input", identity=identity)
            client.send_bytes(bytes(data))
            client.next(timeout_s=0.005)


def honest(broker: Broker, count: int) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            bodies = [b"%d" % number for number in range(count)]
            await session.send_many("honest.too", bodies)
            consumer = session.consume("honest.too")
            got: list[bytes] = []
            while len(got) < count:
                message = await consumer.receive(timeout_s=10)
                assert message is not None
                got.append(message.body)
                message.settle()
            assert got == bodies

    asyncio.run(run())

"""Goal: what one client can make the broker keep, open or do at a time is bounded, and nobody else pays for it.
Method: clients by hand that ask for more than their share, beside an honest one that is measured; a broker with few
descriptors; a small disk that fills up under an application that produces and consumes on one connection."""
import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import angarium
from angarium.core.wire import frames
from angarium.core.wire.codec import encode
from angarium.core.wire.frames import DestinationKind, Outcome
from tests.process.process_broker import MIB, WAIT_S, Broker, RssWatch, running, until
from tests.process.process_bulk import mounted
from tests.process.process_delay import Delay
from tests.process.process_ledger import Inbox, assert_same, body_of
from tests.process.process_wire import RECEIVE_BUFFER_BYTES_MIN, RawClient, batch

_DESCRIPTORS = 60
_PING_S_MAX = 0.5


def test_a_broker_with_few_descriptors_turns_clients_away_and_serves_the_others(tmp_path: Path) -> None:
    async def serve(address: str) -> None:
        async with angarium.connect(address) as connection, connection.session() as session:
            await session.send_many("q", [body_of("p", number, 1_000) for number in range(2_000)])
            consumer = session.consume("q")
            for _ in range(2_000):
                message = await consumer.receive(timeout_s=WAIT_S)
                assert message is not None
                message.settle()

    with ExitStack() as stack:
        broker = stack.enter_context(running(tmp_path, command_prefix=["prlimit", f"--nofile={_DESCRIPTORS}"]))
        broker.until_logged("limit-lowered: session.connections_max")
        limits = asyncio.run(_status(broker.address))["limits"]
        assert limits["connections_max"] == _DESCRIPTORS - 40
        clients = [stack.enter_context(RawClient(broker.port)) for _ in range(70)]
        told = [client.next(timeout_s=5) for client in clients[30:]]
        codes = {item.frame.code for item in told if item is not None and isinstance(item.frame, frames.Failure)}
        assert codes == {"too-many-connections"}
        broker.until_logged("too-many-connections")
        assert broker.log().count("too-many-connections") <= 5, "reported, and not for each one"
        for client in clients:
            client.close()
        asyncio.run(serve(broker.address))
        assert broker.stop() == 0


async def _status(address: str) -> dict[str, dict[str, int]]:
    async with angarium.connect(address) as connection:
        result: dict[str, dict[str, int]] = (await connection.request("node.status", {})).result
        return result


def ping(broker: Broker, taken: list[float], stop: threading.Event) -> None:
    """Notes how long each took, one after the other, until told to stop."""
    with RawClient(broker.port) as client:
        client.hello()
        while not stop.is_set():
            delay = Delay(broker.pid)
            client.send(0, frames.Ping(len(taken)))
            client.expect(frames.Pong)
            taken.append(delay.seconds())
            stop.wait(0.002)


def test_delivering_a_backlog_of_small_batches_delays_nobody(tmp_path: Path) -> None:
    """Once: all of it was delivered in one turn of the loop, to a consumer that reads nothing."""
    with running(tmp_path, {"store.segment_bytes": 32 * MIB}) as broker, RawClient(broker.port) as producer:
        producer.hello()
        producer.open_session()
        identity = producer.open_producer("backlog", kind=DestinationKind.QUEUE)
        for sequence in range(1, 20_001):
            producer.send(1, frames.Publish(1), batch(identity, sequence, [b"x" * 100]))
            if sequence % 5_000 == 0:
                until_confirmed(producer, sequence)
        taken: list[float] = []
        stop = threading.Event()
        watch = threading.Thread(target=ping, args=(broker, taken, stop))
        with RawClient(broker.port, receive_buffer_bytes=RECEIVE_BUFFER_BYTES_MIN) as consumer:
            consumer.hello()
            consumer.open_session()
            watch.start()
            until(lambda: len(taken) > 10, "pings are answered")
            consumer.send(1, frames.ConsumerOpen(1, "backlog", DestinationKind.QUEUE, credit=1 << 30))
            until(lambda: _in_flight(producer) > 1_000 and len(taken) > 100, "messages are delivered")
            stop.set()
            watch.join()
    assert max(taken) < _PING_S_MAX, f"slowest {sorted(taken)[-3:]}"


def until_confirmed(producer: RawClient, sequence: int) -> None:
    while producer.expect(frames.Confirm).sequence < sequence:
        pass


def _in_flight(client: RawClient) -> int:
    reply = client.request(1, "destination.describe", {"name": "backlog"})
    return int(reply.result["in_flight"])


@pytest.mark.parametrize(
    ("frame", "count"),
    [
        (lambda number: frames.Credit(1, number), 300_000),
        (lambda number: frames.Settle(1, number, Outcome.SETTLE, []), 150_000),
    ],
    ids=["credit", "settle"],
)
def test_a_flood_of_small_frames_is_read_only_as_fast_as_it_is_handled(
    tmp_path: Path, frame: Callable[[int], frames.Frame], count: int
) -> None:
    flood = [b"".join(encode(1, frame(number)) for number in range(at, at + 5_000)) for at in range(1, count, 5_000)]
    with running(tmp_path) as broker, RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.hello()
        client.open_session()
        client.send(1, frames.ConsumerOpen(1, "flooded", DestinationKind.QUEUE))
        client.expect(frames.ConsumerOpened)
        other.hello()
        reader = threading.Thread(target=_read_all, args=(client,), daemon=True)
        reader.start()
        with RssWatch(broker.pid) as watch:
            for piece in flood:
                client.send_bytes(piece)
            other.send(0, frames.Ping(1))
            other.expect(frames.Pong)
        assert watch.highest_bytes - watch.first_bytes < 8 * MIB
        client.socket.shutdown(socket.SHUT_RDWR)
        reader.join(WAIT_S)


def _read_all(client: RawClient) -> None:
    while client.next() is not None:
        pass


def test_an_application_that_produces_and_consumes_on_one_connection_empties_a_full_disk(tmp_path: Path) -> None:
    """Once: with more unwritten than allowed its connection was not read from, and its settlements never came."""
    bodies = [body_of("bulk", number, 4_000) for number in range(14_000)]  # 56 MB, on a disk of 48
    inbox = Inbox("same connection")

    async def run(address: str) -> None:
        async with angarium.connect(address) as connection:
            sessions = [connection.session() for _ in range(4)]
            for at, session in enumerate(sessions):
                for body in bodies[at::4]:
                    session.send("bulk", body)
            first = sessions[0]
            await _until_blocked(first)
            consumer = connection.session().consume("bulk")
            while len(inbox.bodies) < len(bodies):
                messages = await consumer.receive_batch(1_000, timeout_s=WAIT_S)
                assert messages, f"stuck at {len(inbox.bodies)} of {len(bodies)}"
                for message in messages:
                    inbox.bodies.append(message.body)
                    message.settle()
            for session in sessions:
                await asyncio.wait_for(session.flush(), WAIT_S)

    with mounted(tmp_path / "disk") as disk:
        settings = {"node.unwritten_bytes_max": MIB, "session.unconfirmed_bytes_max": 4 * MIB}
        with running(tmp_path, settings, data=disk / "data") as broker:
            asyncio.run(run(broker.address))
            assert broker.stop() == 0
    assert_same(sorted(inbox.bodies), sorted(bodies))


async def _until_blocked(session: angarium.Session) -> None:
    deadline = time.monotonic() + WAIT_S
    while not session.is_blocked("bulk"):
        assert time.monotonic() < deadline, "the disk was meant to fill up"
        await asyncio.sleep(0.01)


def test_a_commit_that_makes_more_than_the_journal_takes_at_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it ended the broker, and again after each restart, when the client sent it anew. Our client counts what it
    makes, and has to forget that here."""
    monkeypatch.setattr("angarium.core.client.gathered.SINGLE_COST", 0)

    async def commit(address: str) -> None:
        async with angarium.connect(address) as connection, connection.session(transacted=True) as session:
            for number in range(60_000):
                session.send("later", b"x", delay_s=1_000 + number % 977)
            with pytest.raises(angarium.Rejected, match="time of delivery") as refused:
                await session.commit()
            assert refused.value.code == "too-many-singles"
            for number in range(100):
                session.send("later", b"x", delay_s=1_000 + number)
            await session.commit()
            assert (await connection.request("destination.describe", {"name": "later"})).result["delayed"] == 100

    with running(tmp_path) as broker:
        asyncio.run(commit(broker.address))
        assert broker.stop() == 0

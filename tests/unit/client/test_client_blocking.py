"""Goal: without async the client does the same, from any thread, and whatever waits can be timed out or interrupted.
Method: the fake broker behind a real server in a thread of its own."""
import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import angarium
from angarium import blocking
from angarium.client import blocking_sending, buffer
from tests.unit.client.client_fake_broker import BODY_BYTES_MAX, FakeBroker
from tests.unit.client.client_fake_server import FakeServer


class ServerThread:
    """A fake broker that can be told things from the test's thread."""

    def __init__(self, broker: FakeBroker) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = FakeServer(broker)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self.loop).result(30)

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def broker(self) -> FakeBroker:
        return self.server.broker

    def do(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()
            self.server.write_all()

        asyncio.run_coroutine_threadsafe(act(), self.loop).result(30)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


@pytest.fixture
def server() -> Iterator[ServerThread]:
    thread = ServerThread(FakeBroker())
    yield thread
    thread.stop()


@pytest.fixture
def session(server: ServerThread) -> Iterator[blocking.Session]:
    with blocking.connect(server.address) as connection, connection.session() as session:
        yield session


def test_send_and_receive(server: ServerThread, session: blocking.Session) -> None:
    handle = session.send("orders", "first", properties={"n": 1}, priority=7, correlation_id="c")
    identity = handle.result(timeout_s=5)
    assert handle.done and handle.message_id == identity and handle.result() == identity
    message = session.receive("orders", timeout_s=5)
    assert message is not None
    assert (message.text, message.properties, message.priority, message.id) == ("first", {"n": 1}, 7, identity)
    message.settle()
    session.sync(timeout_s=5)
    assert server.broker.log("orders").subscriptions[""].durable.count == 1
    assert session.receive("orders", timeout_s=0.02) is None


def test_many_messages(server: ServerThread, session: blocking.Session) -> None:
    assert session.send_many("orders", (b"%d" % n for n in range(3_000)), timeout_s=10) == 3_000
    bodies: list[bytes] = []
    with session.consume("orders") as consumer:
        for message in consumer:
            bodies.append(message.body)
            message.settle()
            if len(bodies) == 3_000:
                break
    assert bodies == [b"%d" % n for n in range(3_000)] == server.broker.log("orders").bodies()
    assert server.broker.log("orders").subscriptions[""].durable.count == 3_000
    assert server.broker.publishes < 300 and server.broker.settles < 300


def test_outcomes_and_misuse(server: ServerThread, session: blocking.Session) -> None:
    session.send_many("orders", [b"0", b"1", b"2"])
    with session.consume("orders", prefetch=3) as consumer:
        messages: list[angarium.Message] = []
        while len(messages) < 3:
            messages += consumer.receive_batch(3, timeout_s=5)
        messages[0].settle()
        messages[1].reject()
        messages[2].release()
        again = consumer.receive(timeout_s=5)
        assert again is not None and again.body == b"2" and again.redelivered
        with pytest.raises(angarium.LocalProtocolError, match="settle each message once"):
            messages[0].settle()
        consumer.set_prefetch(10)
    with pytest.raises(angarium.LocalProtocolError, match="consumer is closed"):
        again.settle()
    assert consumer.receive() is None
    assert server.broker.log("orders").subscriptions[""].durable.count == 2


def test_many_threads(server: ServerThread, session: blocking.Session) -> None:
    def send(thread: int) -> None:
        for n in range(200):
            session.send("orders", b"%d:%d" % (thread, n))
        session.send("orders", b"%d:last" % thread).result(10)

    taken: list[bytes] = []

    def consume(consumer: blocking.Consumer) -> None:
        while len(taken) < 4 * 201:
            if (message := consumer.receive(timeout_s=0.1)) is not None:
                taken.append(message.body)
                message.settle()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
        with session.consume("orders", prefetch=50) as consumer:
            list(pool.map(consume, [consumer] * 4))
            assert consumer.receive(timeout_s=0.05) is None and len(set(taken)) == len(taken) == 4 * 201
    bodies = server.broker.log("orders").bodies()
    for thread in range(4):
        mine = [body for body in bodies if body.startswith(b"%d:" % thread)]
        assert mine == [*(b"%d:%d" % (thread, n) for n in range(200)), b"%d:last" % thread]
    assert server.broker.log("orders").subscriptions[""].durable.count == 4 * 201


def test_mistakes_are_raised_where_they_are_made(session: blocking.Session) -> None:
    for code, name, body in (
        ("bad-name", "no spaces", b""), ("body-too-long", "q", b"x" * (BODY_BYTES_MAX + 1)),
    ):  # fmt: skip
        with pytest.raises(angarium.Rejected) as caught:
            session.send(name, body)
        assert caught.value.code == code
    session.send("q", b"refuse me")
    with pytest.raises(angarium.Rejected, match="the fake refuses this"):
        session.flush(timeout_s=5)
    with pytest.raises(angarium.Rejected, match="the fake refuses this"):
        session.send("q", b"refuse me").result(5)
    session.flush(timeout_s=5)


def test_sending_blocks_when_the_buffers_are_full(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "SEND_BUFFER_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(blocking_sending, "WAITING_COST_MAX", 100_000)
    server.broker.commits_by_itself = False
    with blocking.connect(server.address) as connection, connection.session() as session:
        with pytest.raises(angarium.Unavailable, match=r"no room in the send buffer within 0\.1 s"):
            for n in range(1_000):
                session.send("orders", b"%4d" % n + b"x" * 5_000, timeout_s=0.1)
        with pytest.raises(angarium.Unavailable, match=r"took more than 0\.05 s"):
            session.flush(timeout_s=0.05)
        server.broker.commits_by_itself = True
        server.do(server.broker.commit)
        session.flush(timeout_s=5)
        bodies = server.broker.log("orders").bodies()
        assert [int(body[:4]) for body in bodies] == list(range(len(bodies)))


def test_requests_and_their_timeout(server: ServerThread) -> None:
    with blocking.connect(server.address) as connection:
        assert connection.node == "fake" and connection.is_connected
        assert connection.request("echo", {"a": 1}).result == {"a": 1}
        with pytest.raises(angarium.Rejected):
            connection.request("nonsense")
        with pytest.raises(angarium.Unavailable, match=r"silence took more than 0\.05 s"):
            connection.request("silence", timeout_s=0.05)
    connection.close()
    with pytest.raises(angarium.LocalProtocolError, match="connection is closed"):
        connection.session()


def test_nobody_there(server: ServerThread) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(angarium.Unavailable, match="no broker answered"):
        blocking.connect("127.0.0.1:1", connect_timeout_s=0.2)
    assert set(threading.enumerate()) <= threads, "none is left behind"


def test_it_survives_cuts(server: ServerThread, session: blocking.Session) -> None:
    for n in range(100):
        session.send("orders", b"%d" % n)
        if n % 30 == 20:
            server.do(server.server.cut_all)
    session.flush(timeout_s=10)
    assert server.broker.log("orders").bodies() == [b"%d" % n for n in range(100)]


def test_the_state_of_the_connection_and_of_a_consumer(server: ServerThread, session: blocking.Session) -> None:
    with blocking.connect(server.address) as connection, connection.session() as other:
        changed = threading.Event()
        connection.on_change = changed.set
        consumer = other.consume("orders")
        consumer.opened(timeout_s=5)
        assert (consumer.destination, consumer.dropped_count, connection.loss) == ("orders", 0, "")
        server.do(server.server.cut_all)
        assert changed.wait(5)
        with pytest.raises(angarium.Rejected, match="QUEUE"):
            other.consume(angarium.Topic("orders")).opened(timeout_s=5)


def test_ctrl_c_ends_a_wait(session: blocking.Session) -> None:
    consumer = session.consume("orders")
    for wait in (consumer.receive, lambda: next(consumer), lambda: session.receive("other")):
        previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                wait()
        finally:
            signal.signal(signal.SIGALRM, previous)
    session.send("orders", b"still alive").result(5)
    message = consumer.receive(timeout_s=5)
    assert message is not None and message.body == b"still alive"


def test_durable_subscriptions(server: ServerThread, session: blocking.Session) -> None:
    with session.consume(angarium.Topic("prices"), durable="archive") as consumer:
        assert consumer.receive(timeout_s=0.05) is None
        session.send(angarium.Topic("prices"), b"1").result(5)
        message = consumer.receive(timeout_s=5)
        assert message is not None
        message.settle()
    session.unsubscribe("prices", "archive", timeout_s=5)
    assert "archive" not in server.broker.log("prices").subscriptions
    assert not session.is_blocked("prices") and session.blocked_reason("prices") == ""

"""Goal: without async, acknowledgement modes, transactions, requests, listeners and flow control do the same.
Method: the fake broker behind a real server in a thread of its own."""
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import angarium
from angarium import blocking
from angarium.client.blocking_listening import Listener
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.test_client_blocking import ServerThread


@pytest.fixture
def server() -> Iterator[ServerThread]:
    thread = ServerThread(FakeBroker())
    yield thread
    thread.stop()


@pytest.fixture
def connection(server: ServerThread) -> Iterator[blocking.Connection]:
    """Ten messages lie in `orders`."""
    with blocking.connect(server.address) as connection:
        with connection.session() as session:
            session.send_many("orders", [b"%d" % n for n in range(10)], timeout_s=5)
        yield connection


def settled(server: ServerThread) -> list[tuple[int, int]]:
    return list(server.broker.log("orders").subscriptions[""].durable)


def bodies(consumer: blocking.Consumer, count: int) -> list[bytes]:
    return [next(consumer).body for _ in range(count)]


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come true")


def test_auto_settles_when_the_next_is_asked_for(server: ServerThread, connection: blocking.Connection) -> None:
    with connection.session(acknowledge="auto") as session:
        consumer = session.consume("orders")
        assert bodies(consumer, 3) == [b"0", b"1", b"2"]
        session.sync(timeout_s=5)
        assert settled(server) == [(0, 2)], "although all ten were fetched at once"
        consumer.close()
        assert settled(server) == [(0, 3)]
        with pytest.raises(ZeroDivisionError), session.consume("orders") as consumer:
            for message in consumer:
                _ = 1 / (message.position - 5)
        assert settled(server) == [(0, 5)]
        for _ in range(2):
            one = session.receive("orders", timeout_s=5)
        assert one is not None and one.body == b"6"
    assert settled(server) == [(0, 7)]


def test_client_acknowledges_all_so_far(server: ServerThread, connection: blocking.Connection) -> None:
    with connection.session(acknowledge="client") as session:
        consumer = session.consume("orders", prefetch=2)
        messages = [next(consumer) for _ in range(4)]
        messages[0].acknowledge()
        session.sync(timeout_s=5)
        assert settled(server) == [(0, 4)]
        consumer.receive_batch(2)
        session.acknowledge()
        session.sync(timeout_s=5)
        assert settled(server) == [(0, 6)]


def test_duplicates_ok_settles_in_the_end(server: ServerThread, connection: blocking.Connection) -> None:
    with connection.session(acknowledge="duplicates-ok") as session, session.consume("orders", prefetch=3) as consumer:
        assert len(bodies(consumer, 10)) == 10
    assert settled(server) == [(0, 10)]


def test_recovery_brings_back_what_was_handed_out_and_what_was_fetched(
    server: ServerThread, connection: blocking.Connection
) -> None:
    with connection.session() as session:
        consumer = session.consume("orders")
        messages = [next(consumer) for _ in range(4)]
        messages[1].settle()
        session.recover(timeout_s=5)
        assert messages[0].lost
        again = [next(consumer) for _ in range(9)]
        assert [message.body for message in again] == [b"%d" % n for n in (0, *range(2, 10))]
        assert [message.redelivery_count for message in again] == [1, 1, 1] + [0] * 6


def test_what_lay_unread_when_it_was_closed_does_not_count_as_delivered(
    server: ServerThread, connection: blocking.Connection
) -> None:
    subscription = server.broker.log("orders").subscriptions[""]
    with connection.session() as session:
        with session.consume("orders") as consumer:
            bodies(consumer, 3)
        bodies(session.consume("orders"), 2)
    assert [subscription.redeliveries[position] for position in range(10)] == [2, 2, 1] + [0] * 7


def test_transactions(server: ServerThread, connection: blocking.Connection) -> None:
    with connection.session(transacted=True) as session:
        consumer = session.consume("orders")
        with session.transaction():
            sending = session.send("done", next(consumer).body)
            with pytest.raises(angarium.LocalProtocolError, match="await that first"):
                sending.result(timeout_s=5)
        assert len(sending.result()) == 24
        with pytest.raises(ZeroDivisionError), session.transaction():
            session.send("done", next(consumer).body)
            _ = 1 / 0
        assert (settled(server), server.broker.log("done").bodies()) == ([(0, 1)], [b"0"])
        assert bodies(consumer, 9) == [b"%d" % n for n in range(1, 10)]
        session.send("done", b"abort me")
        with pytest.raises(angarium.Rejected, match="the fake aborts this"):
            session.commit(timeout_s=5)
        assert bodies(consumer, 1) == [b"1"]
        session.rollback(timeout_s=5)
        session.send("done", b"x" * 1_000)
        session.commit()
        assert settled(server) == [(0, 1)]
    with connection.session() as session, pytest.raises(angarium.LocalProtocolError, match="transacted=True"):
        session.commit()


def test_what_could_not_be_staged_is_raised_by_commit(server: ServerThread, connection: blocking.Connection) -> None:
    with connection.session(transacted=True) as session:
        for _ in range(10):
            session.send("done", b"x" * 1_000_000)
        with pytest.raises(angarium.Rejected, match="transaction_bytes_max"):
            session.commit(timeout_s=5)
        session.rollback(timeout_s=5)
        session.send("done", b"y")
        session.commit(timeout_s=5)
        assert server.broker.log("done").bodies() == [b"y"]


def test_request_and_reply(connection: blocking.Connection) -> None:
    with connection.session(acknowledge="auto") as session, connection.session(acknowledge="auto") as server:

        def answer(message: angarium.Message) -> None:
            server.reply(message, message.text.upper())

        with server.listen("service", answer), ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda text: session.request("service", text, timeout_s=5).value, "abcdefgh"))
        assert replies == list("ABCDEFGH")
        with pytest.raises(angarium.Unavailable, match="no reply"):
            session.request("nobody", b"x", timeout_s=0.05)
        assert isinstance(session.temporary_queue(), angarium.Queue)
        assert isinstance(session.temporary_topic(), angarium.Topic)


def test_a_listener_goes_on_after_a_callback_raised(
    server: ServerThread, connection: blocking.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)
    seen: list[tuple[bytes, int]] = []

    def callback(message: angarium.Message) -> None:
        seen.append((message.body, message.redelivery_count))
        if message.body == b"3" and not message.redelivered:
            raise ValueError("not yet")

    with connection.session(acknowledge="auto") as session:
        with session.listen("orders", callback) as listener:
            until(lambda: len(seen) == 11)
        assert (listener.failures, len(hooked), str(hooked[0].exc_value)) == (1, 1, "not yet")
    assert sorted(seen) == sorted([*((b"%d" % n, 0) for n in range(10)), (b"3", 1)])
    assert settled(server) == [(0, 10)]


def test_a_session_that_closes_waits_for_the_callback_that_runs(
    server: ServerThread, connection: blocking.Connection
) -> None:
    began, ended, refused = threading.Event(), list[bytes](), list[str]()
    listeners: list[Listener] = []  # the callback may run before it has one
    session = connection.session(acknowledge="auto")

    def callback(message: angarium.Message) -> None:
        began.set()
        until(lambda: bool(listeners) and listeners[0]._stopping.is_set())
        try:
            session.close()
        except angarium.LocalProtocolError as error:
            refused.append(str(error))
        ended.append(message.body)

    listeners.append(session.listen("orders", callback))
    assert began.wait(30)
    session.close()
    assert ended == [b"0"] and "wait for itself" in refused[0]
    assert settled(server) == [(0, 1)]


def test_flow_control(server: ServerThread, connection: blocking.Connection) -> None:
    with connection.session() as session:
        heard: list[tuple[str, str]] = []
        session.on_blocked(lambda destination, reason: heard.append((destination, reason)))
        session.send("orders", b"x").result(timeout_s=5)
        session.unblocked("orders", timeout_s=5)
        server.do(lambda: server.broker.block("orders", True))
        until(lambda: session.is_blocked("orders"))
        assert session.unconfirmed_count == 0
        waiting = session.send("orders", b"waits")
        assert session.unconfirmed_count == 1 and not waiting.done
        assert session.try_send("orders", b"y") is None
        with pytest.raises(angarium.Unavailable, match="unblocking"):
            session.unblocked("orders", timeout_s=0.05)
        server.do(lambda: server.broker.block("orders", False))
        session.unblocked("orders", timeout_s=5)
        sending = session.try_send("orders", b"z")
        assert sending is not None
        sending.result(timeout_s=5)
        assert heard == [("orders", "destination-full: the fake is full"), ("orders", "")]

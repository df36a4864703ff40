"""Goal: whatever a client does while its sessions are detached, or after they are open again, harms nobody: credit is
counted anew, and who never answers, answers twice, with garbage or over another connection costs nothing.
Method: a node of fakes; its message manager dies and is restored from its disk, and the client manager lives on."""
import pytest

from angarium.core.session.events import ConnectionStalled, SessionSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Frame, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_detached import consuming, fail_over
from tests.unit.core.core_node import Node

ANY = DestinationKind.ANY


# -- credit and stalls -------------------------------------------------------------------------------------------


def test_credit_is_counted_anew() -> None:
    node = Node()
    client = node.connect_with_session()
    identity = client.open_producer("q")
    client.open_consumer("q", credit=2)
    client.send_with(frames.Publish(1), pack(identity, 1, 0, [b"%d" % number for number in range(9)]))
    assert client.bodies == [b"0", b"1"]
    fail_over(node)
    client.send(
        frames.SessionOpen(client.identity),
        frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 2)], next_position=2),
        frames.Settle(1, 1, Outcome.SETTLE, [(0, 1)], 1),
    )
    assert client.bodies == [b"0", b"1", b"2"], "one more than it holds, and not what was granted before"
    client.send(frames.Credit(1, 2))
    assert client.bodies == [b"0", b"1", b"2", b"3"]


def test_a_session_opened_again_on_a_stalled_connection_is_passed_over_until_it_drains() -> None:
    node = Node()
    client = consuming(node, b"a")
    node.tell(ConnectionStalled(client.connection, True))
    fail_over(node)
    producer = node.connect_with_session()
    identity = producer.open_producer("q")
    producer.send_with(frames.Publish(1), pack(identity, 1, 0, [b"b"]))
    resume = frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 1)], next_position=1)
    client.send(frames.SessionOpen(client.identity), resume, frames.Credit(1, 5))
    assert client.bodies == [b"a"]
    node.tell(ConnectionStalled(client.connection, False))
    assert client.bodies == [b"a", b"b"]


def test_a_stall_that_ends_while_the_session_is_detached_is_over() -> None:
    node = Node()
    client = consuming(node, b"a")
    node.tell(ConnectionStalled(client.connection, True))
    fail_over(node)
    node.tell(ConnectionStalled(client.connection, False))
    resume = frames.ConsumerOpen(1, "q", ANY, resumed=True, next_position=1)
    client.send(frames.SessionOpen(client.identity), resume, frames.Credit(1, 5))
    assert client.bodies == [b"a", b"a"], "it was not named as held, so it comes again"


# -- clients that do something else ------------------------------------------------------------------------------


def test_a_client_that_never_answers_loses_what_it_holds_and_costs_nothing() -> None:
    node = Node()
    silent = consuming(node, b"a", b"b")
    fail_over(node)
    other = node.connect_with_session()
    other.open_consumer("q")
    assert other.bodies == []
    node.advance(3.0)
    assert other.bodies == [b"a", b"b"]
    for _ in range(1_000):
        silent.send(frames.Credit(1, 10), frames.ConsumerOpen(2, "q", ANY), frames.Request(1, "destination.list", {}))
    (detached,) = node.client_manager._detached.take_all(silent.connection)
    assert detached.identity == silent.identity
    assert node.client_manager._connections[silent.connection].waiting.total_bytes == 0


@pytest.mark.parametrize("ending", ["close", "goodbye", "lost"])
def test_a_session_that_ends_while_it_is_detached(ending: str) -> None:
    node = Node()
    client, other = consuming(node, b"a"), node.connect_with_session()
    fail_over(node)
    other.open_consumer("q")
    assert other.bodies == []
    if ending == "close":
        client.send(frames.SessionClose())
        assert client.last(frames.SessionClosed) == frames.SessionClosed()
        client.send(frames.Credit(1, 10))
        assert client.failure == "not-open", "it knows by now"
    elif ending == "goodbye":
        client.send(frames.Goodbye("done"), session=0)
    else:
        client.lose()
    assert other.bodies == ([] if ending == "lost" else [b"a"]), "what was closed goes back at once"
    node.advance(3.0)
    assert other.bodies == [b"a"]
    assert len(node.client_manager._detached) == 0


def test_a_session_detached_twice_is_told_once_until_it_is_open_again() -> None:
    node = Node()
    client = consuming(node, b"a")
    fail_over(node)
    fail_over(node)
    assert len(client.received(frames.SessionDetached)) == 1
    node.auto = False
    resume = frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 1)], next_position=1)
    client.send(frames.SessionOpen(client.identity), resume)
    fail_over(node)
    assert len(client.received(frames.SessionDetached)) == 2, "while it was opening"
    node.auto = True
    client.send(frames.SessionOpen(client.identity), resume, frames.Settle(1, 1, Outcome.SETTLE, [(0, 1)], 5))
    assert client.last(frames.Settled) == frames.Settled(1, 1, [])
    assert client.bodies == [b"a"]


def test_a_client_that_makes_a_new_session_of_the_number_may() -> None:
    node = Node()
    client, other = consuming(node, b"a"), node.connect_with_session()
    fail_over(node)
    client.send(frames.SessionOpen())
    assert client.last(frames.SessionOpened).identity != client.identity
    assert len(node.client_manager._detached) == 0
    other.open_consumer("q")
    node.advance(3.0)
    assert other.bodies == [b"a"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (frames.SessionOpen(b"short"), "bad-frame"),
        (frames.SessionOpen(turn=-1), "bad-frame"),
        (frames.SessionOpen(turn=1 << 32), "bad-frame"),
        (frames.Hello(1, "", ""), "unexpected-frame"),
        (frames.SessionOpened(b"s" * 16), "unexpected-frame"),
        (frames.Deliver(1, 0), "unexpected-frame"),
    ],
)
def test_a_client_that_answers_with_garbage(answer: Frame, code: str) -> None:
    node = Node()
    client = consuming(node, b"a")
    fail_over(node)
    client.send(answer)
    assert client.failure == code
    node.advance(5.0)
    assert len(node.client_manager._detached) == 0


def test_bytes_that_are_no_frames_end_the_connection_and_its_detached_sessions() -> None:
    node = Node()
    client = consuming(node, b"a")
    fail_over(node)
    client.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert client.closed
    assert (len(node.client_manager._detached), node.client_manager.session_count) == (0, 0)


def test_a_detached_session_may_be_taken_up_over_another_connection() -> None:
    node = Node()
    first = consuming(node, b"a")
    fail_over(node)
    second = node.connect()
    second.open_session(identity=first.identity)
    assert first.last(frames.SessionClosed, session=1).code == "session-taken"
    assert not first.closed
    assert (len(node.client_manager._detached), node.client_manager.session_count) == (0, 1)
    second.send(frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 1)], next_position=1))
    assert second.last(frames.ConsumerOpened).lost == []


def test_detached_sessions_count_among_those_that_a_connection_may_have() -> None:
    node = Node(SessionSettings(sessions_max=2))
    client = consuming(node, b"a")
    client.open_session(session=2)
    fail_over(node)
    client.open_session(session=1, identity=client.identity)
    assert not client.closed, "its own place is free for it"
    client.send(frames.ConsumerOpen(1, "q", ANY))
    fail_over(node)
    client.send(frames.SessionOpen(), session=3)
    assert client.failure == "too-many-sessions"

"""Goal: what one connection may cost is bounded: bytes unconfirmed, connections, silence, output that nobody takes.
Method: a node of fakes; each limit is tried at and one past its bound."""
from itertools import pairwise

import pytest

from angarium.core.ids import GlobalIds
from angarium.core.session.client_manager import ClientManager
from angarium.core.session.events import (
    ConnectionLost,
    ConnectionOpened,
    ConnectionStalled,
    FramesReceived,
    FromBus,
    GroupLost,
    InputRefused,
    SendFrame,
    SessionSettings,
    ShutDown,
    Tick,
)
from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import pack
from tests.unit.core.core_node import HELLO, Client, Node
from tests.unit.core.core_states import PRODUCER, opened

# -- publishing ----------------------------------------------------------------------------------------------------


def publishing(settings: SessionSettings) -> tuple[Node, Client]:
    node = Node(settings)
    client, _ = opened(node)
    return node, client


def test_a_body_longer_than_allowed_is_refused_and_the_longest_allowed_is_not() -> None:
    node, client = publishing(SessionSettings(body_bytes_max=100))
    client.send_with(frames.Publish(1), pack(PRODUCER, 1, 0, [b"x" * 100, b"y" * 100]))
    assert client.last(frames.Confirm).sequence == 2
    client.send_with(frames.Publish(1), pack(PRODUCER, 3, 0, [b"x", b"y" * 101, b"z"]))
    assert client.failure == "body-too-long"
    assert node.world.destination(1).log.lanes[0].next == 2


def test_a_batch_that_is_none_is_refused() -> None:
    _, client = publishing(SessionSettings())
    client.send_with(frames.Publish(1), b"no batch")
    assert client.failure == "bad-batch"


def test_the_window_of_unconfirmed_bytes_holds_and_confirms_open_it_again() -> None:
    batch = pack(PRODUCER, 1, 0, [b"x" * 50_000])
    settings = SessionSettings(unconfirmed_bytes_max=2 * len(batch), frame_bytes_max=2 * len(batch))
    node, client = publishing(settings)

    def publish(sequence: int) -> None:
        client.send_with(frames.Publish(1), pack(PRODUCER, sequence, 0, [b"x" * 50_000]))

    for sequence in range(1, 11):
        publish(sequence)
    assert client.last(frames.Confirm).sequence == 10
    node.auto = False
    for sequence in range(11, 15):
        publish(sequence)
    assert not client.closed, "one frame more than the window is forgiven: the client may not know"
    publish(15)
    assert client.failure == "window-exceeded"


def test_the_window_is_of_the_session_and_a_closed_producer_leaves_it() -> None:
    batch = pack(PRODUCER, 1, 0, [b"x" * 50_000])
    settings = SessionSettings(unconfirmed_bytes_max=2 * len(batch), frame_bytes_max=2 * len(batch))
    node, client = publishing(settings)
    other = client.open_producer("q", number=2)
    node.auto = False
    for sequence in (1, 2):
        client.send_with(frames.Publish(1), pack(PRODUCER, sequence, 0, [b"x" * 50_000]))
        client.send_with(frames.Publish(2), pack(other, sequence, 0, [b"x" * 50_000]))
    client.send(frames.ProducerClose(1))
    client.send_with(frames.Publish(2), pack(other, 3, 0, [b"x" * 50_000]))
    assert not client.closed
    client.send_with(frames.Publish(2), pack(other, 4, 0, [b"x" * 50_000]))
    client.send_with(frames.Publish(2), pack(other, 5, 0, [b"x" * 50_000]))
    assert client.failure == "window-exceeded"


# -- connections ---------------------------------------------------------------------------------------------------


def test_one_connection_too_many_is_told_so_and_the_others_stay() -> None:
    node = Node(SessionSettings(connections_max=2))
    clients = [node.connect() for _ in range(2)]
    third = node.connect(greet=False)
    assert third.failure == "too-many-connections"
    assert third.closed
    assert node.client_manager.connection_count == 2
    clients[0].lose()
    assert node.connect().received(frames.Welcome)


def test_events_of_connections_that_are_gone_are_nothing() -> None:
    node = Node()
    client = node.connect_with_session()
    client.lose()
    for event in (
        FramesReceived(client.connection, [Received(0, frames.Ping(1), b"")]),
        InputRefused(client.connection, "bad-frame", "late"),
        ConnectionStalled(client.connection, True),
        ConnectionLost(client.connection),
        FromBus(client.identity, frames.Confirm(1, 1)),
    ):
        assert node.client_manager.handle(event, now=0) == []


def test_shutting_down_says_goodbye_to_everybody_and_keeps_their_sessions_resumable() -> None:
    node = Node()
    clients = [node.connect_with_session() for _ in range(2)]
    clients[0].open_consumer("q")
    node.tell(ShutDown("maintenance"))
    for client in clients:
        assert client.last(frames.Goodbye) == frames.Goodbye("maintenance")
        assert client.closed
    assert node.client_manager.deadline() is None
    (subscription,) = node.world.destination(1).subscriptions
    assert list(subscription.parking.parked) == [(clients[0].identity, 1)]


# -- the heartbeat -------------------------------------------------------------------------------------------------


def test_there_is_no_timer_without_connections() -> None:
    node = Node()
    assert node.client_manager.deadline() is None
    client = node.connect()
    assert node.client_manager.deadline() is not None
    client.lose()
    assert node.client_manager.deadline() is None


@pytest.mark.parametrize("offset_s", [0.0, 0.3, 1.2, 2.4, 2.6, 4.9])
def test_something_is_sent_at_least_once_in_every_heartbeat_time(offset_s: float) -> None:
    """Whatever the moments at which the client says something, and the manager answers."""
    settings = SessionSettings(heartbeat_s=5.0)
    manager = ClientManager(settings, GlobalIds(start_ms=1, site=0, node=1), node="n", incarnation=b"i" * 16)
    manager.handle(ConnectionOpened(1, "peer"), now=0.0)
    manager.handle(FramesReceived(1, [Received(0, HELLO, b"")]), now=0.0)
    sent_at = [0.0]
    speaks_at = [offset_s + 7.0 * number for number in range(6)]
    while sent_at[-1] < 60.0:
        due = manager.deadline()
        assert due is not None
        if speaks_at and speaks_at[0] <= due:
            now, event = speaks_at.pop(0), FramesReceived(1, [Received(0, frames.Ping(1), b"")])
            commands = manager.handle(event, now=now)
        else:
            now, commands = due, manager.handle(Tick(), now=due)
        if any(isinstance(command, SendFrame) for command in commands):
            sent_at.append(now)
    assert max(b - a for a, b in pairwise(sent_at)) <= settings.heartbeat_s


def test_a_busy_connection_gets_no_ping_and_a_silent_one_does() -> None:
    node = Node(SessionSettings(heartbeat_s=4.0))
    busy, silent, mute = node.connect(), node.connect(), node.connect(greet=False)
    for _ in range(10):
        node.advance(1.0)
        busy.send(frames.Ping(1), session=0)
    assert busy.received(frames.Ping) == []
    assert len(silent.received(frames.Ping)) == 5
    assert mute.frames == [], "before its Hello it would not understand"


def test_a_tick_before_its_time_does_nothing() -> None:
    node = Node(SessionSettings(heartbeat_s=4.0))
    client = node.connect()
    node.tell(Tick())
    assert client.received(frames.Ping) == []


# -- a connection that takes no more ----------------------------------------------------------------------------------


def test_a_stall_is_told_once_to_each_destination_that_delivers_to_the_connection() -> None:
    node = Node()
    client = node.connect_with_session()
    client.open_consumer("a", number=1)
    client.open_consumer("a", number=2)
    client.open_consumer("b", number=3)
    idle = node.connect_with_session()
    node.auto = False
    for stalled in (True, True, False, False):
        node.tell(ConnectionStalled(client.connection, stalled))
    node.tell(ConnectionStalled(idle.connection, True))
    for destination in (1, 2):
        assert node.waiting_for(destination) == [frames.Stall(True), frames.Stall(False)]
    assert node.waiting_for(0) == []


def test_a_stall_is_not_told_to_the_message_manager_itself() -> None:
    """Once: it knew of the session because a stream was being browsed, and could make nothing of a stall."""
    node = Node()
    client = node.connect_with_session()
    client.open_consumer("a")
    node.auto = False
    client.send(frames.StreamRead(1, -1, 0, 0, 8, "a"))
    node.tell(ConnectionStalled(client.connection, True))
    assert [type(frame) for frame in node.waiting_for(0)] == [frames.StreamRead]


def test_a_stalled_session_that_moves_to_a_free_connection_is_served_again() -> None:
    node = Node()
    first = node.connect_with_session()
    identity = first.open_producer("q")
    first.open_consumer("q")
    node.tell(ConnectionStalled(first.connection, True))
    first.send_with(frames.Publish(1), pack(identity, 1, 0, [b"a"]))
    assert first.bodies == []
    second = node.connect()
    second.open_session(identity=first.identity)
    second.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY, resumed=True), frames.Credit(1, 10))
    assert second.bodies == [b"a"]


def test_a_session_that_moves_to_a_stalled_connection_is_passed_over() -> None:
    node = Node()
    first = node.connect_with_session()
    identity = first.open_producer("q")
    first.send_with(frames.Publish(1), pack(identity, 1, 0, [b"a"]))
    second = node.connect()
    node.tell(ConnectionStalled(second.connection, True))
    second.open_session(identity=first.identity)
    second.open_consumer("q")
    assert second.bodies == []
    node.tell(ConnectionStalled(second.connection, False))
    assert second.bodies == [b"a"]


def test_sessions_that_go_on_here_are_reported_once_a_second_and_not_those_that_never_left() -> None:
    node = Node()
    first = node.connect_with_session()
    identity = first.identity
    first.lose()
    again = node.connect()
    again.open_session(identity=identity)
    for number in range(2, 5):
        again.open_session(session=number, identity=bytes([number]) * 16)
    again.open_producer("q")
    node.tell(GroupLost(0))
    assert again.received(frames.SessionDetached)
    again.open_session(identity=identity)
    resumed = [report.text for report in node.reports if report.code == "session-resumed"]
    assert len(resumed) == 1 and resumed[0].startswith("1 session goes on here")
    node.advance(2.0)
    again.open_session(session=9, identity=b"9" * 16)
    assert node.reports[-1].text.startswith("4 sessions go on here")

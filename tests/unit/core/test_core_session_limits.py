"""Goal: everything that a session or a connection keeps for its client has a maximum, and one past it costs that client
its connection (or the one thing), and nobody else anything.
Method: a node of fakes; a table of every collection with its limit set low, at the limit and one past it."""
from collections.abc import Callable

import pytest

from angarium.core.session.connection import CLIENT_CHARACTERS_MAX
from angarium.core.session.events import ConnectionStalled, SessionSettings
from angarium.core.wire import frames
from angarium.core.wire.codec import encode
from angarium.core.wire.frames import PROTOCOL_VERSION, DestinationKind, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_node import Client, Node

_FEW = SessionSettings(sessions_max=3, links_max=3, requests_max=3)
_LONG = "x" * 10_000
_TOPIC = frames.ConsumerOpen(1, "t", DestinationKind.TOPIC, "durable", credit=1)


def ask(client: Client, number: int, text: str = "") -> None:
    client.send(frames.Request(number, "destination.list", {"after": text}), session=0)


def locate(client: Client, number: int) -> None:
    client.send(frames.ConsumerOpen(number, f"q{number}", DestinationKind.QUEUE))


def produce(client: Client, number: int) -> None:
    client.send(frames.ProducerOpen(number, "q", DestinationKind.QUEUE))


def settle_before_it_is_open(client: Client, number: int) -> None:
    if number == 1:
        locate(client, 1)
    client.send(frames.Settle(1, number, Outcome.SETTLE, []))


@pytest.mark.parametrize(
    ("one_more", "limit", "code"),
    [
        (lambda client, number: client.open_session(session=1 + number), 2, "too-many-sessions"),  # one is open
        (produce, 3, "too-many-links"),
        (locate, 3, "too-many-links"),
        (ask, 3, "too-many-requests"),
        (settle_before_it_is_open, 1_000, "too-many-frames"),
    ],
    ids=["sessions", "producers", "consumers", "requests", "frames for a consumer that is being found"],
)
def test_one_past_each_limit_ends_that_connection(
    one_more: Callable[[Client, int], None], limit: int, code: str
) -> None:
    node = Node(_FEW)
    client, other = node.connect_with_session(), node.connect_with_session()
    node.auto = False
    if code == "too-many-requests":
        node.tell(ConnectionStalled(client.connection, True))  # none is asked while it does not read
    for number in range(1, limit + 1):
        one_more(client, number)
    assert not client.closed
    one_more(client, limit + 1)
    assert client.failure == code
    other.send(frames.Ping(1))
    assert other.last(frames.Pong) == frames.Pong(1)


def test_what_a_client_calls_itself_is_bounded() -> None:
    client = Node().connect(greet=False)
    client.send(frames.Hello(PROTOCOL_VERSION, "x" * CLIENT_CHARACTERS_MAX, ""), session=0)
    assert client.received(frames.Welcome)
    client = Node().connect(greet=False)
    client.send(frames.Hello(PROTOCOL_VERSION, "x" * (CLIENT_CHARACTERS_MAX + 1), ""), session=0)
    assert client.failure == "bad-frame"


# -- by weight -------------------------------------------------------------------------------------------------------


def heavy_request(number: int) -> frames.Request:
    return frames.Request(number, "destination.describe", {"name": _LONG})


def heavy_settle(number: int) -> frames.Settle:
    return frames.Settle(1, number, Outcome.SETTLE, [(at, at + 1) for at in range(1_000_000, 1_001_000)])


def heavy_open(number: int) -> frames.ConsumerOpen:
    held = [(at, at + 1) for at in range(1_000_000, 1_001_000)]
    return frames.ConsumerOpen(number, "q", DestinationKind.QUEUE, resumed=True, held=held)


@pytest.mark.parametrize("heavy", [heavy_request, heavy_settle, heavy_open], ids=["requests", "settles", "openings"])
def test_what_waits_is_counted_by_its_bytes_over_all_sessions_of_a_connection(
    heavy: Callable[[int], frames.Frame],
) -> None:
    size_bytes = len(encode(1, heavy(2)))
    node = Node(SessionSettings(waiting_bytes_max=5 * size_bytes))
    client = node.connect_with_session()
    client.open_session(session=2)
    node.auto = False
    node.tell(ConnectionStalled(client.connection, True))
    for session in (1, 2):
        if heavy is heavy_settle:
            client.send(frames.ConsumerOpen(1, "q", DestinationKind.QUEUE), session=session)
        for number in (2, 3):
            client.send(heavy(number), session=session)
    assert not client.closed
    client.send(heavy(4), session=2)
    if not client.closed:
        client.send(heavy(5), session=1)
    assert client.failure == "too-much-waiting"


@pytest.mark.parametrize("heavy", [heavy_request, heavy_open], ids=["requests", "openings"])
def test_what_has_waited_is_given_back(heavy: Callable[[int], frames.Frame]) -> None:
    """However it ends: answered, taken to another connection, or with its session."""
    size_bytes = len(encode(1, heavy(2)))
    node = Node(SessionSettings(waiting_bytes_max=2 * size_bytes, links_max=1_000))
    client, number = node.connect_with_session(), 1
    for _ in range(5):
        for _ in range(2):
            number += 1
            client.send(heavy(number))
        assert not client.closed, "each was answered before the next"
    for session in (2, 3, 4):
        client.open_session(session=session)
        node.auto = False
        node.tell(ConnectionStalled(client.connection, True))
        client.send(heavy(1), session=session)
        client.send(frames.SessionClose(), session=session)
        node.auto = True
        node.tell(ConnectionStalled(client.connection, False))
        assert not client.closed
    client.open_session(session=5)
    identity = client.last(frames.SessionOpened).identity
    node.auto = False
    node.tell(ConnectionStalled(client.connection, True))
    client.send(heavy(1), session=5)
    node.connect().open_session(identity=identity)
    client.send(heavy(100), session=1)
    client.send(heavy(101), session=1)
    assert not client.closed


def test_a_producer_closed_while_it_is_being_found_waits_no_longer() -> None:
    size_bytes = len(encode(1, frames.ProducerOpen(1, "q", DestinationKind.QUEUE)))
    node = Node(SessionSettings(waiting_bytes_max=2 * size_bytes))
    client = node.connect_with_session()
    node.auto = False
    for _ in range(5):
        client.send(frames.ProducerOpen(1, "q", DestinationKind.QUEUE), frames.ProducerClose(1))
    assert not client.closed
    node.run()
    assert client.received(frames.ProducerOpened) == []


# -- what the broker has closed ----------------------------------------------------------------------------------------


def refused_often(count: int) -> tuple[Node, Client]:
    """A client whose consumers 1 to `count` were refused: another has the subscription."""
    node = Node(SessionSettings(links_max=10))
    node.connect_with_session().send(_TOPIC)
    client = node.connect_with_session()
    for number in range(1, count + 1):
        client.send(frames.ConsumerOpen(number, "t", DestinationKind.TOPIC, "durable", credit=1))
    assert [frame.code for frame in client.received(frames.ConsumerClosed)] == ["subscription-in-use"] * count
    return node, client


def test_what_was_refused_does_not_count_as_open_and_is_forgotten_in_the_end() -> None:
    """Once: a session could be refused links_max times in its life, and then lost its connection."""
    node, client = refused_often(250)
    client.send(*(frames.Credit(number, 5) for number in range(1, 251)))
    client.send(*(frames.ConsumerClose(number) for number in range(1, 251)))
    assert not client.closed, "it may not have known"
    session = node.client_manager._sessions[client.identity]
    assert session._consumers == {}
    for number in range(251, 261):
        client.send(frames.ConsumerOpen(number, "q", DestinationKind.QUEUE, credit=1))
    assert len(client.received(frames.ConsumerOpened)) == 10
    client.send(frames.ConsumerOpen(261, "q", DestinationKind.QUEUE, credit=1))
    assert client.failure == "too-many-links"


# Once only what the destination itself refuses was remembered.
@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("q", DestinationKind.TOPIC, "wrong-kind"),
        ("_TEMP.gone", DestinationKind.ANY, "unknown-destination"),
        ("_LOG.x", DestinationKind.ANY, "reserved-name"),
    ],
)
def test_what_is_said_of_it_before_a_refusal_is_heard_ends_nothing(name: str, kind: DestinationKind, code: str) -> None:
    node = Node(SessionSettings(links_max=10))
    client = node.connect_with_session()
    client.open_producer("q", number=1)
    for number in range(2, 252):
        client.send(frames.ConsumerOpen(number, name, kind), frames.ProducerOpen(number, name, kind))
        client.send(frames.Credit(number, 5), frames.Settle(number, 1, frames.Outcome.SETTLE, []))
        client.send(frames.ConsumerClose(number), frames.ProducerClose(number))
    assert {frame.code for frame in client.received(frames.ConsumerClosed)} == {code}
    assert {frame.code for frame in client.received(frames.ProducerClosed)} == {code}
    assert not client.closed
    session = node.client_manager._sessions[client.identity]
    assert (len(session._consumers), len(session._producers), len(session._ended_links)) == (0, 1, 0)
    for number in range(252, 502):  # and if nothing is said of it
        client.send(frames.ConsumerOpen(number, name, kind, credit=5), frames.ProducerOpen(number, name, kind))
    assert len(session._consumers) + len(session._producers) == 101


def test_of_what_was_refused_a_bounded_number_is_remembered() -> None:
    node, client = refused_often(250)
    session = node.client_manager._sessions[client.identity]
    assert len(session._consumers) == 100
    client.send(frames.Credit(251, 1))
    assert client.failure == "not-open", "a number that was never opened is still an error"


def test_a_number_that_was_refused_and_forgotten_can_be_used_again() -> None:
    _, client = refused_often(150)
    client.send(frames.ConsumerOpen(7, "q", DestinationKind.QUEUE, credit=5))
    assert client.received(frames.ConsumerOpened)[-1].consumer == 7
    client.send(frames.ConsumerOpen(7, "q", DestinationKind.QUEUE))
    assert client.failure == "number-in-use"


def test_producers_of_removed_destinations_are_forgotten_as_well() -> None:
    node = Node(SessionSettings(links_max=10))
    client = node.connect_with_session()
    for number in range(1, 151):
        identity = client.open_producer(f"q{number}", number=number)
        client.send(frames.Request(number, "destination.remove", {"name": f"q{number}"}))
        client.send_with(frames.Publish(number), pack(identity, 1, 0, [b"late"]))
    assert [frame.code for frame in client.received(frames.ProducerClosed)] == ["destination-removed"] * 150
    client.send_with(frames.Publish(1), pack(identity, 1, 0, [b"very late"]))
    client.send(frames.ProducerClose(1), frames.ProducerClose(150))
    assert not client.closed
    client.send(frames.ProducerClose(151))
    assert client.failure == "not-open"


# -- clients turned away -----------------------------------------------------------------------------------------------


def test_clients_turned_away_are_reported_once_a_second_with_their_number() -> None:
    node = Node(SessionSettings(connections_max=1))
    node.connect()
    for _ in range(5):
        assert node.connect(greet=False).failure == "too-many-connections"
    node.advance(1.0)
    node.connect(greet=False)
    texts = [report.text for report in node.reports if report.code == "too-many-connections"]
    assert [text.partition(" ")[0] for text in texts] == ["1", "5"]
    assert "connections_max 1 " in texts[0]

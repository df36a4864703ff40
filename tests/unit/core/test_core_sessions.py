"""Goal: a client manager opens, moves, limits and ends connections and sessions as the protocol says.
Method: a node of fakes; each limit is tried at and one past its bound. The table of every frame in every state is in
test_core_session_table."""

import pytest

from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.session.events import FromBus, SessionSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import PROTOCOL_VERSION, DestinationKind, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_node import HELLO, Node
from tests.unit.core.core_states import PRODUCER, STATES, locating, opening

# -- the handshake -----------------------------------------------------------------------------------------------


def test_hello_is_answered_with_what_a_client_has_to_know() -> None:
    settings = SessionSettings(
        frame_bytes_max=1_000_000, body_bytes_max=500_000, unconfirmed_bytes_max=700_000, heartbeat_s=3.0
    )
    client = Node(settings).connect()
    (welcome,) = (item.frame for item in client.frames)
    assert isinstance(welcome, frames.Welcome) and len(welcome.identity) == GLOBAL_ID_BYTES
    assert welcome == frames.Welcome(
        PROTOCOL_VERSION, "n", b"i" * 16, 1_000_000, 500_000, 700_000, 3.0, identity=welcome.identity
    )


def test_another_version_is_refused() -> None:
    client = Node().connect(greet=False)
    client.send(frames.Hello(PROTOCOL_VERSION + 1, "c", "p"), session=0)
    assert client.failure == "version-unsupported"
    assert client.closed


def test_hello_and_everything_after_it_may_come_in_one_read() -> None:
    node = Node()
    client = node.connect(greet=False)
    client.send(HELLO, frames.Ping(3), session=0)
    assert [type(item.frame) for item in client.frames] == [frames.Welcome, frames.Pong]


def test_what_comes_before_a_violation_in_one_read_counts_and_what_comes_after_does_not() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.Ping(1), frames.Hello(1, "", ""), frames.Ping(2))
    assert client.received(frames.Pong) == [frames.Pong(1)]
    assert client.failure == "unexpected-frame"
    assert isinstance(client.frames[-1].frame, frames.Failure)


def test_what_comes_after_a_goodbye_is_ignored() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.Goodbye("done"), frames.Ping(1), frames.Hello(1, "", ""))
    assert client.received(frames.Pong) == []
    assert client.failure == ""
    assert node.client_manager.connection_count == 0


def test_bytes_that_are_no_frames_end_the_connection_with_their_code() -> None:
    node = Node()
    client = node.connect_with_session()
    client.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert client.closed
    assert client.failure in ("bad-frame", "frame-too-long")
    assert node.client_manager.session_count == 0


# Once: a client that tells us of our own violation is answered with a violation of its own, and what it said
# about us is in no log.
def test_a_failure_sent_by_the_client_is_reported_and_ends_the_connection() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.Failure("bad-delivery", "you delivered 3 messages at -1"), session=0)
    assert client.closed
    assert client.failure == ""
    assert [report.code for report in node.reports] == ["bad-delivery"]
    assert "you delivered 3 messages" in node.reports[0].text


# -- sessions ------------------------------------------------------------------------------------------------------


def test_a_session_resumed_on_another_connection_is_taken_from_the_first() -> None:
    node = Node()
    first = node.connect_with_session()
    second = node.connect()
    second.open_session(identity=first.identity)
    assert second.identity == first.identity
    assert first.last(frames.SessionClosed, session=1).code == "session-taken"
    assert not first.closed, "its other sessions go on"
    assert node.client_manager.session_count == 1
    first.open_session(session=2)
    assert not first.closed


def test_what_was_under_way_in_a_session_that_was_taken_costs_its_connection_nothing() -> None:
    """Once it was answered as a violation, with all other sessions of the connection."""
    node = Node()
    first = node.connect_with_session()
    first.open_session(session=2)
    second, late = node.connect(), node.connect()
    second.send(frames.SessionOpen(first.identity, turn=2))
    consumer = frames.ConsumerOpen(1, "q", DestinationKind.ANY)
    first.send(consumer, frames.Credit(1, 10))
    late.send(frames.SessionOpen(first.identity, turn=1), consumer, frames.Credit(1, 10))
    for client in (first, late):
        assert client.last(frames.SessionClosed, session=1).code == "session-taken"
        assert not client.closed and client.received(frames.ConsumerOpened) == []
        client.send(frames.SessionClose())
        assert client.last(frames.SessionClosed, session=1) == frames.SessionClosed()
        client.send(frames.Credit(1, 10))
        assert client.failure == "not-open", "it knows by now"


def test_a_session_may_have_the_number_of_one_that_was_taken() -> None:
    node = Node()
    first = node.connect_with_session()
    node.connect().open_session(identity=first.identity)
    first.open_session(session=1)
    first.open_consumer("q")
    assert not first.closed


def test_of_sessions_that_were_taken_the_latest_are_remembered() -> None:
    node = Node(SessionSettings(sessions_max=2))
    first, second = node.connect(), node.connect()
    for number in (1, 2, 3):
        first.open_session(session=number)
        second.open_session(session=number, identity=first.last(frames.SessionOpened, session=number).identity)
        second.send(frames.SessionClose(), session=number)
    first.send(frames.Credit(1, 10), session=2)
    assert not first.closed
    first.send(frames.Credit(1, 10), session=1)
    assert first.failure == "not-open"


def test_an_earlier_turn_that_comes_late_takes_nothing() -> None:
    """A connection that was thought dead, and was only slow."""
    node = Node()
    first = node.connect_with_session()
    second, late = node.connect(), node.connect()
    second.send(frames.SessionOpen(first.identity, turn=2))
    late.send(frames.SessionOpen(first.identity, turn=1))
    assert late.last(frames.SessionClosed, session=1).code == "session-taken"
    assert second.received(frames.SessionClosed, session=1) == [] and not late.closed
    third = node.connect()
    third.send(frames.SessionOpen(first.identity, turn=2))
    assert third.last(frames.SessionOpened).identity == first.identity
    assert node.client_manager.session_count == 1


def test_a_session_taken_over_takes_what_its_consumers_hold_along() -> None:
    node = Node()
    first = node.connect_with_session()
    identity = first.open_producer("q")
    first.send_with(frames.Publish(1), pack(identity, 1, 0, [b"a", b"b"]))
    first.open_consumer("q")
    assert first.bodies == [b"a", b"b"]
    second = node.connect()
    second.open_session(identity=first.identity)
    second.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY, resumed=True, held=[(0, 2)]), frames.Credit(1, 10))
    assert second.last(frames.ConsumerOpened).lost == []
    assert second.bodies == []
    second.send(frames.Settle(1, 1, Outcome.SETTLE, [(0, 2)]))
    assert second.last(frames.Settled) == frames.Settled(1, 1, [])


def test_a_session_that_is_unknown_is_resumed_all_the_same() -> None:
    """After a restart of the node only the client knows its session."""
    client = Node().connect()
    client.open_session(identity=b"s" * 16)
    assert client.identity == b"s" * 16


@pytest.mark.parametrize("identity", [b"x", b"x" * 15, b"x" * 17])
def test_an_identity_of_another_length_is_refused(identity: bytes) -> None:
    client = Node().connect()
    client.send(frames.SessionOpen(identity))
    assert client.failure == "bad-frame"


def test_the_identity_of_a_connection_is_not_a_session_to_take() -> None:
    node = Node()
    victim, thief = node.connect_with_session(), node.connect()
    connection_identity = next(i for i, s in node.client_manager._sessions.items() if s.connection == victim.connection)
    thief.send(frames.SessionOpen(connection_identity))
    assert thief.failure == "bad-frame"
    victim.send(frames.Request(1, "destination.list", {}), session=0)
    assert victim.last(frames.Reply).result == []


def test_a_session_closed_by_its_client_is_answered_and_its_number_is_free() -> None:
    node = Node()
    client = node.connect_with_session()
    first = client.identity
    client.open_consumer("q")
    client.send(frames.SessionClose())
    assert client.last(frames.SessionClosed) == frames.SessionClosed()
    assert node.world.destination(1).consumers == {}
    client.open_session()
    assert client.identity != first
    client.open_consumer("q")
    assert not client.closed


def test_one_session_too_many_is_refused() -> None:
    node = Node(SessionSettings(sessions_max=2))
    client = node.connect()
    client.open_session(session=1)
    client.open_session(session=2)
    client.send(frames.SessionClose(), session=1)
    client.open_session(session=3)
    assert not client.closed
    client.send(frames.SessionOpen(), session=4)
    assert client.failure == "too-many-sessions"


def test_sessions_of_one_connection_do_not_see_each_others_numbers() -> None:
    node = Node()
    client = node.connect()
    identities = []
    for number in (1, 2):
        client.open_session(session=number)
        identities.append(client.open_producer("q", session=number))
    assert identities[0] != identities[1]
    client.send_with(frames.Publish(1), pack(identities[1], 1, 0, [b"x"]), session=2)
    assert client.last(frames.Confirm, session=2) == frames.Confirm(1, 1)
    assert client.received(frames.Confirm, session=1) == []
    client.send_with(frames.Publish(1), pack(identities[1], 2, 0, [b"x"]), session=1)
    assert client.failure == "bad-batch", "a batch of another producer"


def test_a_request_is_answered_on_the_session_that_asked() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.Request(7, "destination.list", {}), session=0)
    client.send(frames.Request(7, "destination.list", {}), session=1)
    client.send(frames.Request(8, "node.status", {}), session=0)
    replies = [(item.session, item.frame) for item in client.frames if isinstance(item.frame, frames.Reply)]
    assert replies == [
        (0, frames.Reply(7, "", "", [])),
        (1, frames.Reply(7, "", "", [])),
        (0, frames.Reply(8, "", "", "about the node")),
    ]


# -- producers and consumers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("a b", "bad-name"), ("_OTHER", "reserved-name"), ("x" * 256, "bad-name")])
def test_a_bad_name_closes_the_producer_or_consumer_and_not_the_connection(name: str, code: str) -> None:
    client = Node().connect_with_session()
    client.send(frames.ProducerOpen(1, name, DestinationKind.ANY))
    client.send(frames.ConsumerOpen(1, name, DestinationKind.ANY))
    client.send(frames.ConsumerOpen(2, "fine", DestinationKind.ANY, subscription=name))
    assert client.last(frames.ProducerClosed).code == code
    assert [frame.code for frame in client.received(frames.ConsumerClosed)] == [code, code]
    assert not client.closed


def test_a_destination_of_another_kind_closes_the_producer_and_frees_its_number() -> None:
    client = Node().connect_with_session()
    client.open_producer("q")
    client.send(frames.ProducerOpen(2, "q", DestinationKind.TOPIC))
    assert client.last(frames.ProducerClosed).code == "wrong-kind"
    client.send(frames.ProducerOpen(2, "q", DestinationKind.QUEUE))
    assert client.last(frames.ProducerOpened).producer == 2


@pytest.mark.parametrize("number", [-1, 1 << 32, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("kind", [frames.ProducerOpen, frames.ConsumerOpen])
def test_numbers_beyond_32_bits_are_refused(number: int, kind: type[frames.ProducerOpen | frames.ConsumerOpen]) -> None:
    client = Node().connect_with_session()
    client.send(kind(number, "q", DestinationKind.ANY))
    assert client.failure == "bad-frame"


@pytest.mark.parametrize("confirmed", [-1, 1 << 62, (1 << 64) - 1])
def test_a_confirmed_sequence_that_cannot_be_is_refused(confirmed: int) -> None:
    client = Node().connect_with_session()
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, PRODUCER, confirmed))
    assert client.failure == "bad-frame"


@pytest.mark.parametrize("identity", [b"x", b"x" * 17])
def test_a_producer_identity_of_another_length_is_refused(identity: bytes) -> None:
    client = Node().connect_with_session()
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, identity))
    assert client.failure == "bad-frame"


def test_one_link_too_many_is_refused() -> None:
    node = Node(SessionSettings(links_max=2))
    client = node.connect_with_session()
    client.open_producer("q", number=1)
    client.open_consumer("q", number=1)
    client.send(frames.ProducerClose(1))
    client.open_producer("q", number=2)
    assert not client.closed, "producers and consumers count together, closed ones do not"
    client.send(frames.ConsumerOpen(2, "q", DestinationKind.ANY))
    assert client.failure == "too-many-links"


def test_what_is_said_of_a_consumer_while_it_is_located_follows_its_opening_in_order() -> None:
    node = Node()
    client, _ = locating(node)
    client.send(frames.Settle(1, 1, Outcome.SETTLE, []), frames.Credit(1, 5), frames.Settle(1, 2, Outcome.SETTLE, []))
    node.step_destination(0)
    node.world.complete_write()
    kinds = [type(frame) for frame in node.waiting_for(1)]
    assert kinds == [frames.ProducerOpen, frames.ConsumerOpen, frames.Settle, frames.Credit, frames.Settle]


def test_a_thousand_frames_may_wait_for_a_consumer_and_no_more() -> None:
    node = Node()
    client, _ = locating(node)
    client.send(*(frames.Credit(1, limit) for limit in range(1_000)))
    assert not client.closed
    client.send(frames.Credit(1, 1_000))
    assert client.failure == "too-many-frames"


@pytest.mark.parametrize("state", ["locating", "opening"])
def test_a_consumer_closed_before_it_is_open_is_opened_and_closed(state: str) -> None:
    node = Node()
    client, _ = STATES[state](node)
    client.send(frames.ConsumerClose(1))
    node.auto = True
    node.run()
    assert client.received(frames.ConsumerClosed) == [frames.ConsumerClosed(1)]
    assert node.world.destination(1).consumers == {}
    client.open_consumer("q")
    assert not client.closed, "its number is free again"
    assert len(node.world.destination(1).consumers) == 1


def test_a_consumer_closed_while_it_is_located_is_closed_once_if_it_cannot_be_located() -> None:
    node = Node()
    first = node.connect_with_session()
    first.open_producer("q")
    client = node.connect_with_session()
    node.auto = False
    client.send(frames.ConsumerOpen(1, "q", DestinationKind.TOPIC), frames.ConsumerClose(1))
    node.auto = True
    node.run()
    assert [frame.code for frame in client.received(frames.ConsumerClosed)] == ["wrong-kind"]


def test_a_producer_closed_while_it_is_opened_is_closed() -> None:
    node = Node()
    client, _ = opening(node)
    client.send(frames.ProducerClose(1))
    node.auto = True
    node.run()
    assert node.world.destination(1).producers.attached() == []
    assert not client.closed


def test_several_links_to_one_name_are_all_opened() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(*(frames.ProducerOpen(number, "q", DestinationKind.ANY) for number in range(5)))
    assert [frame.producer for frame in client.received(frames.ProducerOpened)] == list(range(5))
    assert len({frame.identity for frame in client.received(frames.ProducerOpened)}) == 5


@pytest.mark.parametrize("state", ["locating", "opening", "opened", "closing"])
@pytest.mark.parametrize("ending", ["lost", "closed", "violated", "goodbye"])
def test_whatever_is_under_way_when_a_connection_ends_comes_to_its_end(state: str, ending: str) -> None:
    node = Node()
    client, _ = STATES[state](node)
    match ending:
        case "lost":
            client.lose()
        case "closed":
            client.send(frames.SessionClose())
        case "violated":
            client.send(HELLO)
        case "goodbye":
            client.send(frames.Goodbye(""), session=0)
    node.auto = True
    node.run()
    node.advance(10)
    for destination in node.world.manager.destinations.values():
        assert destination.consumers == {}
        assert destination.producers.attached() == []
        assert not [s for s in destination.subscriptions if s.parking]


def test_an_abort_of_a_commit_sent_over_an_earlier_connection_is_not_passed_on() -> None:
    """Sent again over this one, the same commit may well be done."""
    node = Node()
    first = node.connect()
    first.send(frames.SessionOpen(b"", True))
    identity = first.last(frames.SessionOpened).identity
    late = frames.Aborted(1, "messages-lost", "gone", attachment=b"an earlier one")
    node.tell(FromBus(identity, late, b""))
    assert first.received(frames.Aborted) == []
    first.send(frames.Commit(1, [], [(1, [(0, 1)])]))
    assert first.last(frames.Aborted).code == "destination-removed"


def test_an_abort_is_passed_on_once() -> None:
    """Once: the group that was to decide said so as well, when it was over already and the next commit under way. Seed
    80 of the spanning world."""
    node = Node()
    first = node.connect()
    first.send(frames.SessionOpen(b"", True))
    identity = first.last(frames.SessionOpened).identity
    first.send(frames.Commit(1, [], [(1, [(0, 1)])]))
    (aborted,) = first.received(frames.Aborted)
    node.tell(FromBus(identity, aborted, b""))
    assert first.received(frames.Aborted) == [aborted]


def test_a_message_manager_hears_of_the_end_of_a_session_that_has_closed_everything() -> None:
    """It may remember where answers go; of one in which nothing was ever asked it has nothing to forget."""
    node = Node()
    client = node.connect_with_session()
    client.open_producer("q")
    client.send(frames.ProducerClose(1))
    client.open_session(session=2)
    node.auto = False
    client.send(frames.SessionClose(), session=2)
    assert node.waiting_for(0) == []
    client.send(frames.SessionClose(), session=1)
    assert node.waiting_for(0) == [frames.SessionEnded(closed=True)]

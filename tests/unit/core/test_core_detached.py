"""Goal: when a replica group gets another message manager, exactly the sessions that have to do with it are opened
again by their clients, over the same connections; nothing is lost, doubled or taken for something else, and whatever a
client does meanwhile harms nobody.
Method: a node of fakes; its message manager dies and is restored from its disk, and the client manager lives on."""
import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.ids import destination_id
from angarium.core.session.events import DestinationsMoved, FromBus, GroupLost
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Frame, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_detached import consuming, fail_over, is_detached, kinds
from tests.unit.core.core_node import Client, Node

ANY = DestinationKind.ANY


# -- a destination is moved to another replica group -----------------------------------------------------------


def test_a_message_manager_may_detach_a_session_whose_destination_it_moves() -> None:
    node = Node()
    client, other = consuming(node, b"a"), node.connect_with_session()
    other.open_producer("elsewhere")
    node.tell(FromBus(client.identity, frames.SessionDetached("'q' is being moved")))
    assert client.frames[-1].frame == frames.SessionDetached("'q' is being moved") and not is_detached(other)
    assert not node.world.manager.find("q").consumers, "its destinations hear that it is cut off"  # type: ignore[union-attr]
    at = len(client.frames)
    client.send(
        frames.SessionOpen(client.identity), frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 1)]),
    )  # fmt: skip
    assert kinds(client, since=at) == [frames.SessionOpened, frames.ConsumerOpened]


def test_whoever_looks_for_a_destination_elsewhere_than_it_is_now_asks_again() -> None:
    node = Node()
    client, other, waiting = (node.connect_with_session() for _ in range(3))
    client.open_producer("q")
    other.open_producer("r")
    node.auto = False
    waiting.send(frames.ProducerOpen(1, "q", ANY))
    node.tell(DestinationsMoved({"q": 0}))
    assert is_detached(waiting), "it has asked, and may not have been heard"
    assert not is_detached(client) and not is_detached(other), "it is where that one has it"
    node.tell(DestinationsMoved({"q": 2, "s": 2}))
    assert is_detached(client) and not is_detached(other)


def test_whoever_looks_for_something_asks_again_if_it_may_have_been_elsewhere() -> None:
    node = Node()
    client, waiting = (node.connect_with_session() for _ in range(2))
    client.open_producer("q")
    node.auto = False
    waiting.send(frames.ProducerOpen(1, "q", ANY))
    node.tell(DestinationsMoved({}, is_unsure=True))
    assert is_detached(waiting) and not is_detached(client)


# -- as it should be ---------------------------------------------------------------------------------------------


def test_a_session_is_detached_and_opened_again_with_what_it_holds() -> None:
    node = Node()
    client = consuming(node, b"a", b"b", b"c")
    node.auto = False
    client.send(frames.Settle(1, 1, Outcome.SETTLE, [(0, 1)]))  # it dies with the manager
    node.auto = True
    fail_over(node)
    assert client.frames[-1].frame == frames.SessionDetached("replica group 0 has another message manager")
    at = len(client.frames)
    client.send(
        frames.SessionOpen(client.identity),
        frames.ProducerOpen(1, "q", ANY, client.last(frames.ProducerOpened).identity, 3),
        frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 3)], next_position=3),
        frames.Settle(1, 1, Outcome.SETTLE, [(0, 1)]),
        frames.Credit(1, 8),
    )
    assert kinds(client, since=at) == [
        frames.SessionOpened, frames.ProducerOpened, frames.ConsumerOpened, frames.Settled,
    ]  # fmt: skip
    assert client.last(frames.SessionOpened).identity == client.identity
    assert client.last(frames.ProducerOpened).sequence == 3
    assert client.last(frames.ConsumerOpened).lost == []
    identity = client.last(frames.ProducerOpened).identity
    client.send_with(frames.Publish(1), pack(identity, 4, 0, [b"d"]))
    assert client.last(frames.Confirm) == frames.Confirm(1, 4)
    assert client.bodies == [b"a", b"b", b"c", b"d"]


def test_sessions_and_groups_that_have_nothing_to_do_with_it_are_not_disturbed() -> None:
    node = Node()
    idle, busy = node.connect_with_session(), consuming(node, b"a")
    busy.open_session(session=2)
    before = len(idle.frames), len(busy.frames)
    node.tell(GroupLost(7))
    assert (len(idle.frames), len(busy.frames)) == before
    fail_over(node)
    assert not is_detached(idle)
    assert is_detached(busy) and not is_detached(busy, session=2)
    assert node.client_manager.session_count == 3, "one that is detached is still a session"


@pytest.mark.parametrize("group", [0, 1])
def test_destinations_of_other_groups_hear_that_the_session_is_cut_off(group: int) -> None:
    """And those of the lost one hear nothing: their manager knows of no session."""
    node = Node()
    client = node.connect_with_session()
    client.send(frames.ProducerOpen(1, "here", ANY), frames.ProducerOpen(2, "there", ANY))
    node.auto = False
    there = destination_id(1, 5)
    client.send(frames.ProducerOpen(3, "elsewhere", ANY))
    node._queues.clear()
    node.tell(FromBus(client.identity, frames.Located("elsewhere", ANY, there, DestinationKind.QUEUE)))
    node._queues.clear()
    node.tell(GroupLost(group))
    assert is_detached(client)
    cut = [frames.SessionEnded(closed=False)]
    assert (node.waiting_for(1), node.waiting_for(2)) == (([], []) if group == 0 else (cut, cut))
    assert node.waiting_for(there) == (cut if group == 0 else [])


def ask_for_a_destination(client: Client) -> None:
    client.send(frames.ConsumerOpen(1, "q", ANY))


def ask_for_a_stream(client: Client) -> None:
    client.send(frames.StreamOpen(1, "q", ANY))


def browse_a_stream(client: Client) -> None:
    client.send(frames.StreamRead(1, -1, 0, 0, 8, "q"))


def request(client: Client) -> None:
    client.send(frames.Request(1, "destination.list", {}))


def watch(client: Client) -> None:
    client.send(frames.Watch(1, "q*"))


def commit(client: Client) -> None:
    client.send(frames.Commit(1, [], []))


@pytest.mark.parametrize(
    "ask",
    [ask_for_a_destination, ask_for_a_stream, browse_a_stream, request, watch, commit],
    ids=lambda ask: ask.__name__,
)
def test_whoever_waits_for_the_message_manager_itself_is_detached(ask: object) -> None:
    node = Node()
    client = node.connect()
    client.send(frames.SessionOpen(transacted=True))
    node.auto = False
    ask(client)  # type: ignore[operator]
    fail_over(node)
    assert is_detached(client)
    assert node.client_manager._connections[client.connection].waiting.total_bytes == 0, "nothing waits any more"
    node.auto = True
    client.send(frames.SessionOpen(client.last(frames.SessionOpened).identity, transacted=True))
    ask(client)  # type: ignore[operator]
    assert client.failure == ""


def test_what_has_been_answered_is_nothing_to_be_detached_for() -> None:
    node = Node()
    client = node.connect()
    client.send(frames.SessionOpen(transacted=True))
    client.send(frames.Request(1, "destination.list", {}), frames.Commit(1, [], []))
    client.send(frames.ProducerOpen(1, "q", ANY), frames.ProducerClose(1))
    assert client.received(frames.Committed)
    assert client.received(frames.Reply)
    fail_over(node)
    assert not is_detached(client)


# -- what comes too late -----------------------------------------------------------------------------------------


def test_what_was_sent_before_the_client_knew_is_dropped() -> None:
    node = Node()
    client = consuming(node, b"a")
    fail_over(node)
    identity = client.last(frames.ProducerOpened).identity
    at = len(client.frames)
    client.send_with(frames.Publish(1), pack(identity, 2, 0, [b"b"]))
    client.send_with(frames.Publish(9), b"garbage")
    client.send(
        frames.Settle(1, 1, Outcome.SETTLE, [(0, 1)]), frames.Credit(1, 1_000), frames.ConsumerOpen(2, "other", ANY),
        frames.Request(3, "destination.list", {}), frames.Watch(1, "*"), frames.StreamOpen(1, "q", ANY),
    )  # fmt: skip
    assert client.frames[at:] == []
    assert node.world.describe("q")["messages"] == 1
    client.send(frames.Ping(1))
    assert client.last(frames.Pong) == frames.Pong(1), "the connection itself is there"


LATE: list[tuple[Frame, bytes]] = [
    (frames.Deliver(1, 0), pack(b"p" * 16, 1, 0, [b"a"])),
    (frames.Settled(1, 1), b""),
    (frames.Confirm(1, 1), b""),
    (frames.Refuse(1, 1, 1, "destination-full", ""), b""),
    (frames.Block(1, "disk-full", ""), b""),
    (frames.Recovered(1, 1), b""),
    (frames.Dropped(1, 1), b""),
    (frames.Committed(1), b""),
    (frames.Aborted(1, "messages-lost", "", b"old"), b""),
    (frames.Reply(1, "", "", []), b""),
    (frames.WatchFound(1, ANY, ["q"], attachment=b"old"), b""),
    (frames.WatchClosed(1, "too-many-watches", "", b"old"), b""),
    (frames.StreamOpened(1, b"f" * 16, 0, 0, 4, 9, b"old"), b""),
    (frames.StreamStored(1, 0, 4), b""),
    (frames.StreamClosed(1, "unknown-stream", ""), b""),
    (frames.StreamData(1, 0, 0, False, b"old"), b""),
    (frames.StreamReadEnd(1, "not-held", "", b"old"), b""),
    (frames.ProducerOpened(1, b"p" * 16, 0, b"old"), b""),
    (frames.ConsumerOpened(1, [], b"old"), b""),
    (frames.ProducerClosed(1, "destination-removed", ""), b""),
    (frames.ConsumerClosed(1, "destination-removed", ""), b""),
    (frames.Failure("bad-range", "of a frame that is void"), b""),
]


@pytest.mark.parametrize(("late", "payload"), LATE, ids=lambda value: type(value).__name__)
def test_an_answer_for_a_detached_session_goes_nowhere(late: Frame, payload: bytes) -> None:
    node = Node()
    client = consuming(node, b"a")
    fail_over(node)
    at = len(client.frames)
    node.tell(FromBus(client.identity, late, payload))
    assert client.frames[at:] == []
    assert not client.closed


# What is durable is true whoever said it, and a client that has asked may hear it: Settled, Recovered, Committed.
FACTS = (frames.Settled, frames.Recovered, frames.Committed, frames.Dropped)


@pytest.mark.parametrize(
    ("late", "payload"),
    [(late, payload) for late, payload in LATE if not isinstance(late, (*FACTS, frames.Failure))],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_to_the_old_attachment_is_not_taken_for_one_to_the_new(late: Frame, payload: bytes) -> None:
    node = Node()
    client = consuming(node, b"a")
    fail_over(node)
    node.auto = False
    client.send(
        frames.SessionOpen(client.identity),
        frames.ProducerOpen(1, "q", ANY, client.last(frames.ProducerOpened).identity),
        frames.ConsumerOpen(1, "q", ANY, resumed=True, held=[(0, 1)]),
        frames.StreamOpen(1, "q", ANY),
        frames.StreamRead(1, -1, 0, 0, 8, "q"),
        frames.Watch(1, "q*"),
        frames.Request(1, "destination.list", {}),
    )
    at = len(client.frames)
    node.tell(FromBus(client.identity, late, payload))
    assert client.frames[at:] == []
    node.auto = True
    node.run()
    opened = {frames.ProducerOpened, frames.ConsumerOpened, frames.StreamOpened, frames.Reply, frames.WatchFound}
    node.advance(1.0)
    assert opened <= set(kinds(client, since=at))
    assert not client.closed


# -- requests of the connection itself ---------------------------------------------------------------------------


def test_a_request_that_the_lost_manager_owes_is_answered_as_lost_and_the_next_is_asked() -> None:
    node = Node()
    client = node.connect()
    node.auto = False
    client.send(frames.Request(1, "destination.create", {"name": "q", "kind": "queue"}), session=0)
    client.send(frames.Request(2, "destination.list", {}), session=0)
    (asked,) = node.waiting_for(0)
    assert isinstance(asked, frames.Request)
    node.auto = True
    fail_over(node)
    lost, answered = client.received(frames.Reply, session=0)
    assert (lost.number, lost.code) == (1, "request-lost")
    assert "destination.create" in lost.reason and "may have been done or not" in lost.reason
    assert (answered.number, answered.code, answered.result) == (2, "", [])
    node.tell(FromBus(node.client_manager._connections[client.connection].sessions[0].identity,
                      frames.Reply(asked.number, "", "")))  # fmt: skip
    assert len(client.received(frames.Reply)) == 2, "the late answer is nobody's"


def test_a_late_answer_is_not_taken_for_that_of_a_request_with_the_same_number() -> None:
    node = Node()
    client = node.connect()
    own = node.client_manager._connections[client.connection].sessions[0].identity
    node.auto = False
    client.send(frames.Request(1, "destination.list", {}), session=0)
    (asked,) = node.waiting_for(0)
    fail_over(node)
    client.send(frames.Request(1, "destination.describe", {"name": "q"}), session=0)
    assert isinstance(asked, frames.Request)
    node.tell(FromBus(own, frames.Reply(asked.number, "", "", ["late"])))
    node.auto = True
    node.run()
    assert [reply.code for reply in client.received(frames.Reply)] == ["request-lost", "unknown-destination"]


def test_a_request_to_the_node_itself_is_not_lost() -> None:
    node = Node()
    client = node.connect()
    client.send(frames.Request(1, "node.status", {}), session=0)
    fail_over(node)
    assert [reply.code for reply in client.received(frames.Reply)] == [""]


def test_temporary_destinations_stay_with_a_connection_that_stays() -> None:
    node = Node(destination_settings=DestinationSettings(resume_grace_s=2.0))
    client = node.connect_with_session()
    client.send(frames.Request(1, "destination.create", {"kind": "queue", "temporary": True}), session=0)
    name = client.last(frames.Reply).result["name"]
    fail_over(node)
    node.advance(10.0)
    assert node.world.describe(name)["temporary"]
    client.send(frames.Goodbye("done"), session=0)
    assert node.world.request("destination.describe", name=name).code == "unknown-destination"

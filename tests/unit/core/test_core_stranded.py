"""Goal: whoever needs a replica group that this client manager does not reach, for longer than a fail-over takes, is
sent to another; nobody else is, and nobody who has just come. Who comes back, because no other reaches it either, is
left alone for longer."""
from angarium.core.session.events import GroupsStranded
from angarium.core.session.stranded import PATIENCE_S, PATIENCE_S_MAX, SentAway, StrandedGroups
from angarium.core.wire import frames
from tests.unit.core.core_detached import consuming
from tests.unit.core.core_node import Node


def test_a_group_is_stranded_when_it_was_out_of_reach_all_the_time() -> None:
    groups = StrandedGroups(patience_s=2.0)
    assert groups.seen([2, 1], now=10.0) == []
    assert groups.seen([1], now=11.9) == []
    assert groups.seen([2, 1], now=12.0) == [1], "the other was in reach meanwhile"
    assert groups.seen([], now=13.0) == []
    assert groups.seen([1], now=14.0) == []


def test_clients_that_need_the_group_are_sent_away_and_nobody_else() -> None:
    node = Node()
    hindered, idle = consuming(node, b"a"), node.connect_with_session()
    node.advance(PATIENCE_S)
    late = node.connect_with_session()
    late.open_producer("q")
    node.tell(GroupsStranded([7]))
    assert not hindered.closed, "it has nothing to do with that group"
    node.tell(GroupsStranded([0]))
    assert hindered.closed and not idle.closed and not late.closed
    said = hindered.frames[-1].frame
    assert isinstance(said, frames.Goodbye) and "replica group 0 cannot be reached" in said.reason
    node.advance(PATIENCE_S)
    node.tell(GroupsStranded([0]))
    assert late.closed, "it has waited as long as the first"
    assert [report.code for report in node.reports].count("clients-sent-away") == 2


def test_who_is_sent_away_goes_on_with_what_it_holds() -> None:
    node = Node()
    client = consuming(node, b"a")
    identity = client.identity
    node.advance(PATIENCE_S)
    node.tell(GroupsStranded([0]))
    successor = node.connect()
    successor.send(frames.SessionOpen(identity))
    successor.send(frames.ConsumerOpen(1, "q", frames.DestinationKind.ANY, resumed=True, held=[(0, 1)]))
    opened = successor.frames[-1].frame
    assert isinstance(opened, frames.ConsumerOpened) and opened.lost == []


def test_who_comes_back_stays_for_longer_each_time() -> None:
    """Once: without a majority of the voters every client connected anew every two seconds, for as long as it took."""
    node = Node()
    client = node.connect_with_session(client=b"c" * 16)
    client.open_producer("q")
    connected_at, begun = [0.0], node.world.now
    while (past_s := node.world.now - begun) < 130.0:
        if client.closed:
            client = node.connect_with_session(client=b"c" * 16)
            client.open_producer("q")
            connected_at.append(past_s)
        node.advance(0.5)
        node.tell(GroupsStranded([0]))
    assert connected_at == [0.0, 2.0, 6.0, 14.0, 30.0, 62.0, 94.0, 126.0]
    other = node.connect_with_session()
    other.open_producer("q")
    node.advance(PATIENCE_S)
    node.tell(GroupsStranded([0]))
    assert other.closed, "it has not been here before"


def test_that_somebody_was_sent_away_is_forgotten() -> None:
    sent = SentAway(clients_max=2)
    for client in (b"a", b"b", b"a", b"c"):
        sent.note(client, now=10.0)
    assert [sent.patience_s(client, now=10.0) for client in (b"a", b"b", b"c")] == [8.0, 2.0, 4.0]
    assert sent.patience_s(b"a", now=10.0 + 4 * PATIENCE_S_MAX) == PATIENCE_S

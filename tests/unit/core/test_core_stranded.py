"""Goal: whoever needs a replica group that this client manager does not reach, for longer than a fail-over takes, is
sent to another; nobody else is, and nobody who has just come."""
from angarium.core.session.events import GroupsStranded
from angarium.core.session.stranded import PATIENCE_S, StrandedGroups
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

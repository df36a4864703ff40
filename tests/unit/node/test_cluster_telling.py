"""Goal: what happens in a cluster is told once, when it happens: not again by a node that reads of it in its log."""
import pytest
from msgspec.structs import replace

from angarium.core.groups.changes import NamedGroupChanged, ViewChanged
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.records import Hosted, Member, NodeRecord
from angarium.node.cluster.nodes import Nodes
from angarium.node.cluster.telling import tell_in_sync, tell_named, tell_view


def record(name: str, incarnation: bytes) -> NodeRecord:
    return NodeRecord(name, incarnation, ("127.0.0.1:4570",), ("mm",))


A, B, B_AGAIN = record("a", b"a1"), record("b", b"b1"), record("b", b"b2")
GROUP = GroupConfiguration("g", 1, 3, Replica("a", b"a"), (Replica("a", b"a"),), ("a", "b"), 2, 1)


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "angarium")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    """The texts, and whether all are told."""
    found = [(each.getMessage(), not getattr(each, "local", False)) for each in caplog.records]
    caplog.clear()
    return found


def test_who_starts_again_has_left_before_it_joined(caplog: pytest.LogCaptureFixture) -> None:
    change = ViewChanged(9, 5, (A, B_AGAIN), joined=(B_AGAIN,), gone=(B,))
    tell_view(change, {b"a1", b"b1"}, is_leader=True, is_news=True)
    assert told(caplog) == [("left: node b; view 5: a, b", True), ("joined: node b; view 5: a, b", True)]


def test_one_that_holds_another_copy_has_not_joined_again(caplog: pytest.LogCaptureFixture) -> None:
    changed = replace(B, hosts=(Hosted("g", b"b", True),))
    tell_view(ViewChanged(9, 5, (A, changed), (changed,), ()), {b"a1", b"b1"}, is_leader=True, is_news=True)
    assert told(caplog) == []


def test_a_node_that_starts_does_not_tell_what_happened_before(caplog: pytest.LogCaptureFixture) -> None:
    tell_view(ViewChanged(9, 5, (A, B), (B,), ()), {b"a1"}, is_leader=True, is_news=False)
    tell_named(NamedGroupChanged(9, "night", (), (), (Member("b", b"b1"),)), is_leader=True, is_news=False)
    tell_in_sync("a", None, GROUP, is_here=False, is_news=False)
    assert told(caplog) == []
    tell_in_sync("a", None, GROUP, is_here=False, is_news=True)
    assert told(caplog) == [("in-sync: group 'g', epoch 3, in sync are a", False)]


def test_a_node_has_entered_when_it_is_in_the_view_as_it_is_now() -> None:
    nodes = Nodes("b", b"b2")
    nodes.changed(4, (A, B), 0.0)
    assert not nodes.has_entered, "that is an earlier start of it"
    nodes.changed(5, (A, B_AGAIN), 0.0)
    assert nodes.has_entered
    nodes.changed(6, (A,), 0.0)
    assert nodes.has_entered and not nodes.is_here

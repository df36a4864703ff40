"""Goal: a change of the cluster counts as done when it is, and what it waits for, or costs, is said."""
from msgspec.structs import replace

from angarium.admin.cluster import (
    ClusterStatus,
    Group,
    MoveAsked,
    Moves,
    MovingDestination,
    Node,
    OnBus,
    copied,
    destination_moved,
    drained,
    moved,
    removed,
    what_removal_costs,
)
from angarium.cli.cluster import shown_bus, state_of


def status(
    primary: str = "a1", in_sync: str = "a1 a2 a3", members: str = "a1 a2 a3", draining: str = ""
) -> ClusterStatus:
    group = Group(
        group="a", primary=primary, is_served=True, members=members.split(), in_sync=in_sync.split(),
        copies=len(members.split()),
    )  # fmt: skip
    nodes = [Node(name=name, answers=name != "a9") for name in ("a1", "a2", "a3", "a4", "a9")]
    return ClusterStatus(groups=[group], nodes=nodes, draining=draining.split())


def test_a_node_is_drained_when_it_is_primary_of_nothing() -> None:
    assert drained(status("a2", draining="a1"), "a1").is_done
    handing = drained(status("a1", draining="a1"), "a1")
    assert not handing.is_done and "group 'a' is being handed over" in handing.text
    alone = drained(status("a1", in_sync="a1 a2", draining="a1 a2"), "a1")
    assert not alone.is_done and "no other copy of it is in sync and not drained" in alone.text


def test_a_primary_is_moved_when_the_other_one_serves() -> None:
    assert moved(status("a2"), "a", "a2").is_done
    assert not moved(status("a1"), "a", "a2").is_done
    assert not moved(status("a1"), "b", "a2").is_done


def test_a_copy_is_there_when_it_is_in_sync() -> None:
    assert copied(status(), "a", "a3").is_done
    assert "copies group 'a'" in copied(status(members="a1 a2 a3 a4"), "a", "a4").text
    assert "does not answer" in copied(status(members="a1 a2 a3 a9"), "a", "a9").text


def test_how_far_a_copy_is_is_said_in_percent() -> None:
    found = status(members="a1 a2 a3 a4")
    nodes = [replace(node, copied_percent=40, group="a") if node.name == "a4" else node for node in found.nodes]
    assert copied(replace(found, nodes=nodes), "a", "a4").text == "node a4 copies group 'a': 40 %"


def test_how_far_a_move_is_is_said_with_all_there_is_to_copy() -> None:
    asked = MoveAsked(name="orders", group="b", number=7)
    under_way = MovingDestination(name="orders", number=7, step="copying", bytes=2_000, bytes_total=8_000)
    text = destination_moved(Moves(begun=7, moving=[under_way]), asked, "a").text
    assert text == "'orders' is being moved to group 'b': copying, 2,000 of 8,000 bytes copied (25 %)"
    emptying = replace(under_way, step="emptying", bytes=0)
    assert destination_moved(Moves(begun=7, moving=[emptying]), asked, "a").text.endswith("group 'b': emptying")


def test_a_copy_is_removed_when_the_group_no_longer_names_it() -> None:
    assert not removed(status(), "a", "a3").is_done
    assert removed(status(in_sync="a1 a2", members="a1 a2"), "a", "a3").is_done


def test_what_a_removal_costs_is_said_before() -> None:
    assert what_removal_costs(status(), "a", "a3") == ""
    assert "only a1 has all of group 'a'" in what_removal_costs(status(in_sync="a1 a2", members="a1 a2"), "a", "a2")
    assert "only a1 has all" in what_removal_costs(status(in_sync="a1 a2"), "a", "a2")
    five = status(in_sync="a1 a2 a3", members="a1 a2 a3 a4 a5")
    assert "only 2 of 5 copies" in what_removal_costs(five, "a", "a3")
    assert what_removal_costs(status(), "b", "a3") == ""


def test_a_bus_is_shown_with_whom_multicast_does_not_reach() -> None:
    assert shown_bus(OnBus(bus="red", multicast=3)) == "red"
    assert shown_bus(OnBus(bus="red", multicast=2, tcp=["a2", "a3"])) == "red (tcp to a2 and a3)"
    assert shown_bus(OnBus(bus="red", tcp=["a2"])) == "red (tcp)"


def test_a_node_that_does_not_answer_is_not_shown_as_in_sync() -> None:
    assert state_of(Node(name="a1", group="a", in_sync=True, answers=False, is_here=True)) == "no answer"
    assert state_of(Node(name="a1", group="a", in_sync=True, answers=False)) == "gone"
    assert state_of(Node(name="a1", group="a", answers=True)) == "behind"
    assert state_of(Node(name="a1", group="a", answers=True, copied_percent=43)) == "copying 43 %"
    assert state_of(Node(name="a1", group="a", in_sync=True, answers=True, draining=True)) == "in sync, drained"
    assert state_of(Node(name="a1", group="a", answers=True)) == "behind"
    assert state_of(Node(name="cm1", answers=True)) == "here"

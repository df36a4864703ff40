"""Goal: whatever is wrong with a cluster is said, with who is concerned and what to do; and nothing is said of a sound
one."""
import pytest

from angarium.core.groups.configuration import GroupConfiguration, Replica, configured, formed, min_copies_of
from angarium.node.cluster.health import Fault, GroupHealth, health_of, is_out_of_reach, voters_of
from angarium.node.cluster.status import in_order

NODES = ("a1", "a2", "a3")


def group(in_sync: str = "a1 a2 a3") -> GroupConfiguration:
    replicas = tuple(Replica(name, name.encode()) for name in in_sync.split())
    return GroupConfiguration("a", 1, 3, replicas[0], replicas, NODES, 3, min_copies_of(3))


def health(here: str, found: GroupConfiguration, *, is_served: bool = True, voters: str = "a1 a2 a3") -> GroupHealth:
    reached = here.split()
    return health_of(found, reached, voters_of(voters.split(), reached), is_served=is_served)


def test_nothing_is_said_of_a_sound_group() -> None:
    assert health("a1 a2 a3 cm1", group()) == GroupHealth(Fault.NONE, "")


@pytest.mark.parametrize(
    ("here", "in_sync", "is_served", "voters", "fault", "says"),
    [
        ("a1 a2", "a1 a2", True, "a1 a2 a3", Fault.COPIES_MISSING, "2 of 3 copies are in sync; start a3"),
        ("a1 a2 a3", "a1 a2", True, "a1 a2 a3", Fault.COPIES_MISSING, "2 of 3 copies are in sync; a3 is catching up"),
        ("a1 v1 v2", "a1", True, "v1 v2 v3", Fault.CONFIRMS_NOTHING, "1 of 3 copies is in sync, and 2 have to be"),
        ("a1 a2 v1", "a1 a2 a3", True, "v1 v2 v3", Fault.CONFIRMS_NOTHING, "waits for a3, until a majority"),
        ("a2 a3", "a1 a2 a3", False, "a1 a2 a3", Fault.NO_PRIMARY, "one of a2 and a3 is to take over"),
        ("a2", "a1 a2 a3", False, "a1 a2 a3", Fault.NO_PRIMARY, "no majority of the voters: 1 of 3 can be reached"),
        ("cm1", "a1 a2", False, "cm1", Fault.NO_PRIMARY, "one of a1 and a2, which alone have all that was confirmed"),
        ("cm1", "a1", False, "cm1", Fault.NO_PRIMARY, "waits for a1, which alone has all"),
    ],
)
def test_each_fault_is_named(
    here: str, in_sync: str, is_served: bool, voters: str, fault: Fault, says: str
) -> None:
    found = health(here, group(in_sync), is_served=is_served, voters=voters)
    assert found.fault is fault and says in found.text and "replica group 'a'" in found.text


def test_a_group_that_was_never_formed_names_who_is_missing() -> None:
    fresh = configured("a", 1, NODES)
    assert "waits for a2 and a3; start them" in health("a1", fresh, is_served=False).text
    replicas = [Replica(name, name.encode()) for name in NODES]
    assert health("a1 a2 a3", formed(fresh, replicas, b"i")).fault is Fault.NONE


def test_a_majority_is_more_than_half() -> None:
    assert voters_of(NODES, ["a1", "a2"]).trouble == ""
    lost = voters_of(NODES, ["a1"])
    assert not lost.has_majority and "start a2 and a3" in lost.trouble
    assert voters_of(["a1"], ["a1"]).has_majority


def test_nodes_are_ordered_as_people_count() -> None:
    assert sorted(["a10", "b1", "a2", "cm1", "a1"], key=in_order) == ["a1", "a2", "a10", "b1", "cm1"]


@pytest.mark.parametrize(
    ("here", "in_sync", "view", "voters", "is_so"),
    [
        ("cm1 a1 a2 a3", "a1 a2 a3", "cm1 a1 a2 a3", "a1 a2 a3", False),
        ("cm1 a2 a3", "a1 a2 a3", "cm1 a1 a2 a3", "a1 a2 a3", True),  # cut off from the primary, others are not
        ("cm1 a2 a3", "a1 a2 a3", "cm1 a2 a3", "a1 a2 a3", False),  # it died, and is about to be replaced
        ("cm1 a1 a2", "a1 a2 a3", "cm1 a1 a2 a3", "a1 a2 a3", False),  # a backup is the primary's business
        ("cm1", "a1 a2 a3", "cm1 a1 a2 a3", "a1 a2 a3", True),  # cut off from all
        ("a1", "a1 a2 a3", "a1 a2 a3", "a1 a2 a3", True),  # the primary itself: others may have another one
        ("cm1 a1 a2 a3", "a1 a2 a3", "cm1 a1 a2 a3 v1 v2", "v1 v2 a1", False),  # nothing is decided, and all goes on
    ],
)
def test_a_group_is_out_of_reach_if_others_may_be_served_by_it(
    here: str, in_sync: str, view: str, voters: str, is_so: bool
) -> None:
    reached = here.split()
    assert is_out_of_reach(group(in_sync), reached, view.split(), voters_of(voters.split(), reached)) is is_so


def test_a_group_that_was_never_formed_is_out_of_nobodys_reach() -> None:
    assert not is_out_of_reach(configured("a", 1, NODES), ["a1"], NODES, voters_of(NODES, ["a1"]))

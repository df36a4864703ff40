"""Goal: a configuration of a replica group follows from another only by its rules, and never from a stale one."""
from collections.abc import Callable

import pytest

from angarium.core.errors import Rejected
from angarium.core.groups import configuration as rules
from angarium.core.groups.configuration import GroupConfiguration, Position, Replica

A, B, C = (Replica(name, name.encode() * 16) for name in "abc")
A2 = Replica("a", b"2" * 16)


def group_of_three() -> GroupConfiguration:
    return rules.formed(rules.configured("g", 1, ("a", "b", "c")), (A, B, C), b"i1")


@pytest.mark.parametrize(("copies", "least"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_confirms_need_a_majority_of_the_copies_and_one_of_two(copies: int, least: int) -> None:
    assert rules.min_copies_of(copies) == least


def test_the_first_configured_member_is_the_first_primary() -> None:
    group = group_of_three()
    assert (group.epoch, group.primary, group.in_sync, group.incarnation) == (1, A, (A, B, C), b"i1")


def test_a_group_is_formed_once_and_of_all_its_members() -> None:
    with pytest.raises(Rejected, match="formed already"):
        rules.formed(group_of_three(), (A, B, C), b"i1")
    with pytest.raises(Rejected, match="in this order"):
        rules.formed(rules.configured("g", 1, ("a", "b", "c")), (A, B), b"i1")


def test_the_highest_position_is_promoted_and_rank_decides_between_equals() -> None:
    group = group_of_three()
    assert rules.best(group, {B: Position(1, 7), C: Position(1, 9)}, None) == [C, B]
    assert rules.best(group, {C: Position(1, 9), B: Position(1, 9)}, None) == [B, C]
    assert rules.best(group, {A: Position(1, 9), B: Position(1, 9), C: Position(1, 8)}, C) == [A, B, C]
    assert rules.best(group, {A: Position(1, 9), B: Position(1, 9), C: Position(1, 9)}, C) == [C, A, B]
    assert rules.best(group, {B: Position(1, 900), C: Position(2, 1)}, None) == [C, B]


def test_promotion_takes_only_who_was_in_sync() -> None:
    group = rules.promoted(group_of_three(), 1, [C, B], b"i3")
    assert (group.epoch, group.primary, group.in_sync, group.incarnation) == (2, C, (C, B), b"i3")
    for wrong in ([A, B], [A2, B], [B, B], []):
        with pytest.raises(Rejected, match="cannot be its in-sync replicas"):
            rules.promoted(group, 2, wrong, b"")


def test_only_the_primary_changes_who_is_in_sync() -> None:
    group = rules.shrunk(group_of_three(), 1, A, [C])
    assert (group.epoch, group.in_sync, group.incarnation) == (2, (A, B), b"i1")
    assert rules.admitted(group, 2, A, C).in_sync == (A, B, C)
    with pytest.raises(Rejected, match="the primary is"):
        rules.admitted(group, 2, B, C)
    with pytest.raises(Rejected, match="in sync already"):
        rules.admitted(group, 2, A, Replica("b", b"3" * 16))
    with pytest.raises(Rejected, match="is none of"):
        rules.admitted(group, 2, A, Replica("d", b"d" * 16))
    renewed = rules.shrunk(group, 2, A, [])
    assert (renewed.epoch, renewed.in_sync) == (3, (A, B))
    with pytest.raises(Rejected, match="cannot take itself out"):
        rules.shrunk(group, 2, A, [A])


def test_a_stale_epoch_changes_nothing() -> None:
    group = rules.shrunk(group_of_three(), 1, A, [C])
    changes: list[Callable[[], GroupConfiguration]] = [
        lambda: rules.promoted(group, 1, [B], b""), lambda: rules.shrunk(group, 1, A, [B]),
        lambda: rules.admitted(group, 3, A, C), lambda: rules.with_members(group, 1, ("a",), (A,)),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(Rejected) as caught:
            change()
        assert caught.value.code == "stale-epoch"


def test_members_come_and_go_but_not_the_primary() -> None:
    group = rules.with_members(group_of_three(), 1, ("a", "b", "c", "d"), (A, B, C))
    assert (group.epoch, group.copies, group.min_copies) == (2, 4, 3)
    group = rules.with_members(group, 2, ("a", "b"), (A, B))
    assert (group.epoch, group.in_sync, group.min_copies) == (3, (A, B), 1)
    with pytest.raises(Rejected, match="move the primary first"):
        rules.with_members(group, 3, ("b",), (B,))
    assert rules.with_members(rules.configured("g", 1, ("a", "b")), 0, ("a",), ()).epoch == 0

"""Goal: a destination is in one replica group at any time, by decisions that cannot contradict each other: a move is
done only if the source is what it was when it was copied, and what is over is over."""
import pytest

from angarium.core.errors import Rejected
from angarium.core.groups import decisions as d
from angarium.core.groups.configuration import Replica
from angarium.core.groups.deciding import applied
from angarium.core.groups.moving import ENDED_MAX
from angarium.core.groups.records import Limits, Move, State, decode_state, encode_state

X = Replica("x", b"x" * 16)
Y = Replica("y", b"y" * 16)


def after(state: State, *decisions: d.AnyDecision) -> State:
    for decision in decisions:
        state = applied(state, d.decode_decision(d.encode_decision(decision)), state.index + 1)
    return decode_state(encode_state(state))


def refused(state: State, decision: d.AnyDecision) -> str:
    with pytest.raises(Rejected) as caught:
        applied(state, decision, state.index + 1)
    return caught.value.code


def two_groups(limits: Limits | None = None) -> State:
    founding = d.Founding(b"cluster", b"essential", limits or Limits())
    return after(
        State(), d.VotersSet((), founding), d.GroupConfigured("g", ("x",)), d.GroupConfigured("h", ("y",)),
        d.GroupFormed("g", (X,), b"1"), d.GroupFormed("h", (Y,), b"1"), d.SlotsDealt(("g",)),
    )  # fmt: skip


def test_a_move_is_under_way_and_then_done() -> None:
    begun = after(two_groups(), d.MoveBegun("orders", "h"))
    assert begun.placement.moves == {"orders": Move(1, 1, 2)} and begun.placement.group_of("orders") == 1
    done = after(begun, d.MoveDone("orders", 1, 1))
    assert done.placement.group_of("orders") == 2 and not done.placement.moves
    assert done.placement.group_of("prices") == 1
    assert done.placement.version > begun.placement.version > two_groups().placement.version


def test_it_is_not_done_when_the_source_has_come_to_another_epoch() -> None:
    begun = after(two_groups(), d.MoveBegun("orders", "h"), d.GroupPromoted("g", 1, (X,), b"2"))
    assert refused(begun, d.MoveDone("orders", 1, 1)) == "stale-epoch"
    assert after(begun, d.MoveDone("orders", 1, 2)).placement.group_of("orders") == 2


def test_what_is_over_is_over() -> None:
    ended = after(two_groups(), d.MoveBegun("orders", "h"), d.MoveEnded("orders", 1, "no-primary", "nobody answers"))
    assert refused(ended, d.MoveDone("orders", 1, 1)) == "stale-version"
    assert ended.placement.moves_ended["orders"].code == "no-primary"
    again = after(ended, d.MoveBegun("orders", "h"))
    assert again.placement.moves["orders"].number == 2 and not again.placement.moves_ended
    assert refused(again, d.MoveDone("orders", 1, 1)) == "stale-version"
    assert refused(again, d.MoveEnded("orders", 1, "x", "late")) == "stale-version"
    assert refused(after(again, d.MoveDone("orders", 2, 1)), d.MoveEnded("orders", 2, "x", "late")) == "stale-version"


def test_what_cannot_be_moved_is_refused() -> None:
    state = two_groups(Limits(moves_max=1))
    assert refused(state, d.MoveBegun("orders", "g")) == "already-there"
    assert refused(state, d.MoveBegun("orders", "nowhere")) == "unknown-group"
    assert refused(state, d.MoveBegun("_DMQ", "h")) == "bad-name"
    assert refused(state, d.MoveBegun("", "h")) == "bad-name"
    begun = after(state, d.MoveBegun("orders", "h"))
    assert refused(begun, d.MoveBegun("prices", "h")) == "too-many"
    assert refused(begun, d.MoveBegun("orders", "g")) == "moving"
    assert after(begun, d.MoveBegun("orders", "h")).placement == begun.placement, "asked for again, it is the same one"
    full = after(two_groups(Limits(exceptions_max=1)), d.MoveBegun("orders", "h"), d.MoveDone("orders", 1, 1))
    assert refused(full, d.MoveBegun("prices", "h")) == "too-many"
    assert after(full, d.MoveBegun("orders", "g")).placement.moves["orders"] == Move(2, 2, 1)


def test_a_destination_that_came_back_to_where_its_name_belongs_is_no_exception_any_more() -> None:
    state = after(two_groups(Limits(exceptions_max=1)), d.MoveBegun("orders", "h"), d.MoveDone("orders", 1, 1))
    assert refused(state, d.MoveBegun("prices", "h")) == "too-many"
    home = after(state, d.MoveBegun("orders", "g"), d.MoveDone("orders", 2, 1))
    assert home.placement.exceptions == {} and home.placement.group_of("orders") == 1
    assert after(home, d.MoveBegun("prices", "h"), d.MoveDone("prices", 3, 1)).placement.exceptions == {"prices": 2}


def test_few_moves_that_came_to_nothing_are_remembered() -> None:
    state = two_groups()
    for number in range(1, ENDED_MAX + 3):
        state = after(state, d.MoveBegun(f"q{number}", "h"), d.MoveEnded(f"q{number}", number, "x", "r" * 10_000))
    assert len(state.placement.moves_ended) == ENDED_MAX and "q1" not in state.placement.moves_ended
    assert len(state.placement.moves_ended["q50"].reason) == 500

"""Decisions about a destination that is moved from one replica group to another (core/moving).

    MoveBegun --> under way --MoveDone---> it is in the target: an exception of the placement, unless that is where its
                                           name belongs
                            --MoveEnded--> it has stayed in the source, and why is remembered for a while

That a move is done is the one step that counts, and it is refused if the source has come to another epoch since it was
proposed: a message manager that was started meanwhile knows nothing of what was copied before, and goes on where the
store is. Promotions and moves are decided in one log, so whoever is promoted after a move was done knows of it.
"""
from typing import Any

import msgspec

from angarium.core.errors import Rejected
from angarium.core.groups import decisions as d
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.records import Move, MoveEnd, Placement, State
from angarium.core.groups.refusing import too_many

ENDED_MAX = 100  # moves that were given up and are remembered; past it the first is forgotten
REASON_CHARACTERS_MAX = 500


def placement_but(placement: Placement, **changes: Any) -> Placement:
    return msgspec.structs.replace(placement, version=placement.version + 1, **changes)


def _begun(state: State, decision: d.MoveBegun, index: int) -> State:
    placement, name = state.placement, decision.destination
    if not placement.slots:
        raise Rejected("bad-slot", "nothing can be moved before slots are dealt to groups")
    if not 0 < len(name) <= state.limits.name_characters_max or name.startswith("_"):
        limit = state.limits.name_characters_max
        reason = f"{name[:50]!r}: what can be moved has a name of 1 to {limit} characters that does not begin with '_'"
        raise Rejected("bad-name", reason)
    target = state.groups.get(decision.group)
    if target is None or not target.is_formed:
        raise Rejected("unknown-group", f"there is no replica group {decision.group!r} that could take it")
    if (move := placement.moves.get(name)) is not None:
        if move.target == target.number:
            return state  # asked for again: it is under way
        raise Rejected("moving", f"{name!r} is being moved to group number {move.target}: wait for the end of that")
    source = placement.group_of(name)
    if source == target.number:
        raise Rejected("already-there", f"{name!r} is in replica group {decision.group!r}")
    if len(placement.moves) >= state.limits.moves_max:
        raise too_many(f"moving {name!r}", "moves_max", state.limits.moves_max)
    is_one_more = name not in placement.exceptions and target.number != placement.slot_of(name)
    if is_one_more and len(placement.exceptions) >= state.limits.exceptions_max:
        raise too_many(f"destination {name!r}", "exceptions_max", state.limits.exceptions_max)
    number = placement.moves_begun + 1
    moves = {**placement.moves, name: Move(number, source, target.number)}
    ended = {other: end for other, end in placement.moves_ended.items() if other != name}
    return state.but(placement=placement_but(placement, moves=moves, moves_begun=number, moves_ended=ended))


def _done(state: State, decision: d.MoveDone, index: int) -> State:
    move, moves = _without(state, decision.destination, decision.number)
    source = next(group for group in state.groups.values() if group.number == move.source)
    _check_epoch(source, decision.epoch)
    name = decision.destination
    exceptions = {other: group for other, group in state.placement.exceptions.items() if other != name}
    if move.target != state.placement.slot_of(name):
        exceptions[name] = move.target
    return state.but(placement=placement_but(state.placement, moves=moves, exceptions=exceptions))


def _check_epoch(source: GroupConfiguration, epoch: int) -> None:
    if source.epoch != epoch:
        reason = f"group {source.group!r} is at epoch {source.epoch}, not {epoch}: what was copied may be out of date"
        raise Rejected("stale-epoch", reason)


def _ended(state: State, decision: d.MoveEnded, index: int) -> State:
    _, moves = _without(state, decision.destination, decision.number)
    end = MoveEnd(decision.number, decision.code, decision.reason[:REASON_CHARACTERS_MAX])
    ended = {**state.placement.moves_ended, decision.destination: end}
    while len(ended) > ENDED_MAX:
        del ended[next(iter(ended))]
    return state.but(placement=placement_but(state.placement, moves=moves, moves_ended=ended))


def _without(state: State, name: str, number: int) -> tuple[Move, dict[str, Move]]:
    move = state.placement.moves.get(name)
    if move is None or move.number != number:
        raise Rejected("stale-version", f"move {number} of {name!r} is over")
    return move, {other: move for other, move in state.placement.moves.items() if other != name}


MOVE_RULES: dict[type[d.Decision], Any] = {d.MoveBegun: _begun, d.MoveDone: _done, d.MoveEnded: _ended}

"""Applying a decision: the state before and a decision in, the state after out; `Rejected` if it does not fit.

Pure and deterministic, so that all nodes that apply the same log have the same state. A refused decision is in the
log like any other, and changes nothing but the index.
"""
from collections.abc import Callable
from typing import Any

import msgspec

from angarium.core.errors import Rejected
from angarium.core.groups import configuration as rules
from angarium.core.groups import decisions as d
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.moving import MOVE_RULES, placement_but
from angarium.core.groups.records import SLOTS, Limits, Member, NodeRecord, Setting, State
from angarium.core.groups.refusing import too_many

_REPLACED_MAX = 4  # earlier incarnations of a name that are remembered


def applied(state: State, decision: d.AnyDecision, index: int) -> State:
    """The state after it, with its index; raises `Rejected`."""
    change: Callable[[State, Any, int], State] = _RULES[type(decision)]
    return change(state, decision, index).with_index(index)


# -- voters, essentials ------------------------------------------------------------------------------


def _nothing(state: State, decision: d.Nothing, index: int) -> State:
    return state


def _voters(state: State, decision: d.VotersSet, index: int) -> State:
    founding = decision.founding
    if founding is None:
        return state.but(voters=decision.voters)
    return state.but(
        voters=decision.voters, voters_wanted=tuple(voter.node for voter in decision.voters),
        cluster=founding.cluster, essential=founding.essential, limits=founding.limits,
    )  # fmt: skip


def _voters_wanted(state: State, decision: d.VotersWanted, index: int) -> State:
    nodes, limit = decision.nodes, state.limits.voters_max
    if decision.expected != state.voters_wanted:
        raise Rejected("stale-version", f"wanted as voters are {state.voters_wanted}, not {decision.expected}")
    if not 1 <= len(nodes) <= limit or len(set(nodes)) != len(nodes):
        raise Rejected("bad-voters", f"{nodes}: 1 to voters_max {limit} different nodes")
    return state.but(voters_wanted=nodes)


def _essential(state: State, decision: d.EssentialSet, index: int) -> State:
    if decision.expected != state.essential:
        raise Rejected("stale-version", "the digest of the essential parameters has changed meanwhile")
    return state.but(essential=decision.digest)


def _limits(state: State, decision: d.LimitsSet, index: int) -> State:
    return state.but(limits=decision.limits)  # what is there stays, also if it is more


# -- the view ------------------------------------------------------------------------------------------


def check_record(node: NodeRecord, limits: Limits) -> None:
    names = (node.name, *node.addresses, *node.roles, *(hosted.group for hosted in node.hosts))
    if not node.name or any(len(name) > limits.name_characters_max for name in names):
        limit = limits.name_characters_max
        raise Rejected("too-long", f"node {node.name[:50]!r}: names, addresses and roles have 1 to {limit} characters")
    for what, found, limit in (
        ("addresses", len(node.addresses), limits.addresses_max),
        ("roles", len(node.roles), limits.roles_max),
        ("hosts", len(node.hosts), limits.hosts_max),
    ):
        if found > limit:
            raise Rejected("too-many", f"node {node.name!r}: {found} {what}; the most is {what}_max {limit}")


def _joined(state: State, decision: d.NodeJoined, index: int) -> State:
    node = decision.node
    check_record(node, state.limits)
    present = state.node(node.name)
    if present is None:
        if len(state.nodes) >= state.limits.nodes_max:
            raise too_many(f"node {node.name!r} cannot join", "nodes_max", state.limits.nodes_max)
        fresh = msgspec.structs.replace(node, replaced=())
        return state.but(nodes=(*state.nodes, fresh), view_id=index)
    if node.incarnation in present.replaced:
        raise Rejected("replaced", f"node {node.name!r}: a later start of it has taken its place")
    if present.incarnation == node.incarnation:
        updated = msgspec.structs.replace(node, replaced=present.replaced)
        if updated == present:
            return state
        return state.but(nodes=tuple(updated if n is present else n for n in state.nodes), view_id=index)
    # The old one ends here with its memberships; the new one starts at the end of the list.
    state = _without(state, {(present.name, present.incarnation)}, index)
    replaced = (*present.replaced, present.incarnation)[-_REPLACED_MAX:]
    return state.but(nodes=(*state.nodes, msgspec.structs.replace(node, replaced=replaced)))


def _gone(state: State, decision: d.NodesGone, index: int) -> State:
    gone = {(name, incarnation) for name, incarnation in decision.nodes if state.is_here(name, incarnation)}
    if not gone:
        raise Rejected("not-here", "none of these nodes is in the view (any more)")
    return _without(state, gone, index)


def _without(state: State, gone: set[tuple[str, bytes]], index: int) -> State:
    named: dict[str, tuple[Member, ...]] = {}
    for group, members in state.named.items():
        left = tuple(m for m in members if (m.node, m.incarnation) not in gone)
        if left:
            named[group] = members if len(left) == len(members) else left
    nodes = tuple(node for node in state.nodes if (node.name, node.incarnation) not in gone)
    return state.but(nodes=nodes, named=named, view_id=index)


def _drain(state: State, decision: d.DrainSet, index: int) -> State:
    others = tuple(name for name in state.draining if name != decision.node)
    if not decision.is_draining:
        return state.but(draining=others)
    if state.node(decision.node) is None:
        raise Rejected("not-here", f"node {decision.node!r} is not in the view")
    return state.but(draining=(*others, decision.node)[-state.limits.nodes_max :])


# -- named groups ----------------------------------------------------------------------------------------


def _named_joined(state: State, decision: d.NamedJoined, index: int) -> State:
    group, limit = decision.group, state.limits.name_characters_max
    if not 0 < len(group) <= limit or len(decision.label) > limit:
        raise Rejected("too-long", f"group {group[:50]!r}: names have 1 to {limit} characters, labels at most")
    if not state.is_here(decision.node, decision.incarnation):
        raise Rejected("not-here", f"node {decision.node!r} is not in the view under this incarnation")
    members = state.named.get(group, ())
    member = Member(decision.node, decision.incarnation, decision.label)
    if member in members:
        return state
    if group not in state.named and len(state.named) >= state.limits.named_groups_max:
        raise too_many(f"group {group!r}", "named_groups_max", state.limits.named_groups_max)
    if len(members) >= state.limits.members_max:
        raise too_many(f"members of group {group!r}", "members_max", state.limits.members_max)
    return state.but(named={**state.named, group: (*members, member)})


def _named_left(state: State, decision: d.NamedLeft, index: int) -> State:
    members = state.named.get(decision.group, ())
    member = Member(decision.node, decision.incarnation, decision.label)
    left = tuple(present for present in members if present != member)
    if len(left) == len(members):
        return state
    named = {**state.named, decision.group: left}
    if not left:
        del named[decision.group]
    return state.but(named=named)


# -- replica groups --------------------------------------------------------------------------------------


def _group(state: State, name: str) -> GroupConfiguration:
    if name not in state.groups:
        raise Rejected("no-such-group", f"replica group {name!r} is not configured")
    return state.groups[name]


def _with(state: State, group: GroupConfiguration) -> State:
    return state.but(groups={**state.groups, group.group: group})


def _configured(state: State, decision: d.GroupConfigured, index: int) -> State:
    name, members = decision.group, decision.members
    present = state.groups.get(name)
    if present is not None:
        if present.members == members:
            return state
        raise Rejected("group-exists", f"replica group {name!r} has members {present.members}; add or remove copies")
    if not 0 < len(name) <= state.limits.name_characters_max:
        raise Rejected("too-long", f"replica group {name[:50]!r}: 1 to {state.limits.name_characters_max} characters")
    if not members or len(set(members)) != len(members) or len(members) > state.limits.copies_max:
        limit = state.limits.copies_max
        raise Rejected("bad-members", f"replica group {name!r}: 1 to copies_max {limit} different nodes")
    if len(state.groups) >= state.limits.replica_groups_max:
        raise too_many(f"replica group {name!r}", "replica_groups_max", state.limits.replica_groups_max)
    number = max((group.number for group in state.groups.values()), default=0) + 1
    return _with(state, rules.configured(name, number, members))


def _formed(state: State, decision: d.GroupFormed, index: int) -> State:
    return _with(state, rules.formed(_group(state, decision.group), decision.replicas, decision.incarnation))


def _promoted(state: State, decision: d.GroupPromoted, index: int) -> State:
    group = _group(state, decision.group)
    return _with(state, rules.promoted(group, decision.epoch, decision.in_sync, decision.incarnation))


def _shrunk(state: State, decision: d.GroupShrunk, index: int) -> State:
    return _with(state, rules.shrunk(_group(state, decision.group), decision.epoch, decision.primary, decision.gone))


def _admitted(state: State, decision: d.GroupAdmitted, index: int) -> State:
    group = _group(state, decision.group)
    return _with(state, rules.admitted(group, decision.epoch, decision.primary, decision.replica))


def _copy_added(state: State, decision: d.CopyAdded, index: int) -> State:
    group = _group(state, decision.group)
    if decision.node in group.members:
        return state
    if len(group.members) >= state.limits.copies_max:
        raise too_many(f"copies of replica group {group.group!r}", "copies_max", state.limits.copies_max)
    return _with(state, rules.with_members(group, decision.epoch, (*group.members, decision.node), group.in_sync))


def _copy_removed(state: State, decision: d.CopyRemoved, index: int) -> State:
    group = _group(state, decision.group)
    if decision.node not in group.members:
        return state
    members = tuple(name for name in group.members if name != decision.node)
    in_sync = tuple(replica for replica in group.in_sync if replica.node != decision.node)
    return _with(state, rules.with_members(group, decision.epoch, members, in_sync))


# -- placement, acquirable configuration -------------------------------------------------------------------


def _dealt(state: State, decision: d.SlotsDealt, index: int) -> State:
    if state.placement.slots:
        raise Rejected("stale-version", f"slots were dealt already: placement version {state.placement.version}")
    numbers = [_group(state, name).number for name in decision.groups]
    if not numbers:
        raise Rejected("bad-members", "slots are dealt to at least one replica group")
    slots = tuple(numbers[slot % len(numbers)] for slot in range(SLOTS))
    return state.but(placement=placement_but(state.placement, slots=slots))


def _setting(state: State, decision: d.SettingSet, index: int) -> State:
    key, value, version = decision.key, decision.value, state.settings_version
    if decision.version not in (None, version):
        raise Rejected("stale-version", f"the configuration is at version {version}, not {decision.version}")
    if not 0 < len(key) <= state.limits.name_characters_max or len(value or b"") > state.limits.setting_bytes_max:
        limits = f"{state.limits.name_characters_max} characters, its value {state.limits.setting_bytes_max:,} bytes"
        raise Rejected("too-long", f"key {key[:50]!r}: a key has 1 to {limits} at most")
    others = {name: setting for name, setting in state.settings.items() if name != key}
    if value is None:
        return state if len(others) == len(state.settings) else state.but(settings=others, settings_version=version + 1)
    if len(others) >= state.limits.settings_max:
        raise too_many(f"key {key!r}", "settings_max", state.limits.settings_max)
    if sum(len(setting.value) for setting in others.values()) + len(value) > state.limits.settings_bytes_max:
        limit = state.limits.settings_bytes_max
        raise Rejected("too-long", f"key {key!r}: all values together may have settings_bytes_max {limit:,}")
    return state.but(settings={**others, key: Setting(version + 1, value)}, settings_version=version + 1)


_RULES: dict[type[d.Decision], Any] = {
    d.Nothing: _nothing, d.VotersSet: _voters, d.VotersWanted: _voters_wanted, d.EssentialSet: _essential,
    d.LimitsSet: _limits,
    d.NodeJoined: _joined, d.NodesGone: _gone, d.DrainSet: _drain,
    d.NamedJoined: _named_joined, d.NamedLeft: _named_left,
    d.GroupConfigured: _configured, d.GroupFormed: _formed, d.GroupPromoted: _promoted, d.GroupShrunk: _shrunk,
    d.GroupAdmitted: _admitted, d.CopyAdded: _copy_added, d.CopyRemoved: _copy_removed,
    d.SlotsDealt: _dealt, d.SettingSet: _setting,
    **MOVE_RULES,
}  # fmt: skip

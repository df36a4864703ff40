"""Named groups: which this node is in, and the commands `groups.join`, `groups.leave` and `groups.named`.

Every node has the same list of each group's members, in the order in which they joined; who dies, or stops, is taken
out of all lists by the decision that takes it out of the view. A node is in those of `cluster.named_groups` from its
start on; one that it was asked to join it leaves with its end.
"""
from typing import TYPE_CHECKING

from angarium.core.commands import CommandSpec, Parameter, Scope
from angarium.core.errors import LocalProtocolError, Rejected
from angarium.core.groups.decisions import NamedJoined, NamedLeft
from angarium.core.groups.records import Member
from angarium.core.ids import format_id
from angarium.node.cluster.deciding import decided
from angarium.node.registry import Arguments, Registry

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_GROUP = Parameter("group", "name of the group; there is one as long as somebody is in it", required=True)
_LABEL = Parameter("label", "a node may be in a group several times, under different labels")


def register_named_groups(registry: Registry, node: "ClusterNode") -> None:
    async def join(arguments: Arguments) -> list[dict[str, str]]:
        return await _join(node, arguments["group"], arguments.get("label") or "")

    async def leave(arguments: Arguments) -> list[dict[str, str]]:
        return await _leave(node, arguments["group"], arguments.get("label") or "")

    register = registry.register
    register(CommandSpec("groups.join", "have the node be in a named group until it stops", Scope.NODE,
                         (_GROUP, _LABEL)), join)  # fmt: skip
    register(CommandSpec("groups.leave", "have the node no longer be in a named group", Scope.NODE,
                         (_GROUP, _LABEL)), leave)  # fmt: skip
    register(CommandSpec("groups.named", "named groups, and their members in the order in which they joined",
                         Scope.NODE), lambda _: named_groups(node))  # fmt: skip


def named_groups(node: "ClusterNode") -> dict[str, list[dict[str, str]]]:
    """As this node knows them."""
    return {group: _listed(members) for group, members in sorted(node.membership.machine.state.named.items())}


def _listed(members: tuple[Member, ...]) -> list[dict[str, str]]:
    return [
        {"node": member.node, "label": member.label, "incarnation": format_id(member.incarnation)} for member in members
    ]


async def _join(node: "ClusterNode", group: str, label: str) -> list[dict[str, str]]:
    """Its members, this node among them."""
    try:
        node.membership.join(group, label)  # from now on: what is decided and not wanted would be taken back
    except LocalProtocolError as error:
        raise Rejected("too-many", str(error)) from None
    try:
        await _decide(node, NamedJoined(group, node.name, node.identity.incarnation, label))
    except Rejected:
        node.membership.leave_group(group, label)  # else it would be asked for again and again
        raise
    return named_groups(node).get(group, [])


async def _leave(node: "ClusterNode", group: str, label: str) -> list[dict[str, str]]:
    me = Member(node.name, node.identity.incarnation, label)
    if me not in node.membership.machine.state.named.get(group, ()):
        raise Rejected("not-here", f"node {node.name!r} is not in group {group[:50]!r} under label {label[:50]!r}")
    node.membership.leave_group(group, label)
    await _decide(node, NamedLeft(group, node.name, node.identity.incarnation, label))
    return named_groups(node).get(group, [])


async def _decide(node: "ClusterNode", decision: NamedJoined | NamedLeft) -> None:
    answered = await decided(node, decision)
    if answered.code:
        raise Rejected(answered.code, answered.reason)
    await node.membership.applied_soon(answered.index)

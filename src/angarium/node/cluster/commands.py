"""Administrative commands of a node of a cluster, and of the cluster: registered here, performed here.

A decision that is refused, or cannot be made because there is no majority, is told as that; whether what was decided
has come about is seen in `cluster.status`.
"""
from functools import partial
from typing import TYPE_CHECKING, Any

from angarium.core.commands import CommandSpec, Parameter, Scope
from angarium.core.errors import Rejected
from angarium.core.groups.decisions import CopyAdded, CopyRemoved, DrainSet
from angarium.core.groups.protocol import MovePrimary, Request
from angarium.node.cluster.deciding import decided
from angarium.node.cluster.moving import register_moves
from angarium.node.cluster.naming import register_named_groups
from angarium.node.cluster.settings import buses_of, essential_digest, essential_parameters, names_of
from angarium.node.cluster.status import cluster_status, groups_of, replicas_of, status_of, whereabouts
from angarium.node.cluster.voting import register_voting
from angarium.node.registry import Arguments, Registry

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_ATTEMPTS = 3  # the group may have come to another epoch meanwhile
_NODE = Parameter("node", "name of a node", required=True)
_GROUP = Parameter("group", "name of a replica group", required=True)
_DECIDED = (
    CommandSpec("cluster.drain", "hand over all primaries of a node", Scope.CLUSTER, (_NODE,)),
    CommandSpec("cluster.undrain", "let a node be primary again", Scope.CLUSTER, (_NODE,)),
    CommandSpec("cluster.move-primary", "make another in-sync copy the primary", Scope.CLUSTER, (_GROUP, _NODE)),
    CommandSpec("cluster.add-copy", "have a node hold a copy of a group", Scope.CLUSTER, (_GROUP, _NODE)),
    CommandSpec("cluster.remove-copy", "have a node no longer hold a copy", Scope.CLUSTER, (_GROUP, _NODE)),
)


def register_node(registry: Registry, node: "ClusterNode") -> None:
    """What each subsystem of the node has to say, and what the cluster can be asked to do."""
    register = registry.register
    register(CommandSpec("node.status", "how the node is doing", Scope.NODE), lambda _: status_of(node))
    register(CommandSpec("node.essential", "what all nodes must share, and its digest", Scope.NODE),
             lambda _: essential_of(node))  # fmt: skip
    register(CommandSpec("node.groups", "replica groups and their numbers", Scope.CLUSTER),
             lambda _: {group: found.number for group, found in node.configurations.items()})  # fmt: skip
    register(CommandSpec("groups.status", "what group services know: leader, term, voters, view", Scope.NODE),
             lambda _: groups_of(node))  # fmt: skip
    register(CommandSpec("replication.status", "the copies that the node holds: role, epoch, how far", Scope.NODE),
             lambda _: replicas_of(node))  # fmt: skip
    register(CommandSpec("cluster.status", "every node, its role, group, and whether it is in sync", Scope.CLUSTER),
             lambda _: cluster_status(node))  # fmt: skip
    register(CommandSpec("cluster.where", "the replica group of a destination", Scope.CLUSTER,
                         (Parameter("name", "name of the queue or topic", required=True),)),
             lambda arguments: whereabouts(node, arguments["name"]))  # fmt: skip
    register_moves(registry, node.moving)
    register_named_groups(registry, node)
    register_voting(registry, node)
    for spec in _DECIDED:
        register(spec, partial(_decide, node, spec.name))


async def _decide(node: "ClusterNode", command: str, arguments: Arguments) -> dict[str, Any]:
    for _ in range(_ATTEMPTS):
        answered = await decided(node, _request(node, command, arguments))
        if answered.code != "stale-epoch":
            break
    if answered.code:
        raise Rejected(answered.code, answered.reason)
    return {}


def _request(node: "ClusterNode", command: str, arguments: Arguments) -> Request:
    """Raises `Rejected` for what can be seen from here to be a mistake."""
    group, target = arguments.get("group", ""), arguments["node"]
    configuration = node.configurations.get(group)
    if configuration is None and group:
        known = ", ".join(sorted(node.configurations))
        raise Rejected("unknown-group", f"there is no replica group {group!r}; there are {known}")
    known_nodes = node.desk.expected()
    if target not in known_nodes:
        raise Rejected("unknown-node", f"there is no node {target[:50]!r}; there are {', '.join(sorted(known_nodes))}")
    members = configuration.members if configuration else ()
    epoch = configuration.epoch if configuration else 0
    match command:
        case "cluster.drain":
            if not any(target in each.members for each in node.configurations.values()):
                raise Rejected(
                    "no-copy",
                    f"node {target!r} holds no copy of any replica group: there is nothing to hand over; stop it, and "
                    "its clients go to another client manager",
                )
            return DrainSet(target, True)
        case "cluster.undrain":
            return DrainSet(target, False)
        case "cluster.move-primary":
            if target not in members:
                raise _no_copy(group, target, members)
            return MovePrimary(group, epoch, target)
        case "cluster.add-copy":
            if target in members:
                raise Rejected("copy-exists", f"node {target!r} is to hold a copy of replica group {group!r} already")
            if target not in node.nodes.view:
                raise Rejected("not-here", f"node {target!r} is not in the cluster just now: start it first")
            _check_buses(node, group, target, members)
            return CopyAdded(group, epoch, target)
        case _:
            if target not in members:
                raise _no_copy(group, target, members)
            return CopyRemoved(group, epoch, target)


def _check_buses(node: "ClusterNode", group: str, target: str, members: tuple[str, ...]) -> None:
    there, here = buses_of(node.buses.all, target), buses_of(node.buses.all, members[0])
    if there != here:
        raise Rejected(
            "other-bus",
            f"node {target!r} is on bus {names_of(there)}, replica group {group!r} on {names_of(here)}: all its copies "
            "have to be on the same; change cluster.buses, and start the nodes again, or choose another node",
        )


def _no_copy(group: str, node: str, members: tuple[str, ...]) -> Rejected:
    holders = f"{', '.join(members)} {'does' if len(members) == 1 else 'do'}"
    return Rejected("no-copy", f"node {node!r} holds no copy of replica group {group!r}; {holders}")


def essential_of(node: "ClusterNode") -> dict[str, Any]:
    return {**essential_parameters(node.cluster_settings), "digest": essential_digest(node.cluster_settings).hex()}


async def differing(node: "ClusterNode") -> str:
    """In which essential parameter this node differs from the others: the first one, with both values."""
    mine = essential_parameters(node.cluster_settings)
    composite = await node.desk.ask_linked(node.nodes.linked_names, "node.essential")
    for name, reply in sorted(composite.replies.items()):
        for key, value in mine.items():
            if not reply.code and key in reply.result and reply.result[key] != value:
                return f"the first is {key}: {value!r} here, {reply.result[key]!r} on node {name!r}"
    return "no other node could be asked in which"

"""Administrative commands of a node of a cluster, and of the cluster: registered here, performed here."""
import asyncio
import os
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from angarium.core.commands import CommandSpec, Parameter, Scope
from angarium.core.errors import Rejected
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.decisions import CopyAdded, CopyRemoved, DrainSet
from angarium.core.groups.protocol import MovePrimary, Request
from angarium.core.ids import format_id
from angarium.node.administration import Composite
from angarium.node.cluster.settings import essential_digest, essential_parameters
from angarium.node.registry import Arguments, Registry

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

VERSION = version("angarium")  # looked up in files: once, not for each status
STATUS_S_MAX = 1.0
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
    for spec in _DECIDED:
        register(spec, partial(_decide, node, spec.name))


# -- the cluster -------------------------------------------------------------------------------------------


async def cluster_status(node: "ClusterNode") -> dict[str, Any]:
    """One composite of all nodes' replies."""
    composite = await node.desk.ask(node.desk.expected(), "node.status", {}, timeout_s=STATUS_S_MAX)
    view = node.nodes.view
    nodes = [row for name in view for row in _rows(node, name, composite)]
    nodes += [row for name in sorted(composite.missing) if name not in view for row in _rows(node, name, composite)]
    return {
        "leader": node.membership.machine.leader,
        "expected": composite.expected,
        "missing": sorted(composite.missing),
        "reasons": composite.missing,
        "nodes": nodes,
    }


def _log_pages(said: dict[str, Any], configuration: GroupConfiguration | None) -> int:
    """How many pages of its log the replica has told, as a backup."""
    replica = said.get("replicas", {}).get(configuration.group, {}) if configuration else {}
    return int(replica.get("log_pages", 0))


def _rows(node: "ClusterNode", name: str, composite: Composite) -> list[dict[str, Any]]:
    """One for each copy that it holds, or is to hold; one if it holds none."""
    reply, record = composite.replies.get(name), node.nodes.view.get(name)
    said = reply.result if reply is not None and not reply.code else {}
    held: list[GroupConfiguration | None] = [
        configuration for configuration in node.configurations.values() if name in configuration.members
    ]
    rows: list[dict[str, Any]] = []
    for configuration in held or [None]:
        in_sync = [replica.node for replica in configuration.in_sync] if configuration else []
        primary = configuration.primary.node if configuration and configuration.primary else ""
        rows.append(
            {
                "name": name,
                "role": "mm" if configuration else "cm",
                "roles": list(record.roles) if record is not None else [],
                "pid": said.get("pid"),
                "group": configuration.group if configuration else "",
                "epoch": configuration.epoch if configuration else 0,
                "primary": name == primary,
                "in_sync": name in in_sync,
                "address": record.addresses[0] if record is not None else "",
                "connections": said.get("connections"),
                "log_pages": _log_pages(said, configuration),
            }
        )
    return rows


async def _decide(node: "ClusterNode", command: str, arguments: Arguments) -> dict[str, Any]:
    group, target = arguments.get("group", ""), arguments["node"]
    configuration = node.configurations.get(group)
    if configuration is None and group:
        known = ", ".join(sorted(node.configurations))
        raise Rejected("unknown-group", f"there is no replica group {group!r}; there are {known}")
    epoch = configuration.epoch if configuration else 0
    wanted: dict[str, Request] = {
        "cluster.drain": DrainSet(target, True),
        "cluster.undrain": DrainSet(target, False),
        "cluster.move-primary": MovePrimary(group, epoch, target),
        "cluster.add-copy": CopyAdded(group, epoch, target),
        "cluster.remove-copy": CopyRemoved(group, epoch, target),
    }
    answered = await node.membership.request(wanted[command])
    if answered.code:
        raise Rejected(answered.code, answered.reason)
    return {}


# -- a node of itself --------------------------------------------------------------------------------------


def status_of(node: "ClusterNode") -> dict[str, Any]:
    front = node.front
    return {
        "name": node.name,
        "version": VERSION,
        "pid": os.getpid(),
        "incarnation": format_id(node.identity.incarnation),
        "uptime_s": round(asyncio.get_running_loop().time() - node.started_at, 3),
        "roles": list(node.record().roles),
        "leader": node.membership.machine.leader,
        "connections": front.manager.connection_count if front is not None else 0,
        "sessions": front.manager.session_count if front is not None else 0,
        "configuration_version": node.desk.live.version,
        "replicas": replicas_of(node),
    }


def replicas_of(node: "ClusterNode") -> dict[str, Any]:
    return {
        group: {
            "epoch": host.replication.epoch,
            "number": host.replication.local.written.number,
            "is_serving": host.manager is not None,
            "log_pages": host.log_reads.pages,  # told of logs, as a backup
            "destinations": len(host.manager.destinations) if host.manager is not None else 0,
        }
        for group, host in node.replicas.items()
    }


def groups_of(node: "ClusterNode") -> dict[str, Any]:
    machine = node.membership.machine
    state = machine.state
    return {
        "leader": machine.leader,
        "index": state.index,
        "view_id": state.view_id,
        "nodes": [record.name for record in state.nodes],
        "voters": [voter.node for voter in state.voters],
        "draining": list(state.draining),
        "configuration_version": state.settings_version,
    }


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

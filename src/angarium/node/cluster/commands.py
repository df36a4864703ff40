"""Administrative requests about nodes and the whole cluster, as a client manager answers them."""
import asyncio
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.decisions import CopyAdded, CopyRemoved, DrainSet
from angarium.core.groups.protocol import MovePrimary, Request
from angarium.core.ids import format_id
from angarium.core.wire.frames import Reply
from angarium.core.wire.frames import Request as RequestFrame
from angarium.node.cluster.settings import essential_parameters

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_VERSION = version("angarium")  # looked up in files: once, not for each status
_DECIDED = ("cluster.drain", "cluster.undrain", "cluster.move-primary", "cluster.add-copy", "cluster.remove-copy")
COMMANDS = ("cluster.status", "node.groups", "node.status", *_DECIDED)


async def answer(node: "ClusterNode", request: RequestFrame) -> Reply:
    if request.command == "node.status":
        return Reply(request.number, "", "", status_of(node))
    if request.command == "node.groups":
        groups = {configuration.group: configuration.number for configuration in node.configurations.values()}
        return Reply(request.number, "", "", groups)
    if request.command == "cluster.status":
        return Reply(request.number, "", "", await _status(node))
    if request.command in _DECIDED:
        return await _decide(node, request)
    known = ", ".join(sorted(COMMANDS))
    return Reply(request.number, "unknown-command", f"unknown command {request.command!r}; known are {known}")


async def _status(node: "ClusterNode") -> dict[str, object]:
    """One composite of all nodes' replies."""
    view = node.nodes.view
    composite = await node.asking.ask(list(view), "node.status")
    nodes: list[dict[str, object]] = []
    for name, record in view.items():
        said = composite.answers.get(name, {})
        held: list[GroupConfiguration | None] = [
            configuration for configuration in node.configurations.values() if name in configuration.members
        ]
        for configuration in held or [None]:
            in_sync = [replica.node for replica in configuration.in_sync] if configuration else []
            primary = configuration.primary.node if configuration and configuration.primary else ""
            nodes.append(
                {
                    "name": name,
                    "role": "mm" if configuration else "cm",
                    "roles": list(record.roles),
                    "pid": said.get("pid"),
                    "group": configuration.group if configuration else "",
                    "epoch": configuration.epoch if configuration else 0,
                    "primary": name == primary,
                    "in_sync": name in in_sync,
                    "address": record.addresses[0],
                    "connections": said.get("connections"),
                    "log_pages": _log_pages(said, configuration),
                }
            )
    return {
        "leader": node.membership.machine.leader,
        "expected": composite.expected,
        "missing": composite.missing,
        "nodes": nodes,
    }


def _log_pages(said: dict[str, Any], configuration: GroupConfiguration | None) -> int:
    """How many pages of its log the replica has told, as a backup."""
    replica = said.get("replicas", {}).get(configuration.group, {}) if configuration else {}
    return int(replica.get("log_pages", 0))


async def _decide(node: "ClusterNode", request: RequestFrame) -> Reply:
    group, target = str(request.arguments.get("group", "")), str(request.arguments.get("node", ""))
    configuration = node.configurations.get(group)
    if configuration is None and request.command not in ("cluster.drain", "cluster.undrain"):
        known = ", ".join(sorted(node.configurations))
        return Reply(request.number, "unknown-group", f"there is no replica group {group!r}; there are {known}")
    epoch = configuration.epoch if configuration else 0
    wanted: dict[str, Request] = {
        "cluster.drain": DrainSet(target, True),
        "cluster.undrain": DrainSet(target, False),
        "cluster.move-primary": MovePrimary(group, epoch, target),
        "cluster.add-copy": CopyAdded(group, epoch, target),
        "cluster.remove-copy": CopyRemoved(group, epoch, target),
    }
    answered = await node.membership.request(wanted[request.command])
    return Reply(request.number, answered.code, answered.reason, {})


def said_of_itself(node: "ClusterNode", command: str) -> dict[str, object]:
    """The answer to another node's question."""
    if command == "node.status":
        return status_of(node)
    if command == "node.essential":
        return dict(essential_parameters(node.cluster_settings))
    return {}


async def differing(node: "ClusterNode") -> str:
    """In which essential parameter this node differs from the others: the first one, with both values."""
    mine = essential_parameters(node.cluster_settings)
    composite = await node.asking.ask(node.nodes.linked_names, "node.essential")
    for name, theirs in sorted(composite.answers.items()):
        for key, value in mine.items():
            if key in theirs and theirs[key] != value:
                return f"the first is {key}: {value!r} here, {theirs[key]!r} on node {name!r}"
    return "no other node could be asked in which"


def status_of(node: "ClusterNode") -> dict[str, object]:
    """What a node says of itself."""
    front = node.front
    return {
        "name": node.name,
        "version": _VERSION,
        "pid": os.getpid(),
        "incarnation": format_id(node.identity.incarnation),
        "uptime_s": round(asyncio.get_running_loop().time() - node.started_at, 3),
        "roles": list(node.record().roles),
        "leader": node.membership.machine.leader,
        "connections": front.manager.connection_count if front is not None else 0,
        "sessions": front.manager.session_count if front is not None else 0,
        "replicas": {
            group: {
                "epoch": host.replication.epoch,
                "number": host.replication.local.written.number,
                "is_serving": host.manager is not None,
                "log_pages": host.log_reads.pages,  # told of logs, as a backup
                "destinations": len(host.manager.destinations) if host.manager is not None else 0,
            }
            for group, host in node.replicas.items()
        },
    }

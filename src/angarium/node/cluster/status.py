"""How the cluster is: of every node that should be there, of every replica group, and what is wrong.

Who should be there: the nodes of the view, those that what was decided names, and for a while those that were here and
have gone. Each is asked; whoever does not answer is shown as that, not left out.
"""
import asyncio
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.ids import format_id, origin_of
from angarium.node.administration import Composite
from angarium.node.cluster.buses import buses_status
from angarium.node.cluster.health import Fault, GroupHealth, Voters, health_of, is_out_of_reach, voters_of
from angarium.node.cluster.settings import voter_addresses
from angarium.node.memory import rss_bytes

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

VERSION = version("angarium")  # looked up in files: once, not for each status
STATUS_S_MAX = 1.0


# -- the cluster -------------------------------------------------------------------------------------------


async def cluster_status(node: "ClusterNode") -> dict[str, Any]:
    """One composite of all nodes' replies."""
    expected = dict.fromkeys([*node.desk.expected(), *node.nodes.departed(asyncio.get_running_loop().time())])
    composite = await node.desk.ask(expected, "node.status", {}, timeout_s=STATUS_S_MAX)
    said = {name: reply.result for name, reply in composite.replies.items() if not reply.code}
    voters = voters_of(_voters(node), said)
    groups = [_group(configuration, said, voters) for configuration in node.configurations.values()]
    rows = [row for name in sorted(expected, key=in_order) for row in _rows(node, name, composite)]
    trouble = [voters.trouble, *(group["trouble"] for group in groups)]
    trouble += _other_buses(node, said)
    trouble += [f"node {name} cannot be reached ({reason})" for name, reason in sorted(composite.missing.items())]
    return {
        "leader": node.membership.machine.leader,
        "expected": composite.expected,
        "missing": sorted(composite.missing, key=in_order),
        "reasons": composite.missing,
        "voters": list(voters.names),
        "has_majority": voters.has_majority,
        "draining": list(node.membership.machine.state.draining),
        "groups": sorted(groups, key=lambda group: in_order(group["group"])),
        "trouble": [text for text in trouble if text],
        "nodes": sorted(rows, key=lambda row: (not row["group"], in_order(row["group"]))),
    }


def in_order(name: str) -> list[tuple[str, int]]:
    """As people count: a2 before a10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d{0,18})", name)]


def _voters(node: "ClusterNode") -> list[str]:
    decided = [voter.node for voter in node.membership.machine.state.voters]
    return sorted(decided or voter_addresses(node.cluster_settings), key=in_order)


def _group(configuration: GroupConfiguration, said: dict[str, Any], voters: Voters) -> dict[str, Any]:
    group = configuration.group
    replicas = {name: result.get("replicas", {}).get(group, {}) for name, result in said.items()}
    serving = [name for name, replica in replicas.items() if replica.get("is_serving")]
    health = health_of(configuration, said, voters, is_served=bool(serving))
    return {
        "group": group,
        "number": configuration.number,
        "epoch": configuration.epoch,
        "primary": configuration.primary.node if configuration.primary else "",
        "is_served": bool(serving),
        "members": list(configuration.members),
        "in_sync": [replica.node for replica in configuration.in_sync],
        "copies": configuration.copies,
        "min_copies": configuration.min_copies,
        "fault": health.fault.value,
        "trouble": health.text,
    }


def _rows(node: "ClusterNode", name: str, composite: Composite) -> list[dict[str, Any]]:
    """One for each copy that it holds, or is to hold; one if it holds none."""
    reply, record = composite.replies.get(name), node.nodes.view.get(name) or node.nodes.last_seen(name)
    said = reply.result if reply is not None and not reply.code else {}
    held: list[GroupConfiguration | None] = [
        configuration for configuration in node.configurations.values() if name in configuration.members
    ]
    rows: list[dict[str, Any]] = []
    for configuration in held or [None]:
        primary = configuration.primary.node if configuration and configuration.primary else ""
        rows.append(
            {
                "name": name,
                "role": "mm" if configuration else "cm",
                "roles": list(record.roles) if record is not None else ["mm"] if configuration else [],
                "pid": said.get("pid"),
                "origin": said.get("origin", ""),
                "group": configuration.group if configuration else "",
                "epoch": configuration.epoch if configuration else 0,
                "primary": name == primary,
                "in_sync": configuration is not None and _is_in_sync(name, said, configuration),
                "copied_percent": _replica(said, configuration).get("copied_percent"),
                "answers": bool(said),
                "is_here": name in node.nodes.view,
                "votes": name in _voters(node),
                "draining": name in node.membership.machine.state.draining,
                "address": record.addresses[0] if record is not None else "",
                "clients_at": said.get("listen", ""),
                "connections": said.get("connections"),
                "log_pages": _replica(said, configuration).get("log_pages", 0),  # told as a backup
                "buses": said.get("buses", []),
            }
        )
    return rows


def _is_in_sync(name: str, said: dict[str, Any], configuration: GroupConfiguration) -> bool:
    """What was decided counts on a store: one that has come in its place, since it was lost, is not yet in sync."""
    stores = [replica.store.hex() for replica in configuration.in_sync if replica.node == name]
    return bool(stores) and _replica(said, configuration).get("store", stores[0]) in stores


def _other_buses(node: "ClusterNode", said: dict[str, Any]) -> list[str]:
    """Those who differ from this node: they are reached over TCP where multicast would do."""
    mine = node.buses.configured()
    return [
        f"node {name} has other buses than {node.name}: {', '.join(theirs)} there, {', '.join(mine)} here; give all "
        "nodes the same cluster.buses, bus and bus_addresses"
        for name, result in sorted(said.items())
        if (theirs := result.get("buses_configured", mine)) != mine
    ]


def _replica(said: dict[str, Any], configuration: GroupConfiguration | None) -> dict[str, Any]:
    """What the node says of the copy that it holds."""
    found: dict[str, Any] = said.get("replicas", {}).get(configuration.group, {}) if configuration else {}
    return found


# -- as far as this node knows without asking ------------------------------------------------------------------


def reachable(node: "ClusterNode") -> list[str]:
    return [node.name, *node.nodes.linked_names]


def group_health(node: "ClusterNode", number: int, *, is_served: bool) -> GroupHealth:
    configuration = next((found for found in node.configurations.values() if found.number == number), None)
    if configuration is None:
        return GroupHealth(Fault.NOT_FORMED, f"replica group number {number} is not known here")
    here = reachable(node)
    return health_of(configuration, here, voters_of(_voters(node), here), is_served=is_served)


def out_of_reach(node: "ClusterNode") -> list[int]:
    """Numbers of the groups that others may be served by, and nobody through this node."""
    here, view = reachable(node), node.nodes.view
    voters = voters_of(_voters(node), here)
    return [c.number for c in node.configurations.values() if is_out_of_reach(c, here, view, voters)]


def whereabouts(node: "ClusterNode", name: str) -> dict[str, Any]:
    """The group that has the destination, or would have it."""
    front = node.front
    if front is None or not front.service.is_placed:
        return {"name": name, "group": "", "number": 0, "trouble": "destinations cannot be located yet"}
    number = front.service.group_of_name(name)
    is_served = front.is_served(number)
    configuration = next((found for found in node.configurations.values() if found.number == number), None)
    return {
        "name": name,
        "group": configuration.group if configuration else "",
        "number": number,
        "primary": configuration.primary.node if configuration and configuration.primary else "",
        "is_served": is_served,
        "in_sync": [replica.node for replica in configuration.in_sync] if configuration else [],
        "trouble": group_health(node, number, is_served=is_served).text,
    }


def no_majority(node: "ClusterNode") -> str:
    """Why nothing can be decided; empty if it can, as far as is known."""
    return voters_of(_voters(node), reachable(node)).trouble


# -- a node of itself --------------------------------------------------------------------------------------


def status_of(node: "ClusterNode") -> dict[str, Any]:
    front = node.front
    managers = [host.manager for host in node.replicas.values() if host.manager is not None]
    counters = [each.counters for manager in managers for each in manager.destinations.values()]
    return {
        "name": node.name,
        "version": VERSION,
        "pid": os.getpid(),
        "incarnation": format_id(node.identity.incarnation),
        "origin": origin_of(node.identity.incarnation),  # of all ids that it makes: sessions, for one
        "uptime_s": round(asyncio.get_running_loop().time() - node.started_at, 3),
        "cluster": node.cluster_settings.name,
        "roles": list(node.record().roles),
        "leader": node.membership.machine.leader,
        "listen": node.client_address,
        "data": str(Path(node.data).resolve()),
        "connections": front.manager.connection_count if front is not None else 0,
        "sessions": front.manager.session_count if front is not None else 0,
        "destinations": sum(len(manager.destinations) for manager in managers),
        "messages_in": sum(each.messages_in for each in counters),
        "messages_out": sum(each.messages_out for each in counters),
        "damaged": sum(each.damaged for each in counters),
        "rss_bytes": rss_bytes(),
        "configuration_version": node.desk.live.version,
        "replicas": replicas_of(node),
        "buses": buses_status(node),
        "buses_configured": node.buses.configured(),
        "carried_bytes": node.bus.counters.carried_bytes,  # datagrams over TCP, for want of multicast
        "dropped_datagrams": dict(node.bus.counters.drops),  # received and not used, by reason: core/bus/machine.py
    }


def replicas_of(node: "ClusterNode") -> dict[str, Any]:
    return {
        group: {
            "store": host.me.store.hex(),
            "epoch": host.replication.epoch,
            "number": host.replication.local.written.number,
            "is_serving": host.manager is not None,
            "copied_percent": host.replication.copied_percent,
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

"""The buses of a node: which it is on, on which it sends to a replica group, and who hears it there.

    each copy on one bus, client managers on all      the bus of a group carries what is for that group, and no other
    each client manager on one bus, copies on all     the bus of a client manager carries what comes from its clients
    everybody on all                                  groups take turns by their numbers

A node sends on a bus that it shares with all copies of the group; receives on all that it is on. With none in common
everything is carried over TCP, and so is what somebody on the bus does not hear (`core/bus/reach.py`).
"""
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from angarium.core.bus.routes import UNICAST
from angarium.node.cluster.settings import ClusterSettings, buses_of, named_buses, shared_buses
from angarium.runtime.multicast import BusLink

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

NO_LINK = UNICAST - 1  # none of anybody's


class Buses:
    def __init__(self, settings: ClusterSettings, node: str) -> None:
        self._node = node
        self._is_multicast = settings.multicast
        self.all = named_buses(settings)
        self.mine = buses_of(self.all, node)

    def links(self) -> dict[int, BusLink]:
        """Those that are opened here, by number."""
        if not self._is_multicast:
            return {}
        return {bus.number: BusLink(bus.group, bus.port, bus.interface) for bus in self.mine}

    def link_for(self, group: int, members: Sequence[str]) -> int:
        """On which this node sends to the group with that number, and those members."""
        shared = shared_buses(self.all, (self._node, *members))
        return shared[(group - 1) % len(shared)].number if shared else NO_LINK  # numbers begin with 1

    def configured(self) -> list[str]:
        """What all nodes should have alike, as it is compared and shown."""
        return sorted(" ".join((f"{bus.name}={bus.address}:", *sorted(bus.nodes))) for bus in self.all.values())

    def others_on(self, number: int, nodes: Iterable[str]) -> list[str]:
        """Which of the nodes are on that bus, but this one."""
        return [
            node for node in nodes
            if node != self._node and any(bus.number == number for bus in buses_of(self.all, node))
        ]  # fmt: skip


def buses_status(node: "ClusterNode") -> list[dict[str, Any]]:
    """Of each bus that the node is on: who hears it there by multicast, and who is reached over TCP instead."""
    buses, bus, view = node.buses, node.bus, node.nodes.view
    rows: list[dict[str, Any]] = []
    for each in buses.mine:
        others = {name: view[name].incarnation for name in buses.others_on(each.number, view)}
        unheard = [name for name, incarnation in others.items() if not bus.is_reached(incarnation, each.number)]
        sent_bytes, received_bytes = bus.traffic(each.number)
        rows.append(
            {
                "bus": each.name,
                "address": each.address,
                "interface": each.interface,
                "multicast": len(others) - len(unheard),  # how many hear it
                "tcp": unheard,
                "sent_bytes": sent_bytes,  # by multicast, since the start
                "received_bytes": received_bytes,
            }
        )
    return rows

"""The buses of a node: which it is on, on which it sends to a replica group, and who hears it there.

A bus is a row of multicast groups on one port: the first is for everybody, the ones behind it are for one replica group
each, in the order of their names. So a node hears what is for its own groups, and the network brings it nothing else,
however many others there are. Each is a link of its own to `core/bus`, and tested by itself.

    each copy on one bus, client managers on all      the bus of a group carries what is for that group, and no other
    each client manager on one bus, copies on all     the bus of a client manager carries what comes from its clients
    everybody on all                                  groups take turns by their numbers

A node sends on a bus that it shares with all copies of the group; receives on all that it is on. With none in common
everything is carried over TCP, and so is what somebody on the bus does not hear (`core/bus/reach.py`).
"""
import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from angarium.core.bus.routes import UNICAST
from angarium.core.groups.records import NodeRecord
from angarium.node.cluster.settings import (
    BUSES_MAX,
    Bus,
    ClusterSettings,
    buses_of,
    group_members,
    named_buses,
    shared_buses,
)
from angarium.runtime.multicast import BusLink

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

NO_LINK = UNICAST - 1  # none of anybody's


def bus_number(link: int) -> int:
    """Of the bus that a link belongs to."""
    return link % BUSES_MAX


class Buses:
    def __init__(self, settings: ClusterSettings, node: str) -> None:
        self._node = node
        self._is_multicast = settings.multicast
        self.all = named_buses(settings)
        self.mine = buses_of(self.all, node)
        self._groups = sorted(group_members(settings))

    def links(self) -> dict[int, BusLink]:
        """Those that are opened here, by number. What is for a replica group is heard once the node is found in it."""
        if not self._is_multicast:
            return {}
        found: dict[int, BusLink] = {}
        for bus in self.mine:
            found[bus.number] = BusLink(bus.group, bus.port, bus.interface)
            for place, group in enumerate(self._groups, 1):
                address = _behind(bus.group, place)
                found[self._link(bus, group)] = BusLink(address, bus.port, bus.interface, hears=False)
        return found

    def _link(self, bus: Bus, group: str) -> int:
        return bus.number + BUSES_MAX * (1 + self._groups.index(group))

    def links_of(self, group: str) -> list[int]:
        """On which this node may hear what is for that replica group."""
        return [self._link(bus, group) for bus in self.mine]

    def link_for(self, group: str, number: int, members: Sequence[str]) -> int:
        """On which this node sends to the replica group of that name and number, with those members."""
        shared = shared_buses(self.all, (self._node, *members))
        return self._link(shared[(number - 1) % len(shared)], group) if shared else NO_LINK  # numbers begin with 1

    def links_to(self, bus: Bus, node: NodeRecord) -> list[int]:
        """On which that node ought to hear this one there."""
        return [bus.number, *(self._link(bus, hosted.group) for hosted in node.hosts if hosted.group in self._groups)]

    def links_on(self, bus: Bus) -> list[int]:
        return [bus.number, *(self._link(bus, group) for group in self._groups)]

    def configured(self) -> list[str]:
        """What all nodes should have alike, as it is compared and shown."""
        return sorted(" ".join((f"{bus.name}={bus.address}:", *sorted(bus.nodes))) for bus in self.all.values())

    def others_on(self, number: int, nodes: Iterable[str]) -> list[str]:
        """Which of the nodes are on that bus, but this one."""
        return [
            node for node in nodes
            if node != self._node and any(bus.number == number for bus in buses_of(self.all, node))
        ]  # fmt: skip


def _behind(group: str, place: int) -> str:
    """So many addresses further on; from the last of its range of 65,536 to the first."""
    number = int(ipaddress.IPv4Address(group))
    return str(ipaddress.IPv4Address(number & ~0xFFFF | (number + place) & 0xFFFF))


def buses_status(node: "ClusterNode") -> list[dict[str, Any]]:
    """Of each bus that the node is on: who hears it there by multicast, and who is reached over TCP instead."""
    buses, bus, view = node.buses, node.bus, node.nodes.view
    rows: list[dict[str, Any]] = []
    for each in buses.mine:
        others = buses.others_on(each.number, view)
        unheard = [
            name for name in others
            if not all(bus.is_reached(view[name].incarnation, link) for link in buses.links_to(each, view[name]))
        ]  # fmt: skip
        sent_bytes, received_bytes = map(sum, zip(*map(bus.traffic, buses.links_on(each)), strict=True))
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

"""What makes a node part of a cluster: who is in it, and how they reach each other.

    [cluster]
    name = "orders"
    secret = "at least sixteen characters, the same on every node"
    listen = "10.0.0.1:4570"
    voters = ["a1=10.0.0.1:4570", "a2=10.0.0.2:4570", "a3=10.0.0.3:4570"]
    groups = ["a: a1 a2 a3"]

Name, secret, voters and groups are essential: a node that differs in them from the others refuses to start. No more is
needed than the first three: then the voters hold the copies of one group, and listen where `voters` has them.

There is one bus, or several that are named; a node that none of them names is on all:

    buses = ["red: a1 a2 a3", "blue: b1 b2 b3"]     each copy on one bus, client managers on all
    buses = ["red: cm1", "blue: cm2"]               the reverse
    buses = ["red", "blue"]                         everybody on all; groups take turns

Buses are not essential: whoever is not heard by multicast is reached over TCP, so nodes whose buses differ are slower
and nothing worse, and a cluster that runs is given another bus node by node. `cluster status` tells who differs.
"""
import hashlib
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from angarium.core.errors import ConfigError, refuse
from angarium.core.groups.records import Limits

_SECRET_CHARACTERS_MIN = 16
VOTERS = (1, 3, 5)
LINK_PORT, BUS_PORT = 4570, 4571
ONE_GROUP = "a"  # its name where none are named
NAMED_GROUPS_MAX = 100  # that a node is in from its start on: each is a decision
ONE_BUS = "bus"  # its name where none are named
BUSES_MAX = 16  # each takes sockets and probes of its own, and as many for each replica group
_BUS_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    # What all its nodes call the cluster. Empty: this node is alone, and nothing below counts.
    name: str = ""
    # Proves to other nodes that this one belongs to them, and keeps what they say private. The same on all nodes.
    secret: str = ""
    # Where other nodes connect to this one. Empty: where `cluster.voters` has it; a node that is not among them: the
    # address from which it reaches the first of them, port 4570.
    listen: str = ""
    # The nodes that decide, from the first start on: one, three or five, each as NAME=HOST:PORT of its
    # `cluster.listen`.
    voters: tuple[str, ...] = ()
    # Nodes that are asked for the cluster besides those of `cluster.voters`, each as NAME=HOST:PORT: for when none of
    # those is there any more, after `cluster set-voters`.
    seeds: tuple[str, ...] = ()
    # Replica groups and the nodes that hold a copy, each as GROUP: NODE NODE … Empty: one, held by the voters.
    groups: tuple[str, ...] = ()
    # Whether clients connect to this node, at `node.listen`.
    client_manager: bool = True
    # The multicast group and port of the bus; the addresses behind it, one for each replica group, belong to it. Empty:
    # chosen from the cluster's name.
    bus: str = ""
    # Name or address of the interface that the bus is on. Empty: the one that has the address of `cluster.listen`.
    bus_interface: str = ""
    # Several buses instead of one, and the nodes on each, as BUS: NODE NODE … A node that none of them names is on all.
    # All copies of a replica group are on the same. The same on all nodes.
    buses: tuple[str, ...] = ()
    # Multicast groups and ports of these, as BUS=GROUP:PORT. Those not named here: chosen from the names of cluster and
    # bus. The same on all nodes.
    bus_addresses: tuple[str, ...] = ()
    # Interfaces that this node is on them with, as BUS=INTERFACE, by name or address. Those not named here: as
    # `bus_interface`.
    bus_interfaces: tuple[str, ...] = ()
    # Whether to try multicast at all. Without it the same goes over the links.
    multicast: bool = True
    # Groups of nodes, by whatever name, that this node is in from its start on. All nodes know who is in which, in the
    # order in which they joined.
    named_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name:
            refuse(dict.fromkeys(self._mistakes()))  # one check may find again what another has found

    def _mistakes(self) -> Iterator[str]:
        if len(self.secret) < _SECRET_CHARACTERS_MIN:
            yield f"cluster.secret has {len(self.secret)} characters: at least {_SECRET_CHARACTERS_MIN} characters"
        checks: tuple[Callable[[ClusterSettings], object], ...] = (
            lambda it: it.listen and node_address(it.listen, "cluster.listen"), _check_voters, seed_addresses,
            group_members, _check_one_bus, _addresses_of_buses, _interfaces_of_buses, named_buses,
            _check_groups_on_buses, _check_named_groups,
        )  # fmt: skip
        for check in checks:
            try:
                check(self)
            except ConfigError as error:
                yield str(error)


def _check_voters(settings: ClusterSettings) -> None:
    if len(voter_addresses(settings)) not in VOTERS:
        raise ConfigError(f"cluster.voters has {len(settings.voters)} nodes: name one, three or five")


def _check_named_groups(settings: ClusterSettings) -> None:
    names = settings.named_groups
    if len(names) > NAMED_GROUPS_MAX or len(set(names)) != len(names):
        raise ConfigError(f"cluster.named_groups has {len(names)} names: at most {NAMED_GROUPS_MAX}, each once")
    limit = Limits().name_characters_max
    if any(not 0 < len(name) <= limit for name in names):
        raise ConfigError(f"cluster.named_groups: names have 1 to {limit} characters")


def node_address(text: str, setting: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f"{setting} {text!r}: use HOST:PORT, for example 10.0.0.1:4570")
    return host.strip("[]"), int(port)


def voter_addresses(settings: ClusterSettings) -> dict[str, tuple[str, int]]:
    """By name, in the order of names: nodes that write them in different orders agree on who is the first."""
    return dict(sorted(_addresses(settings.voters, "cluster.voters").items()))


def seed_addresses(settings: ClusterSettings) -> dict[str, tuple[str, int]]:
    """By name: who is looked for besides the configured voters."""
    return _addresses(settings.seeds, "cluster.seeds")


def _addresses(texts: tuple[str, ...], setting: str) -> dict[str, tuple[str, int]]:
    addresses: dict[str, tuple[str, int]] = {}
    for text in texts:
        name, equals, address = text.partition("=")
        if not equals or not name.strip() or name.strip() in addresses:
            raise ConfigError(f"{setting} {text!r}: use NAME=HOST:PORT, each name once")
        addresses[name.strip()] = node_address(address.strip(), setting)
    return addresses


def group_members(settings: ClusterSettings) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for text in settings.groups:
        name, colon, members = text.partition(":")
        nodes = tuple(members.split())
        if not colon or not name.strip() or not nodes or len(set(nodes)) != len(nodes) or name.strip() in groups:
            raise ConfigError(f"cluster.groups {text!r}: use GROUP: NODE NODE …, each group and each node in it once")
        if "/" in name:
            raise ConfigError(f"cluster.groups {text!r}: its copies are stored under that name: no '/' in the name")
        groups[name.strip()] = nodes
    if not groups and (voters := voter_addresses(settings)):
        return {ONE_GROUP: tuple(voters)}
    return groups


@dataclass(frozen=True, slots=True)
class Bus:
    name: str
    number: int  # the link's, on this node
    group: str
    port: int
    interface: str  # name or address, on this node
    nodes: tuple[str, ...]  # those that are named; nobody else is on it but those whom no bus names

    @property
    def address(self) -> str:
        return f"{self.group}:{self.port}"


def named_buses(settings: ClusterSettings) -> dict[str, Bus]:
    """By name, in the order in which they were given."""
    interface = settings.bus_interface or settings.listen.rpartition(":")[0].strip("[]")
    nodes, addresses = _nodes_on_buses(settings), _addresses_of_buses(settings)
    interfaces = _interfaces_of_buses(settings)
    if not nodes:
        address = settings.bus or f"{_chosen_group(settings.name)}:{BUS_PORT}"
        return {ONE_BUS: Bus(ONE_BUS, 0, *_multicast_address(address, "cluster.bus"), interface, ())}
    buses: dict[str, Bus] = {}
    behind = len(settings.groups) or 1
    for number, name in enumerate(nodes):
        address = addresses.get(name) or f"{_chosen_group(settings.name, name)}:{BUS_PORT}"
        group, port = _multicast_address(address, "cluster.bus_addresses")
        bus = Bus(name, number, group, port, interfaces.get(name) or interface, nodes[name])
        for other in buses.values():
            if _do_meet(bus, other, behind):
                raise ConfigError(
                    f"buses {other.name!r} at {other.address} and {name!r} at {bus.address} meet: each has its address "
                    f"and the {behind} behind it, one for each replica group; give them other ports, or "
                    "set addresses further apart in cluster.bus_addresses"
                )
        buses[name] = bus
    return buses


def _do_meet(one: Bus, other: Bus, groups: int) -> bool:
    """Addresses of a bus end where its range of 65,536 does, and go on at its beginning."""
    first, second = (int(ipaddress.IPv4Address(bus.group)) for bus in (one, other))
    if one.port != other.port or first >> 16 != second >> 16:
        return False
    return min((first - second) & 0xFFFF, (second - first) & 0xFFFF) <= groups


def _check_one_bus(settings: ClusterSettings) -> None:
    if settings.bus and settings.buses:
        raise ConfigError("cluster.bus is the address of the one bus there is without cluster.buses: use bus_addresses")


def _addresses_of_buses(settings: ClusterSettings) -> dict[str, str]:
    return _by_bus(settings.bus_addresses, "cluster.bus_addresses", "GROUP:PORT", _nodes_on_buses(settings))


def _interfaces_of_buses(settings: ClusterSettings) -> dict[str, str]:
    return _by_bus(settings.bus_interfaces, "cluster.bus_interfaces", "INTERFACE", _nodes_on_buses(settings))


def _nodes_on_buses(settings: ClusterSettings) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in settings.buses:
        name, _, members = text.partition(":")
        name, nodes = name.strip(), tuple(members.split())
        if not _BUS_NAME.fullmatch(name) or len(set(nodes)) != len(nodes) or name in found:
            raise ConfigError(f"cluster.buses {text!r}: use BUS: NODE NODE …, each bus and each node on it once")
        found[name] = nodes
    if len(found) > BUSES_MAX:
        raise ConfigError(f"cluster.buses has {len(found)} buses: at most {BUSES_MAX}")
    return found


def _by_bus(texts: tuple[str, ...], setting: str, what: str, known: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value or name in found:
            raise ConfigError(f"{setting} {text!r}: use BUS={what}, each bus once")
        if name not in known:
            has = f", which has {', '.join(known)}" if known else ""
            raise ConfigError(f"{setting} {text!r}: name the bus in cluster.buses, too{has}")
        found[name] = value
    return found


def _chosen_group(*names: str) -> str:
    """From the range that stays within an organisation, by the names of cluster and bus: two clusters seldom meet, and
    if they do, neither can read the other."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=2).digest()
    return f"239.192.{digest[0]}.{digest[1]}"


def _multicast_address(text: str, setting: str) -> tuple[str, int]:
    group, port = node_address(text, setting)
    try:
        is_multicast = ipaddress.IPv4Address(group).is_multicast
    except ValueError:
        is_multicast = False
    if not is_multicast or not port:
        raise ConfigError(f"{setting} {text!r}: use GROUP:PORT with an IPv4 multicast group, as 239.192.0.1:{BUS_PORT}")
    return group, port


def buses_of(buses: Mapping[str, Bus], node: str) -> tuple[Bus, ...]:
    """Those that the node is on."""
    return tuple(bus for bus in buses.values() if node in bus.nodes) or tuple(buses.values())


def shared_buses(buses: Mapping[str, Bus], nodes: Iterable[str]) -> tuple[Bus, ...]:
    """Those that all of the nodes are on."""
    on = [buses_of(buses, node) for node in nodes]
    return tuple(bus for bus in buses.values() if all(bus in theirs for theirs in on))


def names_of(buses: Iterable[Bus]) -> str:
    return ", ".join(bus.name for bus in buses)


def _check_groups_on_buses(settings: ClusterSettings) -> None:
    """A primary and its backups are on the same buses."""
    try:
        buses, groups = named_buses(settings), group_members(settings)
    except ConfigError:
        return  # told already
    for group, (first, *others) in groups.items():
        for node in others:
            here, there = buses_of(buses, first), buses_of(buses, node)
            if here != there:
                raise ConfigError(
                    f"cluster.buses: replica group {group!r} has a copy on {first} (bus {names_of(here)}) and one on "
                    f"{node} (bus {names_of(there)}): name all nodes of a group on the same bus, or none of them"
                )


def check_client_manager(settings: ClusterSettings, node: str) -> None:
    """Raise ConfigError if clients connect to this node, and it is on no bus with some replica group."""
    buses = named_buses(settings)
    for group, members in group_members(settings).items() if settings.client_manager else ():
        if not shared_buses(buses, (node, *members)):
            raise ConfigError(
                f"cluster.buses: clients connect to node {node} (bus {names_of(buses_of(buses, node))}), and replica "
                f"group {group!r} is on bus {names_of(buses_of(buses, members[0]))}: they need one in common, or set "
                "client_manager = false here"
            )


def essential_parameters(settings: ClusterSettings) -> Mapping[str, object]:
    """What all nodes have to share, as it is compared; the secret only by its digest."""
    return {
        "cluster.name": settings.name,
        "cluster.secret": hashlib.blake2b(settings.secret.encode(), digest_size=8, person=b"angarium").hexdigest(),
        "cluster.voters": [f"{name}={host}:{port}" for name, (host, port) in voter_addresses(settings).items()],
        "cluster.groups": [f"{name}: {' '.join(nodes)}" for name, nodes in sorted(group_members(settings).items())],
    }


def essential_digest(settings: ClusterSettings) -> bytes:
    text = repr(sorted(essential_parameters(settings).items()))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()

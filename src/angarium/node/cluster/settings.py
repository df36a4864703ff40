"""What makes a node part of a cluster: who is in it, and how they reach each other.

    [cluster]
    name = "orders"
    secret = "at least sixteen characters, the same on every node"
    listen = "10.0.0.1:4570"
    voters = ["a1=10.0.0.1:4570", "a2=10.0.0.2:4570", "a3=10.0.0.3:4570"]
    groups = ["a: a1 a2 a3"]

Name, secret, voters and groups are essential: a node that differs in them from the others refuses to start.
"""
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from angarium.core.errors import ConfigError, refuse

_SECRET_CHARACTERS_MIN = 16
_VOTERS = (1, 3, 5)
BUS_PORT = 4571


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    # What all its nodes call the cluster. Empty: this node is alone, and nothing below counts.
    name: str = ""
    # Proves to other nodes that this one belongs to them, and keeps what they say private. The same on all nodes.
    secret: str = ""
    # Where other nodes connect to this one.
    listen: str = "127.0.0.1:4570"
    # The nodes that decide: one, three or five, each as NAME=HOST:PORT of its `cluster.listen`.
    voters: tuple[str, ...] = ()
    # Replica groups and the nodes that hold a copy, each as GROUP: NODE NODE …
    groups: tuple[str, ...] = ()
    # Whether clients connect to this node, at `node.listen`.
    client_manager: bool = True
    # The multicast group and port of the bus. Empty: chosen from the cluster's name.
    bus: str = ""
    # Name or address of the interface that the bus is on. Empty: the one that has the address of `cluster.listen`.
    bus_interface: str = ""
    # Whether to try multicast at all. Without it the same goes over the links.
    multicast: bool = True

    def __post_init__(self) -> None:
        if self.name:
            refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if len(self.secret) < _SECRET_CHARACTERS_MIN:
            yield f"cluster.secret has {len(self.secret)} characters: at least {_SECRET_CHARACTERS_MIN} characters"
        checks: tuple[Callable[[ClusterSettings], object], ...] = (
            lambda it: node_address(it.listen, "cluster.listen"), _check_voters, group_members, bus_address,
        )  # fmt: skip
        for check in checks:
            try:
                check(self)
            except ConfigError as error:
                yield str(error)


def _check_voters(settings: ClusterSettings) -> None:
    if len(voter_addresses(settings)) not in _VOTERS:
        raise ConfigError(f"cluster.voters has {len(settings.voters)} nodes: name one, three or five")


def node_address(text: str, setting: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f"{setting} {text!r}: use HOST:PORT, for example 10.0.0.1:4570")
    return host.strip("[]"), int(port)


def voter_addresses(settings: ClusterSettings) -> dict[str, tuple[str, int]]:
    """By name, in the order of names: nodes that write them in different orders agree on who is the first."""
    addresses: dict[str, tuple[str, int]] = {}
    for text in settings.voters:
        name, equals, address = text.partition("=")
        if not equals or not name.strip() or name.strip() in addresses:
            raise ConfigError(f"cluster.voters {text!r}: use NAME=HOST:PORT, each name once")
        addresses[name.strip()] = node_address(address.strip(), "cluster.voters")
    return dict(sorted(addresses.items()))


def group_members(settings: ClusterSettings) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for text in settings.groups:
        name, colon, members = text.partition(":")
        nodes = tuple(members.split())
        if not colon or not name.strip() or not nodes or len(set(nodes)) != len(nodes) or name.strip() in groups:
            raise ConfigError(f"cluster.groups {text!r}: use GROUP: NODE NODE …, each group and each node in it once")
        groups[name.strip()] = nodes
    if not groups:
        raise ConfigError("cluster.groups is empty: name at least one replica group and its nodes")
    return groups


def bus_address(settings: ClusterSettings) -> tuple[str, int]:
    """From the range that stays within an organisation, by the name of the cluster: two clusters seldom meet, and if
    they do, neither can read the other."""
    if settings.bus:
        return node_address(settings.bus, "cluster.bus")
    digest = hashlib.blake2b(settings.name.encode(), digest_size=2).digest()
    return f"239.192.{digest[0]}.{digest[1]}", BUS_PORT


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

"""Where a node listens and keeps its data: checked before anything is created, so that a start that fails leaves
nothing behind."""
import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from angarium.core.errors import ConfigError, Unavailable, refuse
from angarium.node.cluster.settings import (
    LINK_PORT,
    buses_of,
    check_client_manager,
    named_buses,
    node_address,
    voter_addresses,
)
from angarium.node.cluster.sizes import too_large_or_small
from angarium.node.config import NodeConfig, NodeSettings, parse_address

_STORE_FILES = ("lock", "lock.mdb", "data.mdb", "ballast", "streams", "lost+found", "acquired.toml", "events.jsonl")
_NAMED_MAX = 3
_ADDRESSES_NAMED_MAX = 8
_SIOCGIFCONF = 0x8912


def located(config: NodeConfig) -> NodeConfig:
    """With an address where other nodes connect to this one, if its configuration leaves that open."""
    cluster = config.cluster
    if not cluster.name or cluster.listen:
        return config
    voters = voter_addresses(cluster)
    host, port = voters.get(config.node.name or socket.gethostname()) or (_address_towards(*voters.values()), LINK_PORT)
    listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return replace(config, cluster=replace(cluster, listen=listen))


def _address_towards(*places: tuple[str, int]) -> str:
    """Of this machine, where it would speak to the first of those that it has a way to; nothing is sent."""
    for host, port in places:
        with contextlib.suppress(OSError):
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as asking:
                asking.connect(address)
                return str(asking.getsockname()[0])
    return "127.0.0.1"


def check_places(config: NodeConfig) -> None:
    """Raise ConfigError if no node could listen there, keep its data there, or reach the others from there; or if what
    goes between them would be too long for one."""
    node, cluster = config.node, config.cluster
    mistakes: list[str] = []
    if cluster.name:
        host, port = node_address(cluster.listen, "cluster.listen")
        mistakes += _no_place("cluster.listen", cluster.listen, host, port)
        if _is_everywhere(host):
            mistakes.append(
                f"cluster.listen {cluster.listen!r}: other nodes are told to connect there; use one of {_listed_here()}"
            )
        mistakes += too_large_or_small(config)
        try:
            check_client_manager(cluster, node.name or socket.gethostname())
        except ConfigError as error:
            mistakes += error.mistakes
    if not cluster.name or cluster.client_manager:
        mistakes += _no_place("node.listen", node.listen, *parse_address(node.listen))
    data = Path(node.data)
    mistakes += [
        f"node.data {node.data!r}: {path} is a file; name a directory"
        for path in (data, *data.parents)
        if path.exists() and not path.is_dir()
    ]
    found = next(path for path in (data, *data.parents) if path.exists())
    if found.is_dir() and not os.access(found, os.W_OK | os.X_OK):
        mistakes.append(f"node.data {node.data!r}: this user may not write to {found}")
    mistakes += _another_kind(data, is_of_cluster=bool(cluster.name))
    refuse(mistakes)


def _another_kind(data: Path, *, is_of_cluster: bool) -> list[str]:
    """A broker alone keeps its store in the directory itself, a node of a cluster in others below it. Each would start
    beside the other's messages as if there were none, and write to the same log of events."""
    is_alone, is_node = (data / "data.mdb").exists(), (data / "node" / "data.mdb").exists()
    if is_of_cluster and is_alone and not is_node:
        held = "the messages of a broker that is alone, which no node of a cluster would see; start it with `up`"
    elif is_node and not is_of_cluster:
        held = "a node of a cluster; start that with `node`"
    else:
        return []
    return [f"node.data {str(data)!r}: it holds {held}, or choose another directory"]


def missing_interfaces(config: NodeConfig) -> list[str]:
    """Those of the node's buses that this machine does not have now. The node would start, and look for them again and
    again."""
    cluster = config.cluster
    if not cluster.name or not cluster.multicast:
        return []
    mine = buses_of(named_buses(cluster), config.node.name or socket.gethostname())
    named = [name for _, name in socket.if_nameindex()]
    known = {*named, *addresses_here()}
    return [
        f"bus {bus.name!r} is to be on interface {bus.interface!r}, which this machine does not have now; it has "
        f"{', '.join(named)}; what the bus does not bring goes over TCP"
        for bus in mine
        if bus.interface not in known
    ]


def _no_place(setting: str, listen: str, host: str, port: int) -> list[str]:
    """It is an address of this machine, any port of which can be had; or why not."""
    try:
        found = _resolved(host, port)
    except OSError as error:
        return [f"{setting} {listen!r}: {error.strerror or error}; this machine has {_listed_here()}"]
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind((address[0], 0, *address[2:]))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                has = _listed_here() + ("; or use 0.0.0.0 for all" if setting == "node.listen" else "")
                return [f"{setting} {listen!r}: it is no address of this machine, which has {has}"]
    return []


def addresses_here() -> list[str]:
    """Addresses of this machine, as far as the system tells (on Linux: all of IPv4 and IPv6)."""
    found: list[str] = []
    entry_bytes, entries_max = 40, 256  # of `struct ifreq`
    table = array("B", bytes(entry_bytes * entries_max))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        request = struct.pack("iP", len(table), table.buffer_info()[0])
        length, _ = struct.unpack("iP", fcntl.ioctl(asker, _SIOCGIFCONF, request))
        found += [socket.inet_ntoa(table[at + 20 : at + 24].tobytes()) for at in range(0, length, entry_bytes)]
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
        found += [str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))) for line in lines]
    return found


def _listed_here() -> str:
    found = addresses_here()
    more = f" and {len(found) - _ADDRESSES_NAMED_MAX:,} more" if len(found) > _ADDRESSES_NAMED_MAX else ""
    return (", ".join(found[:_ADDRESSES_NAMED_MAX]) or "none that the system would name") + more


def check_free(settings: NodeSettings) -> None:
    """Raise Unavailable if the address is somebody else's now."""
    host, port = parse_address(settings.listen)
    for family, kind, protocol, _, address in _resolved(host, port):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):  # others are for the real attempt to judge
                taken = error.errno == errno.EADDRINUSE
                remedy = "; stop what listens there, or choose another address" if taken else ""
                place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # also where only a host was said
                raise Unavailable(f"cannot listen on {place}: {error.strerror}{remedy}") from None


def foreign_files(data: Path) -> str:
    """What lies in a directory that is to become a store and is none yet; empty if nothing does."""
    if not data.is_dir() or (data / "data.mdb").exists():
        return ""
    found = sorted(
        path.name for path in data.iterdir() if path.name not in _STORE_FILES and not path.name.startswith("journal-")
    )
    more = f" and {len(found) - _NAMED_MAX:,} more" if len(found) > _NAMED_MAX else ""
    return ", ".join(found[:_NAMED_MAX]) + more


def is_open_to_others(host: str) -> bool:
    """Machines other than this one may connect."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _resolved(host: str, port: int) -> Sequence[tuple[Any, Any, int, str, Any]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)

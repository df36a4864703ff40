"""Where a node listens and keeps its data: checked before anything is created, so that a start that fails leaves
nothing behind."""
import errno
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from angarium.core.errors import ConfigError, Unavailable
from angarium.node.config import NodeSettings, parse_address

_STORE_FILES = ("lock", "lock.mdb", "data.mdb", "ballast", "streams", "lost+found", "acquired.toml", "events.jsonl")
_NAMED_MAX = 3


def check_places(settings: NodeSettings) -> None:
    """Raise ConfigError if no node could listen there, or keep its data there."""
    for family, kind, protocol, _, address in _resolve(settings):
        _check_here(settings, family, kind, protocol, address)
    data = Path(settings.data)
    for path in (data, *data.parents):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"node.data {settings.data!r}: {path} is a file; name a directory")


def _check_here(settings: NodeSettings, family: Any, kind: Any, protocol: int, address: Any) -> None:
    """It is an address of this machine: any port of it can be had."""
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            reason = "it is no address of this machine; use one, or 0.0.0.0 for all"
            raise ConfigError(f"node.listen {settings.listen!r}: {reason}") from None


def check_free(settings: NodeSettings) -> None:
    """Raise Unavailable if the address is somebody else's now."""
    for family, kind, protocol, _, address in _resolve(settings):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):  # others are for the real attempt to judge
                raise Unavailable(f"cannot listen on {settings.listen}: {error.strerror}") from None


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


def _resolve(settings: NodeSettings) -> Sequence[tuple[Any, Any, int, str, Any]]:
    host, port = parse_address(settings.listen)
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"node.listen {settings.listen!r}: {reason}; use an address of this machine") from None

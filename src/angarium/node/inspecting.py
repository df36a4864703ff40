"""What a start would meet, found out without starting: `config check`.

`places` refuses what no start could use. Here is what the machine is like just now: whether the address is free,
whether the data directory can be made, has room, is a store, is in use. Nothing is left behind.

    data in use by a broker   a warning: it may be the very one whose settings are checked, and its address with it
    address of somebody else  refused
"""
import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path

from angarium.core.errors import Unavailable, refuse
from angarium.node.config import NodeConfig, NodeSettings
from angarium.node.limits import fit, fit_in_cluster, raise_descriptors_max
from angarium.node.places import check_free, foreign_files
from angarium.store.journal import group_bytes_max_of
from angarium.store.settings import segment_bytes_for

_LMDB_MAGIC, _LMDB_MAGIC_AT = b"\xde\xc0\xef\xbe", 16
_FILES = ("lock", "data.mdb", "lock.mdb", "ballast")  # of a store, which no directory may take the place of


@dataclass(slots=True)
class Inspected:
    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def inspect(config: NodeConfig) -> Inspected:
    """Raises ConfigError if a node would not start here and now; `check_places` comes before."""
    found, mistakes = Inspected(), list[str]()
    data = Path(config.node.data)
    store = data / "node" if config.cluster.name else data
    mistakes += data_mistakes(config)
    if not mistakes:
        found.warnings += _lowered(config, data)
    if data.is_dir():
        if not mistakes and (holder := _holder(store)):
            found.warnings.append(f"{data} is in use by process {holder} now: a second node there would be refused")
            found.facts.append(f"{data} is a store")
            return found  # its address may be the one that is checked
        if foreign := foreign_files(data):
            found.warnings.append(f"{data} is not empty and holds no store: it has {foreign}")
        found.facts.append(f"{data} is {'a store' if (store / 'data.mdb').exists() else 'a directory'}")
    else:
        found.facts.append(f"{data} can be made")
    if not mistakes and not _is_lmdb(store / "data.mdb"):
        mistakes.append(f"node.data {str(data)!r}: data.mdb in {store} is damaged: restore a copy of the directory")
    if not mistakes and not (store / "data.mdb").exists():
        mistakes += _no_room(config, data)
    for listen in _addresses(config):
        try:
            check_free(NodeSettings(listen=listen))
        except Unavailable as error:
            mistakes.append(str(error))
        found.facts.append(f"{listen} is free")
    refuse(mistakes)
    return found


def data_mistakes(config: NodeConfig) -> list[str]:
    """Why no node can have its data there, found out before anything is created."""
    data = Path(config.node.data)
    if not data.is_dir():
        return _not_to_be_made(data)
    return _not_a_store(data / "node" if config.cluster.name else data)


def _addresses(config: NodeConfig) -> list[str]:
    cluster = config.cluster
    of_clients = [config.node.listen] if not cluster.name or cluster.client_manager else []
    return [*of_clients, *([cluster.listen] if cluster.name else [])]


def _not_a_store(directory: Path) -> list[str]:
    """What lies there is something else's."""
    if not os.access(directory if directory.exists() else directory.parent, os.R_OK | os.W_OK | os.X_OK):
        return [f"node.data {str(directory)!r}: this user may not write there"]
    mistakes = [
        f"node.data {str(directory)!r}: {name} there is a directory, and none of a store's; choose another directory"
        for name in _FILES
        if (directory / name).is_dir()
    ]
    if not any(directory.glob("journal-*")) and not _is_lmdb(directory / "data.mdb"):
        mistakes.append(f"node.data {str(directory)!r}: data.mdb there is no store; choose another directory")
    return mistakes


def _is_lmdb(file: Path) -> bool:
    """Or not there."""
    if not file.is_file():
        return True
    with file.open("rb") as opened:
        return opened.read(_LMDB_MAGIC_AT + len(_LMDB_MAGIC))[_LMDB_MAGIC_AT:] == _LMDB_MAGIC


def _holder(store: Path) -> str:
    """The process that has it open; empty if none has."""
    try:
        descriptor = os.open(store / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 64, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return ""


def _not_to_be_made(data: Path) -> list[str]:
    """It is tried beside where it would be: access rights alone do not tell of all file systems."""
    for path in (data, *data.parents):
        if path.is_symlink() and not path.exists():
            return [f"node.data {str(data)!r}: {path} is a link to nowhere"]
    above = next(path for path in data.parents if path.exists())
    probe = above / f".angarium-check-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return [f"node.data {str(data)!r}: no directory can be made in {above}: {error.strerror}"]
    return []


def _lowered(config: NodeConfig, data: Path) -> list[str]:
    """Limits that a start would lower, as `node.limits` tells them."""
    descriptors_max = raise_descriptors_max(config.session.connections_max)
    if config.cluster.name:
        fitted = fit_in_cluster(config.session, config.destination, descriptors_max=descriptors_max)
        return fitted.lowered if config.cluster.client_manager else []
    # They keep their size, and one that was cut gets it back.
    made = [path.stat().st_size for path in data.glob("journal-*.seg")]
    segment_bytes = max(made) if made else config.store.segment_bytes or segment_bytes_for(_free_bytes(data))
    group_bytes_max = group_bytes_max_of(segment_bytes)
    fitted = fit(config.session, config.destination, group_bytes_max=group_bytes_max, descriptors_max=descriptors_max)
    return fitted.lowered


def _free_bytes(data: Path) -> int:
    above = next(path for path in (data, *data.parents) if path.exists())
    told = os.statvfs(above)
    return told.f_bavail * told.f_frsize


def _no_room(config: NodeConfig, data: Path) -> list[str]:
    """For the journal, which is made first."""
    free_bytes = _free_bytes(data)
    needed_bytes = 2 * (config.store.segment_bytes or segment_bytes_for(free_bytes))
    if free_bytes >= needed_bytes:
        return []
    return [f"node.data {str(data)!r}: {free_bytes:,} bytes are free there, and a journal takes {needed_bytes:,}"]

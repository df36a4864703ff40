"""What a cluster owes beside the ledger's promises: everybody in sync in the end, replicas that are equal, nothing
remembered for nobody, and no sound node or client that is accused of anything.
"""
import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING

from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.storage import Table, key_of
from angarium.sim.checkers import left_in
from angarium.sim.loop import SimLoop
from angarium.sim.messages import Violation
from angarium.sim.trace import Trace
from angarium.store.replicas import load_replica, replica_hash

if TYPE_CHECKING:
    from angarium.node.cluster.front import FrontEnd
    from angarium.node.cluster.node import ClusterNode
    from angarium.node.cluster.replica import ReplicaHost
    from angarium.sim.clusters.node import Machine
    from angarium.sim.clusters.shapes import Shape
    from angarium.store.interface import Store

# Nobody in these worlds says what cannot be understood, or finds a disk damaged.
_ACCUSATIONS = ("bad-message", "peer-refused", "record-damaged", "journal-damaged")
_OF_CLIENTS = "connection from "
_SILENT_CLIENT = "no-greeting"  # it was cut off before it could say anything


def latest(group: str, nodes: Sequence["ClusterNode"]) -> GroupConfiguration | None:
    """What was decided last, as far as any node has heard."""
    known = [node.configurations[group] for node in nodes if group in node.configurations]
    return max(known, key=lambda configuration: configuration.epoch, default=None)


def not_in_sync(shape: "Shape", nodes: Sequence["ClusterNode"]) -> Iterator[str]:
    """What is missing until every copy of every group is in sync, and its primary serves."""
    for group in shape.groups:
        serving = [node for node in nodes if group in node.replicas and node.replicas[group].manager is not None]
        if len(serving) != 1:
            yield f"group {group}: served by {[node.name for node in serving]}"
            continue
        configuration = serving[0].configurations.get(group)
        in_sync = {replica.node for replica in configuration.in_sync} if configuration is not None else set()
        members = set(configuration.members) if configuration is not None else set()
        if missing := sorted(members - in_sync):
            yield f"group {group}: {', '.join(missing)} not in sync"


def unequal(shape: "Shape", machines: Mapping[str, "Machine"], nodes: Sequence["ClusterNode"]) -> Iterator[str]:
    """Copies that are not where the others are. Raises if they are, and differ: that never heals."""
    for group in shape.groups:
        configuration = latest(group, nodes)
        found: dict[tuple[int, int], dict[str, list[str]]] = {}
        for name, machine in machines.items():
            if group in machine.disks and machine.is_up:
                store = machine.disks[group].store
                position = load_replica(store).position
                by_hash = found.setdefault((position.epoch, position.number), {})
                by_hash.setdefault(replica_hash(store), []).append(name)
        for position_, by_hash in found.items():
            if len(by_hash) > 1:
                raise Violation("replicas are equal", f"group {group} at {position_}: {sorted(by_hash.values())}")
        members = set(configuration.members) if configuration is not None else set()
        held = [at for at, by_hash in found.items() if members & {name for names in by_hash.values() for name in names}]
        if len(held) > 1:
            yield f"group {group}: its copies are at {sorted(held)}"


def left_in_manager(host: "ReplicaHost", store: "Store") -> Iterator[str]:
    """What a message manager, and its store, still have after everything is settled and every client has gone."""
    manager = host.manager
    assert manager is not None
    transactions = manager.transactions
    tables: dict[str, Sized] = {
        "writes": manager._writes, "reads": manager._reads, "timed": manager._timed,
        "prepared": transactions.participant, "decisions": transactions.decisions,
        "attending sessions": host._attendance,
        "departures": list(manager.moves.departures), "arrivals": list(manager.moves.arrivals),
        "openings": manager.moves._openings, "waiting for what is moved": manager.moves._waiting,
    }  # fmt: skip
    yield from (f"group {host.group}: {len(table)} {name} left" for name, table in tables.items() if len(table))
    grave = manager.find(DMQ)
    graves = b"" if grave is None else key_of(grave.identity)
    emptied = (
        Table.PREPARED, Table.DECISION, Table.BATCH, Table.ATTACHED, Table.DELAYED, Table.STAGED, Table.STAGE_PART,
    )  # fmt: skip
    for table in emptied:
        items = store.scan(table, b"", b"\xff" * 60, limit=10_000)
        if left := sum(item.key[:8] != graves for item in items):
            yield f"group {host.group}: {left} records in {table.name}"
    for destination in manager.destinations.values():
        if destination.record.name != DMQ:
            yield from (f"{destination.record.name}: {what}" for what in left_in(destination))


def left_in_front(name: str, front: "FrontEnd") -> Iterator[str]:
    tables: dict[str, Sized] = {
        "connections": front.manager._connections, "sessions": front.manager._sessions,
        "requests": front.service._requests, "watches": front.service._watches,
    }  # fmt: skip
    yield from (f"{name}: {len(table)} {what} left" for what, table in tables.items() if len(table))
    if any(front._blocked.values()):
        yield f"{name}: something waits for a channel"


class Log(logging.Handler):
    """What nodes log: an accusation is a broken promise; the rest is among the lines of the trace, if they are read."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._logger = logging.getLogger("angarium")
        self._before = (0, True)

    def __enter__(self) -> "Log":
        logger = self._logger
        self._before = (logger.level, logger.propagate)
        logger.propagate = False
        logger.setLevel(logging.INFO if self._trace.is_read else logging.WARNING)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        name, text = loop.name if isinstance(loop, SimLoop) else "?", record.getMessage()
        if self._trace.is_read:
            self._trace.say(name, f"{record.levelname.lower()} {text}")
        if text.startswith(_ACCUSATIONS) or (_OF_CLIENTS in text and _SILENT_CLIENT not in text):
            raise Violation("nobody is accused who keeps the protocol", f"{name}: {text}")

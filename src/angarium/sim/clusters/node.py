"""One machine of a simulated cluster: its disks, and the process of a real `ClusterNode` that runs on it or not."""
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from angarium.core.bus.events import BusSettings
from angarium.core.errors import Unavailable
from angarium.core.storage import Operation
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.node import ClusterNode
from angarium.node.cluster.settings import group_members
from angarium.node.config import NodeConfig
from angarium.runtime.cluster_bus import ClusterBus, ClusterBusSettings, NodeIdentity
from angarium.runtime.disk import DiskSettings
from angarium.sim.broker import WALL_MS_AT_ZERO
from angarium.sim.clock import Clock
from angarium.sim.clusters.machinery import NodeDisk, NodeFiles, NodeStreamDisk, in_thread, path_group
from angarium.sim.clusters.stores import SimStores
from angarium.sim.clusters.transports import NodeLoop, SimSockets
from angarium.sim.clusters.wires import Air, Wires
from angarium.sim.clusters.witness import GroupWitness, WitnessedManager
from angarium.sim.disk import SimDisk
from angarium.sim.hardware import Unlimited
from angarium.sim.messages import Violation
from angarium.sim.trace import Trace
from angarium.store.interface import Store

CLIENT_PORT, LINK_PORT = 4_560, 4_570
_THREAD_S_MAX = 0.01
_RESTART_S = 0.5  # by whoever looks after processes, when one has stopped by itself


@dataclass(frozen=True, slots=True)
class Around:
    """What all machines share."""

    clock: Clock
    trace: Trace
    clients: Wires
    wires: Wires
    air: Air
    witness: Callable[[int], GroupWitness]
    disk: Callable[[str], SimDisk]  # a new one, by a name of its own
    tally: Callable[[str], None]
    bus: BusSettings
    rates: Sequence[float]  # of clocks
    hardware: Unlimited
    removes: Callable[[str, str], None]  # the store of a copy, by node and group, is about to be deleted


class Machine:
    def __init__(self, around: Around, host: str, config: NodeConfig, chance: Random) -> None:
        self.name = config.node.name
        self.host = host
        self.config = config
        self.loop: NodeLoop | None = None  # None: no process runs
        self.node: ClusterNode | None = None
        self.is_open = False  # it is in the cluster, and nobody has asked it to stop
        self.must_run = True
        self._around = around
        self._chance = chance
        self._skew_ms = 0.0
        self._rate = around.rates[chance.randrange(len(around.rates))]
        self._groups = [g for g, members in group_members(config.cluster).items() if self.name in members]
        self._disks_made = self._copies_made = 0
        self._stores_chance = Random(f"stores {chance.getstate()[1][0]}")  # on its own: nothing else is drawn otherwise
        self.disks: dict[str, SimDisk] = {}
        self._new_disks()

    def _new_disks(self) -> None:
        self._disks_made += 1
        self.disks = {
            group: self._around.disk(f"{self.name}/{group or 'node'}/{self._disks_made}")
            for group in ("", *self._groups)
        }

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    # -- what happens to it ----------------------------------------------------------------------------

    def start(self) -> None:
        around = self._around
        if self.loop is not None:
            return
        around.trace.note(self.name, "starts")
        around.wires.dark.discard(self.host)
        around.clients.dark.discard(self.host)
        self.is_open = False
        self.loop = NodeLoop(  # type: ignore[abstract]
            around.clock, self.name, self.host, self._wires_of, starts_at=self._chance.randint(0, 1_000_000) / 8,
            rate=self._rate, hardware=around.hardware,
        )  # fmt: skip
        self.loop.set_exception_handler(partial(self._failed, self.loop))
        self.loop.call_soon(self._begin, self.loop)

    def _begin(self, loop: NodeLoop) -> None:
        loop.create_task(self._serve(loop))

    async def _serve(self, loop: NodeLoop) -> None:
        stores = SimStores(
            self.disks[""].store, {group: self._open_store(group) for group in self._groups}, Path("/simulated"),
            opened=self._open_store, removed=self._remove_store, stored=lambda group: group in self.disks,
            chance=self._stores_chance,
        )  # fmt: skip
        node = self.node = ClusterNode(self.config, self.name, stores, self._machinery(loop))
        node.failure.add_done_callback(partial(self._node_failed, loop))
        await node.start()
        await node.entered.wait()
        await node.open()
        self.is_open = True
        self._around.trace.note(self.name, "is open")

    def kill(self, *, keeps_staged: bool = False, is_power_cut: bool = False) -> None:
        if self.loop is None:
            return
        self._around.trace.note(self.name, "loses power" if is_power_cut else "is killed")
        self._end(keeps_staged=keeps_staged, is_silent=is_power_cut)
        if is_power_cut:
            self._around.wires.dark.add(self.host)
            self._around.clients.dark.add(self.host)

    def _end(self, *, keeps_staged: bool, is_silent: bool) -> None:
        loop, self.loop, self.node = self.loop, None, None
        assert loop is not None
        self.is_open = False
        loop.die()
        around = self._around
        around.air.detach(self.host)
        for wires, port in ((around.clients, CLIENT_PORT), (around.wires, LINK_PORT)):
            wires.unbind(self.host, port)
            wires.cut_links_of(self.host, is_silent=is_silent)
        for disk in self.disks.values():
            disk.crash(keeps_staged=keeps_staged)

    def lose_disk(self) -> None:
        """It comes back with an empty one."""
        assert self.loop is None
        self._around.trace.note(self.name, "has a new disk")
        self._new_disks()

    def stop(self) -> bool:
        """As asked to by its administrator: with a goodbye. False: it is not yet in the cluster, or stops already."""
        if self.loop is None or not self.is_open:
            return False
        self._around.trace.note(self.name, "stops")
        self.is_open = False
        self.loop.call_soon(self._begin_stop, self.loop)
        return True

    def _begin_stop(self, loop: NodeLoop) -> None:
        loop.create_task(self._stop(loop))

    async def _stop(self, loop: NodeLoop) -> None:
        assert self.node is not None
        await self.node.stop()
        if self.loop is loop:
            self._end(keeps_staged=True, is_silent=False)

    def set_clock(self, skew_ms: float) -> None:
        """What it takes for the hour is that much off. How time passes is not touched."""
        self._around.trace.note(self.name, f"has its clock set {skew_ms:+.0f} ms off")
        self._skew_ms = skew_ms

    def pause(self, seconds: float) -> None:
        if self.loop is not None:
            self._around.trace.note(self.name, f"stands still for {seconds:.3f} s")
            self.loop.pause(seconds)

    # -- failures --------------------------------------------------------------------------------------

    def _failed(self, loop: NodeLoop, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        raise Violation("a node does not fail", f"{self.name}: {error!r}") from (
            error if isinstance(error, BaseException) else None
        )

    def _node_failed(self, loop: NodeLoop, failure: "asyncio.Future[None]") -> None:
        error = failure.exception()
        if not isinstance(error, Unavailable):
            raise Violation("a node does not fail", f"{self.name}: {error!r}") from error
        if self.loop is loop:
            self._around.trace.note(self.name, f"gives up: {error}")
            self._around.tally("nodes that gave up")
            self._end(keeps_staged=True, is_silent=False)
            self._around.clock.after(_RESTART_S, self._restart)

    def _restart(self) -> None:
        if self.must_run:
            self.start()

    # -- its stores ------------------------------------------------------------------------------------

    def _open_store(self, group: str) -> Store:
        """That of a copy that was removed here is gone: a new one."""
        if group not in self.disks:
            self._copies_made += 1
            self.disks[group] = self._around.disk(f"{self.name}/{group}/copy {self._copies_made}")
            self._around.tally("copies opened anew")
        return self.disks[group].store

    def _remove_store(self, group: str) -> None:
        self._around.removes(self.name, group)
        self._around.trace.note(self.name, f"deletes its copy of group {group}")
        self._around.tally("copies deleted")
        del self.disks[group]

    # -- its machinery ---------------------------------------------------------------------------------

    def _wires_of(self, port: int) -> Wires:
        return self._around.clients if port == CLIENT_PORT else self._around.wires

    def _machinery(self, loop: NodeLoop) -> Machinery:
        around, chance = self._around, self._chance
        return Machinery(
            disk=partial(self._disk, loop),
            stream_files=lambda path, free_bytes_min: NodeFiles(self.disks[path_group(path)].stream_files),
            stream_disk=partial(NodeStreamDisk, loop),
            bus=partial(self._bus, loop),
            message_manager=partial(WitnessedManager, around.witness, self._store_numbered),
            in_thread=in_thread(chance, _THREAD_S_MAX),
            is_refused=self._is_refused,
            bytes_by_chance=chance.randbytes,
            jitter=chance.random,
            wall_ms=lambda: WALL_MS_AT_ZERO + around.clock.now * 1000 + self._skew_ms,
        )

    def _bus(
        self, loop: NodeLoop, settings: ClusterBusSettings, identity: NodeIdentity, tell: Callable[..., None]
    ) -> ClusterBus:
        return ClusterBus(
            replace(settings, sealed=False, bus=self._around.bus), identity, tell,
            sockets=partial(SimSockets, loop, self._around.air), bytes_by_chance=self._chance.randbytes,
            jitter=self._chance.random,
        )  # fmt: skip

    def _disk(self, loop: NodeLoop, store: Store, settings: DiskSettings, **told: Any) -> NodeDisk:
        group, disk = next((group, disk) for group, disk in self.disks.items() if disk.store is store)

        def ordered(operations: Sequence[Operation]) -> None:
            replica = self.node.replicas.get(group) if self.node is not None else None
            if replica is not None and replica.number:  # none: of the node itself, or of a copy that is let go
                self._around.witness(replica.number).ordered(operations)

        return NodeDisk(loop, disk, settings, ordered=ordered, **told)

    def _store_numbered(self, number: int) -> Store:
        assert self.node is not None
        group = next(group for group, host in self.node.replicas.items() if host.number == number)
        return self.disks[group].store

    async def _is_refused(self, host: str, port: int) -> bool:
        wires = self._around.wires
        if not (wires.passes(self.host, host) and wires.passes(host, self.host)):
            await asyncio.sleep(1.0)
            return False
        await asyncio.sleep(wires.draw_latency_s())
        return not wires.is_listening(host, port)

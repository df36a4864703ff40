"""How much a cluster carries, on machines of declared capacity: producers and consumers enough to saturate it.

The nodes are the real ones; what they do takes the time that `hardware.py` says. Each replica group has queues of its
own, each queue one producer, which keeps a few batches unconfirmed, and one consumer, which settles what comes. Every
promise is checked meanwhile, as in any world.
"""
from dataclasses import dataclass, replace
from itertools import count

from angarium.core.bus.events import BusSettings
from angarium.core.client import events
from angarium.core.replication.events import ReplicationSettings
from angarium.node.config import NodeConfig
from angarium.sim.clusters.checkers import Log
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.disk import SimDiskSettings
from angarium.sim.hardware import Capacity
from angarium.sim.network import NetworkSettings
from angarium.sim.sessions import SimConsumer, SimProducer
from angarium.sim.world import WorldSettings

QUEUES_PER_GROUP = 4
BATCH_COUNT = 50
_BATCHES_UNCONFIRMED = 20  # of one producer
_PREFETCH = 4_000
_WARM_UP_S = 0.5
_OPEN_S_MAX = 30.0
_NETWORK = NetworkSettings(
    latency_s_min=0.0001, latency_s_max=0.0003, chop_chance=0.0, buffer_bytes_high=1 << 20, buffer_bytes_low=1 << 18
)
DISK = SimDiskSettings(
    sync_s_min=0.0003, sync_s_max=0.001, tell_s_max=0.00005, group_bytes_target=4 << 20, checkpoint_groups=1_000_000,
    byte_s=4e-9,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Carried:
    """In a second of virtual time, all queues together."""

    confirmed_per_s: float
    settled_per_s: float


def shape_of(*, groups: int, copies: int, client_managers: int) -> Shape:
    """Every replica and every client manager is a machine of its own; the first three that there are vote."""
    members = {f"g{group}": tuple(f"g{group}-{copy}" for copy in range(copies)) for group in range(groups)}
    managers = tuple(f"cm{number}" for number in range(client_managers))
    nodes = [*(node for group in members.values() for node in group), *managers]
    return Shape(members, managers, tuple(nodes[: 3 if len(nodes) >= 3 else 1]))


class LoadWorld(ClusterWorld):
    def __init__(self, shape: Shape, capacity: Capacity, *, body_bytes: int) -> None:
        settings = WorldSettings(messages=0, heartbeat_s=5.0, network=_NETWORK, disk=DISK, faults=())
        super().__init__(1, settings, shape=shape, capacity=capacity)
        self._body = bytes(body_bytes)
        self._bodies = count()
        self._settled = 0
        self._producers: list[SimProducer] = []

    def _draw_links(self) -> NetworkSettings:
        return _NETWORK

    def _draw_bus(self) -> BusSettings:
        return BusSettings()

    def _configuration(self, name: str) -> NodeConfig:
        return replace(super()._configuration(name), replication=ReplicationSettings())

    def measure(self, seconds: float) -> Carried:
        with Log(self.trace):
            return self._measure(seconds)

    def _measure(self, seconds: float) -> Carried:
        self.start()
        for name in self._queues():
            self._add_queue(name)
        self.run_until(lambda: all(producer.facts.identity for producer in self._producers), within_s=_OPEN_S_MAX)
        for producer in self._producers:
            for _ in range(_BATCHES_UNCONFIRMED):
                self._publish(producer)
        self.run_for(_WARM_UP_S)
        confirmed, settled = self._confirmed(), self._settled
        self.run_for(seconds)
        return Carried((self._confirmed() - confirmed) / seconds, (self._settled - settled) / seconds)

    def _queues(self) -> list[str]:
        """Names that are placed on the groups evenly."""
        front = next(node.front for node in self.nodes() if node.front is not None)
        found: dict[int, list[str]] = {}
        wanted = len(self.shape.groups) * QUEUES_PER_GROUP
        for number in count():
            name = f"load.{number}"
            names = found.setdefault(front.service.group_of_name(name), [])
            if len(names) < QUEUES_PER_GROUP:
                names.append(name)
            if sum(map(len, found.values())) == wanted:
                return [name for names in found.values() for name in names]
        raise AssertionError("not reached")

    def _add_queue(self, name: str) -> None:
        consumer = self.client(f"consumer of {name}").open_session().consume(name, prefetch=_PREFETCH)
        consumer.on_arrival = self._settle
        producer = self.client(f"producer of {name}").open_session().produce(name)
        producer.session.on_notice = lambda notice: self._noticed(producer, notice)
        self._producers.append(producer)

    def _noticed(self, producer: SimProducer, notice: events.Command) -> None:
        if isinstance(notice, events.Confirmed):
            while producer.unconfirmed <= (_BATCHES_UNCONFIRMED - 1) * BATCH_COUNT:
                self._publish(producer)

    def _publish(self, producer: SimProducer) -> None:
        tail = self._body[8:]
        producer.publish([next(self._bodies).to_bytes(8, "big") + tail for _ in range(BATCH_COUNT)])

    def _settle(self, consumer: SimConsumer, low: int, high: int) -> None:
        self._settled += high - low
        consumer.settle(low, high)

    def _confirmed(self) -> int:
        return sum(producer.facts.confirmed for producer in self._producers)

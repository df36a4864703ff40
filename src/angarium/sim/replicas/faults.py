"""What goes wrong in a group of replicas. One seed draws the kinds that a run has, how often, and every detail."""
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from angarium.sim.clock import Clock
from angarium.sim.replicas.groups import Decider
from angarium.sim.replicas.network import ReplicaNetwork
from angarium.sim.replicas.node import SimReplica
from angarium.sim.trace import Trace

KINDS_CHANCE = 0.3


class Afflicted(Protocol):
    clock: Clock
    trace: Trace
    network: ReplicaNetwork
    decider: Decider
    nodes: dict[str, SimReplica]


class Faults:
    def __init__(self, world: Afflicted, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._is_over = False
        kinds: dict[str, tuple[Callable[[], None], float]] = {  # name -> what happens, mean seconds between
            "crash": (self._crash, 1.5),
            "power": (self._power, 2.0),
            "primary-crash": (self._crash_primary, 2.0),
            "all-crash": (self._crash_all, 4.0),
            "disk-lost": (self._lose_disk, 2.5),
            "pause": (self._pause, 0.8),
            "partition": (self._part, 1.5),
            "isolated": (self._isolate, 1.5),
            "link": (self._break_link, 0.3),
            "put-out": (self._put_out, 0.3),
            "full": (self._fill, 2.0),
            "slow": (self._slow, 1.5),
            "promise-crash": (self._isolate_primary, 1.5),
            "hand-over": (self._world.decider.hand_over, 1.5),
        }
        self.kinds = [name for name in kinds if chance.random() < KINDS_CHANCE] or [chance.choice(list(kinds))]
        for name in self.kinds:
            self._plan(*kinds[name])

    def _plan(self, happen: Callable[[], None], mean_s: float) -> None:
        self._world.clock.after(self._chance.expovariate(1 / mean_s), partial(self._happen, happen, mean_s))

    def _happen(self, happen: Callable[[], None], mean_s: float) -> None:
        if not self._is_over:
            happen()
            self._plan(happen, mean_s)

    def stop(self) -> None:
        self._is_over = True
        world = self._world
        world.trace.note("faults", "all is healed")
        world.network.part(set())
        world.decider.isolated.clear()
        for node in world.nodes.values():
            node.disk.fill(False)
            node.disk.slowness = 1.0
            node.start()

    # -- kinds -----------------------------------------------------------------------------------------

    def _some(self) -> SimReplica:
        return self._chance.choice(list(self._world.nodes.values()))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.clock.after(seconds, lambda: None if self._is_over else action())

    def _bring_down(self, node: SimReplica, *, keeps_staged: bool, loses_disk: bool = False) -> None:
        node.crash(keeps_staged=keeps_staged, loses_disk=loses_disk)
        self._later(self._chance.choice((0.01, 0.3, 1.5)) * self._chance.random() * 2, node.start)

    def _crash(self) -> None:
        self._bring_down(self._some(), keeps_staged=self._chance.random() < 0.7)

    def _power(self) -> None:
        self._bring_down(self._some(), keeps_staged=False)

    def _crash_primary(self) -> None:
        primary = self._world.decider.current.primary
        if primary is not None:
            self._bring_down(self._world.nodes[primary.node], keeps_staged=self._chance.random() < 0.5)

    def _crash_all(self) -> None:
        for node in self._world.nodes.values():
            self._bring_down(node, keeps_staged=self._chance.random() < 0.3)

    def _lose_disk(self) -> None:
        """One at a time: only while every other that the configuration counts on is there, and knows it."""
        node, decider = self._some(), self._world.decider
        others = [replica for replica in decider.current.in_sync if replica.node != node.name]
        counted = node.replica in decider.current.in_sync
        holds = all(self._world.nodes[other.node].replica == other for other in others)
        if not counted or (others and holds and not decider.is_seeking):
            self._bring_down(node, keeps_staged=False, loses_disk=True)

    def _pause(self) -> None:
        self._some().pause(self._chance.choice((0.05, 0.5, 2.5)) * self._chance.random())

    def _part(self) -> None:
        names = list(self._world.nodes)
        side = {name for name in names if self._chance.random() < 0.5}
        pairs = {frozenset((one, other)) for one in side for other in names if other not in side}
        self._world.trace.note("faults", f"{sorted(side)} hear nobody else")
        self._world.network.part(pairs)
        if self._chance.random() < 0.7:
            self._world.decider.isolated.update(side if self._chance.random() < 0.5 else set(names) - side)
        self._later(self._chance.random() * 2.5, self._join)

    def _join(self) -> None:
        self._world.network.part(set())
        self._world.decider.isolated.clear()

    def _isolate(self) -> None:
        name = self._some().name
        self._world.trace.note("faults", f"{name} is out of reach of group services")
        self._world.decider.isolated.add(name)
        self._later(self._chance.random() * 3.0, partial(self._world.decider.isolated.discard, name))

    def _isolate_primary(self) -> None:
        """Another is sought, while the old one goes on; whoever gives its word may die of it (`promised`)."""
        primary = self._world.decider.current.primary
        if primary is not None:
            self._world.trace.note("faults", f"{primary} is out of reach of group services")
            self._world.decider.isolated.add(primary.node)
            self._later(2.0 + self._chance.random(), partial(self._world.decider.isolated.discard, primary.node))

    def promised(self, node: SimReplica) -> None:
        if "promise-crash" in self.kinds and not self._is_over and self._chance.random() < 0.6:
            self._world.clock.after(self._chance.random() * 0.05, partial(self._die_of_promise, node))

    def _die_of_promise(self, node: SimReplica) -> None:
        if not self._is_over:
            node.crash(keeps_staged=False)
            self._later(self._chance.random() * 0.1, node.start)

    def _break_link(self) -> None:
        if len(self._world.nodes) > 1:
            one, other = self._chance.sample(list(self._world.nodes), 2)
            self._world.network.break_link(one, other)

    def _put_out(self) -> None:
        if len(self._world.nodes) > 1:
            self._world.network.put_out(*self._chance.sample(list(self._world.nodes), 2))

    def _fill(self) -> None:
        node = self._some()
        self._world.trace.note("faults", f"the disk of {node.name} is full")
        node.disk.fill(True)
        self._later(self._chance.random() * 2.0, lambda: node.disk.fill(False))

    def _slow(self) -> None:
        node = self._some()
        node.disk.slowness = self._chance.choice((5.0, 50.0, 500.0))
        self._later(self._chance.random() * 2.0, partial(setattr, node.disk, "slowness", 1.0))

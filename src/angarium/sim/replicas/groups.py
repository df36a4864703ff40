"""Stands in for group services: one decider that never fails, by the rules of core/groups/configuration.py.

It may be out of reach of a node, hears late that one has gone, and what it says may be lost or come late. A node that
starts may first hear of a configuration that is no longer valid: from a voter that is behind.
"""
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.errors import Rejected
from angarium.core.groups import messages as g
from angarium.core.groups.configuration import (
    GroupConfiguration,
    Position,
    Replica,
    admitted,
    best,
    configured,
    formed,
    promoted,
    shrunk,
)
from angarium.sim.clock import Clock
from angarium.sim.replicas.checkers import Ledger
from angarium.sim.replicas.node import GROUP, SimReplica
from angarium.sim.trace import Trace

LATENCY_S_MAX = 0.005
DETECT_S = 1.0
COLLECT_S = 0.5
LOOK_S = 0.1
REPEAT_S = 0.3


class Surroundings(Protocol):
    clock: Clock
    trace: Trace
    ledger: Ledger
    nodes: dict[str, SimReplica]


class Decider:
    def __init__(self, world: Surroundings, chance: Random, members: list[str]) -> None:
        self.configurations = [configured(GROUP, 1, members)]
        self.isolated: set[str] = set()  # nodes that it cannot reach
        self._world = world
        self._clock = world.clock
        self._chance = chance
        self._heard: dict[str, float] = dict.fromkeys(members, 0.0)
        self._positions: dict[Replica, Position] | None = None  # a primary is sought: who has answered
        self._sought_since = 0.0
        self._wanted: Replica | None = None
        self._repeat_at = 0.0

    @property
    def current(self) -> GroupConfiguration:
        return self.configurations[-1]

    @property
    def is_seeking(self) -> bool:
        return self._positions is not None

    def form(self) -> None:
        nodes = [self._world.nodes[name] for name in self.current.members]
        self._decide(formed(self.current, [node.replica for node in nodes], nodes[0].incarnation))
        self._clock.after(LOOK_S, self._look)

    def _decide(self, configuration: GroupConfiguration) -> None:
        self.configurations.append(configuration)
        self._positions = self._wanted = None
        listed = ", ".join(map(str, configuration.in_sync))
        self._world.trace.note("groups", f"epoch {configuration.epoch}: {listed}")
        self._world.ledger.decided(configuration)
        self._publish()

    def _publish(self) -> None:
        self._repeat_at = self._clock.now + REPEAT_S
        for node in self._world.nodes.values():
            self._tell(node, partial(self._configure, node, self.current))

    def _configure(self, node: SimReplica, configuration: GroupConfiguration) -> None:
        node.configured(configuration)

    def node_started(self, node: SimReplica) -> None:
        if len(self.configurations) > 2 and self._chance.random() < 0.5:
            stale = self._chance.choice(self.configurations[-3:-1])
            if stale.is_formed:
                self._tell(node, partial(self._configure, node, stale))

    def _tell(self, node: SimReplica, action: partial[None]) -> None:
        def arrive() -> None:
            if node.name not in self.isolated:
                action()

        if node.name not in self.isolated:
            self._clock.after(self._chance.random() * LATENCY_S_MAX, arrive)

    # -- who is there ----------------------------------------------------------------------------------

    def _look(self) -> None:
        now, current = self._clock.now, self.current
        for name, node in self._world.nodes.items():
            if node.is_up and name not in self.isolated and not node.is_paused:
                self._heard[name] = now
        if now >= self._repeat_at:
            self._publish()
        assert current.primary is not None
        primary = self._world.nodes[current.primary.node]
        has_gone = now - self._heard[primary.name] > DETECT_S
        is_another = primary.is_up and (
            primary.incarnation != current.incarnation or primary.replica != current.primary
        )
        if self._positions is None and (has_gone or (is_another and primary.name not in self.isolated)):
            self._seek(None)
        if self._positions is not None:
            self._fence()
        self._clock.after(LOOK_S, self._look)

    # -- another primary -------------------------------------------------------------------------------

    def _seek(self, wanted: Replica | None) -> None:
        self._world.trace.note("groups", f"seeks a primary after epoch {self.current.epoch}")
        self._positions, self._wanted, self._sought_since = {}, wanted, self._clock.now

    def _fence(self) -> None:
        assert self._positions is not None
        current = self.current
        waits = False
        for replica in current.in_sync:
            node = self._world.nodes[replica.node]
            is_there = self._clock.now - self._heard[replica.node] < DETECT_S and node.replica == replica
            if replica not in self._positions and is_there:
                waits = True
                ask = g.FenceAsk(current.group, current.epoch, replica)
                self._tell(node, partial(node.asked, ask))
        if self._positions and (not waits or self._clock.now > self._sought_since + COLLECT_S):
            in_sync = self.choose()
            incarnation = self._world.nodes[in_sync[0].node].incarnation
            self._decide(promoted(current, current.epoch, in_sync, incarnation))

    def choose(self) -> list[Replica]:
        assert self._positions is not None
        return best(self.current, self._positions, self._wanted)

    def hand_over(self) -> None:
        """The administrator wants another primary."""
        current = self.current
        if current.primary is not None:
            node = self._world.nodes[current.primary.node]
            self._tell(node, partial(node.asked, g.HandOverAsk(current.group, current.epoch, current.primary)))

    # -- what replicas say -------------------------------------------------------------------------------

    def received(self, node: SimReplica, message: g.FromReplicaMessage) -> None:
        if node.name not in self.isolated:
            self._clock.after(self._chance.random() * LATENCY_S_MAX, partial(self._handle, node, message))

    def _handle(self, node: SimReplica, message: g.FromReplicaMessage) -> None:
        current = self.current
        match message:
            case g.Fenced(_, epoch, replica, position):
                if epoch == current.epoch and replica in current.in_sync:
                    if self._positions is None:
                        self._seek(None)
                    assert self._positions is not None
                    self._positions[replica] = position
            case g.HandOverReady(_, epoch, replica, _):
                if epoch == current.epoch and self._positions is None:
                    others = [other for other in current.in_sync if other != replica]
                    self._seek(self._chance.choice(others) if others else None)
            case g.ShrinkAsk(_, epoch, primary, gone):
                self._change(node, message, lambda: shrunk(current, epoch, primary, gone))
            case g.AdmitAsk(_, epoch, primary, replica):
                self._change(node, message, lambda: admitted(current, epoch, primary, replica))

    def _change(
        self, node: SimReplica, message: g.ShrinkAsk | g.AdmitAsk, rule: Callable[[], GroupConfiguration]
    ) -> None:
        try:
            self._decide(rule())
        except Rejected as refusal:
            refused = g.ChangeRefused(message.group, message.epoch, refusal.code, str(refusal), self.current)
            self._tell(node, partial(node.asked, refused))

"""A simulated network for datagrams: each copy is lost, doubled and delayed for itself.

What leaves in one call arrives together unless chance takes a datagram out of the row. Loss may hold for one direction
of one pair alone. A link that carries (TCP) is late, but loses nothing and keeps the order while both ends live.
"""
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from angarium.sim.clock import Clock

Arrive = Callable[[list[bytes]], None]


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    loss_chance: float = 0.0
    double_chance: float = 0.0
    overtake_chance: float = 0.0  # a datagram is late by itself
    latency_s_min: float = 0.0001
    latency_s_max: float = 0.0008
    late_s_max: float = 0.01


class DatagramNetwork:
    def __init__(self, clock: Clock, chance: Random, faults: NetworkFaults) -> None:
        self.faults = faults
        self.cut: set[tuple[bytes, bytes]] = set()  # (from, to): nothing gets through that way
        self._clock = clock
        self._chance = chance
        self._nodes: dict[bytes, Arrive] = {}
        self._carried_at: dict[tuple[bytes, bytes], float] = {}

    def attach(self, node: bytes, arrive: Arrive) -> None:
        self._nodes[node] = arrive

    def detach(self, node: bytes) -> None:
        self._nodes.pop(node, None)

    def multicast(self, source: bytes, datagrams: list[bytes]) -> None:
        for node in list(self._nodes):
            self.unicast(source, node, datagrams)

    def unicast(self, source: bytes, node: bytes, datagrams: list[bytes]) -> None:
        if (source, node) in self.cut:
            return
        faults, draw = self.faults, self._chance.random
        together = []
        for datagram in datagrams:
            copies = 1 + (draw() < faults.double_chance)
            for _ in range(copies):
                if draw() < faults.loss_chance and source != node:
                    continue
                if draw() < faults.overtake_chance:
                    self._later(node, [datagram], self._chance.uniform(0.0, faults.late_s_max))
                else:
                    together.append(datagram)
        if together:
            self._later(node, together, self._chance.uniform(faults.latency_s_min, faults.latency_s_max))

    def carry(self, source: bytes, node: bytes, datagrams: list[bytes]) -> None:
        at = max(self._clock.now + self.faults.latency_s_max, self._carried_at.get((source, node), 0.0) + 1e-6)
        self._carried_at[source, node] = at
        self._later(node, datagrams, at - self._clock.now)

    def _later(self, node: bytes, datagrams: list[bytes], delay_s: float) -> None:
        def arrive() -> None:
            receiver = self._nodes.get(node)
            if receiver is not None:
                receiver(datagrams)

        self._clock.after(delay_s, arrive)

"""What passes between replicas: links between two, and the group's channel; both as bytes.

A link delivers in order. When it breaks, what is under way is lost, and sometimes what was delivered last comes once
more. On the channel each sender's messages reach each receiver in order; a receiver that is cut off for long is put
out: it misses some, and goes on later.
"""
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from angarium.sim.clock import Clock
from angarium.sim.trace import Trace

Deliver = Callable[[str, bytes, bytes], None]  # sender, head, payload

_LATENCY_S_MIN = 0.0001


@dataclass(slots=True)
class _Way:
    """From one node to another, over the link or the channel."""

    latency_s: float
    flight: deque[tuple[float, bytes, bytes]] = field(default_factory=deque)
    is_armed: bool = False
    delivered: deque[tuple[bytes, bytes]] = field(default_factory=lambda: deque(maxlen=3))


class ReplicaNetwork:
    def __init__(
        self, clock: Clock, trace: Trace, chance: Random, *, latency_s_max: float, channel_messages_max: int
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._chance = chance
        self._latency_s_max = latency_s_max
        self._channel_messages_max = channel_messages_max
        self._nodes: dict[str, Deliver] = {}  # those that are up
        self._ways: dict[tuple[bool, str, str], _Way] = {}
        self._numbers: dict[tuple[bool, str, str], int] = {}
        self.cut_off: set[frozenset[str]] = set()  # pairs that cannot hear each other

    def join(self, name: str, deliver: Deliver) -> None:
        self._nodes[name] = deliver

    def leave(self, name: str) -> None:
        self._nodes.pop(name, None)
        for key, way in self._ways.items():
            if name in key:
                way.flight.clear()
                way.delivered.clear()

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cut_off

    # -- sending ---------------------------------------------------------------------------------------

    def send(self, sender: str, receiver: str, head: bytes, payload: bytes) -> None:
        if not self.is_cut(sender, receiver):
            self._post((False, sender, receiver), head, payload)

    def multicast(self, sender: str, receivers: list[str], head: bytes, payload: bytes) -> None:
        for receiver in receivers:
            if receiver == sender:
                continue
            key = (True, sender, receiver)
            self._post(key, head, payload)
            if self.is_cut(sender, receiver) and len(self._ways[key].flight) > self._channel_messages_max:
                self._ways[key].flight.clear()

    def _post(self, key: tuple[bool, str, str], head: bytes, payload: bytes) -> None:
        way = self._ways.get(key)
        if way is None:
            self._numbers[key] = len(self._ways) + 10
            way = self._ways[key] = _Way(self._chance.uniform(_LATENCY_S_MIN, self._latency_s_max))
        way.flight.append((self._clock.now + way.latency_s, head, payload))
        self._arm(key, way)

    def _arm(self, key: tuple[bool, str, str], way: _Way) -> None:
        if not way.is_armed and way.flight and not self.is_cut(key[1], key[2]):
            way.is_armed = True
            self._clock.at(way.flight[0][0], partial(self._arrive, key, way))

    def _arrive(self, key: tuple[bool, str, str], way: _Way) -> None:
        way.is_armed = False
        is_channel, sender, receiver = key
        if self.is_cut(sender, receiver):
            if not is_channel:
                way.flight.clear()
            return
        if way.flight and way.flight[0][0] <= self._clock.now:
            _, head, payload = way.flight.popleft()
            self._deliver(key, way, head, payload)
        self._arm(key, way)

    def _deliver(self, key: tuple[bool, str, str], way: _Way, head: bytes, payload: bytes) -> None:
        deliver = self._nodes.get(key[2])
        if deliver is not None:
            self._trace.mix(self._numbers[key], head + payload)
            way.delivered.append((head, payload))
            deliver(key[1], head, payload)

    # -- faults ----------------------------------------------------------------------------------------

    def break_link(self, one: str, other: str) -> None:
        for key in ((False, one, other), (False, other, one)):
            if (way := self._ways.get(key)) is not None:
                way.flight.clear()
                if self._chance.random() < 0.3:
                    again = list(way.delivered)
                    way.flight.extend((self._clock.now + way.latency_s, head, payload) for head, payload in again)
                    self._arm(key, way)

    def put_out(self, sender: str, receiver: str) -> None:
        if (way := self._ways.get((True, sender, receiver))) is not None:
            way.flight.clear()

    def part(self, pairs: set[frozenset[str]]) -> None:
        self.cut_off = pairs
        for key, way in self._ways.items():
            if self.is_cut(key[1], key[2]):
                if not key[0]:
                    way.flight.clear()
            else:
                self._arm(key, way)

"""The network between nodes: datagrams that are late, lost, repeated and overtaken, and directions that are cut."""
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from zlib import crc32

from angarium.core.groups.messages import Message
from angarium.sim.clock import Clock
from angarium.sim.groups.replicas import ReplicaMessage
from angarium.sim.trace import Trace


@dataclass(slots=True)
class NetSettings:
    latency_s_min: float = 0.0005
    latency_s_max: float = 0.004
    loss: float = 0.0
    repeat: float = 0.0
    slow: float = 0.0  # chance that a message takes up to `slow_s_max`
    slow_s_max: float = 1.5


class Net:
    def __init__(
        self, clock: Clock, trace: Trace, chance: Random, deliver: Callable[[str, str, bytes], None],
        deliver_replica: Callable[[str, ReplicaMessage], None],
    ) -> None:  # fmt: skip
        self.settings = NetSettings()
        self.cut: set[tuple[str, str]] = set()  # (from, to)
        self.sent = 0
        self._clock = clock
        self._trace = trace
        self._chance = chance
        self._deliver = deliver
        self._deliver_replica = deliver_replica

    def send(self, sender: str, to: str, data: bytes, message: Message) -> None:
        self.sent += 1
        self._trace.mix(crc32(to.encode()), data)
        if self._trace.is_read:
            self._trace.say(sender, f"-> {to}: {message!r}"[:300])
        for delay_s in self._delays(sender, to):
            self._clock.after(delay_s, lambda: self._arrive(sender, to, data))

    def send_replica(self, sender: str, to: str, message: ReplicaMessage) -> None:
        for delay_s in self._delays(sender, to):
            self._clock.after(delay_s, lambda: self._arrive_replica(sender, to, message))

    def _delays(self, sender: str, to: str) -> list[float]:
        settings, chance = self.settings, self._chance
        copies = 1 + (chance.random() < settings.repeat)
        delays: list[float] = []
        for _ in range(copies):
            if (sender, to) not in self.cut and chance.random() >= settings.loss:
                limit_s = settings.slow_s_max if chance.random() < settings.slow else settings.latency_s_max
                delays.append(chance.uniform(settings.latency_s_min, limit_s))
        return delays

    def _arrive(self, sender: str, to: str, data: bytes) -> None:
        if (sender, to) not in self.cut:
            self._deliver(sender, to, data)

    def _arrive_replica(self, sender: str, to: str, message: ReplicaMessage) -> None:
        if (sender, to) not in self.cut:
            self._deliver_replica(to, message)

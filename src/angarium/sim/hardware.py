"""What machines can do in a second: the time that their work and their network take in a world that asks for it.

    a process   is busy for a while with each input and output, and with each of their bytes
    a wire      of each machine, in and out, takes so many bytes a second; a multicast leaves it once

Most worlds have `Unlimited` machines: there, only latencies take time. Clients are unlimited everywhere.
"""
from dataclasses import dataclass

from angarium.sim.clock import Clock


class Unlimited:
    """Nothing takes time."""

    def work_s(self, size_bytes: int) -> float:
        """How long a process is busy with one input or output of that size."""
        return 0.0

    def leaving_s(self, host: str, size_bytes: int) -> float:
        """How long from now until that has left the machine."""
        return 0.0

    def entering_s(self, host: str, size_bytes: int) -> float:
        """How long from now until what has come to the machine has entered it."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    call_s: float = 20e-6  # of a process, for each input and output
    byte_s: float = 2e-9  # and for each byte of it
    wire_bytes_per_s: float = 125e6  # in, and as much out
    free_hosts: frozenset[str] = frozenset({"client"})


class Hardware(Unlimited):
    """All machines alike. A wire carries one thing after the other."""

    def __init__(self, clock: Clock, capacity: Capacity) -> None:
        self._clock = clock
        self._capacity = capacity
        self._out_free_at: dict[str, float] = {}
        self._in_free_at: dict[str, float] = {}

    def work_s(self, size_bytes: int) -> float:
        return self._capacity.call_s + size_bytes * self._capacity.byte_s

    def leaving_s(self, host: str, size_bytes: int) -> float:
        return self._carry(self._out_free_at, host, size_bytes)

    def entering_s(self, host: str, size_bytes: int) -> float:
        return self._carry(self._in_free_at, host, size_bytes)

    def _carry(self, free_at: dict[str, float], host: str, size_bytes: int) -> float:
        if host in self._capacity.free_hosts:
            return 0.0
        now = self._clock.now
        free_at[host] = max(now, free_at.get(host, 0.0)) + size_bytes / self._capacity.wire_bytes_per_s
        return free_at[host] - now

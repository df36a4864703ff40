"""Between machines: connections that are cut, swallowed or refused, datagrams that are lost, and partitions of both.

A machine is its host's name. `block(a, b)` lets nothing through from a to b: what is on a connection waits, as TCP's
does; a connection that is asked for is asked for again after 1, 2, 4, … seconds; datagrams are lost.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from angarium.core.client.reconnect import Address
from angarium.sim.clock import Clock
from angarium.sim.hardware import Unlimited
from angarium.sim.network import _AFTER_S, End, Link, Network, NetworkSettings
from angarium.sim.trace import Trace

_SYN_S = (1.0, 2.0, 4.0, 8.0, 16.0)
_SILENT_S = 30.0  # until an end that is told nothing is told by its system
_FOR_EVER_S = 1e9


class Wires(Network):
    """Between any machines: who listens is known by address."""

    def __init__(self, clock: Clock, trace: Trace, chance: Random, settings: NetworkSettings) -> None:
        super().__init__(clock, trace, chance, settings)
        self.blocked: set[tuple[str, str]] = set()  # (from, to): nothing gets through that way
        self.dark: set[str] = set()  # machines without power
        self.hardware = Unlimited()
        self._listeners: dict[tuple[str, int], End] = {}
        self._hosts: dict[int, tuple[str, str]] = {}  # of links: who dialled whom

    def bind(self, host: str, port: int, end: End) -> None:
        self._listeners[host, port] = end

    def unbind(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)

    def is_listening(self, host: str, port: int) -> bool:
        return (host, port) in self._listeners

    def passes(self, source: str, target: str) -> bool:
        return (source, target) not in self.blocked and source not in self.dark and target not in self.dark

    def connect(
        self, client: End, refused: Callable[[], None], address: Address, source: str = "client", attempt: int = 0
    ) -> None:
        if self.clock.now >= self.swallows_until:
            reach = partial(self._reach_at, client, refused, address, source, attempt)
            self.clock.after(self.draw_latency_s(), reach)

    def _reach_at(
        self, client: End, refused: Callable[[], None], address: Address, source: str, attempt: int
    ) -> None:
        host, port = address
        if not (self.passes(source, host) and self.passes(host, source)):
            if attempt == len(_SYN_S):
                refused()
            else:
                again = partial(self.connect, client, refused, address, source, attempt + 1)
                self.clock.after(_SYN_S[attempt], again)
            return
        listener = self._listeners.get((host, port))
        if listener is None:
            self.clock.after(self.settings.refuse_after_s, refused)
            return
        self._numbers += 1
        link = self.links[self._numbers] = Link(self, self._numbers, client, listener)
        self._hosts[link.number] = (source, host)
        latency_s = self.draw_latency_s()
        link.to_client.stall(latency_s + _AFTER_S)
        listener.opened(link)
        self.clock.after(latency_s, partial(self._open, client, link))

    def leaving_s(self, link: Link, number: int, size_bytes: int) -> float:
        return self.hardware.leaving_s(self._hosts[link.number][number], size_bytes)

    def entering_s(self, link: Link, number: int, size_bytes: int) -> float:
        return self.hardware.entering_s(self._hosts[link.number][1 - number], size_bytes)

    def hosts(self, link: Link) -> tuple[str, str]:
        return self._hosts[link.number]

    # -- trouble ---------------------------------------------------------------------------------------

    def block(self, source: str, target: str) -> None:
        self.blocked.add((source, target))
        self._each(source, target, lambda stream: stream.stall(_FOR_EVER_S))

    def unblock_all(self) -> None:
        blocked, self.blocked = sorted(self.blocked), set()
        for source, target in blocked:
            self._each(source, target, lambda stream: stream.go_on())

    def _each(self, source: str, target: str, do: Callable[..., None]) -> None:
        for link in list(self.links.values()):
            if self._hosts[link.number] == (source, target):
                do(link.to_broker)
            elif self._hosts[link.number] == (target, source):
                do(link.to_client)

    def cut_links_of(self, host: str, *, is_silent: bool) -> None:
        """Its process is gone. A system that lives closes its connections, one without power says nothing."""
        for link in list(self.links.values()):
            dialer, listener = self._hosts[link.number]
            if host in (dialer, listener):
                self.cut(link, f"{host} is gone", is_silent=is_silent)

    def cut(self, link: Link, reason: str, *, is_silent: bool = False) -> None:
        dialer, listener = self._hosts[link.number]
        is_silent = is_silent or not (self.passes(dialer, listener) and self.passes(listener, dialer))
        after_s = _SILENT_S if is_silent else self.draw_latency_s()
        link.cut(reason, client_after_s=after_s, broker_after_s=after_s)

    def close(self, link: Link, side: int, reason: str, *, abort: bool) -> None:
        """As the end on that side asks (0: who listened, 1: who dialled)."""
        dialer, listener = self._hosts[link.number]
        if abort and not (self.passes(dialer, listener) and self.passes(listener, dialer)):
            link.cut(reason, client_after_s=_SILENT_S, broker_after_s=_SILENT_S)
        else:
            link.close(side, reason, abort=abort)


@dataclass(slots=True)
class AirSettings:
    loss_chance: float = 0.0
    double_chance: float = 0.0
    overtake_chance: float = 0.0
    latency_s_min: float = 0.0001
    latency_s_max: float = 0.0008
    late_s_max: float = 0.01


Hear = Callable[[list[bytes]], None]
BusAddress = tuple[str, int]  # multicast group and port


class Air:
    """Datagrams, to one and to all that are on a bus."""

    def __init__(self, clock: Clock, chance: Random, wires: Wires) -> None:
        self.settings = AirSettings()
        self._clock = clock
        self._chance = chance
        self._wires = wires
        self._hearing: dict[str, Hear] = {}  # in order of their start
        self._on: dict[BusAddress, set[str]] = {}  # hosts that hear each multicast group
        self._buses: set[int] = set()  # numbers of those that were opened
        self.is_multicast_dead = False
        self.is_one_bus_dead = False  # the first, if there are several
        self.hardware = Unlimited()

    def attach(self, host: str, hear: Hear) -> None:
        self._hearing[host] = hear

    def join(self, host: str, bus: int, address: BusAddress, *, hears: bool) -> None:
        self._buses.add(bus)
        hosts = self._on.setdefault(address, set())
        hosts.add(host) if hears else hosts.discard(host)

    def detach(self, host: str) -> None:
        self._hearing.pop(host, None)
        for hosts in self._on.values():
            hosts.discard(host)

    def multicast(self, source: str, bus: int, address: BusAddress, datagrams: list[bytes]) -> None:
        if self.is_multicast_dead or (self.is_one_bus_dead and bus == 0 and len(self._buses) > 1):
            return
        leaving_s = self.hardware.leaving_s(source, sum(map(len, datagrams)))
        for host in list(self._hearing):
            if host != source and host in self._on[address]:
                self._carry(source, host, datagrams, leaving_s)

    def unicast(self, source: str, host: str, datagrams: list[bytes]) -> None:
        self._carry(source, host, datagrams, self.hardware.leaving_s(source, sum(map(len, datagrams))))

    def _carry(self, source: str, host: str, datagrams: list[bytes], leaving_s: float) -> None:
        if not self._wires.passes(source, host):
            return
        settings, draw = self.settings, self._chance.random
        together = []
        for datagram in datagrams:
            for _ in range(1 + (draw() < settings.double_chance)):
                if draw() < settings.loss_chance:
                    continue
                if draw() < settings.overtake_chance:
                    self._later(host, [datagram], leaving_s + self._chance.uniform(0.0, settings.late_s_max))
                else:
                    together.append(datagram)
        if together:
            latency_s = self._chance.uniform(settings.latency_s_min, settings.latency_s_max)
            self._later(host, together, leaving_s + latency_s)

    def _later(self, host: str, datagrams: list[bytes], delay_s: float) -> None:
        hear = self._hearing.get(host)

        def come() -> None:
            if entering_s := self.hardware.entering_s(host, sum(map(len, datagrams))):
                self._clock.after(entering_s, arrive)
            else:
                arrive()

        def arrive() -> None:
            if hear is not None and self._hearing.get(host) is hear:
                hear(datagrams)

        self._clock.after(delay_s, come)

"""Connections between clients and the broker: ordered byte streams that are late, come in pieces, stall and break.

A stream delivers what was written, in order, after its latency, chopped at random places. While bytes are on their way
they count as the sender's output buffer: above `buffer_bytes_high` the sender is asked to pause, below
`buffer_bytes_low` to go on. A stream may stall for a time.

A connection is cut at any byte of either direction. What was under way is lost; each end finds out in its own time, and
an end that has not found out yet goes on writing into nothing. An end that closes or has been told hears nothing more.
"""
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.client.reconnect import Address
from angarium.sim.clock import Clock, Timer
from angarium.sim.trace import Trace

_AFTER_S = 1e-9


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    latency_s_min: float = 0.0002
    latency_s_max: float = 0.005
    # How often an arrival is only a part of what could arrive.
    chop_chance: float = 0.3
    # When a sender is asked to pause, and to go on. Small: a few hundred messages should reach it.
    buffer_bytes_high: int = 16_384
    buffer_bytes_low: int = 4_096
    # An attempt to connect to a machine that is down is answered after this long.
    refuse_after_s: float = 0.002


class End(Protocol):
    """One side of a connection: the broker's listener, or a client."""

    def opened(self, link: "Link") -> None: ...

    def received(self, link: "Link", data: bytes) -> None: ...

    def lost(self, link: "Link", reason: str) -> None: ...

    def paused(self, link: "Link", paused: bool) -> None: ...


class Stream:
    """One direction."""

    def __init__(self, link: "Link", number: int, network: "Network") -> None:
        self.in_flight_bytes = 0
        self.break_after_bytes: int | None = None  # the connection is cut when so many more have arrived
        self._link = link
        self._number = number  # 0: to the broker, 1: to the client
        self._network = network
        self._latency_s = network.draw_latency_s()
        self._flight: deque[tuple[float, bytes]] = deque()  # ready to arrive at, bytes
        self._timer: Timer | None = None
        self._stalled_until = 0.0
        self._is_paused = False
        self._ends: str | None = None  # the sender has closed, for this reason
        self._is_dead = False

    def write(self, data: bytes) -> None:
        if self._is_dead or self._ends is not None:
            return
        leaves_at = self._network.clock.now + self._network.leaving_s(self._link, self._number, len(data))
        self._flight.append((leaves_at + self._latency_s, data))
        self.in_flight_bytes += len(data)
        self._arm()
        if not self._is_paused and self.in_flight_bytes > self._network.settings.buffer_bytes_high:
            self._is_paused = True
            self._link.sender_paused(self._number, True)

    def end(self, reason: str) -> None:
        """Nothing more will be written; the other end learns it after the last byte."""
        if self._ends is None and not self._is_dead:
            self._ends = reason
            self._flight.append((self._network.clock.now + self._latency_s, b""))
            self._arm()

    def stall(self, seconds: float) -> None:
        self._stalled_until = max(self._stalled_until, self._network.clock.now + seconds)

    def go_on(self) -> None:
        """Whatever it stalled for is over."""
        self._stalled_until = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm()

    def kill(self) -> None:
        self._is_dead = True
        self._flight.clear()
        self.in_flight_bytes = 0
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is None and self._flight:
            self._timer = self._network.clock.at(max(self._flight[0][0], self._stalled_until), self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now = self._network.clock.now
        if now < self._stalled_until:
            self._arm()
            return
        parts: list[bytes] = []
        flight = self._flight
        while flight and flight[0][0] <= now:
            parts.append(flight.popleft()[1])
        is_end = self._ends is not None and not flight
        data = b"".join(parts)
        chance = self._network.chance
        if len(data) > 1 and chance.random() < self._network.settings.chop_chance:
            at = chance.randrange(1, len(data))
            flight.appendleft((now + self._latency_s * chance.random(), data[at:]))
            data, is_end = data[:at], False
        self._arm()
        if entering_s := self._network.entering_s(self._link, self._number, len(data)):
            self._network.clock.after(entering_s, partial(self._enter, data, is_end))
        else:
            self._enter(data, is_end)

    def _enter(self, data: bytes, is_end: bool) -> None:
        if not self._is_dead:
            self._deliver(data)
        if is_end and not self._is_dead:
            self._link.stream_ended(self._number, self._ends or "")

    def _deliver(self, data: bytes) -> None:
        breaks = self.break_after_bytes is not None and len(data) >= self.break_after_bytes
        if breaks:
            data = data[: self.break_after_bytes]
        elif self.break_after_bytes is not None:
            self.break_after_bytes -= len(data)
        self.in_flight_bytes -= len(data)
        if data:
            self._network.trace.mix(2 * self._link.number + self._number, data)
            self._link.bytes_arrived(self._number, data)
        if self._is_dead:
            return
        if breaks:
            self._link.cut("cut in the middle")
        elif self._is_paused and self.in_flight_bytes < self._network.settings.buffer_bytes_low:
            self._is_paused = False
            self._link.sender_paused(self._number, False)


class Link:
    """One connection, both directions and both ends."""

    def __init__(self, network: "Network", number: int, client: End, broker: End) -> None:
        self.number = number
        self.is_cut = False
        self._network = network
        self._ends: list[End | None] = [broker, client]  # by the number of the stream that leads there; None: deaf
        self.to_broker = Stream(self, 0, network)
        self.to_client = Stream(self, 1, network)

    def bytes_arrived(self, number: int, data: bytes) -> None:
        end = self._ends[number]
        if end is not None:
            end.received(self, data)

    def sender_paused(self, number: int, paused: bool) -> None:
        end = self._ends[1 - number]
        if end is not None:
            end.paused(self, paused)

    def stream_ended(self, number: int, reason: str) -> None:
        self._tell_lost(number, reason)
        self._kill()

    def close(self, number: int, reason: str, *, abort: bool = False) -> None:
        """The end that stream `number` leads to closes: it hears nothing more, the other one after the last byte."""
        self._ends[number] = None
        stream = self.to_client if number == 0 else self.to_broker
        if abort:
            self.cut(reason, client_after_s=self._network.draw_latency_s(),
                     broker_after_s=self._network.draw_latency_s())  # fmt: skip
        else:
            stream.end(reason)

    def cut(self, reason: str, *, client_after_s: float = 0.0, broker_after_s: float = 0.0) -> None:
        """Nothing passes any more; the ends are told after so long."""
        if self.is_cut:
            return
        self._network.trace.note("network", f"link {self.number} is cut: {reason}")
        self._kill()
        clock = self._network.clock
        clock.after(broker_after_s, partial(self._tell_lost, 0, reason))
        clock.after(client_after_s, partial(self._tell_lost, 1, reason))

    def _tell_lost(self, number: int, reason: str) -> None:
        end, self._ends[number] = self._ends[number], None
        if end is not None:
            end.lost(self, reason)

    def _kill(self) -> None:
        self.is_cut = True
        self.to_broker.kill()
        self.to_client.kill()
        self._network.links.pop(self.number, None)


class Network:
    """Between any number of clients and one broker, which is there or not."""

    def __init__(self, clock: Clock, trace: Trace, chance: Random, settings: NetworkSettings) -> None:
        self.clock = clock
        self.trace = trace
        self.chance = chance
        self.settings = settings
        self.links: dict[int, Link] = {}  # that still carry bytes
        self.swallows_until = 0.0  # attempts to connect until then are never answered
        self._broker: End | None = None
        self._numbers = 0

    def draw_latency_s(self) -> float:
        return self.chance.uniform(self.settings.latency_s_min, self.settings.latency_s_max)

    def leaving_s(self, link: Link, number: int, size_bytes: int) -> float:
        """How long it takes until what is written to that stream has left the machine."""
        return 0.0

    def entering_s(self, link: Link, number: int, size_bytes: int) -> float:
        """How long it takes until what has come to the end of that stream has entered the machine."""
        return 0.0

    def listen(self, broker: End | None) -> None:
        self._broker = broker

    def connect(self, client: End, refused: Callable[[], None], address: Address) -> None:
        """The client is told `opened` when the broker has accepted, or `refused`; or never."""
        if self.clock.now >= self.swallows_until:
            self.clock.after(self.draw_latency_s(), partial(self._reach, client, refused))

    def _reach(self, client: End, refused: Callable[[], None]) -> None:
        broker = self._broker
        if broker is None:
            self.clock.after(self.settings.refuse_after_s, refused)
            return
        self._numbers += 1
        link = self.links[self._numbers] = Link(self, self._numbers, client, broker)
        latency_s = self.draw_latency_s()
        link.to_client.stall(latency_s + _AFTER_S)  # nothing arrives before the client knows that it is connected
        broker.opened(link)
        self.clock.after(latency_s, partial(self._open, client, link))

    def _open(self, client: End, link: Link) -> None:
        if not link.is_cut:
            client.opened(link)

"""Nodes of a bus joined by hand: what one says is kept until the test passes it on."""
from collections.abc import Sequence

from angarium.core.bus.datagram import HEADER, Header, Kind, cluster_number
from angarium.core.bus.events import (
    BusSettings,
    Carry,
    Command,
    DatagramsReceived,
    Delivered,
    Event,
    MembersChanged,
    Multicast,
    Send,
    Tick,
    Unicast,
)
from angarium.core.bus.machine import BusMachine
from angarium.core.bus.seal import SealedBoxes

CLUSTER = cluster_number("test")
SECRET = b"0123456789abcdef"
CHANNEL = 3
SMALL = BusSettings(
    ring_datagrams_low=4, ring_datagrams_high=8, ring_datagrams_max=16, window_datagrams=6, ack_every_datagrams=2,
    message_bytes_max=9_000, evict_after_s=0.5,
)  # fmt: skip


def incarnation(number: int) -> bytes:
    return bytes(15) + bytes([number])


def kind_of(datagram: bytes) -> Kind:
    return Kind(datagram[1])


def header_of(datagram: bytes) -> Header:
    return Header(*HEADER.unpack_from(datagram))


class Node:
    def __init__(self, number: int, settings: BusSettings | None = None, **identity: object) -> None:
        self.me = incarnation(number)
        self.said: list[tuple[bytes | None, bytes]] = []  # to whom (None: all), datagram
        self.told: list[Command] = []
        secret = identity.get("secret", SECRET)
        cluster = identity.get("cluster", CLUSTER)
        assert isinstance(secret, bytes) and isinstance(cluster, int)
        self.machine = BusMachine(
            cluster=cluster, incarnation=self.me, boxes=SealedBoxes(secret, cluster), jitter=lambda: 0.5,
            settings=settings,
        )  # fmt: skip

    def tell(self, event: Event, now: float) -> None:
        for command in self.machine.handle(event, now=now):
            match command:
                case Multicast(_, datagrams):
                    self.said += [(None, datagram) for datagram in datagrams]
                case Unicast(node, datagrams) | Carry(node, datagrams):
                    self.said += [(node, datagram) for datagram in datagrams]
                case _:
                    self.told.append(command)

    def send(self, *messages: bytes, now: float) -> None:
        self.tell(Send(CHANNEL, [(message,) for message in messages]), now)

    @property
    def got(self) -> list[bytes]:
        return [message for command in self.told if isinstance(command, Delivered) for message in command.messages]

    @property
    def drops(self) -> dict[str, int]:
        return self.machine.counters.drops


def data_of(node: Node) -> list[bytes]:
    """What it said and nobody took yet, as far as it is data."""
    return [datagram for _, datagram in node.said if kind_of(datagram) is Kind.DATA]


class Bus:
    """`senders` first, then `receivers`; everything arrives at once unless a test takes it away."""

    def __init__(self, senders: int = 1, receivers: int = 2, settings: BusSettings | None = None) -> None:
        self.now = 100.0
        self.nodes = [Node(number, settings) for number in range(1, senders + receivers + 1)]
        self.senders, self.receivers = self.nodes[:senders], self.nodes[senders:]
        self.view = 0
        self.change(self.senders, self.receivers)
        self.run(0.05)

    def change(self, senders: Sequence[Node], receivers: Sequence[Node], tell: Sequence[Node] | None = None) -> None:
        self.view += 1
        event = MembersChanged(CHANNEL, self.view, tuple(n.me for n in senders), tuple(n.me for n in receivers))
        for node in self.nodes if tell is None else tell:
            node.tell(event, self.now)

    def exchange(self) -> None:
        """Pass everything on until nobody has anything more to say now."""
        while any(node.said for node in self.nodes):
            for node in self.nodes:
                said, node.said = node.said, []
                for other in self.nodes:
                    arriving = [datagram for to, datagram in said if to is None or to == other.me]
                    if arriving:
                        other.tell(DatagramsReceived(arriving), self.now)

    def run(self, seconds: float, step_s: float = 0.001) -> None:
        until = self.now + seconds
        while self.now < until:
            self.exchange()
            self.now += step_s
            for node in self.nodes:
                due = node.machine.deadline()
                if due is not None and due <= self.now:
                    node.tell(Tick(), self.now)
        self.exchange()

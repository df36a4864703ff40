"""The bus of a node in a cluster: `BusMachine` on real sockets, TCP links beside it.

What the rest of the node uses:

    bus = ClusterBus(settings, identity, tell)     tell: what happens, one call for each, in order (`BusEvent`)
    await bus.start()
    bus.dial(host, port)                           keep a TCP link to the node there
    bus.change(MembersChanged(…))                  who sends and who receives on a channel
    number = bus.send(channel, [parts, …])         to all receivers; messages of one turn of the loop travel together
    bus.send_to(node, service, message, payload)   to one; False: there is no link, or it takes no more
    bus.is_blocked(channel)                        whether to send no more for now
    bus.pause(channel, True)                       this node takes no more of the channel for now
    bus.rejoin(channel, sender)                    after StreamLost
    bus.hear(link, True)                           whether this node receives what comes there
    bus.is_reached(node, link)                     whether that neighbour hears us there by multicast
    bus.counters, bus.traffic(link)                for metrics
    await bus.close()

Decides nothing: datagrams, time and records become events of the machine, its commands become calls of sockets.
"""
import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from angarium.core.bus.counters import BusCounters
from angarium.core.bus.datagram import LENGTH, cluster_number
from angarium.core.bus.events import (
    BusSettings,
    Carry,
    ChannelBlocked,
    ChannelUnblocked,
    Command,
    DatagramsReceived,
    Delivered,
    Event,
    Evicted,
    MembersChanged,
    Message,
    Multicast,
    NeighbourFound,
    NeighbourLost,
    ReceiverPaused,
    Rejoin,
    ReportReceived,
    Send,
    SendReport,
    StreamEnded,
    StreamLost,
    StreamStarted,
    Tick,
    Unicast,
)
from angarium.core.bus.link import LinkIdentity, Record
from angarium.core.bus.machine import BusMachine
from angarium.core.bus.seal import Boxes, OpenBoxes, SealedBoxes
from angarium.core.bus.sending import lengths_of
from angarium.core.errors import LocalProtocolError
from angarium.core.malformed import MALFORMED
from angarium.runtime.links import Links, LinkSettings, LinkUsers
from angarium.runtime.multicast import Address, BusLink, BusSockets, SocketSettings, SocketsMaker

# Services below this are the bus's own.
SERVICE_MIN = 16
_TIMER_S_MIN = 0.001
_CARRY_SERVICE = 1
_REPORT_SERVICE = 2
_decode_links = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_encode_links = msgspec.msgpack.Encoder().encode


class RecordReceived(msgspec.Struct, frozen=True):
    """What a neighbour sent with `send_to`."""

    node: bytes
    service: int
    message: bytes
    payload: bytes


class LinkBlocked(msgspec.Struct, frozen=True):
    """As much waits for that neighbour as should (or no longer): it reads too slowly."""

    node: bytes
    blocked: bool


class PeerRefused(msgspec.Struct, frozen=True):
    """For the event log: somebody connected who is no node of this cluster; or the system lacks something."""

    reason: str


BusEvent = (
    Delivered | ChannelBlocked | ChannelUnblocked | StreamStarted | StreamLost | StreamEnded | Evicted
    | NeighbourFound | NeighbourLost | RecordReceived | LinkBlocked | PeerRefused
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    cluster: str
    secret: bytes
    name: str
    incarnation: bytes


@dataclass(frozen=True, slots=True)
class ClusterBusSettings:
    # The buses that this node is on, by the numbers that channels use.
    links: dict[int, BusLink]
    # Where TCP links and unicast datagrams are taken. Port 0: the system chooses.
    host: str = "127.0.0.1"
    link_port: int = 0
    datagram_port: int = 0
    # Without it nothing is protected: only to measure what that costs.
    sealed: bool = True
    # Longer datagrams where all links take them.
    fitted: bool = True
    bus: BusSettings = field(default_factory=BusSettings)
    tcp: LinkSettings = field(default_factory=LinkSettings)
    sockets: SocketSettings = field(default_factory=SocketSettings)


@dataclass(slots=True)
class _Unsent:
    messages: int = 0
    size_bytes: int = 0  # as they take room in the ring


class ClusterBus:
    def __init__(
        self, settings: ClusterBusSettings, identity: NodeIdentity, tell: Callable[[BusEvent], None], *,
        sockets: SocketsMaker = BusSockets, bytes_by_chance: Callable[[int], bytes] = os.urandom,
        jitter: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._identity = identity
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        cluster = cluster_number(identity.cluster)
        boxes: Boxes = SealedBoxes(identity.secret, cluster) if settings.sealed else OpenBoxes()
        self._sockets = sockets(settings.sockets, self._received, self._warn)
        self._machine = BusMachine(
            cluster=cluster, incarnation=identity.incarnation, boxes=boxes, jitter=jitter,
            settings=self._bus_settings(), links=tuple(settings.links),
        )  # fmt: skip
        self._bytes_by_chance, self._jitter = bytes_by_chance, jitter
        self._links: Links | None = None
        self._addresses: dict[bytes, Address] = {}  # of neighbours, for unicast datagrams
        self._gathered: dict[int, list[Message]] = {}  # sent in this turn of the loop
        self._unsent: dict[int, _Unsent] = {}  # by channel: gathered, or on its way to the machine
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._events: deque[Event] = deque()
        self._running = False
        self._closed = False
        self.link_port = 0

    def _bus_settings(self) -> BusSettings:
        links, usual = self._settings.links.values(), self._settings.bus
        if not self._settings.fitted or not links:
            return usual
        return usual.fitted(min(self._sockets.mtu_of(link) for link in links))

    async def start(self) -> None:
        settings, identity = self._settings, self._identity
        port = self._sockets.open_unicast(settings.host, settings.datagram_port)
        for number, link in settings.links.items():
            self._sockets.open_link(number, link, identity.incarnation)
        mine = LinkIdentity(
            secret=identity.secret, cluster=cluster_number(identity.cluster), name=identity.name,
            incarnation=identity.incarnation, port=port, sealed=settings.sealed,
        )  # fmt: skip
        users = LinkUsers(self._record, self._found, self._lost, self._link_blocked, self._warn)
        self._links = Links(
            settings.tcp, mine, users, bytes_by_chance=self._bytes_by_chance, jitter=self._jitter
        )
        self.link_port = await self._links.start(settings.host, settings.link_port)
        self._refresh()

    def _refresh(self) -> None:
        """An interface may have gone and come back: join its group again."""
        self._sockets.refresh()
        self._refresh_timer = self._loop.call_later(self._settings.bus.probe_s, self._refresh)

    async def close(self) -> None:
        self._closed = True
        for timer in (self._timer, self._refresh_timer):
            if timer is not None:
                timer.cancel()
        self._sockets.close()
        if self._links is not None:
            await self._links.close()

    # -- from the node -------------------------------------------------------------------------------------

    @property
    def counters(self) -> BusCounters:
        return self._machine.counters

    def is_reached(self, node: bytes, link: int) -> bool:
        """That neighbour hears us on the link: nothing that goes there need be carried to it."""
        return link in self._settings.links and node in self._addresses and self._machine.is_reached(node, link)

    def hear(self, link: int, heard: bool) -> None:
        """What comes on the link is for this node, or not: then the system drops it before it costs anything."""
        self._sockets.hear(link, heard)

    def traffic(self, link: int) -> tuple[int, int]:
        """Bytes sent and received there by multicast."""
        return self._sockets.traffic(link)

    @property
    def send_failures(self) -> int:
        """Datagrams that the system did not take."""
        return self._sockets.failures

    def dial(self, host: str, port: int) -> None:
        self._started().dial(host, port)

    def hang_up(self, host: str, port: int) -> None:
        self._started().hang_up(host, port)

    def change(self, members: MembersChanged) -> None:
        self._flush()  # what was sent before belongs to the view before
        self._run(members)

    def send(self, channel: int, messages: Sequence[Message]) -> int:
        """The number of the first. Raises Unavailable if the ring has no room: wait for ChannelUnblocked. Nobody is
        told anything before it has returned."""
        unsent = self._unsent.get(channel) or _Unsent()
        size = self._machine.check_send(channel, lengths_of(messages), unsent.size_bytes)
        number = self._machine.number_next(channel) + unsent.messages
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.setdefault(channel, []).extend(messages)
        unsent.messages += len(messages)
        unsent.size_bytes += size
        self._unsent[channel] = unsent
        return number

    def is_blocked(self, channel: int) -> bool:
        """Whether to send no more, counting also what was sent in this turn: ChannelBlocked is told in the next one."""
        opened = self._machine.channels.get(channel)
        unsent = self._unsent.get(channel) or _Unsent()
        return opened is not None and opened.sending is not None and opened.sending.is_full(unsent.size_bytes)

    def send_to(self, node: bytes, service: int, message: bytes, payload: bytes | memoryview = b"") -> bool:
        if not SERVICE_MIN <= service <= 0xFFFF:
            raise LocalProtocolError(f"service {service} is outside {SERVICE_MIN}..65535")
        return self._started().send(node, service, message, payload)

    def drop(self, node: bytes) -> None:
        """Break the link to that node, so that both notice: it is dialled again."""
        self._started().drop(node)

    def pause(self, channel: int, paused: bool) -> None:
        self._run(ReceiverPaused(channel, paused))

    def rejoin(self, channel: int, sender: bytes) -> None:
        self._run(Rejoin(channel, sender))

    def _started(self) -> Links:
        if self._links is None:
            raise LocalProtocolError("the bus has not been started")
        return self._links

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for channel, messages in gathered.items():
            self._run(Send(channel, messages))

    def _is_void(self, event: Event) -> bool:
        """It was asked for, and the channel was closed before its turn came."""
        if not isinstance(event, Send | ReceiverPaused | Rejoin):
            return False
        channel = self._machine.channels.get(event.channel)
        return channel is None or (isinstance(event, Send) and channel.sending is None)

    def _has_left(self, event: Send) -> None:
        unsent = self._unsent[event.channel]
        unsent.messages -= len(event.messages)
        unsent.size_bytes -= sum(lengths_of(event.messages)) + LENGTH.size * len(event.messages)
        if not unsent.messages:
            del self._unsent[event.channel]

    # -- from sockets and links ----------------------------------------------------------------------------

    def _received(self, datagrams: list[bytes]) -> None:
        self._run(DatagramsReceived(datagrams))

    def _found(self, node: bytes, name: str, host: str, port: int) -> None:
        self._addresses[node] = (host, port)
        event = NeighbourFound(node, name, host, port)
        self._run(event)
        self._tell(event)

    def _lost(self, node: bytes, reason: str) -> None:
        self._addresses.pop(node, None)
        event = NeighbourLost(node, reason)
        self._run(event)
        self._tell(event)

    def _record(self, node: bytes, record: Record) -> None:
        if record.service >= SERVICE_MIN:
            self._tell(RecordReceived(node, *record))
        elif record.service == _CARRY_SERVICE:
            self._run(DatagramsReceived(_unpack(record.payload)))
        elif record.service == _REPORT_SERVICE:
            try:
                heard = _decode_links(record.message)
            except MALFORMED:
                self._machine.counters.drop("malformed")
                return
            self._run(ReportReceived(node, heard))

    def _link_blocked(self, node: bytes, blocked: bool) -> None:
        self._tell(LinkBlocked(node, blocked))

    def _warn(self, reason: str) -> None:
        self._tell(PeerRefused(reason))

    def _tick(self) -> None:
        self._timer = None
        self._run(Tick())

    # -- the machine ---------------------------------------------------------------------------------------

    def _run(self, event: Event) -> None:
        """Whoever is told something may ask for more at once: that comes after what he is being told."""
        self._events.append(event)
        if self._running:
            return
        self._running = True
        try:
            while self._events and not self._closed:
                event = self._events.popleft()
                if isinstance(event, Send):
                    self._has_left(event)
                if not self._is_void(event):
                    for command in self._machine.handle(event, now=self._loop.time()):
                        self._perform(command)
        finally:
            self._running = False
        if not self._closed:
            self._arm()

    def _arm(self) -> None:
        due = self._machine.deadline()
        if self._timer is not None:
            if due is not None and self._timer_at <= due:
                return  # it asks the machine again then
            self._timer.cancel()
            self._timer = None
        if due is not None:
            # The loop's clock has no more than milliseconds: anything sooner would be asked for again and again.
            due = max(due, self._loop.time() + _TIMER_S_MIN)
            self._timer, self._timer_at = self._loop.call_at(due, self._tick), due

    def _perform(self, command: Command) -> None:
        match command:
            case Multicast(link, datagrams):
                self._sockets.multicast(link, datagrams)
            case Unicast(node, datagrams):
                address = self._addresses.get(node)
                if address is not None:
                    self._sockets.unicast(address, datagrams)
            case Carry(node, datagrams):
                self._started().send(node, _CARRY_SERVICE, b"", _pack(datagrams))
            case SendReport(node, links):
                self._started().send(node, _REPORT_SERVICE, _encode_links(links))
            case _:
                self._tell(command)


def _pack(datagrams: list[bytes]) -> bytes:
    """Each after its length."""
    parts: list[bytes] = []
    for datagram in datagrams:
        parts += (LENGTH.pack(len(datagram)), datagram)
    return b"".join(parts)


def _unpack(payload: bytes) -> list[bytes]:
    datagrams, at = [], 0
    while at + LENGTH.size <= len(payload):
        (length,) = LENGTH.unpack_from(payload, at)
        at += LENGTH.size
        datagrams.append(payload[at : at + length])
        at += length
    return datagrams

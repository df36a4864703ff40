"""asyncio's transports and servers over simulated connections: what listener and links of a node run on."""
import asyncio
from collections.abc import Callable
from typing import Any, cast

from angarium.core.client.reconnect import Address
from angarium.node.cluster.buses import bus_number
from angarium.runtime.multicast import BusLink, SocketSettings
from angarium.sim.clock import Clock
from angarium.sim.clusters.wires import Air, BusAddress, Wires
from angarium.sim.hardware import Unlimited
from angarium.sim.loop import SimLoop
from angarium.sim.network import Link

_SOCKET_DATAGRAMS_MAX = 300  # what waits for a process that stands still; the rest is lost
DATAGRAM_PORT = 4_572
ProtocolMaker = Callable[[], asyncio.BaseProtocol]


class SimTransport(asyncio.Transport):
    """One end of a connection. `side`: 0 for who listened, 1 for who dialled."""

    def __init__(self, loop: "NodeLoop", wires: Wires, link: Link, side: int, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._wires = wires
        self._link = link
        self._side = side
        self._protocol = cast(asyncio.BufferedProtocol, protocol)
        self._out = link.to_client if side == 0 else link.to_broker
        self._is_closing = self._is_lost = self._is_deaf = False
        self._unread: list[bytes] = []
        dialer, listener = wires.hosts(link)
        self._peer = (listener if side == 1 else dialer, link.number)

    # -- from the network, in the loop -----------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._is_deaf or self._unread:  # it comes after what waits to be read
            self._unread.append(data)
            return
        self._loop.spend(len(data))
        at = 0
        while at < len(data) and not self._is_closing:
            if self._is_deaf:
                self._unread.append(data[at:])
                return
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(buffer), len(data) - at)
            buffer[:count] = data[at : at + count]
            at += count
            self._protocol.buffer_updated(count)

    def lost(self) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._protocol.connection_lost(None)

    def stalled(self, stalled: bool) -> None:
        if not self._is_lost:
            self._protocol.pause_writing() if stalled else self._protocol.resume_writing()

    # -- from the protocol -----------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._loop.spend(len(data))
            self._out.write(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._out.in_flight_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The network's own limits are smaller, so that they are met."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._peer if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end(abort=False)

    def abort(self) -> None:
        self._end(abort=True)

    def _end(self, *, abort: bool) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._wires.close(self._link, self._side, "closed", abort=abort)
            self._loop.call_soon(self.lost)

    def pause_reading(self) -> None:
        self._is_deaf = True

    def resume_reading(self) -> None:
        self._is_deaf = False
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        unread, self._unread = self._unread, []
        for data in unread:
            self.received(data)


class SimServer:
    """Listens; the system accepts for a process that stands still."""

    def __init__(self, loop: "NodeLoop", wires: Wires, factory: ProtocolMaker, host: str, port: int) -> None:
        self._loop = loop
        self._wires = wires
        self._factory = factory
        self._name = (host, port)
        self._transports: dict[int, SimTransport] = {}
        wires.bind(host, port, self)

    @property
    def sockets(self) -> list["SimServer"]:
        return [self]

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def close(self) -> None:
        self._wires.unbind(*self._name)

    def opened(self, link: Link) -> None:
        self._loop.call_soon(self._opened, link)

    def received(self, link: Link, data: bytes) -> None:
        self._loop.call_soon(self._received, link.number, data)

    def lost(self, link: Link, reason: str) -> None:
        self._loop.call_soon(self._lost, link.number)

    def paused(self, link: Link, paused: bool) -> None:
        self._loop.call_soon(self._stalled, link.number, paused)

    def _opened(self, link: Link) -> None:
        protocol = self._factory()
        transport = self._transports[link.number] = SimTransport(self._loop, self._wires, link, 0, protocol)
        protocol.connection_made(transport)

    def _received(self, number: int, data: bytes) -> None:
        if (transport := self._transports.get(number)) is not None:
            transport.received(data)

    def _stalled(self, number: int, stalled: bool) -> None:
        if (transport := self._transports.get(number)) is not None:
            transport.stalled(stalled)

    def _lost(self, number: int) -> None:
        if (transport := self._transports.pop(number, None)) is not None:
            transport.lost()


class _Dialler:
    """One attempt to connect, and the connection that it becomes."""

    def __init__(self, loop: "NodeLoop", wires: Wires, factory: ProtocolMaker) -> None:
        self.done: asyncio.Future[SimTransport] = loop.create_future()
        self.protocol: asyncio.BaseProtocol | None = None
        self._loop = loop
        self._wires = wires
        self._factory = factory
        self._transport: SimTransport | None = None

    def opened(self, link: Link) -> None:
        self._loop.call_soon(self._opened, link)

    def refused(self) -> None:
        self._loop.call_soon(self._refused)

    def received(self, link: Link, data: bytes) -> None:
        self._loop.call_soon(self._received, data)

    def lost(self, link: Link, reason: str) -> None:
        self._loop.call_soon(self._lost)

    def paused(self, link: Link, paused: bool) -> None:
        self._loop.call_soon(self._stalled, paused)

    def _opened(self, link: Link) -> None:
        if self.done.done():
            link.close(1, "nobody wants it any more", abort=True)
            return
        self.protocol = self._factory()
        self._transport = SimTransport(self._loop, self._wires, link, 1, self.protocol)
        self.protocol.connection_made(self._transport)
        self.done.set_result(self._transport)

    def _refused(self) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionRefusedError("nobody listens there"))

    def _received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.received(data)

    def _stalled(self, stalled: bool) -> None:
        if self._transport is not None:
            self._transport.stalled(stalled)

    def _lost(self) -> None:
        if self._transport is not None:
            self._transport.lost()
        elif not self.done.done():
            self.done.set_exception(ConnectionResetError("cut before it was there"))


class NodeLoop(SimLoop):
    """The loop of a node's process, on a machine that is on the network. `wires`: by the port that is listened on."""

    def __init__(
        self, clock: Clock, name: str, host: str, wires: Callable[[int], Wires], *, starts_at: float, rate: float,
        hardware: Unlimited,
    ) -> None:  # fmt: skip
        super().__init__(clock, name, starts_at=starts_at, rate=rate)
        self.host = host
        self._wires = wires
        self._hardware = hardware

    def spend(self, size_bytes: int) -> None:
        """Be busy with one input or output."""
        self.work(self._hardware.work_s(size_bytes))

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return SimServer(self, self._wires(port), protocol_factory, host, port)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        wires = self._wires(port)
        dialler = _Dialler(self, wires, protocol_factory)
        wires.connect(dialler, dialler.refused, Address(host, port), self.host)
        transport = await dialler.done
        return transport, dialler.protocol


class SimSockets:
    """In place of `runtime.multicast.BusSockets`."""

    def __init__(
        self, loop: NodeLoop, air: Air, settings: SocketSettings, received: Callable[[list[bytes]], None],
        warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.failures = 0
        self._loop = loop
        self._air = air
        self._received = received
        self._addresses: dict[int, BusAddress] = {}  # of links
        self._waiting = 0

    def open_unicast(self, host: str, port: int = 0) -> int:
        self._air.attach(self._loop.host, self._hear)
        return DATAGRAM_PORT

    def mtu_of(self, link: BusLink) -> int:
        return 1_500

    def open_link(self, number: int, link: BusLink, incarnation: bytes) -> None:
        self._addresses[number] = (link.group, link.port)
        self.hear(number, link.hears)

    def hear(self, link: int, heard: bool) -> None:
        if link in self._addresses:
            self._air.join(self._loop.host, bus_number(link), self._addresses[link], hears=heard)

    def _hear(self, datagrams: list[bytes]) -> None:
        if self._loop.is_paused:
            datagrams = datagrams[: max(0, _SOCKET_DATAGRAMS_MAX - self._waiting)]
        if datagrams:
            self._waiting += len(datagrams)
            self._loop.call_soon(self._read, datagrams)

    def _read(self, datagrams: list[bytes]) -> None:
        self._waiting -= len(datagrams)
        self._loop.spend(sum(map(len, datagrams)))
        self._received(datagrams)

    def multicast(self, link: int, datagrams: list[bytes]) -> None:
        self._loop.spend(sum(map(len, datagrams)))
        self._air.multicast(self._loop.host, bus_number(link), self._addresses[link], datagrams)

    def traffic(self, link: int) -> tuple[int, int]:
        return 0, 0

    def unicast(self, address: tuple[str, int], datagrams: list[bytes]) -> None:
        self._loop.spend(sum(map(len, datagrams)))
        self._air.unicast(self._loop.host, address[0], datagrams)

    def refresh(self) -> None: ...

    def close(self) -> None:
        self._air.detach(self._loop.host)

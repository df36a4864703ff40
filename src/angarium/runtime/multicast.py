"""UDP sockets of a node: one to receive on each multicast group and interface, one to send there, one for unicast.

Datagrams of equal size leave in one call and are cut by the kernel (UDP_SEGMENT); what arrives in a row is handed over
in one buffer (UDP_GRO). A kernel or driver that refuses, now or later, gets them one by one. A receiving socket is
bound to the group's address, so that it hears that group alone, and joins it on the interface that was named. Reading
goes on until nothing is left, but not for ever: other sockets have their turn.
"""
import asyncio
import contextlib
import ctypes
import errno
import fcntl
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from angarium.core.bus.datagram import INCARNATION_AT

UDP_SEGMENT = 103
UDP_GRO = 104
_IP_MULTICAST_ALL = 49
_SEGMENTS_MAX = 64  # of one call, as the kernel has it …
_SEGMENTED_BYTES_MAX = 65_000  # … and the bytes of an IP packet
_SO_ATTACH_FILTER = 26
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
_INSTRUCTION = struct.Struct("=HBBI")
_UDP_HEADER_BYTES = 8
_READS_PER_TURN_MAX = 32
_MREQN = struct.Struct("=4s4si")
_REFUSED = (errno.EIO, errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EMSGSIZE)

Address = tuple[str, int]
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BusLink:
    """A bus: a multicast group, its port, and the interface (name or address) over which this node is on it."""

    group: str
    port: int
    interface: str
    # Hops that datagrams may make: 1 stays on the subnet.
    hops_max: int = 1
    # Whether other nodes on this host hear us.
    loopback: bool = True
    # Whether this node hears it, or only speaks; `BusSockets.hear` changes it.
    hears: bool = True


@dataclass(frozen=True, slots=True)
class SocketSettings:
    # Asked for, and read back: a receiver's window of every sender should fit. The system may allow less.
    receive_buffer_bytes: int = 4 << 20
    send_buffer_bytes: int = 4 << 20
    # Below this at receiving a warning is logged.
    receive_buffer_bytes_warn: int = 1 << 20
    segmentation: bool = True


class UdpSocket:
    """One socket, with segmentation where the kernel has it."""

    def __init__(self, settings: SocketSettings, warn: Warn) -> None:
        self._warn = warn
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self._segmented = settings.segmentation
        self._coalesced = settings.segmentation
        self.failures = 0  # datagrams that the system did not take
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        # Linux reports twice what it grants, its own bookkeeping included.
        self.receive_buffer_bytes = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if settings.segmentation:
            try:
                self.socket.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
            except OSError:
                self._coalesced = False
        self._buffer = bytearray(1 << 16)
        self._view = memoryview(self._buffer)

    def send(self, datagrams: list[bytes], address: Address) -> None:
        """What the system does not take is counted; to the bus it is lost like any other."""
        at, end = 0, len(datagrams)
        while at < end:
            count = _run_length(datagrams, at) if self._segmented else 1
            try:
                if count == 1:
                    self.socket.sendto(datagrams[at], address)
                else:
                    self._send_segmented(datagrams[at : at + count], address)
            except BlockingIOError:
                self.failures += end - at
                return
            except OSError as error:
                if count > 1 and error.errno in _REFUSED:
                    self._warn(f"segmentation offload refused ({error}): datagrams are sent one by one")
                    self._segmented = False
                    continue
                self.failures += count
            at += count

    def _send_segmented(self, run: list[bytes], address: Address) -> None:
        size = struct.pack("=H", len(run[0]))
        self.socket.sendmsg(run, [(socket.IPPROTO_UDP, UDP_SEGMENT, size)], 0, address)

    def receive(self) -> list[bytes]:
        """What has arrived: all of it, or as much as one turn allows."""
        datagrams: list[bytes] = []
        view = self._view
        for _ in range(_READS_PER_TURN_MAX):
            try:
                if self._coalesced:
                    size, ancillary, _, _ = self.socket.recvmsg_into([self._buffer], 64)
                else:
                    size, ancillary = self.socket.recv_into(self._buffer), []
            except OSError:
                break  # nothing left; or an error of an earlier send, which that one counted
            step = size
            for level, kind, data in ancillary:
                if level == socket.IPPROTO_UDP and kind == UDP_GRO:
                    step = int.from_bytes(data[:4], "little") or size
            if step >= size:
                datagrams.append(bytes(view[:size]))
            else:
                datagrams += [bytes(view[at : min(at + step, size)]) for at in range(0, size, step)]
        return datagrams

    def close(self) -> None:
        self.socket.close()


def _run_length(datagrams: list[bytes], at: int) -> int:
    """How many from there on are of one size (the last may be shorter), and fit one call."""
    size = len(datagrams[at])
    most = min(len(datagrams) - at, _SEGMENTS_MAX, _SEGMENTED_BYTES_MAX // max(1, size))
    for count in range(1, most):
        length = len(datagrams[at + count])
        if length != size:
            return count + 1 if length < size else count
    return most


class MulticastLink:
    """One bus: a socket that hears the group, and one that speaks to it."""

    def __init__(self, link: BusLink, settings: SocketSettings, warn: Warn) -> None:
        self.link = link
        self.hears = link.hears
        self.sent_bytes = self.received_bytes = 0
        self.receiver = UdpSocket(settings, warn)
        self.sender = UdpSocket(settings, warn)
        self._address = (link.group, link.port)
        self.receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.receiver.socket.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        self.receiver.socket.bind(self._address)
        self.sender.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, link.hops_max)
        self.sender.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(link.loopback))
        is_found = self.refresh()
        if not link.hears:
            return  # it is behind one that is heard from the beginning: once is enough to tell
        if not is_found:
            warn(f"bus {link.group}: no interface {link.interface!r} now; it is looked for again and again")
        if self.receiver.receive_buffer_bytes < settings.receive_buffer_bytes_warn:
            warn(
                f"bus {link.group}: receive buffer of {self.receiver.receive_buffer_bytes:,} bytes, "
                f"{settings.receive_buffer_bytes:,} asked for: bursts may be lost; raise net.core.rmem_max"
            )

    def ignore(self, incarnation: bytes) -> None:
        """Do not hear our own datagrams again: the kernel drops them before they cost anything. It looks at the first
        of a run; what is multicast together is always of one sender."""
        program = _without(incarnation)
        instructions = ctypes.create_string_buffer(program)
        fprog = struct.pack("HL", len(program) // _INSTRUCTION.size, ctypes.addressof(instructions))
        with contextlib.suppress(OSError):  # then the machine drops them
            self.receiver.socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)

    def refresh(self) -> bool:
        """Join again, if the interface went and came back; False while it is away."""
        try:
            address, index = interface_of(self.link.interface)
            if self.hears:
                self._change_membership(socket.IP_ADD_MEMBERSHIP, address, index)
            outgoing = _MREQN.pack(bytes(4), address, index)
            self.sender.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, outgoing)
        except OSError:
            return False
        return True

    def hear(self, heard: bool) -> None:
        """From now on, or no more: then its datagrams do not even come to this machine, if the switch knows how."""
        if heard != self.hears:
            self.hears = heard
            with contextlib.suppress(OSError):  # no interface now: `refresh` joins
                change = socket.IP_ADD_MEMBERSHIP if heard else socket.IP_DROP_MEMBERSHIP
                self._change_membership(change, *interface_of(self.link.interface))

    def _change_membership(self, change: int, address: bytes, index: int) -> None:
        request = _MREQN.pack(socket.inet_aton(self.link.group), address, index)
        try:
            self.receiver.socket.setsockopt(socket.IPPROTO_IP, change, request)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # that one says: we are in it
                raise

    def send(self, datagrams: list[bytes]) -> None:
        self.sent_bytes += sum(map(len, datagrams))
        self.sender.send(datagrams, self._address)

    def receive(self) -> list[bytes]:
        datagrams = self.receiver.receive()
        self.received_bytes += sum(map(len, datagrams))
        return datagrams

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()


def _without(incarnation: bytes) -> bytes:
    """A socket filter (classic BPF) that takes every datagram but those of one sender. It sees the UDP header, too."""
    at = _UDP_HEADER_BYTES + INCARNATION_AT
    words = [int.from_bytes(incarnation[n : n + 4], "big") for n in range(0, len(incarnation), 4)]
    length, at_least, load, equal, give = 0x80, 0x35, 0x20, 0x15, 0x06
    code = [(length, 0, 0, 0), (at_least, 0, 2 * len(words) + 1, at + len(incarnation))]
    for index, word in enumerate(words):
        left = 2 * (len(words) - index - 1) + 1  # instructions to the one that takes it
        code += [(load, 0, 0, at + 4 * index), (equal, 0, left, word)]
    code += [(give, 0, 0, 0), (give, 0, 0, 0xFFFFFFFF)]
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def interface_of(interface: str) -> tuple[bytes, int]:
    """Address and index, one of them zero; raises OSError if there is no such interface now."""
    try:
        return socket.inet_aton(interface), 0
    except OSError:
        return bytes(4), socket.if_nametoindex(interface)


def mtu_of(interface: str) -> int:
    """The longest packet that it takes; 0 if there is no such interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s16x", name.encode())
            with contextlib.suppress(OSError):  # it has no address, or has just gone
                own = socket.inet_ntoa(fcntl.ioctl(asker, _SIOCGIFADDR, request)[20:24])
                if interface in (name, own):
                    return int(struct.unpack_from("i", fcntl.ioctl(asker, _SIOCGIFMTU, request), 16)[0])
    return 0


class SocketsLike(Protocol):
    """As `BusSockets`, which alone has real ones."""

    @property
    def failures(self) -> int: ...
    def open_unicast(self, host: str, port: int = 0) -> int: ...
    def mtu_of(self, link: BusLink) -> int: ...
    def open_link(self, number: int, link: BusLink, incarnation: bytes) -> None: ...
    def hear(self, link: int, heard: bool) -> None: ...
    def multicast(self, link: int, datagrams: list[bytes]) -> None: ...
    def traffic(self, link: int) -> tuple[int, int]: ...
    def unicast(self, address: Address, datagrams: list[bytes]) -> None: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...


SocketsMaker = Callable[[SocketSettings, Callable[[list[bytes]], None], Callable[[str], None]], SocketsLike]


class BusSockets:
    """All of them; `received` is called with what one socket had in one turn."""

    def __init__(self, settings: SocketSettings, received: Callable[[list[bytes]], None], warn: Warn) -> None:
        self._settings = settings
        self._warn = warn
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, MulticastLink] = {}
        self._unicast: UdpSocket | None = None

    def open_unicast(self, host: str, port: int = 0) -> int:
        """The port; the system chooses one for 0."""
        self._unicast = UdpSocket(self._settings, self._warn)
        self._unicast.socket.bind((host, port))
        self._listen(self._unicast.socket, self._unicast.receive)
        return int(self._unicast.socket.getsockname()[1])

    def mtu_of(self, link: BusLink) -> int:
        return mtu_of(link.interface)

    def open_link(self, number: int, link: BusLink, incarnation: bytes) -> None:
        """`incarnation`: our own, which we need not hear."""
        opened = self._links[number] = MulticastLink(link, self._settings, self._warn)
        opened.ignore(incarnation)
        self._listen(opened.receiver.socket, opened.receive)

    def _listen(self, socket: socket.socket, receive: Callable[[], list[bytes]]) -> None:
        self._loop.add_reader(socket.fileno(), self._readable, receive)

    def _readable(self, receive: Callable[[], list[bytes]]) -> None:
        datagrams = receive()
        if datagrams:
            self._received(datagrams)

    def hear(self, link: int, heard: bool) -> None:
        if (opened := self._links.get(link)) is not None:
            opened.hear(heard)

    def multicast(self, link: int, datagrams: list[bytes]) -> None:
        self._links[link].send(datagrams)

    def traffic(self, link: int) -> tuple[int, int]:
        """Bytes handed to the system for that link, and received there."""
        opened = self._links.get(link)
        return (0, 0) if opened is None else (opened.sent_bytes, opened.received_bytes)

    def unicast(self, address: Address, datagrams: list[bytes]) -> None:
        if self._unicast is not None:
            self._unicast.send(datagrams, address)

    def refresh(self) -> None:
        for link in self._links.values():
            link.refresh()

    @property
    def failures(self) -> int:
        unicast = self._unicast.failures if self._unicast is not None else 0
        return unicast + sum(link.sender.failures for link in self._links.values())

    def close(self) -> None:
        for udp in [link.receiver for link in self._links.values()] + [u for u in (self._unicast,) if u is not None]:
            self._loop.remove_reader(udp.socket.fileno())
            udp.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._unicast = None

"""Listens to buses on loopback, as a stranger: what each carries, by channel and sender. Headers are not sealed."""
import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from angarium.core.bus.datagram import HEADER, HEADER_BYTES, Header, Kind
from angarium.core.ids import format_id

_RECEIVE_BYTES = 4 << 20


class Flow(NamedTuple):
    bus: str
    channel: int
    sender: str


def _behind(address: str, place: int) -> tuple[str, int]:
    group, _, port = address.rpartition(":")
    return str(ipaddress.IPv4Address(group) + place), int(port)


class BusTap:
    """Of each bus, the groups that are for replica groups: as many as it is told there are."""

    def __init__(self, addresses: Mapping[str, str], *, groups: int) -> None:
        self._data: Counter[Flow] = Counter()  # bytes of streams; nothing that only keeps them going
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._listen, args=(bus, *_behind(address, place)))
            for bus, address in addresses.items()
            for place in range(1, groups + 1)
        ]
        self._opened = threading.Barrier(len(self._threads) + 1)

    def _listen(self, bus: str, group: str, port: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tap:
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tap.bind((group, port))
            request = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
            tap.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            tap.settimeout(0.05)
            self._opened.wait()
            while not self._stop.is_set():
                try:
                    datagram = tap.recv(1 << 16)
                except TimeoutError:
                    continue
                if len(datagram) >= HEADER_BYTES:
                    header = Header(*HEADER.unpack_from(datagram))
                    if header.kind == Kind.DATA:
                        self._data[Flow(bus, header.channel, format_id(header.incarnation))] += len(datagram)

    def __enter__(self) -> "BusTap":
        for thread in self._threads:
            thread.start()
        self._opened.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def data_bytes(self, bus: str, *, channel: int | None = None, sender: str | None = None) -> int:
        return sum(
            size for flow, size in self._data.copy().items()
            if flow.bus == bus and channel in (None, flow.channel) and sender in (None, flow.sender)
        )  # fmt: skip

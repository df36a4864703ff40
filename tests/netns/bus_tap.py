"""Listens to an interface until its input ends, and says how many bytes of bus data passed first and again, and how far
repairs were ahead of what data and time allow, when they were most so.

    ahead of a stream:  a repair adds its bytes, data takes off a tenth of theirs, each second 2 MiB; never below zero

So it is the most of any stretch of time, however short: what is lost now cannot be repaired on the account of an hour
in which nothing was lost. Times are those of the kernel, not of when we come to read.

Run inside a namespace: python -m tests.netns.bus_tap INTERFACE [sent]
`sent`: only what comes in there, which is what the host behind it has sent.
"""
import json
import socket
import struct
import sys
import threading
import time

from angarium.core.bus.datagram import HEADER, HEADER_BYTES, Kind
from angarium.core.bus.events import BusSettings

_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_PACKET_OUTGOING = 4
_REST_S_MAX = 1.0  # for what has arrived when it is to end
_HEADERS_BYTES = 14 + 20 + 8  # Ethernet, IPv4 without options, UDP


def count(tap: socket.socket, totals: dict[str, int], stop: threading.Event, *, is_sent_only: bool) -> None:
    seen: set[tuple[int, bytes, int]] = set()
    ahead: dict[tuple[int, bytes], tuple[float, float]] = {}  # by stream; and when
    settings = BusSettings()
    until: float | None = None
    while until is None or time.monotonic() < until:
        if until is None and stop.is_set():
            until = time.monotonic() + _REST_S_MAX
        try:
            packet, ancillary, _, (_, _, direction, *_) = tap.recvmsg(1 << 16, 64)
        except TimeoutError:
            if stop.is_set():  # and nothing is left to be read
                return
            continue
        except OSError:  # its interface is gone
            return
        if is_sent_only and direction == _PACKET_OUTGOING:
            continue
        datagram = packet[_HEADERS_BYTES:]
        if packet[12:14] != b"\x08\x00" or packet[23] != socket.IPPROTO_UDP or len(datagram) < HEADER_BYTES:
            continue
        fields = HEADER.unpack_from(datagram)
        if fields[0] != 1 or fields[1] != Kind.DATA:
            continue
        key = (fields[3], fields[5], fields[6])
        is_repair = key in seen
        totals["repairs" if is_repair else "data"] += len(datagram)
        seen.add(key)
        at = _seconds(ancillary)
        level, since = ahead.get(key[:2], (0.0, at))
        level = max(0.0, level - settings.repair_bytes_per_s * (at - since))
        level = level + len(datagram) if is_repair else max(0.0, level - settings.repair_share_max * len(datagram))
        ahead[key[:2]] = (level, at)
        totals["ahead"] = max(totals["ahead"], int(level))


def _seconds(ancillary: list[tuple[int, int, bytes]]) -> float:
    """When the kernel had it."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            return float(seconds + nanoseconds / 1e9)
    raise AssertionError("a packet without a time")


def main() -> None:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    # Whatever `net.core.rmem_max` says: what finds no room is not counted, and a busy machine reads late.
    tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    tap.bind((sys.argv[1], 0))
    tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    tap.settimeout(0.1)
    totals, stop = {"data": 0, "repairs": 0, "ahead": 0}, threading.Event()
    thread = threading.Thread(
        target=count, args=(tap, totals, stop), kwargs={"is_sent_only": "sent" in sys.argv[2:]}
    )
    thread.start()
    print("listening", flush=True)
    sys.stdin.read()
    stop.set()
    thread.join()
    print(json.dumps(totals), flush=True)


if __name__ == "__main__":
    main()

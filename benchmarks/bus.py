"""How fast the bus is, and what it costs: python -m benchmarks.bus

One sender, one to three receivers, each a process of its own on this machine, over loopback. The same messages by
multicast and over TCP links (once for each receiver), sealed and not. MB/s is what each receiver got; CPU is
processor seconds of sender and of all receivers for each GB sent, so that machines with few cores can be compared.
"""
import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import uvloop

from angarium.core.bus.events import BusSettings, Delivered, MembersChanged
from angarium.core.errors import Unavailable
from angarium.runtime.cluster_bus import (
    BusEvent,
    ClusterBus,
    ClusterBusSettings,
    LinkBlocked,
    NodeIdentity,
    RecordReceived,
)
from angarium.runtime.multicast import BusLink

_CHANNEL, _SERVICE = 1, 20
_BATCH_BYTES = 1 << 16


class Program:
    def __init__(self, number: int, port: int, sealed: bool, datagram_bytes: int) -> None:
        self.me = number.to_bytes(16, "big")
        links = {0: BusLink("239.255.91.1", port, "127.0.0.1")}
        bus = BusSettings(datagram_bytes_max=datagram_bytes)
        settings = ClusterBusSettings(links, sealed=sealed, fitted=False, bus=bus)
        identity = NodeIdentity("bench", b"only for measuring", f"n{number}", self.me)
        self.bus = ClusterBus(settings, identity, self.happened)
        self.got_bytes = 0
        self.linked = 0
        self.blocked: set[bytes] = set()
        self.ready = 0

    def happened(self, event: BusEvent) -> None:
        match event:
            case Delivered():
                self.got_bytes += sum(map(len, event.messages))
            case RecordReceived():
                self.got_bytes += len(event.payload)
            case LinkBlocked(node, blocked):
                (self.blocked.add if blocked else self.blocked.discard)(node)
            case _:
                self.linked += type(event).__name__ == "NeighbourFound"
                self.ready += type(event).__name__ == "StreamStarted"

    async def send(self, order: dict[str, Any]) -> int:
        """For so many seconds, as fast as it is taken; the bytes of all messages, once."""
        size, receivers = order["size"], [bytes.fromhex(r) for r in order["receivers"]]
        message, count, sent = os.urandom(size), max(1, _BATCH_BYTES // size), 0
        until = time.monotonic() + order["seconds"]
        while time.monotonic() < until:
            if order["multicast"]:
                try:
                    self.bus.send(_CHANNEL, [(message,)] * count)
                    sent += count * size
                except Unavailable:
                    await asyncio.sleep(0.001)
            elif not self.blocked:
                for _ in range(count):
                    for receiver in receivers:
                        self.bus.send_to(receiver, _SERVICE, b"", message)
                sent += count * size
            else:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
        return sent

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        sent = 0
        if order["do"] == "dial":
            self.bus.dial("127.0.0.1", order["port"])
        elif order["do"] == "members":
            receivers = tuple(bytes.fromhex(r) for r in order["receivers"])
            self.bus.change(MembersChanged(_CHANNEL, 1, ((1).to_bytes(16, "big"),), receivers))
        elif order["do"] == "send":
            sent = await self.send(order)
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "port": self.bus.link_port, "sent": sent, "got": self.got_bytes, "linked": self.linked, "ready": self.ready,
            "cpu_s": used.ru_utime + used.ru_stime, "repairs": self.bus.counters.repair_bytes,
        }  # fmt: skip


async def child(number: int, port: int, sealed: bool, datagram_bytes: int) -> None:
    program = Program(number, port, sealed, datagram_bytes)
    await program.bus.start()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(json.dumps(await program.obey(json.loads(line))), flush=True)
    await program.bus.close()


class Node:
    def __init__(self, number: int, *settings: int) -> None:
        self.incarnation = number.to_bytes(16, "big").hex()
        command = [sys.executable, "-m", "benchmarks.bus", "--child", json.dumps([number, *settings])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, do: str = "status", **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(*, receivers: int, size: int, multicast: bool, sealed: bool, seconds: float, datagram_bytes: int) -> str:
    port = 45_000 + os.getpid() % 5_000
    nodes = [Node(number, port, sealed, datagram_bytes) for number in range(1, receivers + 2)]
    try:
        sender, others = nodes[0], nodes[1:]
        for node in others:
            sender.ask("dial", port=node.ask()["port"])
        _until(lambda: sender.ask()["linked"] == receivers)
        names = [node.incarnation for node in others]
        for node in nodes:
            node.ask("members", receivers=names)
        _until(lambda: all(node.ask()["ready"] for node in others))
        time.sleep(0.6)  # until the self-test has found multicast to work
        before = [node.ask()["cpu_s"] for node in nodes]
        start = time.monotonic()
        sent = sender.ask("send", size=size, receivers=names, multicast=multicast, seconds=seconds)["sent"]
        _until(lambda: all(node.ask()["got"] >= sent for node in others))
        took_s = time.monotonic() - start
        after = [node.ask()["cpu_s"] for node in nodes]
        used = [end - begin for begin, end in zip(before, after, strict=True)]
        way = ("multicast" if multicast else "TCP links") + (" sealed" if sealed else " open")
        repairs = sender.ask()["repairs"]
        return (
            f"{size:>7,} B  {receivers} receivers  {way:<17} {sent / took_s / 1e6:7.1f} MB/s   CPU s/GB: sender "
            f"{used[0] / sent * 1e9:5.1f}  receivers {sum(used[1:]) / sent * 1e9:5.1f}   repairs {repairs / sent:.1%}"
        )
    finally:
        for node in nodes:
            node.end()


def _until(condition: Any, seconds_max: float = 20.0) -> None:
    until = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > until:
            raise SystemExit("the nodes did not get there in time")
        time.sleep(0.01)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=1.5)
    options.add_argument("--datagram-bytes", type=int, default=BusSettings().datagram_bytes_max)
    options.add_argument("--receivers", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--child", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        uvloop.run(child(*json.loads(chosen.child)))
        return
    conditions = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"
    print(f"{conditions}, {chosen.seconds:g} s each, datagrams of {chosen.datagram_bytes:,} bytes")
    for size in (1_000, 64_000):
        for receivers in chosen.receivers:
            for multicast in (True, False):
                for sealed in (True, False):
                    print(measure(
                        receivers=receivers, size=size, multicast=multicast, sealed=sealed, seconds=chosen.seconds,
                        datagram_bytes=chosen.datagram_bytes,
                    ), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

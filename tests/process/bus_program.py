"""A node that is nothing but a bus, as a program: told what to do by lines of JSON, and answering each with one.

Every message says who sent it and its number, and is filled with bytes that follow from these; whatever arrives is
checked on the spot.
"""
import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from hashlib import shake_128
from typing import Any

import uvloop

from angarium.core.bus.events import BusSettings, Delivered, MembersChanged, StreamEnded, StreamLost, StreamStarted
from angarium.core.errors import Unavailable
from angarium.runtime.cluster_bus import (
    BusEvent,
    ClusterBus,
    ClusterBusSettings,
    NodeIdentity,
    RecordReceived,
)
from angarium.runtime.multicast import BusLink, SocketSettings


def body_of(sender: bytes, number: int, size: int) -> bytes:
    head = sender + number.to_bytes(8, "big")
    return (head + shake_128(head).digest(32) * (1 + size // 32))[: max(size, len(head))]


class Program:
    def __init__(self, options: dict[str, Any]) -> None:
        self.me = bytes.fromhex(options["incarnation"])
        links = {int(number): BusLink(*link) for number, link in options["links"].items()}
        sockets = SocketSettings(segmentation=options.get("segmentation", True))
        bus = replace(BusSettings(), **options.get("bus", {}))
        settings = ClusterBusSettings(links, host=options["host"], bus=bus, sockets=sockets)
        secret = options.get("secret", "the secret of the tests").encode()
        self.bus = ClusterBus(settings, NodeIdentity("tests", secret, options["name"], self.me), self.happened)
        self.events: Counter[str] = Counter()
        self.neighbours: list[str] = []
        self.streams: dict[str, int] = {}  # "channel sender": the next number
        self.wrong: list[str] = []
        self.records: list[Any] = []
        self.news: list[Any] = []
        self.sent: Counter[int] = Counter()
        self.to_send: dict[int, tuple[int, int]] = {}  # channel: how many more, of what size

    def happened(self, event: BusEvent) -> None:
        self.events[type(event).__name__] += 1
        match event:
            case Delivered(channel, sender, number, messages):
                key = f"{channel} {sender.hex()}"
                if self.streams.get(key, number) != number:
                    self.wrong.append(f"{key}: got {number}, not {self.streams.get(key)}")
                for offset, message in enumerate(messages):
                    if message != body_of(sender, number + offset, len(message)):
                        self.wrong.append(f"{key}: message {number + offset} is not as it was sent")
                self.streams[key] = number + len(messages)
            case StreamStarted(channel, sender, number):
                self.streams[f"{channel} {sender.hex()}"] = number
                self.news.append(["started", channel, sender.hex(), number])
            case StreamLost(channel, sender, number, _):
                self.streams.pop(f"{channel} {sender.hex()}")
                self.news.append(["lost", channel, sender.hex(), number])
            case StreamEnded(channel, sender, number):
                self.streams.pop(f"{channel} {sender.hex()}")
                self.news.append(["ended", channel, sender.hex(), number])
            case RecordReceived(node, service, message, payload):
                self.records.append([node.hex(), service, message.decode(), len(payload)])
            case _ if type(event).__name__ == "NeighbourFound":
                self.neighbours.append(event.node.hex())  # type: ignore[union-attr]
            case _ if type(event).__name__ == "NeighbourLost":
                self.neighbours.remove(event.node.hex())  # type: ignore[union-attr]

    async def sending(self) -> None:
        """As fast as the channel takes it."""
        while True:
            for channel, (count, size) in list(self.to_send.items()):
                batch = min(count, max(1, 60_000 // max(1, size)))
                number = self.sent[channel] + 1
                try:
                    self.bus.send(channel, [(body_of(self.me, number + n, size),) for n in range(batch)])
                except Unavailable:
                    continue
                self.sent[channel] += batch
                self.to_send[channel] = (count - batch, size)
                if count == batch:
                    del self.to_send[channel]
            await asyncio.sleep(0 if self.to_send else 0.002)
            if "ChannelBlocked" in self.events and self.events["ChannelBlocked"] > self.events["ChannelUnblocked"]:
                await asyncio.sleep(0.002)

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "dial":
                self.bus.dial(order["host"], order["port"])
            case "members":
                senders, receivers = ([bytes.fromhex(i) for i in order[k]] for k in ("senders", "receivers"))
                link = order.get("link", 0)
                self.bus.change(MembersChanged(order["channel"], order["view"], tuple(senders), tuple(receivers), link))
            case "send":
                self.to_send[order["channel"]] = (order["count"], order["size"])
            case "send_to":
                payload = bytes(order["size"])
                node = bytes.fromhex(order["node"])
                return {"sent": self.bus.send_to(node, order["service"], order["message"].encode(), payload)}
            case "rejoin":
                self.bus.rejoin(order["channel"], bytes.fromhex(order["sender"]))
            case "pause":
                self.bus.pause(order["channel"], order["paused"])
        return self.status()

    def status(self) -> dict[str, Any]:
        return {
            "port": self.bus.link_port, "streams": self.streams, "wrong": self.wrong[:5], "events": self.events,
            "neighbours": self.neighbours, "counters": asdict(self.bus.counters), "news": self.news,
            "records": self.records[-5:], "sent": self.sent, "sending": bool(self.to_send),
            "failures": self.bus.send_failures,
        }  # fmt: skip


async def main() -> None:
    program = Program(json.loads(sys.argv[1]))
    await program.bus.start()
    sender = asyncio.get_running_loop().create_task(program.sending())
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(json.dumps(program.status()), flush=True)
    while line := await reader.readline():
        print(json.dumps(program.obey(json.loads(line))), flush=True)
    sender.cancel()
    await program.bus.close()


if __name__ == "__main__":
    uvloop.run(main())

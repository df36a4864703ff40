"""The traffic of the demonstration: producers and consumers, each on a connection of its own.

Nobody here knows what will be killed: reconnecting, resuming and resending is the client's work.
"""
import asyncio
import random
import struct
from collections import deque
from dataclasses import dataclass, field

import angarium
from benchmarks.demo_proof import Entry, Receipt, digest

BURST_COUNT = 50
BURSTS_IN_FLIGHT_MAX = 40  # then a producer waits for confirms: what is unconfirmed stays bounded
BODY_BYTES_MAX = 400
PREFETCH = 500
QUIET_S = 1.0  # how long one wait for messages lasts
_HEADER = struct.Struct("<16sQ")


@dataclass(slots=True)
class Producer:
    name: str
    destination: str | angarium.Topic
    count: int
    pause_s: float  # between bursts
    sent: int = 0
    confirmed: list[Entry] = field(default_factory=list)

    async def run(self, addresses: list[str]) -> None:
        chance = random.Random(self.name)
        async with (
            angarium.connect(addresses, name=self.name) as connection,
            connection.session() as session,
        ):
            in_flight: deque[list[tuple[Entry, angarium.Sending]]] = deque()
            while self.sent < self.count:
                in_flight.append([self._send(session, chance) for _ in range(min(BURST_COUNT, self.count - self.sent))])
                while in_flight and (len(in_flight) > BURSTS_IN_FLIGHT_MAX or in_flight[0][-1][1].done):
                    await self._confirm(in_flight.popleft())
                await asyncio.sleep(self.pause_s)
            while in_flight:
                await self._confirm(in_flight.popleft())

    def _send(self, session: angarium.Session, chance: random.Random) -> tuple[Entry, angarium.Sending]:
        self.sent += 1
        body = _HEADER.pack(self.name.encode(), self.sent) + chance.randbytes(chance.randrange(BODY_BYTES_MAX))
        return Entry(self.name, self.sent, digest(body)), session.send(self.destination, body)

    async def _confirm(self, burst: list[tuple[Entry, angarium.Sending]]) -> None:
        for entry, sending in burst:
            await sending
            self.confirmed.append(entry)


@dataclass(slots=True)
class Consumer:
    """Receives, writes down, settles, until told to stop."""

    name: str
    destination: str | angarium.Topic
    durable: str | None = None
    receipts: list[Receipt] = field(default_factory=list)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False

    async def run(self, addresses: list[str]) -> None:
        async with (
            angarium.connect(addresses, name=self.name) as connection,
            connection.session() as session,
            session.consume(self.destination, prefetch=PREFETCH, durable=self.durable) as consumer,
        ):
            await consumer.opened()
            self.subscribed.set()
            while not self.stopping:
                for message in await consumer.receive_batch(PREFETCH, QUIET_S):
                    name, sequence = _HEADER.unpack_from(message.body)
                    entry = Entry(name.rstrip(b"\0").decode(), sequence, digest(message.body))
                    self.receipts.append(Receipt(entry, message.redelivered))
                    message.settle()
            await session.sync()

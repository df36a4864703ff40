"""What the client itself costs for each message: no network, no disk, no broker.

    python -m benchmarks.client [--messages N]

A peer in the same process answers at once; the time spent in it is measured and left out. Prints nanoseconds for each
message, best of several rounds: sending without awaiting each (with packing), and `async for` with
`await message.settle()` (with parsing and the settlements).
"""
import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import angarium
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.codec import FrameParser, Received, encode
from angarium.core.wire.packing import pack

BATCH_BYTES = 256 * 1024
PRODUCER = b"p" * 16


class Peer(asyncio.Transport):
    """A transport whose other end is a broker that does nothing but answer."""

    def __init__(self, protocol: asyncio.BufferedProtocol, body_bytes: int) -> None:
        super().__init__()
        self.spent_s = 0.0  # in here, not in the client
        self.batches = 0
        self._protocol = protocol
        self._parser = FrameParser(frame_bytes_max=1 << 30)
        self._input: list[bytes] = []
        self._position = self._delivered = 0
        self._count = max(1, BATCH_BYTES // (body_bytes + 16))
        self._batch = pack(PRODUCER, 1, 0, [b"x" * body_bytes] * self._count)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self

    def setsockopt(self, *_: object) -> None: ...

    def writelines(self, buffers: Any) -> None:
        if not self._input:
            asyncio.get_running_loop().call_soon(self._answer)
        self._input += buffers

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def _answer(self) -> None:
        started = time.thread_time()
        received, self._input = b"".join(self._input), []
        output = b"".join(answer for item in self._parser.feed(received) for answer in self._answers(item))
        self.spent_s += time.thread_time() - started
        at = 0
        while at < len(output):
            view = cast(memoryview, self._protocol.get_buffer(-1))
            count = min(len(view), len(output) - at)
            view[:count] = output[at : at + count]
            self._protocol.buffer_updated(count)
            at += count

    def _answers(self, received: Received) -> list[bytes]:
        session, frame, payload, _ = received
        match frame:
            case frames.Hello():
                return [encode(0, frames.Welcome(1, "none", b"", 1 << 24, 1 << 23, 1 << 24, 60.0))]
            case frames.SessionOpen():
                return [encode(session, frames.SessionOpened(b"s" * 16))]
            case frames.SessionClose():
                return [encode(session, frames.SessionClosed())]
            case frames.ProducerOpen(producer=producer):
                return [encode(session, frames.ProducerOpened(producer, PRODUCER, 0))]
            case frames.Publish(producer=producer):
                self.batches += 1
                return [encode(session, frames.Confirm(producer, Batch.trusted(payload).last_sequence))]
            case frames.ConsumerOpen(consumer=consumer, credit=credit):
                self._delivered = 0
                return [encode(session, frames.ConsumerOpened(consumer)), *self._deliver(session, consumer, credit)]
            case frames.Settle(consumer=consumer, number=number, credit=credit):
                return [encode(session, frames.Settled(consumer, number)), *self._deliver(session, consumer, credit)]
            case frames.ConsumerClose(consumer=consumer):
                return [encode(session, frames.ConsumerClosed(consumer))]
        return []

    def _deliver(self, session: int, consumer: int, credit: int) -> list[bytes]:
        delivers: list[bytes] = []
        while self._delivered + self._count <= credit:
            delivers.append(encode(session, frames.Deliver(consumer, self._position), self._batch))
            self._position += self._count
            self._delivered += self._count
        return delivers


async def send(session: angarium.Session, body: bytes, count: int) -> None:
    for _ in range(count // 50_000):
        for _ in range(50_000):
            session.send("bench", body)
        await session.flush()


async def send_awaiting_each(session: angarium.Session, body: bytes, count: int) -> None:
    for _ in range(count // 1_000):
        await asyncio.gather(*(session.send("bench", body) for _ in range(1_000)))


async def send_with_properties(session: angarium.Session, body: bytes, count: int) -> None:
    for _ in range(count // 50_000):
        for _ in range(50_000):
            session.send("bench", body, properties={"region": "EU"})
        await session.flush()


async def consume(session: angarium.Session, body: bytes, count: int) -> None:
    async with session.consume("bench", prefetch=20_000) as consumer:
        async for message in consumer:
            await message.settle()
            count -= 1
            if count == 0:
                break


async def consume_batches(session: angarium.Session, body: bytes, count: int) -> None:
    async with session.consume("bench", prefetch=20_000) as consumer:
        while count > 0:
            for message in await consumer.receive_batch(1_000):
                message.settle()
                count -= 1


Case = Callable[[angarium.Session, bytes, int], Awaitable[None]]


async def measure(case: Case, body_bytes: int, count: int) -> float:
    """Nanoseconds for each message, without the peer's."""
    loop = asyncio.get_running_loop()
    peers: list[Peer] = []

    async def create_connection(factory: Callable[[], Any], host: str, port: int) -> None:
        protocol = factory()
        peers.append(Peer(protocol, body_bytes))
        protocol.connection_made(peers[-1])

    loop.create_connection = create_connection  # type: ignore[method-assign,assignment]
    async with angarium.connect("nowhere") as connection, connection.session() as session:
        peers[0].spent_s, started = 0.0, time.thread_time()
        await case(session, b"x" * body_bytes, count)
        return (time.thread_time() - started - peers[0].spent_s) / count * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description="client costs in ns for each message")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'ns per message, best of ' + str(arguments.rounds):<36}{'100 B':>8}{'1 KB':>8}")
    for case in (send, send_with_properties, send_awaiting_each, consume, consume_batches):
        figures = [
            min(asyncio.run(measure(case, size, arguments.messages)) for _ in range(arguments.rounds))
            for size in (100, 1_024)
        ]
        print(f"{case.__name__:<36}" + "".join(f"{figure:>8.0f}" for figure in figures))


if __name__ == "__main__":
    main()

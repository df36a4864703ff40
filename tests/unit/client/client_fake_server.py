"""The fake broker behind a real socket."""
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from tests.process.process_broker import free_port
from tests.unit.client.client_fake_broker import FakeBroker, FakePeer


class PeerProtocol(asyncio.Protocol):
    def __init__(self, server: "FakeServer") -> None:
        self.server = server
        self.peer: FakePeer = server.broker.connect()
        self.transport: asyncio.Transport
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server.links.append(self)

    def data_received(self, data: bytes) -> None:
        self.peer.feed(data)
        self.server.write_all()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.broker.cut(self.peer)
        self.server.links.remove(self)
        self.lost.set()


class FakeServer:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.links: list[PeerProtocol] = []
        self.is_mute = False
        self._server: asyncio.Server | None = None
        self.port = free_port()  # which nobody else is given while the server is down

    @property
    def address(self) -> str:
        return f"angarium://127.0.0.1:{self.port}"

    def write_all(self) -> None:
        for link in self.links:
            output = link.peer.take_output()
            if output and not self.is_mute:
                link.transport.write(output)
            if not link.peer.is_open:
                link.transport.close()

    def cut_all(self) -> None:
        for link in self.links:
            link.transport.abort()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: PeerProtocol(self), "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Close the listening socket and every connection; `start` takes the same port again."""
        assert self._server is not None
        self._server.close()
        self.cut_all()
        await asyncio.gather(*(link.lost.wait() for link in list(self.links)))
        await self._server.wait_closed()


@asynccontextmanager
async def serving(broker: FakeBroker | None = None) -> AsyncIterator[FakeServer]:
    server = FakeServer(broker or FakeBroker())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()

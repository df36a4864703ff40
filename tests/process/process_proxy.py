"""A TCP proxy that cuts connections at random bytes, in the middle of whatever frame passes just then.

Each connection gets, in each direction, a number of bytes that it may carry; the byte after it never arrives, and both
sides lose the connection. `heal` ends that. It can also keep to itself what the broker says, for a while.
"""
import asyncio
import random
from contextlib import suppress

_CHUNK_BYTES = 1 << 16


class Proxy:
    def __init__(self, target_port: int, *, seed: int, bytes_max: int) -> None:
        self.port = 0
        self.cuts = 0
        self.asked_bytes = 0  # from clients, on to the broker
        self._answering = asyncio.Event()
        self._answering.set()
        self._target_port = target_port
        self._chance = random.Random(seed)
        self._bytes_max = bytes_max
        self._healed = False
        self._shut = False
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"angarium://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def heal(self) -> None:
        self._healed = True

    def shut(self) -> None:
        """Cut all connections, and let no new one through until `reopen`."""
        self._shut = True
        for link in list(self._links):
            link.cancel()

    def reopen(self) -> None:
        self._shut = False

    def hold_answers(self) -> None:
        """Nothing that the broker says comes through until `release_answers`."""
        self._answering.clear()

    def release_answers(self) -> None:
        self._answering.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        if self._shut:
            writer.transport.abort()
            return
        self._links.add(link)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(far_writer)
            ways = [
                asyncio.create_task(self._carry(reader, far_writer, is_asking=True)),
                asyncio.create_task(self._carry(far_reader, writer, is_asking=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the broker is down, or the test ends: the near side sees a closed connection
        finally:
            self._links.discard(link)
            self._close(writers)

    def _close(self, writers: list[asyncio.StreamWriter]) -> None:
        for writer in writers:
            if self._chance.random() < 0.5:
                writer.transport.abort()  # a reset: what the other side has not read yet is gone
            else:
                writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_asking: bool) -> None:
        left = int(self._bytes_max ** self._chance.random())  # short ones as often as long ones
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if not self._healed and len(data) > left:
                    writer.write(data[:left])
                    self.cuts += 1
                    return
                left -= len(data)
                if is_asking:
                    self.asked_bytes += len(data)
                else:
                    await self._answering.wait()
                writer.write(data)
                await writer.drain()

"""A way to a broker that knows when something is staged and committed over it, and strikes at that moment, once.

    STAGING       the second batch that is staged has arrived here, and has not left for the broker
    COMMITTING    a commit has left for the broker, and its reply has not come
    COMMITTED     the reply has come: the broker has done it, and the client does not hear of it

What the broker says from the strike on, over the connections that there are, is kept from the client: so the fault
certainly happened inside what it is named after. Connections that come later are passed on as they are.
"""
import asyncio
import threading
from collections.abc import Callable
from enum import StrEnum

from angarium.core.wire import frames
from angarium.core.wire.codec import FrameParser

_READ_BYTES = 1 << 16
_FRAME_BYTES_MAX = 256 << 20
_BATCHES = 2  # staged, at which it strikes


class Moment(StrEnum):
    STAGING = "staging"
    COMMITTING = "committing"
    COMMITTED = "committed"


class StageProxy:
    """`strike` is called in a thread of the proxy, and may take its time: nothing is passed on meanwhile."""

    def __init__(self, address: str, moment: Moment, strike: Callable[[], None]) -> None:
        self.has_struck = threading.Event()
        self.commits_held = 0  # that had left for the broker, and were not answered to the client
        host, _, port = address.removeprefix("angarium://").rpartition(":")
        self._target = (host, int(port))
        self._moment = moment
        self._strike = strike
        self._staged = 0
        self._commits: set[tuple[int, int]] = set()  # connection, number of the request
        self._connections = 0
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "StageProxy":
        self._thread.start()
        serving = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = serving.result(10)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # -- connections ---------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        try:
            there, out = await asyncio.open_connection(*self._target)
        except OSError:  # it is down
            writer.close()
            return
        ways = [
            asyncio.ensure_future(self._pass_on(number, reader, out, self._is_due_there, is_back=False)),
            asyncio.ensure_future(self._pass_on(number, there, writer, self._is_due_back, is_back=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            out.close()
            writer.close()

    async def _pass_on(
        self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter,
        is_due: Callable[[int, frames.Frame], bool], *, is_back: bool,
    ) -> None:  # fmt: skip
        parser, was_struck = FrameParser(frame_bytes_max=_FRAME_BYTES_MAX), self.has_struck.is_set()
        try:
            while data := await source.read(_READ_BYTES):
                due = not self.has_struck.is_set() and any(is_due(number, got.frame) for got in parser.feed(data))
                if due and self._moment is Moment.COMMITTING:
                    target.write(data)
                    await target.drain()
                if due:
                    await self._struck()
                    return
                if is_back and self.has_struck.is_set() and not was_struck:
                    return  # it was said to somebody who does not hear it
                target.write(data)
                await target.drain()
        except ConnectionError:
            return

    async def _struck(self) -> None:
        with self._lock:
            if self.has_struck.is_set():
                return
            self.has_struck.set()
        self.commits_held = len(self._commits)
        await asyncio.to_thread(self._strike)

    def _is_due_there(self, number: int, frame: frames.Frame) -> bool:
        if isinstance(frame, frames.Publish):
            self._staged += 1
            return self._moment is Moment.STAGING and self._staged == _BATCHES
        if isinstance(frame, frames.Request) and frame.command == "stage.commit":
            self._commits.add((number, frame.number))
            return self._moment is Moment.COMMITTING
        return False

    def _is_due_back(self, number: int, frame: frames.Frame) -> bool:
        if not isinstance(frame, frames.Reply) or (number, frame.number) not in self._commits:
            return False
        if self._moment is Moment.COMMITTED and not frame.code:
            return True
        self._commits.discard((number, frame.number))
        return False

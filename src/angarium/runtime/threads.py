"""Threads that work for an event loop, and speak to it by calls that it makes in its own time.

The system knows each by its name (`top -H`, /proc): what a node is busy with can be seen from outside.
"""
import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NAME = Path("/proc/thread-self/comm")


class LoopThreads:
    """To be made on the loop; `failed` is called there with whatever escapes from a thread."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    async def joined(self) -> None:
        """All have come to their end."""
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _guarded(self, work: Callable[[], None]) -> None:
        with suppress(OSError):  # a system that has no such file shows no names
            _NAME.write_text(threading.current_thread().name, encoding="utf-8")
        try:
            work()
        except BaseException as error:  # a broken invariant: the node has to stop, loudly
            self.call(self._failed, error)

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """From a thread: have it called on the loop."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

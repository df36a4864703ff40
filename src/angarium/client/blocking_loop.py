"""An event loop in a background thread, for the blocking face."""
import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from angarium.core.errors import LocalProtocolError, Unavailable

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str) -> None:
        self.loop = new_loop()
        self.is_stopped = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None, *, what: str = "it") -> T:
        """Run it there and wait here; `Unavailable` when the time is over. Ctrl-C cancels it."""
        if self.is_stopped or threading.current_thread() is self._thread:
            coroutine.close()
            raise LocalProtocolError("the connection is closed; make another one with angarium.blocking.connect")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise Unavailable(f"{what} took more than {timeout_s:g} s") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self._finish())
        finally:
            self.loop.close()

    async def _finish(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest that there is."""
    try:
        import uvloop
    except ImportError:  # a platform without it: slower, not different
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop

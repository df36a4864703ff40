"""Which destinations take no more for now, as the application asks for it: by name, however it spells them.

A session may have several producers for one name, `"orders"` and `Queue("orders")`; each is told by the broker. A name
is blocked while one of them is. Nothing is known of a destination before the broker has answered its first producer.
"""
import asyncio
from collections.abc import Callable
from contextlib import suppress

from angarium.core.errors import AngariumError, LocalProtocolError

Callback = Callable[[str, str], None]  # destination, reason; empty: no longer
CALLBACKS_MAX = 1_000


async def kept_until_done(waiter: "asyncio.Future[None]", waiters: "list[asyncio.Future[None]]") -> None:
    """Who gives up waiting is no longer among those who are woken: they may be many before that happens."""
    try:
        await waiter
    except asyncio.CancelledError:
        with suppress(ValueError):  # he was just being woken
            waiters.remove(waiter)
        raise


class Flow:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reasons: dict[str, dict[int, str]] = {}  # by name, of each producer that is blocked
        self._callbacks: list[Callback] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._error: AngariumError | None = None  # the session is over

    def reason(self, name: str) -> str:
        """Why what is sent there waits; empty if it does not."""
        reasons = self._reasons.get(name)
        return next(iter(reasons.values()), "") if reasons else ""

    def on_blocked(self, callback: Callback) -> Callable[[], None]:
        """Call it from now on; what is returned ends that."""
        if len(self._callbacks) >= CALLBACKS_MAX:
            raise LocalProtocolError(
                f"on_blocked: {CALLBACKS_MAX:,} callbacks are registered; call what it returned to end one"
            )
        self._callbacks.append(callback)

        def stop() -> None:
            with suppress(ValueError):  # it was ended before
                self._callbacks.remove(callback)

        return stop

    def blocked(self, name: str, producer: int, code: str, reason: str) -> None:
        before = self.reason(name)
        self._reasons.setdefault(name, {})[producer] = f"{code}: {reason}"
        self._changed(name, before)

    def unblocked(self, name: str, producer: int) -> None:
        """It takes more again, or has ended."""
        before = self.reason(name)
        reasons = self._reasons.get(name, {})
        reasons.pop(producer, None)
        if not reasons:
            self._reasons.pop(name, None)
        self._changed(name, before)

    def wake(self) -> None:
        """A producer was opened or has ended: whoever waits shall look again."""
        woken, self._waiters[:] = self._waiters[:], []
        for waiter in woken:
            if not waiter.done():
                waiter.set_result(None)

    def on_ended(self, error: AngariumError) -> None:
        self._error = error
        self._reasons.clear()
        self.wake()

    async def change(self) -> None:
        """Wait until something is different; raises what the session has ended with."""
        if self._error is not None:
            raise self._error
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await kept_until_done(waiter, self._waiters)

    def _changed(self, name: str, before: str) -> None:
        self.wake()
        now = self.reason(name)
        if now != before:
            for callback in self._callbacks:
                self._loop.call_soon(callback, name, now)  # by the loop, so that its error is not ours

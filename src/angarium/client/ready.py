"""The messages of one consumer that lie ready, and the waiting for them.

Batches are kept whole; a `Message` is made when it is asked for. Taking messages that lie ready creates no Future, and
lets the loop run after `BURST_S`, or `BURST_MESSAGES_MIN` messages or a quarter of the prefetch, whichever is more:
so settlements, heartbeats and other tasks get on, and credit goes out long before the broker has to wait for it.

What expires while it lies here is not handed out: it goes back to the broker, which buries it. Batches in which
something expires are therefore taken message by message; others are not looked into.
"""
import asyncio
import time
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice

from angarium.client.message import Delivery, Message
from angarium.core.wire.frames import Outcome

BURST_MESSAGES_MIN = 256
BURST_S = 0.005
_GROUP_MAX = 32  # messages between two looks at the clock


class Ready:
    message_type: type[Message] = Message

    def __init__(self, loop: asyncio.AbstractEventLoop, prefetch: int) -> None:
        self.prefetch = prefetch
        self._group: Iterator[Message] = iter(())  # of the ready ones, until the next look at the clock
        self._ready: Iterator[Message] = iter(())  # of the batch that is being taken
        self._expires = False  # something in that batch does
        self._buffer: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._group_size = _GROUP_MAX
        self._burst = 0  # messages since the loop last ran
        self._burst_began = 0.0
        self._loop = loop

    def _take_group(self) -> Iterator[Message]:
        for message in self._group:  # another task may have put something there meanwhile
            self._group = chain((message,), self._group)
            return self._group
        size = 1 if self._expires else self._group_size
        self._group = iter(self._take_ready(1)) if self._expires else islice(self._ready, size)
        self._burst += size
        return self._group

    def _take_ready(self, count: int) -> list[Message]:
        """Of the batch that is being taken, up to so many that may be handed out; fewer: there are no more."""
        if not self._expires:
            return list(islice(self._ready, count))
        taken: list[Message] = []
        while len(taken) < count and (message := next(self._ready, None)) is not None:
            if message.has_expired:
                message.delivery.consumer.settle(message, Outcome.RETURN)
            else:
                taken.append(message)
        return taken

    def _refill(self) -> bool:
        if not self._buffer:
            return False
        delivery = self._buffer.popleft()
        self._ready, self._expires = delivery.messages(self.message_type), delivery.expires
        return True

    async def _wait(self, deadline: float | None) -> bool:
        """Until something has changed; False when the time is over."""
        loop = self._loop
        if deadline is not None and loop.time() >= deadline:
            return False
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_at(deadline, _wake, waiter) if deadline is not None else None
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_one()  # this wake-up is somebody else's now
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        self._burst, self._burst_began = 0, time.monotonic()
        return True

    async def _let_others_run(self) -> None:
        now = time.monotonic()
        if self._burst == 0:
            self._burst_began = now
        elapsed_s = now - self._burst_began
        if elapsed_s >= BURST_S or self._burst >= max(BURST_MESSAGES_MIN, self.prefetch // 4):
            # The slower the application, the sooner the next look.
            self._group_size = max(1, min(_GROUP_MAX, int(self._burst * BURST_S / (2 * elapsed_s + BURST_S))))
            await asyncio.sleep(0)
            self._burst, self._burst_began = 0, time.monotonic()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake_one()

    @property
    def is_empty(self) -> bool:
        """Nothing lies ready."""
        for message in self._group:
            self._group = chain((message,), self._group)
            return False
        for message in self._ready:
            self._ready = chain((message,), self._ready)
            return False
        return not self._buffer

    def _ready_ones(self) -> Iterator[Message]:
        buffered = (delivery.messages(self.message_type) for delivery in self._buffer)
        return chain(self._group, self._ready, *buffered)

    def _drop_ready(self) -> None:
        self._group = self._ready = iter(())
        self._expires = True  # of what is put there instead, nothing is known
        self._buffer.clear()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)

"""A listener: a callback for each message of a consumer, one after the other.

The callbacks of one session never run at the same time, however many listeners it has: a turn is taken by `turn`.
When the callback has returned, the message is settled in sessions that acknowledge `auto` or `duplicates-ok`; in the
others the callback sees to that. When it raises, the message is released, to be delivered again with a higher
count, unless it has an outcome; the error goes to the loop's exception handler, and the listener goes on.
"""
import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from angarium.client.consumer import Consumer
from angarium.client.message import Message
from angarium.core.errors import AngariumError, LocalProtocolError

Callback = Callable[[Message], Awaitable[None] | None]


class Listener:
    """Made by `Session.listen`; use it with `async with`, or close it yourself."""

    def __init__(self, consumer: Consumer, callback: Callback, turn: asyncio.Lock) -> None:
        self.consumer = consumer
        self._turn = turn
        self.failures = 0  # callbacks that raised
        self._callback = callback
        self._is_idle = False  # it waits for a message
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        while not self._is_stopping:
            self._is_idle = True
            message = await self.consumer.receive()
            self._is_idle = False
            if message is None:
                return
            async with self._turn:
                await self._call(message)

    async def _call(self, message: Message) -> None:
        if message.lost:  # while it waited for its turn
            return
        try:
            result = self._callback(message)
            if result is not None:
                await result
        except asyncio.CancelledError as error:
            if self._task.cancelling():
                raise
            self._failed(message, error)  # what the callback waited for was cancelled, not we
        except Exception as error:
            self._failed(message, error)
        else:
            taken = self.consumer.taken
            if taken is not None and taken.settles_by_itself:
                taken.asked()

    def _failed(self, message: Message, error: BaseException) -> None:
        self.failures += 1
        if not message.outcome and not self.consumer.is_closing and not self.consumer.is_transacted:
            message.release()
        context = {"message": f"callback for {message} raised", "exception": error, "listener": self}
        self._loop.call_exception_handler(context)

    async def close(self) -> None:
        """Let the callback that runs come to its end, then close the consumer. Raises what the consumer ended with."""
        self.check_outside()
        await self.stop()
        await self.consumer.close()
        if not self._task.cancelled() and isinstance(error := self._task.exception(), AngariumError):
            raise error

    def check_outside(self) -> None:
        """Raise if it is the callback that asks, before anything has changed."""
        if asyncio.current_task() is self._task:
            raise LocalProtocolError(
                "a callback cannot close its own listener, session or connection: it would wait for itself"
            )

    async def stop(self, timeout_s: float | None = None) -> None:
        """No more callbacks; wait for the one that runs."""
        self._is_stopping = True
        if self._is_idle:
            self._task.cancel()
        await asyncio.wait([self._task], timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

"""Several consumers as one: the dead message queues of all replica groups, received from together."""
import asyncio
from collections.abc import Sequence

import angarium


class Merged:
    """As much of a consumer as `receive` needs. Each of them has its turn."""

    def __init__(self, consumers: Sequence[angarium.Consumer]) -> None:
        self._consumers = list(consumers)
        self._changed = asyncio.Event()
        for consumer in self._consumers:
            consumer.on_change = lambda _: self._changed.set()

    async def opened(self) -> None:
        await asyncio.gather(*(consumer.opened() for consumer in self._consumers))

    async def receive_batch(self, max: int, timeout_s: float) -> list[angarium.Message]:
        """At least one message, and what else lies ready, up to `max`; none if the time has passed. 0: what
        is there."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            self._changed.clear()
            messages: list[angarium.Message] = []
            for consumer in self._consumers:
                while len(messages) < max and (message := consumer.take_ready()) is not None:
                    messages.append(message)
                if consumer.error is not None and not messages:  # else they would be taken and not shown
                    raise consumer.error
            self._consumers.append(self._consumers.pop(0))
            left_s = deadline - asyncio.get_running_loop().time()
            if messages:
                return messages
            if left_s <= 0:
                return [] if timeout_s > 0 else await self._present(max)
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return []

    async def _present(self, max: int) -> list[angarium.Message]:
        """What their brokers have, and has not arrived."""
        for consumer in self._consumers:
            if messages := await consumer.receive_batch(max, 0):
                return messages
        return []

    def set_prefetch(self, prefetch: int) -> None:
        for consumer in self._consumers:
            consumer.set_prefetch(prefetch)

    async def __aenter__(self) -> "Merged":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        for consumer in self._consumers:
            await consumer.__aexit__(kind, error, at)

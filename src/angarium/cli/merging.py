"""Several consumers as one: the dead message queues of all replica groups, received from together."""
import asyncio
from collections.abc import Sequence

import angarium
from angarium.cli import options
from angarium.client.present import receive_present


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
        """At least one message, and what else lies ready, up to `max`; none if the time has passed."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            self._changed.clear()
            messages: list[angarium.Message] = []
            for consumer in self._consumers:
                while len(messages) < max and (message := consumer.take_ready()) is not None:
                    messages.append(message)
                if consumer.error is not None:
                    raise consumer.error
            self._consumers.append(self._consumers.pop(0))
            left_s = deadline - asyncio.get_running_loop().time()
            if messages or left_s <= 0:
                return messages
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return []

    async def receive_present(self, connection: options.Connection, max: int) -> list[angarium.Message]:
        """What is there now."""
        for consumer in self._consumers:
            if messages := await receive_present(connection, consumer, max):
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

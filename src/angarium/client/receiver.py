"""One message at a time: what is behind `Session.receive`.

Its consumer fetches only while somebody waits, and only as many messages as there are that wait. What comes after the
last has gone (it was on its way when the time was over) is given back at once, as if it had never been delivered:
somebody else may be waiting for it.
"""
from typing import TYPE_CHECKING

from angarium.client.consumer import Consumer
from angarium.client.message import Message
from angarium.client.present import time_for_present_s

if TYPE_CHECKING:
    from angarium.client.connection import Connection


class Receiver:
    def __init__(self, consumer: Consumer, connection: "Connection") -> None:
        self.consumer = consumer
        self._connection = connection
        self._waiting = 0

    async def receive(self, timeout_s: float | None) -> Message | None:
        self._waiting += 1
        self.adjust()
        try:
            if timeout_s is not None and timeout_s <= 0 and self.consumer.is_empty:
                timeout_s = await time_for_present_s(self._connection, self.consumer)
            return await self.consumer.receive_alone(timeout_s)
        finally:
            self._waiting -= 1
            self.adjust()

    @property
    def is_idle(self) -> bool:
        return self._waiting == 0

    def adjust(self) -> None:
        """To be called when somebody waits or no longer does, and when messages have come for nobody."""
        consumer = self.consumer
        if self._waiting == 0:
            consumer.give_back_ready()
        if consumer.is_empty:  # else what lies there has to be taken first
            consumer.want(self._waiting)

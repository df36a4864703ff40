"""One message at a time: what is behind `Session.receive`.

Its consumer fetches only while somebody waits, and only as many messages as there are that wait. What comes after the
last has gone (it was on its way when the time was over) is given back at once, as if it had never been delivered:
somebody else may be waiting for it.

A session has at most `RECEIVERS_MAX` consumers of this kind. To open one more, the least recently used one is closed
that nobody waits at and that has no unsettled message.
"""
from typing import TYPE_CHECKING

from angarium.client.consumer import Consumer
from angarium.client.destination import Destination
from angarium.client.message import Message

if TYPE_CHECKING:
    from angarium.client.session import Session

RECEIVERS_MAX = 100


class Receiver:
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._waiting = 0

    async def receive(self, timeout_s: float | None) -> Message | None:
        self._waiting += 1
        self.adjust()
        try:
            return await self.consumer.receive_alone(timeout_s)
        finally:
            self._waiting -= 1
            self.adjust()

    @property
    def is_idle(self) -> bool:
        return self._waiting == 0

    def close_if_done(self) -> bool:
        """Close it, unless somebody waits here or still has a message from here. In a session that settles by itself,
        an application that receives elsewhere is done with what it received here."""
        if not self.is_idle:
            return False
        for taken in self.consumer.all_taken():
            taken.end(is_done=True)
        self.consumer.give_back_ready()
        self.consumer.flush_now()
        if self.consumer.unsettled_count:
            return False
        if not self.consumer.is_ended and not self.consumer.is_closing:
            self.consumer.close_now(False)
        return True

    def adjust(self) -> None:
        """To be called when somebody waits or no longer does, and when messages have come for nobody."""
        consumer = self.consumer
        if self._waiting == 0:
            consumer.give_back_ready()
        if consumer.is_empty:  # else what lies there has to be taken first
            consumer.want(self._waiting)


class Receivers:
    """Those of one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.by_destination: dict[Destination, Receiver] = {}  # that was used longest ago comes first
        self._by_number: dict[int, Receiver] = {}

    async def receive(self, destination: Destination, timeout_s: float | None) -> Message | None:
        receiver = self.by_destination.pop(destination, None)
        if receiver is None or receiver.consumer.is_ended:
            if len(self.by_destination) >= RECEIVERS_MAX:
                self._close_one()
            receiver = Receiver(self._session.open_consumer(destination, 1))
            self._by_number[receiver.consumer.number] = receiver
        self.by_destination[destination] = receiver
        return await receiver.receive(timeout_s)

    def on_arrived(self, number: int) -> None:
        receiver = self._by_number.get(number)
        if receiver is not None and receiver.is_idle:
            self._session.loop.call_soon(receiver.adjust)  # the machine is being listened to just now

    def on_ended(self, number: int) -> None:
        self._by_number.pop(number, None)

    def _close_one(self) -> None:
        """If there is one that may be closed; else the session's own limit decides."""
        for destination, receiver in list(self.by_destination.items()):
            if receiver.close_if_done():
                del self.by_destination[destination]
                return

"""A consumer as the application sees it: an asynchronous iterator over the messages that lie ready.

Batches are kept whole; a `Message` is made when it is asked for. Settling consecutive messages only extends a run,
`run_low` to `run_high`, which leaves on the next turn of the loop. Taking messages that lie ready creates
no Future, and lets the loop run after `BURST_S`, or `BURST_MESSAGES_MIN` messages or a quarter of the prefetch,
whichever is more: so settlements, heartbeats and other tasks get on, and credit goes out long before the broker has
to wait for it.
"""
import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from angarium.client.ended import LEAVING_TIMEOUT_S, note_unfinished
from angarium.client.message import Delivery, Message
from angarium.client.stream_reading import IncomingStream
from angarium.core.client import events
from angarium.core.client.consumer import PREFETCH_MAX
from angarium.core.errors import AngariumError, LocalProtocolError, Unavailable
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire.frames import Outcome

if TYPE_CHECKING:
    from angarium.client.session import Session

BURST_MESSAGES_MIN = 256
BURST_S = 0.005
_GROUP_MAX = 32  # messages between two looks at the clock
_NO_RUN = -1


class Consumer:
    """Made by `Session.consume`. Iterate over it, or call `receive` or `receive_batch`; close it when done."""

    message_type: type[Message] = Message

    def __init__(
        self, session: "Session", number: int, destination: str, prefetch: int
    ) -> None:
        self.destination = destination
        self.number = number
        self.lost_count = 0  # messages settled here that were no longer this consumer's
        self.run_low = self.run_high = _NO_RUN  # being settled in this turn
        self.done: asyncio.Future[None] = session.loop.create_future()  # what settling returns
        self.done.set_result(None)
        self._session = session
        self._prefetch = prefetch
        self._group: Iterator[Message] = iter(())  # of the ready ones, until the next look at the clock
        self._ready: Iterator[Message] = iter(())  # of the batch that is being taken
        self._buffer: deque[Delivery] = deque()
        self._alive: WeakSet[Delivery] = WeakSet()  # deliveries that somebody still refers to
        self._unsettled = 0  # messages that arrived and have no outcome
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._gathered = _nothing_gathered()
        self._is_dirty = False
        self._is_closing = False
        self.is_ended = False
        self.error: AngariumError | None = None  # what it ended with, unless that was asked for
        self._opened: asyncio.Future[None] = session.loop.create_future()
        self._ended: asyncio.Future[None] = session.loop.create_future()
        self._group_size = _GROUP_MAX
        self._burst = 0  # messages since the loop last ran
        self._burst_began = 0.0

    # -- receiving -------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        for message in self._group:
            return message
        next_message = await self._next(None)
        if next_message is None:
            raise StopAsyncIteration
        return next_message

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if there was none within the time, or the consumer was closed."""
        for message in self._group:
            return message
        return await self._next(timeout_s)

    async def receive_batch(self, max: int = 1_000, timeout_s: float | None = None) -> list[Message]:
        """At least one message and what else lies ready, up to `max`; none as for `receive`."""
        first = await self.receive(timeout_s)
        if first is None:
            return []
        messages = [first, *islice(self._group, max - 1)]
        while len(messages) < max:
            messages += islice(self._ready, max - len(messages))
            if len(messages) < max and not self._refill():
                break
        self._burst += len(messages)
        return messages

    async def _next(self, timeout_s: float | None) -> Message | None:
        """The group is used up: look at the clock, and take the next one."""
        deadline = None if timeout_s is None else self._session.loop.time() + timeout_s
        await self._let_others_run()
        while True:
            for message in self._take_group():
                if self._waiters:
                    self._wake_one()  # there may be more: others that wait shall look, too
                return message
            if self._refill():
                continue
            if self.is_ended or self._is_closing:
                if self.error is not None:
                    raise self.error
                return None
            if not await self._wait(deadline):
                return None

    def _take_group(self) -> Iterator[Message]:
        for message in self._group:  # another task may have put something there meanwhile
            self._group = chain((message,), self._group)
            return self._group
        self._group = islice(self._ready, self._group_size)
        self._burst += self._group_size
        return self._group

    def _refill(self) -> bool:
        if not self._buffer:
            return False
        self._ready = self._buffer.popleft().messages(self.message_type)
        return True

    async def _wait(self, deadline: float | None) -> bool:
        """Until something has changed; False when the time is over."""
        loop = self._session.loop
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
        if elapsed_s >= BURST_S or self._burst >= max(BURST_MESSAGES_MIN, self._prefetch // 4):
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

    # -- settling --------------------------------------------------------------------------------

    def settle(self, message: Message, outcome: Outcome) -> Awaitable[None]:
        """The slow path of `Message.settle`, and `reject` and `release`."""
        self.check_settling(message)
        message.outcome = outcome
        if message.lost or self.is_ended:
            self.lost_count += 1
            return self.done
        position = message.position
        if not self._is_dirty:
            self._is_dirty = True
            self._session.driver.soon(self)
        if outcome is not Outcome.SETTLE:
            self._gathered[outcome].append((position, position + 1))
        elif position == self.run_high:
            self.run_high += 1
        else:
            self._end_run()
            self.run_low, self.run_high = position, position + 1
        return self.done

    def check_settling(self, message: Message) -> None:
        """Raise if the message may not be settled (again)."""
        if message.outcome:
            raise LocalProtocolError(f"{message} was {_DONE[message.outcome]} before; settle each message once")
        if self._is_closing or (self.is_ended and self.error is None):
            raise LocalProtocolError(f"{message}: its consumer is closed and has given it back; settle before closing")

    def _end_run(self) -> None:
        if self.run_high != _NO_RUN:
            self._gathered[Outcome.SETTLE].append((self.run_low, self.run_high))
            self.run_low = self.run_high = _NO_RUN

    def flush_now(self) -> None:
        """Hand what was settled to the machine."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        self._end_run()
        if self.is_ended:
            return
        gathered, self._gathered = self._gathered, _nothing_gathered()
        self._unsettled -= sum(high - low for ranges in gathered.values() for low, high in ranges)
        session = self._session
        session.driver.handle(events.Settle(session.number, self.number, *gathered.values()))

    def open_stream(self, position: int, size: int) -> IncomingStream:
        """The body of a message that is here unsettled."""
        return self._session.streams.open_reader(self.number, position, size)

    # -- control ---------------------------------------------------------------------------------

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages may be here unsettled, from now on."""
        if prefetch == self._prefetch or self._is_closing or self.is_ended:
            return
        session = self._session
        session.driver.handle(events.SetPrefetch(session.number, self.number, prefetch))
        self._prefetch = prefetch

    def want(self, count: int) -> None:
        """Make room for so many messages more than the application has in its hands; 0: nothing is fetched."""
        self.flush_now()
        self.set_prefetch(min(PREFETCH_MAX, self._unsettled + count) if count else 0)

    def give_back_ready(self) -> None:
        """What lies ready goes back as if it had never been delivered."""
        buffered = (delivery.messages(self.message_type) for delivery in self._buffer)
        unwanted = list(chain(self._group, self._ready, *buffered))
        self._drop_ready()
        if not self._is_closing:  # else all goes back with the close
            for message in unwanted:
                self.settle(message, Outcome.RETURN)

    @property
    def is_empty(self) -> bool:
        """Nothing lies ready."""
        for message in chain(self._group, self._ready):
            self._group = chain((message,), self._group)
            return False
        return not self._buffer

    async def opened(self) -> None:
        """Wait until the broker has accepted the consumer; raises what it was refused with."""
        await asyncio.wait([self._opened, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if self.error is not None:
            raise self.error

    async def close(self, *, unsubscribe: bool = False, timeout_s: float = 30.0) -> None:
        """Give back what is unsettled; returns when the settlements so far are durable."""
        session = self._session
        if not self._is_closing and not self.is_ended:
            self.flush_now()
            session.driver.handle(events.CloseConsumer(session.number, self.number, unsubscribe))
            self._is_closing = True
            self._drop_ready()
            self._wake_all()
        await asyncio.wait([self._ended], timeout=timeout_s)
        if not self._ended.done():
            raise Unavailable(
                f"consumer of '{self.destination}': the broker did not answer the close within {timeout_s:g} s; "
                "it is closed when the connection is back"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close(timeout_s=LEAVING_TIMEOUT_S)
        except AngariumError as unfinished:
            note_unfinished(error, unfinished)

    # -- notifications ---------------------------------------------------------------------------

    def on_arrived(self, command: events.MessagesArrived) -> None:
        positions = command.positions or range(command.position, command.position + command.batch.count)
        delivery = Delivery(self, command.batch, positions, command.redeliveries, command.low, command.high)
        self._unsettled += command.high - command.low
        self._buffer.append(delivery)
        self._alive.add(delivery)
        if self._waiters:
            self._wake_one()

    def on_ready(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def on_lost(self, ranges: list[Range]) -> None:
        """Drop them where they still lie ready; mark those in the application's hands."""
        for delivery in self._alive:
            mine = RangeSet(delivery.lost or ())
            first, last = delivery.positions[delivery.low], delivery.positions[delivery.high - 1]
            for low, high in ranges:
                mine.add(max(low, first), min(high, last + 1))
            delivery.lost = mine if mine else None
        self._unsettled -= sum(high - low for low, high in ranges)
        buffered = (delivery.messages(self.message_type) for delivery in self._buffer)
        kept = [message for message in chain(self._group, self._ready, *buffered) if not message.lost]
        self._drop_ready()
        self._ready = iter(kept)

    def on_settlements_lost(self, ranges: list[Range]) -> None:
        self.lost_count += sum(high - low for low, high in ranges)

    def on_ended(self, error: AngariumError | None) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        self.error = error
        self.run_low = self.run_high = _NO_RUN
        self._drop_ready()
        if not self._ended.done():
            self._ended.set_result(None)
        self._wake_all()

    def _drop_ready(self) -> None:
        self._group = self._ready = iter(())
        self._buffer.clear()


_DONE = {1: "settled", 2: "rejected", 3: "released", 4: "returned"}  # by Outcome


def _nothing_gathered() -> dict[Outcome, list[Range]]:
    return {Outcome.SETTLE: [], Outcome.REJECT: [], Outcome.RELEASE: [], Outcome.RETURN: []}


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)

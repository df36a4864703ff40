"""A consumer as the application sees it: an asynchronous iterator over the messages that lie ready.

Settling consecutive messages only extends a run, `run_low` to `run_high`, which leaves on the next turn of the loop; or
within some milliseconds, while few of the messages that may be here are.
"""
import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Self
from weakref import ReferenceType, ref

from angarium.client.acknowledging import Taken, taken_by
from angarium.client.entering import Entering
from angarium.client.message import Delivery, Message
from angarium.client.ready import Ready
from angarium.client.stream_reading import IncomingStream
from angarium.client.subscribing import whole_prefetch
from angarium.core.client import events
from angarium.core.client.consumer import PREFETCH_MAX
from angarium.core.errors import AngariumError, LocalProtocolError, Unavailable
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire.frames import Outcome

if TYPE_CHECKING:
    from angarium.client.session import Session

_NO_RUN = -1
_UNHURRIED_SHARE = 4  # of the prefetch: with fewer messages here, settlements are not told at once


class Consumer(Ready, Entering):
    """Made by `Session.consume`. Iterate over it, or call `receive` or `receive_batch`; close it when done."""

    hands_out = True  # to the application itself: not so behind the blocking face

    def __init__(
        self, session: "Session", number: int, destination: str, prefetch: int
    ) -> None:
        super().__init__(session.loop, prefetch)
        self.destination = destination
        self.number = number
        self.taken = taken_by(self, prefetch, session.acknowledge_mode, session.is_transacted)
        self._taken = self.taken if self.hands_out else None
        self.fetched: deque[Message] = deque()  # on their way to the application, behind the blocking face
        self.dropped_count = 0  # messages that the broker dropped because the subscription was too far behind
        self.lost_count = 0  # messages settled here that were no longer this consumer's
        self.run_low = self.run_high = _NO_RUN  # being settled in this turn
        self.done: asyncio.Future[None] = session.loop.create_future()  # what settling returns
        self.done.set_result(None)
        self._session = session
        self._alive: set[ReferenceType[Delivery]] = set()  # deliveries that somebody still refers to
        self._unsettled = 0  # messages that arrived and have no outcome
        self._gathered = _nothing_gathered()
        self._is_dirty = False  # something was settled and not told
        self._is_told_soon = False  # ... and is to be in the next turn of the loop
        self.is_closing = False
        self.is_ended = False
        self.error: AngariumError | None = None  # what it ended with, unless that was asked for
        self._opened: asyncio.Future[None] = session.loop.create_future()
        self._ended: asyncio.Future[None] = session.loop.create_future()
        self._recovered: asyncio.Future[None] | None = None
        self.on_change: Callable[[Consumer], None] | None = None  # something arrived, or it ended

    # -- receiving -------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._taken is None:
            for message in self._group:
                return message
            next_message = await self._next(None)
        else:
            next_message = await self._hand_out(self._taken, None)
        if next_message is None:
            raise StopAsyncIteration
        return next_message

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if there was none within the time, or the consumer was closed."""
        if self._taken is None:
            for message in self._group:
                return message
            return await self._next(timeout_s)
        return await self._hand_out(self._taken, timeout_s)

    async def receive_alone(self, timeout_s: float | None) -> Message | None:
        """For `Session.receive`."""
        return await self.receive(timeout_s)

    async def receive_batch(self, max: int = 1_000, timeout_s: float | None = None) -> list[Message]:
        """At least one message and what else lies ready, up to `max`; none as for `receive`."""
        first = await self.receive(timeout_s)
        if first is None:
            return []
        messages = [first, *islice(self._group, max - 1)]
        while len(messages) < max:
            messages += self._take_ready(max - len(messages))
            if len(messages) < max and not self._refill():
                break
        self._burst += len(messages)
        if self._taken is not None:
            self._taken.messages += messages[1:]
        return messages

    async def _hand_out(self, taken: Taken, timeout_s: float | None) -> Message | None:
        """The next message, noted as taken."""
        taken.asked()
        message = next(self._group, None) or await self._next(timeout_s)
        if message is not None:
            taken.messages.append(message)
        return message

    async def _next(self, timeout_s: float | None) -> Message | None:
        """The group is used up: look at the clock, and take the next one."""
        loop = self._session.loop
        deadline = None if timeout_s is None else loop.time() + timeout_s
        asks_broker = timeout_s is not None and timeout_s <= 0  # whether more is there than lies here
        await self._let_others_run()
        while True:
            for message in self._take_group():
                if self._waiters:
                    self._wake_one()  # there may be more: others that wait shall look, too
                return message
            if self._refill():
                continue
            if self.is_ended or self.is_closing:
                if self.error is not None:
                    raise self.error
                return None
            if self.taken is not None:
                self.taken.starving()
            if asks_broker:
                asks_broker, left_s = False, await self._session.time_for_present_s(self)
                deadline = loop.time() + left_s
            elif not await self._wait(deadline):
                return None

    def all_taken(self) -> list[Taken]:
        """What was handed out and is not settled, unless the application settles by itself."""
        return [] if self.taken is None else [self.taken]

    def take_ready(self) -> Message | None:
        """The next message that lies ready, at once."""
        while True:
            for message in self._take_group():
                return message
            if not self._refill():
                return None

    # -- settling --------------------------------------------------------------------------------

    def settle(self, message: Message, outcome: Outcome) -> Awaitable[None]:
        """The slow path of `Message.settle`, and `reject` and `release`."""
        self.check_settling(message, outcome)
        message.outcome = outcome
        if message.lost or self.is_ended:
            self.lost_count += 1
            return self.done
        position = message.position
        self._tell_broker(is_awaited=outcome is not Outcome.SETTLE)
        if outcome is not Outcome.SETTLE:
            self._gathered[outcome].append((position, position + 1))
        elif position == self.run_high:
            self.run_high += 1
        else:
            self._end_run()
            self.run_low, self.run_high = position, position + 1
        return self.done

    def _tell_broker(self, *, is_awaited: bool) -> None:
        """Have the settlements sent: soon if something goes back, which others wait for, or if this consumer can take
        little more until they are. Otherwise later, many together: one by one each would be in the next one's way."""
        is_awaited = is_awaited or self._unsettled * _UNHURRIED_SHARE > self.prefetch
        if not self._is_dirty or (is_awaited and not self._is_told_soon):
            self._is_dirty, self._is_told_soon = True, is_awaited
            (self._session.driver.soon if is_awaited else self._session.driver.later)(self)

    def check_settling(self, message: Message, outcome: Outcome) -> None:
        """Raise if the message may not be settled (again)."""
        if self._session.is_transacted and outcome is not Outcome.RETURN:
            raise LocalProtocolError(f"{message}: in a transacted session commit() settles, and rollback() gives back")
        if message.outcome:
            raise LocalProtocolError(f"{message} was {_DONE[message.outcome]} before; settle each message once")
        if self.is_closing or (self.is_ended and self.error is None):
            raise LocalProtocolError(f"{message}: its consumer is closed and has given it back; settle before closing")

    def acknowledge(self, message: Message) -> None:
        """As the session's mode has it."""
        self._session.check_usable()
        match self._session.acknowledge_mode:
            case "client" if not self._session.is_transacted:
                self._session.acknowledge()
            case "individual" if not self._session.is_transacted:
                message.settle()

    def _end_run(self) -> None:
        if self.run_high != _NO_RUN:
            self._gathered[Outcome.SETTLE].append((self.run_low, self.run_high))
            self.run_low = self.run_high = _NO_RUN

    def flush_now(self) -> None:
        """Hand what was settled to the machine."""
        if not self._is_dirty:
            return
        self._is_dirty = self._is_told_soon = False
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
        """How many messages may be here unsettled, from now on; 0: none come until it is more."""
        wanted = whole_prefetch(prefetch)
        self.resize(wanted)
        if self.taken is not None:
            self.taken.prefetch = wanted

    def resize(self, prefetch: int) -> None:
        """The same for now, whatever the application has said."""
        if prefetch == self.prefetch or self.is_closing or self.is_ended:
            return
        session = self._session
        session.driver.handle(events.SetPrefetch(session.number, self.number, prefetch))
        self.prefetch = prefetch

    def want(self, count: int) -> None:
        """Make room for so many messages more than the application has in its hands; 0: nothing is fetched."""
        self.flush_now()
        self.resize(min(PREFETCH_MAX, self._unsettled + count) if count else 0)

    def give_back_ready(self) -> None:
        """What lies ready goes back as if it had never been delivered."""
        unwanted = list(self.unread())
        self._drop_ready()
        self.give_back(unwanted)

    def give_back(self, messages: Sequence[Message]) -> None:
        """The same of messages that were handed out, and that nobody has looked at. Nothing more comes here."""
        if messages and not self.is_closing:  # else all goes back with the close
            self.resize(0)  # it makes no room: the broker would send it here again, and count it after all
            for message in messages:
                self.settle(message, Outcome.RETURN)

    def resize_soon(self, prefetch: int) -> None:
        """`resize`, from wherever the application acknowledges."""
        self.resize(prefetch)

    @property
    def unsettled_count(self) -> int:
        """Messages that are here, or in the application's hands, as of the last flush."""
        return self._unsettled

    @property
    def is_full(self) -> bool:
        """Nothing comes before something is settled, as of the last flush."""
        return self._unsettled >= self.prefetch

    @property
    def is_transacted(self) -> bool:
        return self._session.is_transacted

    async def opened(self) -> None:
        """Wait until the broker has accepted the consumer; raises what it was refused with."""
        await asyncio.wait([self._opened, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if self.error is not None:
            raise self.error

    def recover(self) -> "asyncio.Future[None]":
        """Give back all that has no outcome; done when it may come again. Who asks while that is under way, because he
        gave up waiting for it, waits for the same: nothing is handed out meanwhile."""
        if self._recovered is not None:
            return asyncio.shield(self._recovered)
        self.flush_now()
        unread = RangeSet()
        for message in self.unread():
            unread.add(message.position, message.position + 1)
        for delivery in self._deliveries():
            delivery.lost = RangeSet([(delivery.positions[delivery.low], delivery.positions[delivery.high - 1] + 1)])
        self._drop_ready()
        self._unsettled = 0
        if self.taken is not None:
            self.taken.forget()
        session = self._session
        recovered = self._recovered = session.loop.create_future()
        # If there is nothing to give back, it is done before this returns.
        session.driver.handle(events.Recover(session.number, self.number, list(unread)))
        return asyncio.shield(recovered)

    def _deliveries(self) -> list[Delivery]:
        """Of which messages lie here, or are in the application's hands."""
        alive = list(self._alive)  # at once: behind the blocking face another thread may drop some meanwhile
        return [delivery for reference in alive if (delivery := reference()) is not None]

    def unread(self) -> Iterator[Message]:
        """What is in nobody's hands."""
        return self._ready_ones()

    async def close(self, *, unsubscribe: bool = False, timeout_s: float = 30.0) -> None:
        """Give back what is unsettled; returns when the settlements so far are durable.

        In a transacted session what was taken stays in the transaction, and the consumer ends with that.
        """
        if not self.is_closing and not self.is_ended:
            if self._taken is not None:
                self._taken.end(is_done=True)
            self.give_back_ready()  # it has never been seen, and shall not count as delivered
            self.flush_now()
            if self._session.is_transacted and self.taken is not None and self.taken.messages:
                self.resize(0)
                self._session.close_later(self, unsubscribe)
                self._begin_closing()
                return
            self.close_now(unsubscribe)
        elif self._session.closes_later(self):
            return
        await asyncio.wait([self._ended], timeout=timeout_s)
        if not self._ended.done():
            raise Unavailable(
                f"consumer of '{self.destination}': the broker did not answer the close within {timeout_s:g} s; "
                "it is closed when the connection is back"
            )

    def close_now(self, unsubscribe: bool) -> None:
        """Tell the broker; `_ended` is done when it has answered."""
        session = self._session
        session.driver.handle(events.CloseConsumer(session.number, self.number, unsubscribe))
        self._begin_closing()

    def _begin_closing(self) -> None:
        self.is_closing = True
        self._drop_ready()
        self._wake_all()

    # -- notifications ---------------------------------------------------------------------------

    def on_arrived(self, command: events.MessagesArrived) -> None:
        if self.is_closing:
            return
        positions = command.positions or range(command.position, command.position + command.batch.count)
        delivery = Delivery(self, command.batch, positions, command.redeliveries, command.low, command.high)
        self._unsettled += command.high - command.low
        if self._is_dirty:
            self._tell_broker(is_awaited=False)
        self._buffer.append(delivery)
        self._alive.add(ref(delivery, self._alive.discard))
        if self._waiters:
            self._wake_one()
        if self.on_change is not None:
            self.on_change(self)

    def on_ready(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def on_lost(self, ranges: list[Range]) -> None:
        """Drop them where they still lie ready; mark those in the application's hands."""
        for delivery in self._deliveries():
            mine = RangeSet(delivery.lost or ())
            first, last = delivery.positions[delivery.low], delivery.positions[delivery.high - 1]
            for low, high in ranges:
                mine.add(max(low, first), min(high, last + 1))
            delivery.lost = mine if mine else None
        self._unsettled -= sum(high - low for low, high in ranges)
        kept = [message for message in self._ready_ones() if not message.lost]
        self._drop_ready()
        self._ready = iter(kept)

    def on_settlements_lost(self, ranges: list[Range]) -> None:
        self.lost_count += sum(high - low for low, high in ranges)

    def on_committed(self) -> None:
        """What was taken is settled."""
        if self.taken is not None:
            self._unsettled -= len(self.taken.messages)
            self.taken.forget()

    def on_recovered(self) -> None:
        recovered, self._recovered = self._recovered, None
        if recovered is not None and not recovered.done():
            recovered.set_result(None)

    def on_ended(self, error: AngariumError | None) -> None:
        if self.is_ended:
            return
        self.on_recovered()
        self.is_ended = True
        self.error = error
        self.run_low = self.run_high = _NO_RUN
        self._drop_ready()
        if not self._ended.done():
            self._ended.set_result(None)
        self._wake_all()
        if self.on_change is not None:
            self.on_change(self)

_DONE = {1: "settled", 2: "rejected", 3: "released", 4: "returned"}  # by Outcome


def _nothing_gathered() -> dict[Outcome, list[Range]]:
    return {Outcome.SETTLE: [], Outcome.REJECT: [], Outcome.RELEASE: [], Outcome.RETURN: []}


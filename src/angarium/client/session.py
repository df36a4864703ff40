"""A session as the application sees it: consuming, acknowledging, and the waiting that goes with them.

The sending half is `client.sends`; sessions that commit are `client.transacted`.
"""
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from angarium.client.acknowledging import Acknowledge, check_mode
from angarium.client.asking import Asking
from angarium.client.buffer import SendBuffer
from angarium.client.consumer import Consumer
from angarium.client.destination import Destination, Pattern, Queue
from angarium.client.ended import LEAVING_TIMEOUT_S, ended_error, note_unfinished
from angarium.client.fields import Body, MessageFields
from angarium.client.listening import Callback, Listener
from angarium.client.message import Message
from angarium.client.pattern_consumer import PatternConsumer
from angarium.client.present import time_for_present_s
from angarium.client.receiver import Receivers
from angarium.client.requesting import Replies, Requester, reply_fields
from angarium.client.sending import Sending
from angarium.client.sends import Sends
from angarium.client.session_commands import SessionCommand
from angarium.client.stream_desk import StreamDesk
from angarium.client.subscribing import (
    PREFETCH_DEFAULT,
    QUEUE_ITSELF,
    SubscriptionOptions,
    checked,
    first_prefetch,
    opening,
    subscription_name,
)
from angarium.client.watching import Watches
from angarium.core.client import events
from angarium.core.errors import AngariumError, LocalProtocolError, Unavailable

if TYPE_CHECKING:
    from angarium.client.connection import Connection


class Session(Sends, Asking):
    """Made by `Connection.session`. For one event loop, not for several threads. What one session sends to one
    destination stays in order."""

    is_transacted = False

    def __init__(
        self,
        connection: "Connection",
        number: int,
        *,
        close_timeout_s: float,
        acknowledge: Acknowledge = "individual",
        consumer_type: type[Consumer] = Consumer,
    ) -> None:
        check_mode(acknowledge)
        super().__init__(SendBuffer(number, connection.driver, connection.limits))
        self.number = number
        self.acknowledge_mode = acknowledge
        self.loop = connection.loop
        self.driver = connection.driver
        self._connection = connection
        self._close_timeout_s = close_timeout_s
        self._consumer_type = consumer_type
        self.hands_out = consumer_type.hands_out
        self._consumers: dict[int, Consumer] = {}
        self._consumer_last = 0
        self._receivers = Receivers(self)  # behind `receive`
        self._syncs: dict[int, asyncio.Future[events.Synced]] = {}
        self._sync_last = 0
        self.watches = Watches(self)
        self.streams = StreamDesk(self)
        self._requester: Requester | None = None  # once there was a request
        self._listeners: list[Listener] = []
        self._turn = asyncio.Lock()  # of the listeners' callbacks
        self._is_closing = False
        self.is_failing = False  # an exception ends it: what is being processed is not settled by that
        self._error: AngariumError | None = None
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self.driver.handle(events.OpenSession(number, self.is_transacted))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.is_failing = error is not None
        try:
            await self.close(None if error is None else LEAVING_TIMEOUT_S)
        except AngariumError as unfinished:
            if error is None:
                raise
            note_unfinished(error, unfinished)

    # -- consuming -------------------------------------------------------------------------------

    def consume(
        self,
        destination: Destination,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        durable: str | None = None,
        shared: bool | str = False,
        selector: str = "",
        start: Literal["next", "oldest"] = "next",
        no_local: bool = False,
        exclusive: bool = False,
    ) -> Consumer:
        """Open a consumer. A refusal is raised where it is first used; `async with` waits until it is open.

        `prefetch` messages at most are here unsettled. `durable` names a subscription of a topic that outlives the
        consumer, `shared=True` lets several consumers divide it; `shared` with a name is one that ends with the last
        of its consumers. `selector` leaves out messages that it is not true of, `no_local` those that this connection
        has sent. `exclusive`: one consumer at a time. `start` says where a new subscription begins.
        """
        self.check_usable()
        prefetch = first_prefetch(prefetch)
        name, is_durable = subscription_name(durable, shared)
        options = SubscriptionOptions(name, start, selector, bool(shared), is_durable, no_local, exclusive)
        return self.open_consumer(destination, prefetch, checked(options))

    def consume_matching(
        self,
        pattern: str | Pattern,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        durable: str | None = None,
        selector: str = "",
        start: Literal["next", "oldest"] = "next",
        no_local: bool = False,
    ) -> PatternConsumer:
        """Open one consumer over all topics whose names match, those to come as well; a string is a glob. The options
        are those of `consume`, for each of them; a topic that is new is always taken from its beginning."""
        self.check_usable()
        prefetch = first_prefetch(prefetch)
        name, _ = subscription_name(durable, False)
        options = checked(SubscriptionOptions(name, start, selector, no_local=no_local, existing=True))
        return self.watches.open(pattern, prefetch, options)

    async def receive(self, destination: Destination, timeout_s: float | None = None) -> Message | None:
        """One message, or None if there was none within the time; 0: what is there now. Nothing beyond it is fetched in
        advance."""
        self.check_usable()
        return await self._receivers.receive(destination, timeout_s)

    async def time_for_present_s(self, consumer: Consumer) -> float:
        """For a consumer that has nothing left, and is asked for what is there now."""
        return await time_for_present_s(self._connection, consumer)

    async def sync(self) -> None:
        """Wait until every settlement so far is durable."""
        self.check_usable()
        for consumer in self._consumers.values():
            consumer.flush_now()
        token = self._sync_last = self._sync_last + 1
        future = self._syncs[token] = self.loop.create_future()
        try:
            self.driver.handle(events.Sync(self.number, token))
            synced = await future
        finally:
            del self._syncs[token]
        error = ended_error("settlements of unknown outcome", synced.code, synced.reason)
        if error is not None:
            raise error

    def open_consumer(
        self,
        destination: Destination,
        prefetch: int,
        options: SubscriptionOptions = QUEUE_ITSELF,
        consumer_type: type[Consumer] | None = None,
    ) -> Consumer:
        number = self._consumer_last + 1
        request = opening(self.number, number, destination, prefetch, options)
        consumer = (consumer_type or self._consumer_type)(self, number, request.destination, prefetch)
        self._consumer_last = number
        self._consumers[number] = consumer
        try:
            self.driver.handle(request)
        except LocalProtocolError:
            del self._consumers[number]
            raise
        return consumer

    # -- with a callback, and with an answer -----------------------------------------------------

    def listen(self, destination: Destination, callback: Callback, **options: Any) -> Listener:
        """Call `callback` (a function, or a coroutine function) for each message, one after the other; `options` are
        those of `consume`. See `client.listening` for what happens when it returns, or raises."""
        self._listeners = [listener for listener in self._listeners if not listener.consumer.is_ended]
        listener = Listener(self.consume(destination, **options), callback, self._turn)
        self._listeners.append(listener)
        return listener

    async def request(
        self,
        destination: Destination,
        body: Body,
        *,
        timeout_s: float | None = 30.0,
        **fields: Unpack[MessageFields],
    ) -> Message:
        """Send a message and wait for the reply, which is settled already. Raises `Unavailable` if none comes in
        time: the request may then have been done or not."""
        self.check_usable()
        self._check_not_transacted("request()")
        if self._requester is None:
            self._requester = Requester(self)
        return await self._requester.request(destination, body, timeout_s, fields)

    def reply(self, request: Message, body: Body, **fields: Unpack[MessageFields]) -> Sending:
        """Answer a request, where its sender waits for it."""
        to, whole = reply_fields(request, fields)
        return self.send(to, body, **whole)

    def consume_replies(self, queue: Queue, prefetch: int) -> Replies:
        """For `request`."""
        return cast(Replies, self.open_consumer(queue, prefetch, consumer_type=Replies))

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Settle all that the session has handed out so far, whatever its mode."""
        self.check_usable()
        self._check_not_transacted("acknowledge()")
        for consumer in list(self._consumers.values()):
            if consumer.taken is not None:
                consumer.taken.settle_all()

    async def recover(self) -> None:
        """Give back all that is unsettled; it comes again, in order and marked as redelivered. What had not reached
        the application goes back, too, but does not count as delivered. Messages in your hands are void."""
        self.check_usable()
        self._check_not_transacted("recover()")
        await self._recover_all()

    async def _recover_all(self) -> None:
        recovered = [consumer.recover() for consumer in self._consumers.values() if not consumer.is_closing]
        for future in recovered:
            await future
        self.check_usable()

    def _check_not_transacted(self, what: str) -> None:
        if self.is_transacted:
            raise LocalProtocolError(f"session {self.number} is transacted: use commit() or rollback(), not {what}")

    async def commit(self) -> None:
        raise self._not_transacted("commit()")

    async def rollback(self) -> None:
        raise self._not_transacted("rollback()")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Commit at the end of the block; roll back if it raises."""
        self.check_transacted("transaction()")
        try:
            yield self
        except BaseException as error:
            await self._undo(error)
            raise
        await self.commit()

    async def _undo(self, error: BaseException) -> None:
        """Roll back for the application's own error, which must not wait: what has to be said to a broker that is away
        it hears when it is back."""
        try:
            await asyncio.wait_for(self.rollback(), LEAVING_TIMEOUT_S)
        except TimeoutError:
            note_unfinished(error, Unavailable(f"rolling back took more than {LEAVING_TIMEOUT_S:g} s"))
        except AngariumError as unfinished:
            note_unfinished(error, unfinished)

    def check_transacted(self, what: str) -> None:
        if not self.is_transacted:
            raise self._not_transacted(what)

    def _not_transacted(self, what: str) -> LocalProtocolError:
        return LocalProtocolError(f"session {self.number}: {what} needs connection.session(transacted=True)")

    def close_later(self, consumer: Consumer, unsubscribe: bool) -> None:
        raise self._not_transacted("a consumer's late close")

    def closes_later(self, consumer: Consumer) -> bool:
        """It is closed, but what it has handed out is in a transaction."""
        return False

    # -- the end ---------------------------------------------------------------------------------

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait until what was sent is confirmed and what was settled is durable, then end the session.

        Unsettled messages go back. Raises `Unavailable` after `timeout_s`, or else the connection's `close_timeout_s`,
        and a send's failure that nobody saw.
        """
        limit_s = self._close_timeout_s if timeout_s is None else timeout_s
        self.check_outside()
        if self._error is None:
            for listener in self._listeners:
                await listener.stop(limit_s)
        if not self._is_closing and self._error is None:
            for consumer in self._consumers.values():
                for taken in consumer.all_taken():
                    taken.end(is_done=not self.is_failing)
                consumer.give_back_ready()
                consumer.flush_now()
            self._is_closing = True
            self._buffer.flush_now()
            self.driver.handle(events.CloseSession(self.number, limit_s))
            await asyncio.wait([self._ended])
        elif not (await asyncio.wait([self._ended], timeout=limit_s))[0]:
            raise Unavailable(f"session {self.number} is still closing after {limit_s:g} s")
        self._buffer.raise_unseen()
        if isinstance(self._error, Unavailable):
            raise self._error

    def check_outside(self) -> None:
        """Raise if one of its callbacks asks for its end; one that has ended waits for nobody."""
        for listener in self._listeners if self._error is None else ():
            listener.check_outside()

    @property
    def unconfirmed_count(self) -> int:
        """Messages that were sent and have no outcome yet."""
        return self._buffer.unconfirmed_count

    @property
    def is_usable(self) -> bool:
        return self._error is None and not self._is_closing

    def check_usable(self) -> None:
        """Raise why the session takes no more requests, if so."""
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise LocalProtocolError(f"session {self.number} is closed; open another one with connection.session()")

    # -- notifications ---------------------------------------------------------------------------

    def notify(self, command: SessionCommand) -> None:
        match command:
            case events.MessagesArrived():
                self._consumers[command.consumer].on_arrived(command)
                self._receivers.on_arrived(command.consumer)
            case events.SessionReady():
                pass
            case events.SessionEnded():
                self.on_ended(ended_error(f"session {self.number}", command.code, command.reason))
            case events.Synced():
                future = self._syncs.get(command.token)
                if future is not None and not future.done():
                    future.set_result(command)
            case events.ConsumerReady():
                self._consumers[command.consumer].on_ready()
            case events.MessagesDropped():
                self._consumers[command.consumer].dropped_count += command.count
            case events.PositionsLost():
                self._consumers[command.consumer].on_lost(command.ranges)
            case events.SettlementsLost():
                self._consumers[command.consumer].on_settlements_lost(command.ranges)
            case events.Recovered():
                self._consumers[command.consumer].on_recovered()
            case events.Committed() | events.Aborted():
                self.on_transaction_ended(command)
            case events.WatchFound() | events.WatchEnded():
                self.watches.notify(command)
            case events.ConsumerEnded():
                consumer = self._consumers.pop(command.consumer)
                self._receivers.on_ended(command.consumer)
                what = f"consumer of '{consumer.destination}'"
                consumer.on_ended(ended_error(what, command.code, command.reason))
            case _:
                self.streams.notify(command)

    def on_transaction_ended(self, command: events.Committed | events.Aborted) -> None:
        raise AssertionError(f"{type(command).__name__} in a session that is not transacted")

    def on_ended(self, error: AngariumError | None) -> None:
        """For whatever reason; None: as asked."""
        closed = LocalProtocolError(f"session {self.number} is closed; open another one with connection.session()")
        self._error = error or closed
        self._buffer.on_ended(self._error)
        self.streams.on_ended(self._error)
        for consumer in self._consumers.values():
            consumer.on_ended(error)
        self._consumers.clear()
        self.watches.on_ended(error)
        for future in self._syncs.values():
            if not future.done():
                future.set_exception(self._error)
        if not self._ended.done():
            self._ended.set_result(None)
        self._connection.forget_session(self)

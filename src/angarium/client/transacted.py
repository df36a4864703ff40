"""A session whose sends and receipts take effect together, at `commit`, or not at all.

What is sent is staged here; what is received is noted as taken. `commit` hands both to the machine as one request, and
its outcome comes as one answer. Nothing may be sent or received between the two.
"""
import asyncio
import time
from typing import TYPE_CHECKING, Unpack

from angarium.client.buffer import SendCommand
from angarium.client.consumer import Consumer
from angarium.client.destination import Destination, name_of, resolve
from angarium.client.ended import ended_error
from angarium.client.fields import Body, MessageFields, encode_body, make_options
from angarium.client.sending import Outbox, Sending
from angarium.client.session import Session
from angarium.core.client import events
from angarium.core.client.gathered import BATCH_COST_MAX, MESSAGE_COST, Gathered, Options, options_cost
from angarium.core.client.session import PRODUCERS_MAX
from angarium.core.client.transaction import FRAME_BYTES_BESIDE, LINK_BYTES_MAX, RANGE_BYTES_MAX
from angarium.core.errors import AngariumError, LocalProtocolError, Rejected, Unavailable

if TYPE_CHECKING:
    from angarium.client.connection import Connection


class Producer:
    """One destination that the session sends to, from its first transaction on."""

    __slots__ = ("committed", "destination", "error", "identity", "number")

    def __init__(self, number: int, destination: str) -> None:
        self.number = number
        self.destination = destination
        self.identity = b""
        self.committed = 0  # sequence of the last message
        self.error: AngariumError | None = None  # it has ended


class Staged(Outbox):
    """What one transaction sends to one destination."""

    __slots__ = ("parts", "producer")

    def __init__(self, producer: Producer, destination: Destination, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(producer.number, name_of(destination), destination, loop)
        self.producer = producer
        self.parts: list[Gathered] = []
        self.sequence = self.confirmed = producer.committed

    def waiter(self, sequence: int) -> "asyncio.Future[None]":
        raise LocalProtocolError(f"message to '{self.destination}': it is confirmed by commit(); await that first")

    def stage(self, body: bytes, options: Options | None, now_ms: int) -> int:
        """Returns how many bytes the frame grows at most."""
        message = Gathered(now_ms)
        message.append(body, options)
        before = self.parts[-1].bytes_max() if self.parts else 0
        if self.parts and self.parts[-1].cost + message.cost <= BATCH_COST_MAX:
            self.parts[-1].append(body, options)
            return self.parts[-1].bytes_max() - before
        self.parts.append(message)
        return message.bytes_max() + LINK_BYTES_MAX


class TransactedSession(Session):
    """Made by `Connection.session(transacted=True)`."""

    is_transacted = True

    def __init__(
        self, connection: "Connection", number: int, *, close_timeout_s: float, consumer_type: type[Consumer] = Consumer
    ) -> None:
        self._producers: dict[Destination, Producer] = {}
        self._by_number: dict[int, Producer] = {}
        self._producer_last = 0
        self._staged: dict[Destination, Staged] = {}
        self._staged_bytes = 0
        self._closing: dict[int, tuple[Consumer, bool]] = {}  # consumers closed in this transaction
        self._outcome: asyncio.Future[events.Committed | events.Aborted] | None = None  # of the commit under way
        self._is_awaited = False  # ... somebody waits for it
        self._limits = connection.limits
        super().__init__(connection, number, close_timeout_s=close_timeout_s, consumer_type=consumer_type)

    # -- sending ---------------------------------------------------------------------------------

    def send(self, destination: Destination, body: Body, **fields: Unpack[MessageFields]) -> Sending:
        """Add a message to the transaction. What is returned may be awaited after `commit`, for the message's id."""
        packed, content = encode_body(body)
        return self.send_with(destination, packed, make_options(content, now_ms=_now_ms(), **fields))

    def send_with(self, destination: Destination, body: bytes, options: Options | None) -> Sending:
        self.check_usable()
        extra = len(options.headers) + len(options.properties) if options is not None else 0
        self._limits.check(name_of(destination), len(body), extra)
        cost = options_cost(options) if options is not None else 0
        total = self.transaction_bytes() + len(body) + cost + 2 * MESSAGE_COST + LINK_BYTES_MAX
        if total > self.transaction_bytes_max:
            raise Rejected(
                "transaction-too-long",
                f"session {self.number}: with this message the transaction counts {total:,} bytes, and exceeds "
                f"transaction_bytes_max {self.transaction_bytes_max:,}; commit sooner, or raise the broker's "
                "frame_bytes_max",
            )
        staged = self._staged.get(destination)
        if staged is None:
            staged = self._staged[destination] = Staged(self._producer(destination), destination, self.loop)
        self._staged_bytes += staged.stage(body, options, _now_ms())
        staged.sequence += 1
        return Sending(staged, staged.sequence)

    def send_alone(self, destination: Destination, body: bytes, options: Options) -> Sending:
        """The transaction is refused or taken as a whole."""
        return self.send_with(destination, body, options)

    @property
    def transaction_bytes_max(self) -> int:
        """Sends and settlements of one transaction travel in one frame: that is their limit."""
        return self._limits.frame_bytes_max - 1_024

    def transaction_bytes(self) -> int:
        """How many bytes the transaction has so far, at most."""
        taken = sum(LINK_BYTES_MAX + RANGE_BYTES_MAX * len(t.messages) for c in self._all_consumers() if (t := c.taken))
        return FRAME_BYTES_BESIDE + self._staged_bytes + taken

    def _producer(self, destination: Destination) -> Producer:
        known = self._producers.get(destination)
        if known is not None and known.error is None:
            return known
        name, kind = resolve(destination)
        if len(self._by_number) >= PRODUCERS_MAX:
            self._close_idle()
        self._producer_last += 1
        producer = Producer(self._producer_last, name)
        self.driver.handle(events.OpenProducer(self.number, producer.number, name, kind))
        self._producers[destination] = self._by_number[producer.number] = producer
        return producer

    def _close_idle(self) -> None:
        for destination, producer in self._producers.items():
            if destination not in self._staged and producer.error is None:
                self.driver.handle(events.CloseProducer(self.number, producer.number))
                del self._producers[destination], self._by_number[producer.number]
                self._buffer.flow.unblocked(producer.destination, producer.number)
                return
        reason = f"session {self.number}: more than {PRODUCERS_MAX:,} destinations in one transaction; commit sooner"
        raise Rejected("transaction-too-long", reason)

    async def flush(self) -> None:
        """Nothing is under way before `commit`."""
        self.check_usable()

    def notify_sending(self, command: SendCommand) -> None:
        producer = self._by_number.get(command.producer)
        if producer is None:
            return
        flow = self._buffer.flow
        match command:
            case events.ProducerReady():
                producer.identity = command.identity
                flow.wake()
            case events.Blocked():
                flow.blocked(producer.destination, producer.number, command.code, command.reason)
            case events.Unblocked():
                flow.unblocked(producer.destination, producer.number)
            case events.ProducerEnded():
                del self._by_number[command.producer]
                what = f"destination '{producer.destination}'"
                error = ended_error(what, command.code, command.reason) or Unavailable(f"{what}: producer closed")
                producer.error = error
                flow.unblocked(producer.destination, producer.number)

    def _reach(self, destination: Destination) -> Producer:
        return self._producer(destination)

    # -- ending the transaction ------------------------------------------------------------------

    async def commit(self) -> None:
        """Make all that was sent and received since the last time take effect, durably and at once.

        Raises `Rejected` with the broker's code if it was aborted: nothing was done, and what was received comes again.
        If this call is cancelled the outcome is open: call it again to learn it.
        """
        super().check_usable()
        if self._outcome is None and not await self._begin_commit():
            return
        assert self._outcome is not None
        self._is_awaited = True
        try:
            outcome = await asyncio.shield(self._outcome)
        finally:
            self._is_awaited = False
        self._outcome = None
        if isinstance(outcome, events.Aborted):
            await self._give_back()
            raise _aborted(self.number, outcome.code, outcome.reason)
        self._close_late()

    async def rollback(self) -> None:
        """Forget what was sent; give back what was received: it comes again, in order and marked as redelivered. A
        commit that was cancelled while it waited, for a blocked destination or a connection, is undone as well."""
        if self._outcome is not None and not self._outcome.done() and not self._is_awaited:
            self.driver.handle(events.WithdrawCommit(self.number))  # raises if it has left
            self._outcome = None
        self.check_usable()
        self._end_staged(Rejected("rolled-back", f"session {self.number}: the transaction was rolled back"))
        await self._give_back()

    async def _begin_commit(self) -> bool:
        consumers = [consumer for consumer in self._all_consumers() if consumer.taken and consumer.taken.messages]
        ended = next((staged.producer.error for staged in self._staged.values() if staged.producer.error), None)
        lost = sum(message.lost for c in consumers if c.taken for message in c.taken.messages)
        gone = next((c for c in consumers if c.is_ended), None)
        if ended is not None or lost or gone is not None:
            reason = str(ended) if ended is not None else f"{lost} messages received in it are no longer this session's"
            if gone is not None:
                reason = f"the consumer of '{gone.destination}' has ended"
            code = ended.code if isinstance(ended, Rejected) else "messages-lost"
            await self.rollback()
            raise _aborted(self.number, code, reason)
        publishes = [(staged.number, staged.parts) for staged in self._staged.values() if staged.parts]
        settles = [(consumer.number, consumer.taken.ranges()) for consumer in consumers if consumer.taken]
        if not publishes and not settles:
            return False
        self.driver.handle(events.Commit(self.number, publishes, settles))
        if self._outcome is None:  # else it was aborted already
            self._outcome = self.loop.create_future()
        return True

    def on_transaction_ended(self, command: events.Committed | events.Aborted) -> None:
        if isinstance(command, events.Committed):
            for staged in self._staged.values():
                staged.identity = staged.producer.identity
                staged.producer.committed = staged.sequence
                staged.on_confirmed(staged.sequence)
            self._staged, self._staged_bytes = {}, 0
            for consumer in self._all_consumers():
                consumer.on_committed()
        else:
            self._end_staged(_aborted(self.number, command.code, command.reason))
        if self._outcome is None:
            self._outcome = self.loop.create_future()
        self._outcome.set_result(command)

    def _end_staged(self, error: AngariumError) -> None:
        for staged in self._staged.values():
            staged.on_ended(error)
        self._staged, self._staged_bytes = {}, 0

    async def _give_back(self) -> None:
        """What was received, and what lies ready: so it comes again in order."""
        recovered = [consumer.recover() for consumer in self._all_consumers() if not consumer.is_ended]
        try:
            for future in recovered:
                await future
        finally:
            self._close_late()  # also if nobody waits for the answers: the transaction is over
        super().check_usable()

    def check_usable(self) -> None:
        super().check_usable()
        if self._outcome is not None:
            raise LocalProtocolError(f"session {self.number}: a commit is under way; await commit() for its outcome")

    # -- consumers -------------------------------------------------------------------------------

    def _all_consumers(self) -> list[Consumer]:
        return list(self._consumers.values())

    def close_later(self, consumer: Consumer, unsubscribe: bool) -> None:
        self._closing[consumer.number] = (consumer, unsubscribe)

    def closes_later(self, consumer: Consumer) -> bool:
        return consumer.number in self._closing

    def _close_late(self) -> None:
        closing, self._closing = self._closing, {}
        for consumer, unsubscribe in closing.values():
            if not consumer.is_ended:
                consumer.close_now(unsubscribe)

    def on_ended(self, error: AngariumError | None) -> None:
        super().on_ended(error)
        reason = f"session {self.number} ended before the transaction did: {error or 'it was closed'}"
        self._end_staged(Unavailable(reason))
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_exception(Unavailable(f"{reason}; it may have been committed or not"))
            self._outcome.exception()  # whether anybody asks or not


def _now_ms() -> int:
    return int(time.time() * 1000)


def _aborted(session: int, code: str, reason: str) -> Rejected:
    return Rejected(code, f"session {session}: the transaction was aborted: {reason}; what it received comes again")

"""The send buffer of one session: its outboxes, their limits, and the way from them into the machine.

It holds at most `SEND_BUFFER_BYTES_MAX` and `SEND_BUFFER_MESSAGES_MAX` of messages without an outcome, checked batch
by batch; one past it, sending raises `Unavailable`. It keeps `PRODUCERS_MAX` outboxes, closing idle ones for new
ones.
"""
import asyncio
import time

from angarium.client.destination import Destination, resolve
from angarium.client.driver import Driver
from angarium.client.ended import ended_error
from angarium.client.flow import Flow, kept_until_done
from angarium.client.sending import Outbox
from angarium.core.client import events
from angarium.core.client.gathered import Gathered
from angarium.core.client.session import PRODUCERS_MAX
from angarium.core.errors import AngariumError, Rejected, Unavailable
from angarium.core.names import DEAD_MESSAGE_QUEUE

SEND_BUFFER_BYTES_MAX = 64 * 1024 * 1024
SEND_BUFFER_MESSAGES_MAX = 1_000_000
ENDED_MAX = 1_000  # outboxes that ended with failures nobody has seen
_FRAME_BYTES_BESIDE = 1_024  # more than a frame and a batch of one message have beside the message


class Limits:
    """What the broker takes, as of the last handshake."""

    __slots__ = ("body_bytes_max", "frame_bytes_max")

    def __init__(self) -> None:
        self.body_bytes_max = 0
        self.frame_bytes_max = 0

    def check(self, destination: str, body_bytes: int, extra_bytes: int) -> None:
        """Raise `Rejected` for a message that the broker cannot take."""
        if body_bytes > self.body_bytes_max:
            raise Rejected(
                "body-too-long",
                f"destination '{destination}': body of {body_bytes:,} bytes exceeds body_bytes_max "
                f"{self.body_bytes_max:,}; send it as a stream, or raise session.body_bytes_max of the broker",
            )
        if body_bytes + extra_bytes + _FRAME_BYTES_BESIDE > self.frame_bytes_max:
            raise Rejected(
                "message-too-long",
                f"destination '{destination}': message of {body_bytes + extra_bytes:,} bytes with its properties "
                f"exceeds frame_bytes_max {self.frame_bytes_max:,}; send less in properties",
            )


class SendBuffer:
    def __init__(self, session: int, driver: Driver, limits: Limits) -> None:
        self.outboxes: dict[Destination, Outbox] = {}  # by what the application calls the destination
        self.error: AngariumError | None = None  # no more sending
        self._session = session
        self._driver = driver
        self._limits = limits
        self._producers: dict[int, Outbox] = {}
        self._producer_last = 0
        self._dirty: list[Outbox] = []
        self._cost = 0  # of messages in the machine without an outcome
        self._count = 0
        self._ended: list[Outbox] = []
        self._room_waiters: list[asyncio.Future[None]] = []
        self.flow = Flow(driver.loop)

    @property
    def unconfirmed_count(self) -> int:
        """Messages without an outcome."""
        return sum(o.sequence - o.confirmed for o in self._producers.values() if not o.is_settled)

    # -- on the way in ---------------------------------------------------------------------------

    def open(self, destination: Destination, stage: tuple[str, int] = ("", 0)) -> Outbox:
        """With a stage (a query, the number of its batch) what is sent there waits for its commit."""
        if self.error is not None:
            raise self.error
        to_the_dead = bool(stage[0]) and destination == DEAD_MESSAGE_QUEUE  # as nobody else may send there
        name, kind = resolve(destination, reading=to_the_dead)
        if len(self._producers) >= PRODUCERS_MAX:
            self._close_idle()
        number = self._producer_last + 1
        self._driver.handle(events.OpenProducer(self._session, number, name, kind, *stage))
        self._producer_last = number
        outbox = self._producers[number] = Outbox(number, name, destination, self._driver.loop)
        self.outboxes[destination] = outbox
        return outbox

    def make_room(self, outbox: Outbox, body_bytes: int, extra_bytes: int = 0) -> None:
        """Hand over what is gathered and begin anew; raise if the message cannot be taken."""
        if self.error is not None:
            raise self.error
        self._limits.check(outbox.destination, body_bytes, extra_bytes)
        is_dirty = outbox.gathered is not None
        self._hand_over(outbox)
        if self._cost + body_bytes > SEND_BUFFER_BYTES_MAX or self._count >= SEND_BUFFER_MESSAGES_MAX:
            raise Unavailable(
                f"session {self._session}: {self._count:,} messages, {self._cost:,} bytes wait for their confirm; the "
                f"send buffer holds {SEND_BUFFER_MESSAGES_MAX:,} and {SEND_BUFFER_BYTES_MAX:,}: await flush() first"
            )
        outbox.begin(int(time.time() * 1000), self._limits.body_bytes_max)
        if not is_dirty:
            if not self._dirty:
                self._driver.soon(self)
            self._dirty.append(outbox)

    def publish(self, outbox: Outbox, messages: Gathered) -> None:
        """Messages that are gathered already."""
        if self.error is not None:
            raise self.error
        if outbox.error is not None:
            raise outbox.error
        outbox.sequence += len(messages)
        outbox.unconfirmed_cost += messages.cost
        outbox.unconfirmed_count += len(messages)
        self._hand_on(outbox, messages)

    def flush_now(self) -> None:
        dirty, self._dirty = self._dirty, []
        for outbox in dirty:
            self._hand_over(outbox)

    def _hand_over(self, outbox: Outbox) -> None:
        gathered = outbox.take()
        if gathered is not None and gathered.bodies:
            self._hand_on(outbox, gathered)

    def _hand_on(self, outbox: Outbox, gathered: Gathered) -> None:
        self._cost += gathered.cost
        self._count += len(gathered)
        self._driver.handle(events.Publish(self._session, outbox.number, gathered))

    def _close_idle(self) -> None:
        for outbox in self._producers.values():
            if outbox.is_settled and outbox.gathered is None:
                self._driver.handle(events.CloseProducer(self._session, outbox.number))
                self._forget(outbox)
                return
        raise Unavailable(
            f"session {self._session}: {PRODUCERS_MAX:,} destinations have unconfirmed messages; await flush() first"
        )

    def _forget(self, outbox: Outbox) -> None:
        del self._producers[outbox.number]
        self.flow.unblocked(outbox.destination, outbox.number)
        if self.outboxes.get(outbox.key) is outbox:
            del self.outboxes[outbox.key]

    # -- waiting ---------------------------------------------------------------------------------

    async def room(self) -> None:
        """Wait until the buffer is half empty."""
        while self._is_above_half() and self.error is None:
            waiter: asyncio.Future[None] = self._driver.loop.create_future()
            self._room_waiters.append(waiter)
            await kept_until_done(waiter, self._room_waiters)

    async def settled(self) -> None:
        """Wait until everything sent so far has its outcome; raise the first failure that was not yet seen."""
        self.flush_now()
        unsettled = [outbox for outbox in self._producers.values() if not outbox.is_settled]
        for outbox in unsettled:
            if not outbox.is_settled:
                await outbox.waiter(outbox.sequence)
        self.raise_unseen()
        if self.error is not None and any(outbox.error is self.error for outbox in unsettled):
            raise self.error

    def raise_unseen(self) -> None:
        errors = [outbox.unseen_failure() for outbox in (*self._ended, *self._producers.values())]
        self._ended.clear()
        for error in errors:
            if error is not None:
                raise error

    def _is_above_half(self) -> bool:
        return 2 * self._cost > SEND_BUFFER_BYTES_MAX or 2 * self._count > SEND_BUFFER_MESSAGES_MAX

    def _freed(self, outbox: Outbox, cost: int, count: int) -> None:
        outbox.unconfirmed_cost -= cost
        outbox.unconfirmed_count -= count
        self._cost -= cost
        self._count -= count
        if self._room_waiters and not self._is_above_half():
            _wake_all(self._room_waiters)

    # -- notifications ---------------------------------------------------------------------------

    def notify(self, command: "SendCommand") -> None:
        outbox = self._producers[command.producer]
        match command:
            case events.Confirmed():
                outbox.on_confirmed(command.sequence)
                self._freed(outbox, command.cost, command.count)
            case events.Refused():
                refusal = Rejected(command.code, f"destination '{outbox.destination}': {command.reason}")
                outbox.on_refused(command.first, command.last, refusal)
                self._freed(outbox, command.cost, command.count)
            case events.ProducerReady():
                outbox.identity = command.identity
                self.flow.wake()
            case events.Blocked():
                self.flow.blocked(outbox.destination, outbox.number, command.code, command.reason)
            case events.Unblocked():
                self.flow.unblocked(outbox.destination, outbox.number)
            case events.ProducerEnded():
                what = f"destination '{outbox.destination}'"
                error = ended_error(what, command.code, command.reason) or Unavailable(f"{what}: producer closed")
                self._end(outbox, error)

    def on_ended(self, error: AngariumError) -> None:
        """The session is over: nothing more is sent."""
        self.error = error
        self.flow.on_ended(error)
        self._dirty.clear()
        for outbox in list(self._producers.values()):
            self._end(outbox, error)
        _wake_all(self._room_waiters)

    def _end(self, outbox: Outbox, error: AngariumError) -> None:
        self._forget(outbox)
        outbox.on_ended(error)
        self._freed(outbox, outbox.unconfirmed_cost, outbox.unconfirmed_count)
        self._ended.append(outbox)
        del self._ended[: -ENDED_MAX]


def _wake_all(waiters: "list[asyncio.Future[None]]") -> None:
    woken, waiters[:] = waiters[:], []
    for waiter in woken:
        if not waiter.done():
            waiter.set_result(None)


SendCommand = (
    events.Confirmed | events.Refused | events.ProducerReady | events.Blocked | events.Unblocked | events.ProducerEnded
)

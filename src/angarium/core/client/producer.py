"""The window of one producer: what waits, what is in flight, what is confirmed.

    waiting --packed--> in flight --Confirm, Refuse--> finished
                            └──resent as the same bytes after each reconnection, until finished

At most `IN_FLIGHT_MAX` batches are unconfirmed. What is published meanwhile piles up, merged into as few batches as
fit, and one leaves with each that finishes: an idle producer's message leaves at once, a busy one's batches grow.

Sequences are dense from 1, in the order of `publish`. What the log has accepted before a reconnection is not sent
again, but only a Confirm confirms it: it may not be durable yet. A refused message keeps its sequence; later ones go
on.
"""
from collections import deque

import msgspec

from angarium.core.client import events
from angarium.core.client.gathered import BATCH_COST_MAX, Gathered
from angarium.core.client.outlet import Outlet
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.ranges import RangeSet
from angarium.core.wire import frames

IN_FLIGHT_MAX = 4
_FRAME_HEAD_BYTES_MAX = 64  # of a Publish: 16 of header and its one number


class InFlight(msgspec.Struct, frozen=True):
    """A batch as it was sent, kept until it is finished."""

    first: int
    last: int
    cost: int
    batch: bytes


class UnconfirmedBytes:
    """Of one session, against the broker's limit. A batch that alone exceeds it travels alone."""

    __slots__ = ("doomed", "starved", "total")

    def __init__(self) -> None:
        self.total = 0
        self.starved: dict[int, ProducerWindow] = {}  # the row of those that wait for bytes to come free
        self.doomed: dict[int, ProducerWindow] = {}  # have a batch that can never be sent

    def admits(self, batch_bytes: int, limit: int) -> bool:
        return self.total == 0 or self.total + batch_bytes <= limit

    def feed_starved(self, outlet: Outlet) -> None:
        """Serve the row, a batch for each in turn, as far as the bytes go."""
        while self.starved:
            number, producer = next(iter(self.starved.items()))
            if producer.can_send(outlet) and not producer.send_one(outlet):
                return
            del self.starved[number]
            if producer.can_send(outlet):
                self.starved[number] = producer


class ProducerWindow:
    def __init__(
        self, session: int, number: int, destination: str, kind: frames.DestinationKind, unconfirmed: UnconfirmedBytes,
        *, stage: tuple[str, int] = ("", 0),
    ) -> None:  # fmt: skip
        self.session = session
        self.number = number
        self.destination = destination
        self.kind = kind
        self.place = 0  # among the session's producers and consumers, as the application opened them
        self._query, self._batch = stage  # what it publishes is staged for
        self.identity = b""
        self.confirmed = 0
        self.is_open = False  # on the present connection
        self._is_asked = False  # ProducerOpen is sent and not answered on the present connection
        self.is_blocked = False  # the destination takes no more for now
        self._unconfirmed = unconfirmed
        self._sequence_next = 1  # of the next batch to be packed
        self._waiting: deque[Gathered] = deque()
        self._in_flight: list[InFlight] = []  # ascending, at most IN_FLIGHT_MAX
        self._refused = RangeSet()  # of sequences in flight
        self.end: tuple[str, str] | None = None  # code and reason, once it has ended
        self.doom = ""  # why the next batch can never be sent: it is to end when nothing is in flight

    @property
    def has_in_flight(self) -> bool:
        return bool(self._in_flight)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._in_flight

    def unconfirmed_count(self) -> int:
        in_flight = sum(item.last - item.first + 1 for item in self._in_flight)
        return in_flight + sum(map(len, self._waiting))

    # -- from our side ---------------------------------------------------------------------------

    def publish(self, messages: Gathered, outlet: Outlet) -> None:
        if not messages.bodies or (messages.cost > BATCH_COST_MAX and len(messages) > 1):
            raise LocalProtocolError(
                f"producer {self.number}: {len(messages)} messages that cost {messages.cost:,}; publish at least one, "
                f"and several only up to {BATCH_COST_MAX:,}"
            )
        if self._waiting and self._waiting[-1].takes(messages):
            self._waiting[-1].extend(messages)
        else:
            self._waiting.append(messages)
        self.pump(outlet)

    def open(self, outlet: Outlet) -> None:
        self._is_asked = True
        opening = frames.ProducerOpen(
            self.number, self.destination, self.kind, self.identity, self.confirmed,
            query=self._query, batch=self._batch,
        )  # fmt: skip
        outlet.send(self.session, opening)

    def disconnected(self) -> None:
        self.is_open = self._is_asked = False

    def reserve(self, count: int) -> int:
        """The sequences of a commit's batch; returns the first."""
        first = self._sequence_next
        self._sequence_next += count
        return first

    def unreserve(self, count: int) -> None:
        """That commit was aborted: the next one gets them."""
        self._sequence_next -= count

    def committed(self) -> None:
        self.confirmed = self._sequence_next - 1

    def release(self, code: str, reason: str) -> None:
        """The producer has ended: its batches no longer count."""
        self.end = (code or "producer-closed", reason or "the producer was closed")
        self._unconfirmed.total -= sum(len(item.batch) for item in self._in_flight)
        self._in_flight = []
        self._waiting.clear()
        self._unconfirmed.starved.pop(self.number, None)
        self._unconfirmed.doomed.pop(self.number, None)

    def pump(self, outlet: Outlet) -> None:
        """Send what the windows let go; if others wait for bytes already, stand in the row behind them."""
        starved = self._unconfirmed.starved
        while self._waiting and self.can_send(outlet):
            if starved or not self.send_one(outlet):
                starved.setdefault(self.number, self)
                return

    def can_send(self, outlet: Outlet) -> bool:
        """Nothing but the session's unconfirmed bytes may be in the way."""
        return (
            bool(self._waiting)
            and self.is_open
            and not self.doom
            and not self.is_blocked
            and outlet.is_writable
            and len(self._in_flight) < IN_FLIGHT_MAX
        )

    def send_one(self, outlet: Outlet) -> bool:
        """Send the next batch, unless the session's unconfirmed bytes do not admit it."""
        messages, first = self._fitting(outlet), self._sequence_next
        if not self._unconfirmed.admits(messages.bytes_max(), outlet.unconfirmed_bytes_max):
            return False
        batch = messages.pack(self.identity, first)
        if messages.cost > outlet.body_bytes_max or len(batch) + _FRAME_HEAD_BYTES_MAX > outlet.frame_bytes_max:
            longest = max(map(len, messages.bodies))
            if longest > outlet.body_bytes_max or len(batch) + _FRAME_HEAD_BYTES_MAX > outlet.frame_bytes_max:
                self._doom(longest, len(batch), outlet)
                return True
        self._waiting.popleft()
        self._sequence_next += len(messages)
        self._in_flight.append(InFlight(first, self._sequence_next - 1, messages.cost, batch))
        self._unconfirmed.total += len(batch)
        outlet.send_with(self.session, frames.Publish(self.number), batch)
        return True

    def _fitting(self, outlet: Outlet) -> Gathered:
        """What is next, in parts if this broker takes only shorter frames than we gather for."""
        messages = self._waiting[0]
        while len(messages) > 1 and messages.bytes_max() + _FRAME_HEAD_BYTES_MAX > outlet.frame_bytes_max:
            self._waiting.popleft()
            self._waiting.extendleft(reversed(messages.halves()))
            messages = self._waiting[0]
        return messages

    def _doom(self, body_bytes: int, batch_bytes: int, outlet: Outlet) -> None:
        """The limits fell after this was published. Its sequences cannot be skipped, so the producer has to end."""
        self.doom = (
            f"a body of {body_bytes:,} bytes in a batch of {batch_bytes:,} exceeds what this broker takes: "
            f"body_bytes_max {outlet.body_bytes_max:,}, frame_bytes_max {outlet.frame_bytes_max:,}; raise its limits"
        )
        self._unconfirmed.doomed[self.number] = self

    # -- from the broker -------------------------------------------------------------------------

    def on_opened(self, frame: frames.ProducerOpened, outlet: Outlet) -> None:
        if not self._is_asked:
            raise self._violation("unexpected-frame", "opened, and did not ask to be")
        if len(frame.identity) != GLOBAL_ID_BYTES or (self.identity and frame.identity != self.identity):
            raise self._violation("bad-producer", f"opened as {frame.identity.hex()}, not {self.identity.hex()}")
        if frame.sequence >= self._sequence_next:
            raise self._violation("bad-sequence", f"accepted {frame.sequence}, sent up to {self._sequence_next - 1}")
        if not self.identity:
            self.identity = frame.identity
            outlet.tell(events.ProducerReady(self.session, self.number, frame.identity))
        self.is_open, self._is_asked = True, False
        if self.is_blocked:  # the broker says it again if it still is
            outlet.tell(events.Unblocked(self.session, self.number))
        self.is_blocked = frame.blocked  # from the start: else many that send once and go would never be held back
        for item in self._in_flight:
            if item.last > frame.sequence:
                outlet.send_with(self.session, frames.Publish(self.number), item.batch)
        self.pump(outlet)

    def on_confirm(self, frame: frames.Confirm, outlet: Outlet) -> None:
        self._check_open("Confirm")
        if frame.sequence >= self._sequence_next:
            raise self._violation("bad-sequence", f"confirmed {frame.sequence}, sent up to {self._sequence_next - 1}")
        if frame.sequence <= self.confirmed:  # late or repeated
            return
        self.confirmed = frame.sequence
        cost, count = self._finish()
        outlet.tell(events.Confirmed(self.session, self.number, frame.sequence, cost, count))
        self.pump(outlet)

    def on_refuse(self, frame: frames.Refuse, outlet: Outlet) -> None:
        self._check_open("Refuse")
        if not self.confirmed < frame.first <= frame.last < self._sequence_next:
            raise self._violation(
                "bad-sequence",
                f"refused {frame.first} to {frame.last}; unconfirmed are {self.confirmed + 1} to "
                f"{self._sequence_next - 1}",
            )
        # What was refused before a reconnection is said again: only what is in flight, and not refused, is new.
        shared = [(max(frame.first, item.first), min(frame.last, item.last) + 1) for item in self._in_flight]
        news = RangeSet(part for low, high in shared if low < high for part in self._refused.gaps(low, high))
        for low, high in news:
            self._refused.add(low, high)
        cost, count = self._finish()
        for low, high in news:
            outlet.tell(
                events.Refused(self.session, self.number, low, high - 1, frame.code, frame.reason, cost, count)
            )
            cost = count = 0
        self.pump(outlet)

    def on_block(self, frame: frames.Block, outlet: Outlet) -> None:
        if not self._is_asked:  # it may come before ProducerOpened, if nothing can be created for now
            self._check_open("Block")
        self.is_blocked = True
        outlet.tell(events.Blocked(self.session, self.number, frame.code, frame.reason))

    def on_unblock(self, outlet: Outlet) -> None:
        self._check_open("Unblock")
        if self.is_blocked:
            self.is_blocked = False
            outlet.tell(events.Unblocked(self.session, self.number))
            self.pump(outlet)

    def _finish(self) -> tuple[int, int]:
        """Drop the batches of which every message is confirmed or refused; what they cost, and how many messages."""
        cost = count = 0
        kept: list[InFlight] = []
        for item in self._in_flight:
            if item.last > self.confirmed and self._refused.gaps(max(item.first, self.confirmed + 1), item.last + 1):
                kept.append(item)
                continue
            self._unconfirmed.total -= len(item.batch)
            cost += item.cost
            count += item.last - item.first + 1
            if self._refused.count:
                self._refused.remove(item.first, item.last + 1)
        self._in_flight = kept
        return cost, count

    def _check_open(self, what: str) -> None:
        if not self.is_open:
            raise self._violation("unexpected-frame", f"{what} before ProducerOpened")

    def _violation(self, code: str, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            code, f"session {self.session}, producer {self.number} on '{self.destination}': broker {what}"
        )

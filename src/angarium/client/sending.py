"""What happens to messages between `send` and their confirm.

An `Outbox` is one producer as the application sees it. It gathers the messages of one loop turn and hands them to the
machine, one batch at a time. Sequences are given out at once, since they are dense from 1: so a `Sending` is just
(outbox, sequence), and needs a Future only if it is awaited before its confirm.
"""
import asyncio
import heapq
from collections.abc import Generator
from itertools import count
from typing import Any

import msgspec

from angarium.client.destination import Destination
from angarium.core.client.gathered import BATCH_COST_MAX, MESSAGE_COST, Gathered, Options
from angarium.core.errors import AngariumError, Unavailable
from angarium.core.ids import message_id
from angarium.core.ranges import RangeSet

FAILURES_MAX = 1_000  # remembered ranges of refused messages in one outbox
_WAITERS_SWEPT_MIN = 1_024


class Sending(msgspec.Struct, gc=False, eq=False):
    """One sent message. `await` it for its id once it is confirmed; that raises if it was refused."""

    outbox: "Outbox"
    sequence: int

    def __await__(self) -> Generator[Any, None, bytes]:
        if not self.outbox.is_done(self.sequence):
            yield from self.outbox.waiter(self.sequence)
        return self.outbox.result(self.sequence)

    async def settled(self) -> None:
        """Wait for its outcome, and leave it to others to see."""
        if not self.outbox.is_done(self.sequence):
            await Outbox.waiter(self.outbox, self.sequence)  # also of one that is staged: its outcome will come

    @property
    def done(self) -> bool:
        return self.outbox.is_done(self.sequence)

    @property
    def message_id(self) -> bytes | None:
        """24 bytes; None while the broker has not yet answered the first message to this destination."""
        return message_id(self.outbox.identity, self.sequence) if self.outbox.identity else None

    def __repr__(self) -> str:
        state = "done" if self.done else "waiting"
        return f"<Sending to '{self.outbox.destination}', sequence {self.sequence}, {state}>"


class Failure(msgspec.Struct):
    first: int
    last: int
    error: AngariumError
    is_seen: bool = False


class Outbox:
    """The gathering side of one producer. `room` below zero sends the caller to the session's slow path."""

    __slots__ = (
        "_failures", "_forgotten", "_forgotten_count", "_numbers", "_swept_at", "_waiters", "append", "chunk_room",
        "confirmed", "destination", "error", "gathered", "identity", "key", "loop", "number", "room", "sequence",
        "unconfirmed_cost", "unconfirmed_count",
    )  # fmt: skip

    def __init__(self, number: int, destination: str, key: Destination, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.destination = destination
        self.key = key  # under which the session keeps it
        self.loop = loop
        self.identity = b""
        self.sequence = 0  # of the last message sent
        self.confirmed = 0
        self.error: AngariumError | None = None  # ended: what is above `confirmed` failed with it
        self.gathered: Gathered | None = None  # of this turn
        self.append = list[bytes]().append  # of the gathered bodies
        self.room = -1  # cost that the gathered messages may still add
        self.chunk_room = 0  # what `room` was when they were none
        self.unconfirmed_cost = 0
        self.unconfirmed_count = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap by sequence
        self._numbers = count()  # keeps the heap from comparing futures
        self._swept_at = _WAITERS_SWEPT_MIN
        self._failures: list[Failure] = []  # disjoint
        self._forgotten = 0  # of sequences up to here, refusals may have been forgotten
        self._forgotten_count = 0  # how many messages those were of

    # -- gathering -------------------------------------------------------------------------------

    def begin(self, timestamp_ms: int, body_bytes_max: int) -> None:
        """Start to gather. A body above the broker's limit never fits the room, so the slow path sees it."""
        self.gathered = Gathered(timestamp_ms)
        self.append = self.gathered.bodies.append
        self.room = self.chunk_room = min(BATCH_COST_MAX, body_bytes_max + MESSAGE_COST)

    def take(self) -> Gathered | None:
        """What was gathered, for the machine."""
        gathered, self.gathered = self.gathered, None
        if gathered is None:
            return None
        gathered.cost = self.chunk_room - self.room
        self.room = -1
        self.unconfirmed_cost += gathered.cost
        self.unconfirmed_count += len(gathered)
        return gathered

    def put_options(self, options: Options) -> None:
        """Of the next message to be appended."""
        assert self.gathered is not None
        self.gathered.options[len(self.gathered)] = options

    # -- outcomes --------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Nothing sent is without its outcome."""
        return self.is_done(self.sequence)

    @property
    def confirmed_count(self) -> int:
        """Messages; of the sequences up to `confirmed` some were refused."""
        refused = (min(failure.last, self.confirmed) - failure.first + 1 for failure in self._failures)
        return self.confirmed - sum(count for count in refused if count > 0) - self._forgotten_count

    def is_done(self, sequence: int) -> bool:
        return sequence <= self.confirmed or self.error is not None or self._failure(sequence) is not None

    def result(self, sequence: int) -> bytes:
        failure = self._failure(sequence)
        if failure is not None:
            failure.is_seen = True
            raise failure.error
        if sequence <= self._forgotten:
            raise Unavailable(
                f"destination '{self.destination}': the outcome of message {sequence} is no longer known after "
                f"{FAILURES_MAX:,} refusals; await sends sooner"
            )
        if sequence > self.confirmed:
            assert self.error is not None
            raise self.error
        return message_id(self.identity, sequence)

    def waiter(self, sequence: int) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self.loop.create_future()
        if len(self._waiters) >= self._swept_at:  # waits that were given up leave done futures behind
            self._waiters = [item for item in self._waiters if not item[2].done()]
            heapq.heapify(self._waiters)
            self._swept_at = max(_WAITERS_SWEPT_MIN, 2 * len(self._waiters))
        heapq.heappush(self._waiters, (sequence, next(self._numbers), future))
        return future

    def on_confirmed(self, sequence: int) -> None:
        self.confirmed = sequence
        waiters = self._waiters
        while waiters and waiters[0][0] <= sequence:
            future = heapq.heappop(waiters)[2]
            if not future.done():
                future.set_result(None)

    def on_refused(self, first: int, last: int, error: AngariumError) -> None:
        self._failures.append(Failure(first, last, error))
        if len(self._failures) > FAILURES_MAX:
            forgotten = self._failures.pop(0)
            self._forgotten = forgotten.last
            self._forgotten_count += forgotten.last - forgotten.first + 1
        self._wake(first, last)

    def on_ended(self, error: AngariumError) -> None:
        """`error` is of everything that has no other outcome."""
        if self.error is None:
            self.error = error
            self.gathered, self.room = None, -1
            refused = RangeSet((failure.first, failure.last + 1) for failure in self._failures)
            for low, high in refused.gaps(self.confirmed + 1, self.sequence + 1):
                self._failures.append(Failure(low, high - 1, error))
            self._wake(0, self.sequence)

    def unseen_failure(self) -> AngariumError | None:
        """The first failure that no awaited `Sending` has reported; it then counts as reported, and all others too."""
        unseen = [failure for failure in self._failures if not failure.is_seen]
        for failure in unseen:
            failure.is_seen = True
        return unseen[0].error if unseen else None

    def _failure(self, sequence: int) -> Failure | None:
        for failure in self._failures:
            if failure.first <= sequence <= failure.last:
                return failure
        return None

    def _wake(self, first: int, last: int) -> None:
        kept: list[tuple[int, int, asyncio.Future[None]]] = []
        for item in self._waiters:
            if not first <= item[0] <= last:
                kept.append(item)
            elif not item[2].done():
                item[2].set_result(None)
        heapq.heapify(kept)
        self._waiters = kept

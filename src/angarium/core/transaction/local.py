"""Transactions within one message manager: sends and settlements of a session, on any destinations, all or nothing.

    Commit --already done--> Committed
           --check: everything is still possible--> apply --> one Write --> Written --> Committed
           --something is not--> Aborted, and nothing has changed

The client stages, so a transaction that is never committed leaves no trace here. A commit is one group of the disk:
a crash leaves all of it or nothing. The number of the last commit of each session is written with it; a client that
did not hear the answer commits again under the same number, and is told.

Checking and applying are apart (`_check`, `_apply`): between several message managers the first becomes the vote of
two-phase commit, and the second its final word.
"""
from collections.abc import Callable
from dataclasses import dataclass, field

from angarium.core.destination.consumer import Consumer
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, ToSession, Write
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.producers import Producer
from angarium.core.destination.subscription import Subscription
from angarium.core.errors import Rejected
from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import Operation, Put, Table, delete_key
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch

SESSIONS_MAX = 100_000  # whose last commit is remembered; past it the one that committed longest ago is forgotten


@dataclass(slots=True)
class _Publish:
    destination: Destination
    producer: Producer
    batch: Batch


@dataclass(slots=True)
class _Settle:
    destination: Destination
    consumer: Consumer
    ranges: list[Range]


@dataclass(slots=True)
class _Plan:
    publishes: list[_Publish] = field(default_factory=list)
    settles: list[_Settle] = field(default_factory=list)


class Transactions:
    def __init__(
        self, destinations: dict[int, Destination], write: Callable[..., Write], *, sessions_max: int = SESSIONS_MAX
    ) -> None:
        self._destinations = destinations
        self._write = write
        self._sessions_max = sessions_max
        self._last: dict[bytes, int] = {}  # session -> number of its last commit; the longest ago first
        self._unwritten: dict[bytes, int] = {}  # of those, whose write is under way

    def restore(self, records: dict[bytes, bytes]) -> None:
        found = {session: (int.from_bytes(value[8:], "big"), value[:8]) for session, value in records.items()}
        for session, (_, number) in sorted(found.items(), key=lambda item: item[1]):
            self._last[session] = int.from_bytes(number, "big")

    def commit(self, session: bytes, frame: frames.TransactionCommit, payload: bytes, *, now: float) -> list[Command]:
        if frame.number <= self._last.get(session, 0):
            if self._unwritten.get(session) == frame.number:
                return []  # it will be answered when it is durable
            return [ToSession(session, frames.Committed(frame.number))]
        try:
            plan = self._check(session, frame, payload)
        except Rejected as refusal:
            aborted = frames.Aborted(frame.number, refusal.code, refusal.reason, frame.attachment)
            return [ToSession(session, aborted)]
        return self._apply(session, frame.number, plan, now)

    def written(self, session: bytes, number: int) -> None:
        if self._unwritten.get(session) == number:
            del self._unwritten[session]

    def session_ended(self, session: bytes, *, closed: bool) -> list[Command]:
        """One that was cut off may ask again; one that was closed has heard all its answers."""
        if not closed or self._last.pop(session, None) is None:
            return []
        return [self._write([delete_key(Table.TRANSACTION, session)], PendingWrite(), freeing=True)]

    # -- the vote ----------------------------------------------------------------------------------

    def _check(self, session: bytes, frame: frames.TransactionCommit, payload: bytes) -> _Plan:
        """Everything that could go wrong, before anything changes; raises Rejected."""
        plan = _Plan()
        accepted: dict[bytes, int] = {}
        at = 0
        for identity, number, size_bytes in frame.publishes:
            destination = self._open_destination(identity)
            producer = destination.producers.get(session, number)
            if producer is None:
                raise Rejected("producer-closed", f"producer {number} is not open on {destination.record.name!r}")
            batch = Batch.trusted(payload[at : at + size_bytes])
            at += size_bytes
            before = accepted.get(producer.identity, producer.accepted)
            if batch.first_sequence != before + 1:
                reason = f"sequence {batch.first_sequence} to {destination.record.name!r}, where {before + 1} is next"
                raise Rejected("sequence-gap", reason)
            accepted[producer.identity] = batch.last_sequence
            destination.publishing.check_room(batch)
            plan.publishes.append(_Publish(destination, producer, batch))
        for identity, number, ranges in frame.settles:
            destination = self._open_destination(identity)
            consumer = destination.consumers.get((session, number))
            if consumer is None or not all(_holds(consumer, *part) for part in ranges):
                reason = f"consumer {number} of {destination.record.name!r} no longer holds what it received"
                raise Rejected("messages-lost", reason)
            plan.settles.append(_Settle(destination, consumer, ranges))
        return plan

    def _open_destination(self, identity: int) -> Destination:
        destination = self._destinations.get(identity)
        if destination is None:
            raise Rejected("destination-removed", "a destination of the transaction was removed, or is not open")
        return destination

    # -- the final word ----------------------------------------------------------------------------

    def _apply(self, session: bytes, number: int, plan: _Plan, now: float) -> list[Command]:
        pending = PendingWrite([ToSession(session, frames.Committed(number))], committed=(session, number))
        operations = self._noted(session, number, now)
        parts: dict[int, PendingWrite] = {}
        for publish in plan.publishes:
            destination, producer = publish.destination, publish.producer
            part = parts.setdefault(destination.identity, PendingWrite(destination=destination.identity))
            operations += destination.publishing.committed(producer, publish.batch, part, now=now)
        touched: dict[Subscription, Destination] = {}
        for settle in plan.settles:
            for low, high in settle.ranges:
                settled, _ = settle.consumer.subscription.settle(settle.consumer, low, high)
                settle.destination.counters.settled += settled
            state = settle.destination.state
            operations += state.streams.release(state.identity, settle.ranges, state.is_needed)
            touched[settle.consumer.subscription] = settle.destination
            # It holds less once that is written.
            parts.setdefault(state.identity, PendingWrite(destination=state.identity))
        for subscription, destination in touched.items():
            operations += destination.state.saved(subscription)
        pending.others += parts.values()
        # Settlements alone make room. With messages it keeps its place behind earlier publishes, and later settlements
        # of the same subscriptions keep theirs behind it.
        return [self._write(operations, pending, freeing=not plan.publishes)]

    def _noted(self, session: bytes, number: int, now: float) -> list[Operation]:
        self._last.pop(session, None)
        self._last[session] = self._unwritten[session] = number
        stamp = int(now * 1000) & ((1 << 63) - 1)
        operations: list[Operation] = [
            Put(Table.TRANSACTION, session, number.to_bytes(8, "big") + stamp.to_bytes(8, "big"))
        ]
        if len(self._last) > self._sessions_max:
            oldest = next(iter(self._last))
            del self._last[oldest]
            operations.append(delete_key(Table.TRANSACTION, oldest))
        return operations


def _holds(consumer: Consumer, low: int, high: int) -> bool:
    held = RangeSet(consumer.held.overlap(low, high))
    for part in consumer.unclaimed.overlap(low, high) if consumer.unclaimed is not None else ():
        held.add(*part)
    return low < high and held.count == high - low


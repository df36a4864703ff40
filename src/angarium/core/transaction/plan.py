"""What a transaction wants at one message manager: checked without changing anything, and then done in one write."""
from collections.abc import Mapping
from dataclasses import dataclass, field

from angarium.core.destination import singles
from angarium.core.destination.consumer import Consumer
from angarium.core.destination.destination import Destination
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.producers import Producer
from angarium.core.destination.subscription import Subscription
from angarium.core.errors import Rejected
from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import Operation
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch

Asked = frames.TransactionCommit | frames.CommitPrepare


@dataclass(slots=True)
class Publish:
    destination: Destination
    producer: Producer
    batch: Batch


@dataclass(slots=True)
class Settle:
    destination: Destination
    consumer: Consumer
    ranges: list[Range]


@dataclass(slots=True)
class Plan:
    publishes: list[Publish] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    participants: list[int] = field(default_factory=list)  # other groups that wait for this one's decision


def check(destinations: Mapping[int, Destination], session: bytes, frame: Asked, payload: bytes) -> Plan:
    """Everything that could go wrong, before anything changes; raises Rejected."""
    plan = Plan(participants=frame.participants if isinstance(frame, frames.TransactionCommit) else [])
    accepted: dict[bytes, int] = {}
    sent: dict[int, int] = {}  # messages so far, by destination
    at = 0
    for identity, number, size_bytes in frame.publishes:
        destination, producer = _producer(destinations, session, identity, number, frame.attachment)
        batch = Batch.trusted(payload[at : at + size_bytes])
        at += size_bytes
        last = accepted.get(producer.identity, producer.accepted)
        if batch.first_sequence != last + 1:
            reason = f"sequence {batch.first_sequence} to {destination.record.name!r}, where {last + 1} is next"
            raise Rejected("sequence-gap", reason)
        accepted[producer.identity] = batch.last_sequence
        before = sent.get(identity, 0)
        destination.publishing.check_room(batch, before=before)
        sent[identity] = before + batch.count
        plan.publishes.append(Publish(destination, producer, batch))
    _check_singles(plan.publishes)
    for identity, number, ranges in frame.settles:
        destination, consumer = _consumer(destinations, session, identity, number, frame.attachment)
        if not all(_holds(consumer, *part) for part in ranges):
            raise _lost(destination, number)
        plan.settles.append(Settle(destination, consumer, ranges))
    return plan


def _check_singles(publishes: list[Publish]) -> None:
    """All that follows from a commit is one write."""
    if publishes:
        write_bytes_max = publishes[0].destination.state.settings.write_bytes_max
        if (refusal := singles.refusal([publish.batch for publish in publishes], write_bytes_max)) is not None:
            raise Rejected(*refusal)


def check_attached(destinations: Mapping[int, Destination], session: bytes, frame: Asked) -> None:
    """Only that it comes from where the session is now; raises Rejected."""
    for identity, number, _ in frame.publishes:
        _producer(destinations, session, identity, number, frame.attachment)
    for identity, number, _ in frame.settles:
        _consumer(destinations, session, identity, number, frame.attachment)


def _producer(
    destinations: Mapping[int, Destination], session: bytes, identity: int, number: int, attachment: bytes
) -> tuple[Destination, Producer]:
    destination = _open_destination(destinations, identity)
    producer = destination.producers.get(session, number)
    if producer is None or producer.attachment != attachment:
        raise Rejected("producer-closed", f"producer {number} is not open on {destination.record.name!r}")
    return destination, producer


def _consumer(
    destinations: Mapping[int, Destination], session: bytes, identity: int, number: int, attachment: bytes
) -> tuple[Destination, Consumer]:
    destination = _open_destination(destinations, identity)
    consumer = destination.consumers.get((session, number))
    if consumer is None or consumer.attachment != attachment:
        raise _lost(destination, number)
    return destination, consumer


def _open_destination(destinations: Mapping[int, Destination], identity: int) -> Destination:
    destination = destinations.get(identity)
    if destination is None:
        raise Rejected("destination-removed", "a destination of the transaction was removed, or is not open")
    return destination


def _lost(destination: Destination, number: int) -> Rejected:
    reason = f"consumer {number} of {destination.record.name!r} no longer holds what it received"
    return Rejected("messages-lost", reason)


def _holds(consumer: Consumer, low: int, high: int) -> bool:
    held = RangeSet(consumer.held.overlap(low, high))
    for part in consumer.unclaimed.overlap(low, high) if consumer.unclaimed is not None else ():
        held.add(*part)
    return low < high and held.count == high - low


class Effects:
    """What one write does at several destinations, and what follows there once it is durable."""

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations
        self._parts: dict[int, PendingWrite] = {}
        self._touched: dict[Subscription, Destination] = {}

    def publish(self, destination: Destination, producer: Producer | None, batch: Batch, now: float) -> None:
        """By a producer that has been forgotten meanwhile nothing more will come: there is nothing to note of it."""
        part, publishing = self._part(destination), destination.publishing
        if producer is None:
            self._operations += publishing.take(batch, part, now=now)
        else:
            self._operations += publishing.committed(producer, batch, part, now=now)

    def let_go(self, destination: Destination, batch: Batch) -> None:
        """Its streams were held until now: whoever has got the messages holds them, if anybody."""
        self._operations += destination.state.streams.let_go(destination.identity, batch)

    def settled(self, destination: Destination, subscription: Subscription, ranges: list[Range], count: int) -> None:
        destination.counters.settled += count
        state = destination.state
        self._operations += state.streams.release(state.identity, ranges, state.is_needed)
        self._touched[subscription] = destination
        self._part(destination)  # it holds less once that is written

    def _part(self, destination: Destination) -> PendingWrite:
        return self._parts.setdefault(destination.identity, PendingWrite(destination=destination.identity))

    def finish(self, pending: PendingWrite, *, freeing: bool) -> list[Operation]:
        """`freeing`: as the write will be."""
        for subscription, destination in self._touched.items():
            self._operations += destination.state.saved(subscription, freeing=freeing)
        pending.others += self._parts.values()
        return self._operations

"""Traces: what became of the messages of destinations that are `traced`, for an audit that believes nobody.

    CONFIRMED     positions are durable: who sent them, under which sequences, when, how much
    DELIVERED     to which consumer of which subscription, and how often before
    SETTLED       by which consumer
    ENDED         for another reason: expired, rejected, redelivery-limit, limit-exceeded, damaged, purged, dropped,
                  superseded, unselected
    SUBSCRIBED, UNSUBSCRIBED, BEGUN, REMOVED     what an audit has to expect
    DROPPED, HELD, CAUGHT_UP     records that could not be kept, or may not have been

They are gathered in memory, and written as one message into a log of their own, `_TRACE.<number of the group>`:

  - what ends a message, or a subscription, in the very write that makes it so: it is traced if and only if it is
    durable. Everything that was gathered before goes with it, so that the order of records is that of events.
  - what is left, after `FLUSH_AFTER_S`. A crash may lose it: who sent a message, and that it was delivered. That
    a message was confirmed needs no record: positions are given without gaps.

A log has one lane for writes that may overtake others on a full disk, and one for those that may not (`overtaking`): so
where each lane ends is never set back. `number` orders the messages of both. While the disk is full records wait. That
is noted by a HELD before, and by a CAUGHT_UP when they are written: a crash between them leaves the first alone.

A destination that is moved is known by its first id in the logs of all groups where it has been, and numbers go on: the
next one here is higher than all that tell of it there (`came`). So records of one destination have one order, wherever
they are.
"""
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.log import LANE_BITS, Lane
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.records import DestinationRecord
from angarium.core.ids import group_of
from angarium.core.names import TRACE_PREFIX
from angarium.core.storage import Operation, Put, Table, key_of
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Deliver, DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import pack

if TYPE_CHECKING:
    from angarium.core.destination.destination import Destination
    from angarium.core.destination.destinations import Destinations
    from angarium.core.destination.subscription import Subscription

VERSION = 1
FLUSH_AFTER_S = 0.1
RECORDS_MAX = 50_000  # gathered: some ten megabytes. Past it they are dropped, and counted
UNSETTLED_RANGES_MAX = 10_000  # told of one subscription
_RETAIN_S, _RETAIN_BYTES = 7 * 86_400, 1 << 30  # as any other option this may be altered
_SEQUENCE = int(Columns.SEQUENCE)
_encode = msgspec.msgpack.Encoder().encode


class Trace(IntEnum):
    """Each record is an array: kind, id of the destination, milliseconds since 1970, and what stands here."""

    BEGUN = 1  # name, "queue" or "topic", the next position of each lane, whether it was not traced before
    CONFIRMED = 2  # first position, count, producer, first sequence or all of them, when it was sent, bytes, session
    DELIVERED = 3  # subscription, session, consumer, [low, high, ...], how often each was delivered before
    SETTLED = 4  # subscription, session, consumer, [low, high, ...]
    ENDED = 5  # subscription, reason, [low, high, ...]
    SUBSCRIBED = 6  # subscription, whether it is durable, whether it selects, where it begins in each lane
    UNSUBSCRIBED = 7  # subscription
    REMOVED = 8  # the destination, with all that was in it
    DROPPED = 9  # how many records (of any destination)
    HELD = 10  # the disk is full: what follows is written when it is not, or lost by a crash
    CAUGHT_UP = 11  # nothing was


_URGENT = frozenset(
    map(int, (Trace.SETTLED, Trace.ENDED, Trace.SUBSCRIBED, Trace.UNSUBSCRIBED, Trace.REMOVED, Trace.BEGUN))
)


def trace_name(group: int) -> str:
    return f"{TRACE_PREFIX}{group}"


class Tracer:
    """Of one message manager."""

    def __init__(self, manager: "Destinations", group: int) -> None:
        self._manager = manager
        self._group = group
        self._records: list[list[Any]] = []
        self._dropped = 0  # not yet told
        self._written: list[tuple[Lane, int]] = []  # what is in operations that are not yet asked to be written
        self._is_urgent = False  # something has ended: it goes with the next write of what it ended
        self._due: float | None = None
        self._is_blocked = False

    # -- which destinations ------------------------------------------------------------------------

    def prepared(self, record: DestinationRecord) -> tuple[list[PendingWrite], list[Operation]]:
        """The log, if there is none yet and the destination is to be traced: what follows its creation, and what has
        to be written for it."""
        if not record.traced or self._log() is not None:
            return [], []
        known = [record, *(found.record for found in self._manager.destinations.values())]
        wanted = DestinationRecord(
            trace_name(self._group), DestinationKind.TOPIC, buries=False,
            retain_s=_RETAIN_S, retain_bytes=_RETAIN_BYTES, trace_offset=max(each.traced_from for each in known),
        )  # fmt: skip
        created, operations = self._manager.created(wanted)
        return [self._manager.creation(created)], operations

    def follow(self, destination: "Destination", *, anew: bool = True) -> None:
        """It is durable that the destination is traced, or not. `anew`: it may not have been, before this."""
        state, record = destination.state, destination.record
        if not record.traced or self._log() is None:
            state.trace = None
            for subscription in destination.subscriptions:
                subscription.trace = None
            return
        if state.trace is not None:
            return
        state.trace = trace = DestinationTrace(self, state.log_identity, lambda: state.wall_ms(self._manager.now))
        ends = [lane.readable for lane in state.log.lanes.values()]
        trace.add(Trace.BEGUN, record.name, record.kind.name.lower(), ends, anew)
        for subscription in destination.subscriptions:
            trace.came(subscription)

    # -- those that are moved ----------------------------------------------------------------------

    def leaves(self) -> tuple[int, list[Operation]]:
        """A destination leaves: the operations write what was gathered. The number is higher than that of every record
        here that tells of the destination."""
        operations = self.flush(freeing=False)
        return self.messages, operations

    def came(self, record: DestinationRecord) -> tuple[list[PendingWrite], list[Operation]]:
        """One that was moved here: as `prepared`."""
        others, operations = self.prepared(record)
        log, behind = self._log(), record.traced_from - self.messages
        if log is not None and behind > 0:
            offset = log.record.trace_offset + behind
            log.state.record = msgspec.structs.replace(log.record, trace_offset=offset)
            operations.append(Put(Table.DESTINATION, key_of(log.identity), _encode(log.record)))
        return others, operations

    def forget(self, destination: "Destination") -> None:
        """It is elsewhere: nothing is told of it here, nor that it goes."""
        identity = destination.state.log_identity
        self._records = [record for record in self._records if record[1] != identity]
        destination.state.trace = None
        for subscription in destination.subscriptions:
            subscription.trace = None

    def _log(self) -> "Destination | None":
        return self._manager.find(trace_name(self._group))

    # -- records -----------------------------------------------------------------------------------

    def add(self, record: list[Any]) -> None:
        if record[0] in _URGENT:
            self._is_urgent = True
        if len(self._records) >= RECORDS_MAX:
            self._dropped += 1
            return
        if self._due is None:
            self._due = self._manager.now + FLUSH_AFTER_S
        self._records.append(record)

    @property
    def messages(self) -> int:
        """The number of the next one."""
        log = self._log()
        return 0 if log is None else log.record.trace_offset + sum(lane.next - lane.base for lane in log.log.order)

    @property
    def last(self) -> list[Any] | None:
        return self._records[-1] if self._records else None

    def blocked(self, is_blocked: bool) -> list[Command]:
        """While a disk is full, what makes room must not need any: records wait. That they do is noted before, in a
        write that comes before all that are made without them."""
        log = self._log()
        if log is None or is_blocked == self._is_blocked:
            return []
        wall_ms = log.state.wall_ms(self._manager.now)
        if is_blocked:
            self._records.append([int(Trace.HELD), 0, wall_ms])
            commands = self._flushed()
            self._is_blocked = True
            return commands
        self._is_blocked = False
        self._records.append([int(Trace.CAUGHT_UP), 0, wall_ms])
        return self._flushed()

    def _flushed(self) -> list[Command]:
        operations = self.flush(freeing=True)
        return [self._manager.write(operations, PendingWrite(), freeing=True)] if operations else []

    def flush_urgent(self, *, freeing: bool) -> list[Operation]:
        """The same, if something has ended; what has not may wait for company."""
        return self.flush(freeing=freeing) if self._is_urgent else []

    def flush(self, *, freeing: bool) -> list[Operation]:
        """What was gathered, to be a part of the next write. `freeing` says of which kind that one is."""
        log = self._log()
        if self._is_blocked:
            return []
        self._due, self._is_urgent = None, False
        if log is None:  # an administrator has removed it
            self._dropped, self._records = self._dropped + len(self._records), []
        if log is None or not (self._records or self._dropped):
            return []
        wall_ms = log.state.wall_ms(self._manager.now)
        if self._dropped:
            self._records.append([int(Trace.DROPPED), 0, wall_ms, self._dropped])
            self._dropped = 0
        records, self._records = self._records, []
        lane = log.log.lane(0 if freeing else 1)
        number = self.messages
        producer = TRACE_PREFIX.encode().ljust(7, b"\0") + bytes([lane.number]) + self._group.to_bytes(8, "big")
        body = _encode([VERSION, number, records])
        batch = Batch.trusted(pack(producer, lane.next - lane.base + 1, wall_ms, [body]))
        operations = log.log.append(lane, batch)
        self._written.append((lane, lane.next))
        return operations

    def take_written(self) -> list[tuple[Lane, int]]:
        """Up to where lanes may be read once the write that is asked for now is durable."""
        written, self._written = self._written, []
        return written

    # -- time --------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        return None if self._is_blocked else self._due

    def tick(self, now: float) -> list[Command]:
        if self._due is None or now < self._due or self._is_blocked:
            return []
        return self._flushed()


class DestinationTrace:
    """What is noted of one destination."""

    def __init__(self, tracer: Tracer, identity: int, wall_ms: Callable[[], int]) -> None:
        self._tracer = tracer
        self._identity = identity
        self._wall_ms = wall_ms

    def add(self, kind: Trace, *facts: Any) -> None:
        self._tracer.add([int(kind), self._identity, self._wall_ms(), *facts])

    def flush(self, *, freeing: bool) -> list[Operation]:
        return self._tracer.flush_urgent(freeing=freeing)

    def confirmed(self, low: int, batch: Batch, session: bytes | None) -> None:
        sequences: int | list[int] = batch.first_sequence
        if batch.columns & _SEQUENCE:
            sequences = [batch.sequence(index) for index in range(batch.count)]
        self.add(
            Trace.CONFIRMED, low, batch.count, batch.producer, sequences, batch.timestamp_ms, batch.body_bytes, session
        )

    def delivered(self, subscription: str, deliveries: list[ToSession]) -> None:
        for session, frame, payload in ((told.session, told.frame, told.payload) for told in deliveries):
            assert isinstance(frame, Deliver)
            low = frame.position
            ranges = [each for part in frame.ranges for each in part] or [low, low + Batch.trusted(payload).count]
            self.add(Trace.DELIVERED, subscription, session, frame.consumer, ranges, frame.redeliveries)

    def ended(self, subscription: str, reason: str, by: ConsumerKey | None, low: int, high: int) -> None:
        """`by`: a consumer has settled it, and there is no other reason."""
        if by is None:
            facts: list[Any] = [int(Trace.ENDED), self._identity, self._wall_ms(), subscription, reason]
        else:
            facts = [int(Trace.SETTLED), self._identity, self._wall_ms(), subscription, *by]
        last = self._tracer.last
        if last is not None and last[:-1] == facts:
            ranges = last[-1]
            if ranges[-1] == low:
                ranges[-1] = high
            else:
                ranges += (low, high)
        else:
            self._tracer.add([*facts, [low, high]])

    def came(self, subscription: "Subscription") -> None:
        name = subscription.name
        begins = list(subscription.cursors.values())
        self.add(Trace.SUBSCRIBED, name, subscription.durable, _selects(subscription), begins)
        subscription.trace = lambda reason, by, low, high: self.ended(name, reason, by, low, high)

    def went(self, subscription: str) -> None:
        self.add(Trace.UNSUBSCRIBED, subscription)


def _selects(subscription: "Subscription") -> bool:
    return bool(subscription.selector or subscription.no_local)


def traced_state(destination: "Destination") -> dict[str, Any]:
    """What an audit compares traces with: up to where there are messages, and which of them are not settled. To be told
    with the number of the message of traces from which on records may tell of what came later."""
    log = destination.log
    return {
        "name": destination.record.name,
        "identity": destination.state.log_identity,
        "group": group_of(destination.identity),
        "moved": bool(destination.record.first_identity),
        "kind": destination.record.kind.name.lower(),
        "lanes": [[lane.first, lane.readable] for lane in log.order],
        "subscriptions": [_unsettled(destination, subscription) for subscription in destination.subscriptions],
    }


def _unsettled(destination: "Destination", subscription: "Subscription") -> dict[str, Any]:
    """`unsettled`: [low, high, ...]; `until`: from there on, in each lane, nothing is told: it would be too much."""
    ranges: list[int] = []
    until: list[int] = []
    for lane in destination.log.order:
        end = subscription.fresh_of(lane.number) if subscription.is_live else lane.readable
        low = max(subscription.cursor_of(lane.number), lane.number << LANE_BITS)
        for part in subscription.settled.gaps(low, end) if low < end else ():
            if len(ranges) >= 2 * UNSETTLED_RANGES_MAX:
                until.append(part[0])
                break
            ranges += part
    return {
        "name": subscription.name, "durable": subscription.durable, "selects": _selects(subscription),
        "unsettled": ranges, "until": until,
    }  # fmt: skip

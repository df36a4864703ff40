"""What each write changes on the disk, told in the words of the promises: the audits' view of the store.

A write is durable as a whole or not at all, so whatever is promised to happen together has to be in one `Change`.
Queues only: a queue has one subscription, and its record says which positions are settled.
"""
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from angarium.core.destination.headers import read_map
from angarium.core.destination.log import LANE_BITS, lane_of
from angarium.core.destination.pages import PageRecord, parse_page_key, positions_of
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.subscription_record import SubscriptionRecord
from angarium.core.destination.tracing import Trace
from angarium.core.moving.records import PLACED_KEY, ArrivalRecord
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.names import TRACE_PREFIX
from angarium.core.ranges import RangeSet
from angarium.core.storage import DeleteRange, Operation, Put, Table
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.sim.messages import Violation

Place = tuple[str, int]  # queue, position
Message = tuple[bytes, int]  # producer, sequence


@dataclass(frozen=True, slots=True)
class Stored:
    queue: str
    position: int  # -1: it is kept until it is due
    message: Message
    body: bytes
    due_ms: int


@dataclass(slots=True)
class Change:
    stored: list[Stored] = field(default_factory=list)
    settled: list[Place] = field(default_factory=list)
    buried: set[Place] = field(default_factory=set)
    traced: list[Place] = field(default_factory=list)  # as ended
    untraced: int = 0  # records that could not be kept, or may not have been; less than 0: they were
    committed: set[bytes] = field(default_factory=set)  # sessions whose last commit it notes


class DurableState:
    def __init__(self) -> None:
        self.records: dict[str, DestinationRecord] = {}
        self.unsettled: dict[str, set[int]] = {}
        self._names: dict[int, str] = {}
        self._arriving: set[int] = set()  # ids under which destinations are being copied
        self._settled: dict[str, set[int]] = {}
        self._delayed: dict[bytes, list[Message]] = {}  # key in its table
        self._pages: dict[bytes, bytes] = {}  # the same

    def apply(self, operations: Sequence[Operation]) -> Change:
        change = Change()
        for operation in operations:
            if isinstance(operation, DeleteRange):
                kept: dict[Table, dict[bytes, Any]] = {Table.DELAYED: self._delayed, Table.PAGE: self._pages}
                table = kept.get(operation.table, {})
                for key in [key for key in table if operation.low <= key < operation.high]:
                    del table[key]
            elif operation.table == Table.MOVE:
                self._arrival(operation)
            elif operation.table == Table.PAGE:
                self._pages[operation.key] = operation.value
            elif operation.table == Table.DESTINATION:
                record = msgspec.msgpack.decode(operation.value, type=DestinationRecord)
                self._named(int.from_bytes(operation.key, "big"), record.name)
                self.records[record.name] = record
                self.unsettled.setdefault(record.name, set())
                self._settled.setdefault(record.name, set())
            elif operation.table in (Table.BATCH, Table.DELAYED):
                self._batch(operation, change)
            elif operation.table == Table.TRANSACTION:
                change.committed.add(operation.key)
        for operation in operations:  # after the messages: they may be settled in the write that stores them
            if not isinstance(operation, Put) or operation.table != Table.SUBSCRIPTION:
                continue
            if int.from_bytes(operation.key[:8], "big") not in self._arriving:
                self._subscription(operation, change)
        self._check_moved(change)
        return change

    def _arrival(self, put: Put) -> None:
        """A destination is being moved: its rows are stored under another id, too, and nothing changes by that."""
        if put.key != PLACED_KEY:
            identity = msgspec.msgpack.decode(put.value, type=ArrivalRecord).identity
            self._arriving.add(identity)
            self._names[identity] = put.key.decode()

    def _named(self, identity: int, name: str) -> None:
        """From now on that is the one of this name; what is left of it under another id does not count."""
        self._names[identity] = name
        if identity in self._arriving:
            self._arriving.discard(identity)
            others = {other.to_bytes(8, "big") for other, found in self._names.items() if found == name} - {
                identity.to_bytes(8, "big")
            }
            self._delayed = {key: found for key, found in self._delayed.items() if key[:8] not in others}

    def _batch(self, put: Put, change: Change) -> None:
        if int.from_bytes(put.key[:8], "big") in self._arriving:
            if put.table == Table.DELAYED:
                batch = Batch.trusted(put.value)
                self._delayed[put.key] = [(batch.producer, sequence) for sequence in batch.sequences()]
            return
        queue, batch = self._names[int.from_bytes(put.key[:8], "big")], Batch.trusted(put.value)
        if queue == DMQ:
            change.buried.update(_buried_in(batch))
            return
        if queue.startswith(TRACE_PREFIX):
            self._traces(batch, change)
            return
        messages = [(batch.producer, sequence) for sequence in batch.sequences()]
        dues_ms = list(batch.dues_ms() or ()) if batch.columns & Columns.DUE else [0] * batch.count
        is_delayed = put.table == Table.DELAYED
        if is_delayed:
            self._delayed[put.key] = messages
        end = int.from_bytes(put.key[8:16], "big")
        for index, message in enumerate(messages):
            position = -1 if is_delayed else end - batch.count + index
            change.stored.append(Stored(queue, position, message, batch.body(index), int(dues_ms[index])))
            if not is_delayed:
                self.unsettled[queue].add(position)

    def _traces(self, batch: Batch, change: Change) -> None:
        for body in batch.bodies():
            for kind, identity, _, *facts in msgspec.msgpack.decode(bytes(body))[2]:
                if kind in (Trace.SETTLED, Trace.ENDED):
                    for low, high in zip(facts[-1][::2], facts[-1][1::2], strict=True):
                        change.traced += [(self._names[identity], position) for position in range(low, high)]
                elif kind in (Trace.DROPPED, Trace.HELD):
                    change.untraced += facts[0] if facts else 1
                elif kind == Trace.CAUGHT_UP:
                    change.untraced -= 1

    def _subscription(self, put: Put, change: Change) -> None:
        destination = int.from_bytes(put.key[:8], "big")
        queue = self._names[destination]
        if self.records[queue].kind != DestinationKind.QUEUE:
            return
        record = msgspec.msgpack.decode(put.value, type=SubscriptionRecord)
        settled = RangeSet()
        for key, value in self._pages.items():
            identity, _, page = parse_page_key(key)
            if identity == destination:
                base = positions_of(page)[0]
                for low, high in msgspec.msgpack.decode(value, type=PageRecord).settled:
                    settled.add(base + low, base + high)

        def is_settled(position: int) -> bool:
            lane = lane_of(position)
            return position < record.cursors.get(lane, lane << LANE_BITS) or position in settled

        undone = [position for position in self._settled[queue] if not is_settled(position)]
        if undone:
            raise Violation("settled is final", f"{queue}: on disk, {sorted(undone)[:5]} are unsettled again")
        done = sorted(position for position in self.unsettled[queue] if is_settled(position))
        self.unsettled[queue].difference_update(done)
        self._settled[queue].update(done)
        change.settled += [(queue, position) for position in done]

    def _check_moved(self, change: Change) -> None:
        """What is in the log is no longer among what waits."""
        moved = {stored.message for stored in change.stored if stored.position >= 0}
        if moved and any(message in moved for messages in self._delayed.values() for message in messages):
            raise Violation("what is due is moved", "a message is in the log, and among those that wait as well")

    def dying(self, operations: Iterable[Operation]) -> set[Place]:
        """What these will bury, which are asked for and not durable."""
        puts = [each for each in operations if isinstance(each, Put) and each.table == Table.BATCH]
        graves = [put for put in puts if self._names.get(int.from_bytes(put.key[:8], "big")) == DMQ]
        return {place for put in graves for place in _buried_in(Batch.trusted(put.value))}

    def waiting(self) -> Iterator[Message]:
        for messages in self._delayed.values():
            yield from messages


def _buried_in(batch: Batch) -> Iterator[Place]:
    for header in batch.headers() or ():
        letter = read_map(header)["dead_letter"]
        yield letter["destination"], letter["position"]

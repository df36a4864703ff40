"""Parts of transactions that another replica group decides: prepared here, and then committed or undone.

    CommitPrepare --cannot be--> CommitFail
                  --checked, locked, one Write--> PREPARED --CommitFinal-----> one Write --> CommitComplete
                                                     │     --CommitRollback--> one Write --> CommitComplete
                                                     └─ in doubt for `in_doubt_s`: CommitQuestion, again and again

CommitReady leaves when the part is durable: batches and locks are in its record, so that whoever restores it can do
either, on whatever node. Until then nobody sees the messages sent, and nobody gets those that are to be settled. The
streams of messages that are to be sent are held as those of messages that are not yet due.

CommitFinal and CommitRollback are the decider's word, whoever brings them, and whichever sending of the commit they
answer. They name the transaction, so that a late one touches no other. Whatever the session wants next waits for them.
"""
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, DestinationSettings, ToSession, Write
from angarium.core.destination.locks import Lock, TransactionKey
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.subscription import Subscription
from angarium.core.errors import Rejected
from angarium.core.ids import ANYBODY
from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import Operation, Put, Table, delete_key
from angarium.core.transaction.deciding import decision_key
from angarium.core.transaction.numbers import CommitNumbers
from angarium.core.transaction.plan import Asked, Effects, Plan, check, check_attached
from angarium.core.transaction.repeating import Repeating
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames.transactions import COORDINATOR

Outcome = frames.CommitFinal | frames.CommitRollback


class PreparedRecord(msgspec.Struct, array_like=True, frozen=True):
    decider: int
    since_ms: int
    publishes: list[tuple[int, bytes, bytes]]  # destination, producer identity, batch
    settles: list[tuple[int, str, int, list[Range]]]  # destination, subscription, consumer, positions


@dataclass(slots=True, eq=False)
class _Part:
    session: bytes
    number: int
    record: PreparedRecord
    size_bytes: int
    attachment: bytes = b""  # of the coordinator that is to be told that it is ready
    is_durable: bool = False
    is_committed: bool | None = None  # None: not decided, as far as we know
    told_by: dict[bytes, None] = field(default_factory=dict)  # who is to hear that it is complete
    questions: dict[bytes, frames.CommitQuestion] = field(default_factory=dict)  # by whom: answered when we know
    waiting: tuple[Asked, bytes] | None = None  # what the session wants next

    @property
    def key(self) -> TransactionKey:
        return self.session, self.number


class Participant:
    def __init__(
        self, group: int, destinations: Mapping[int, Destination], numbers: CommitNumbers,
        settings: DestinationSettings, *, write: Callable[..., Write],
        again: Callable[[bytes, Asked, bytes, float], list[Command]],
    ) -> None:  # fmt: skip
        self._group = group
        self._destinations = destinations
        self._numbers = numbers
        self._settings = settings
        self._write = write
        self._again = again  # take what has waited as if it had just come
        self._parts: dict[bytes, _Part] = {}  # by session: it has one transaction at a time
        self._bytes = 0
        self._asking: Repeating[bytes] = Repeating(settings.in_doubt_s)

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[tuple[TransactionKey, PreparedRecord]]:
        return ((part.key, part.record) for part in self._parts.values())

    def restore(self, records: dict[bytes, bytes], *, now: float) -> None:
        for key, value in records.items():
            record = msgspec.msgpack.decode(value, type=PreparedRecord)
            part = _Part(key[:16], int.from_bytes(key[16:], "big"), record, len(value), is_durable=True)
            self._lock(part)
            self._add(part)
            self._asking.start(part.session, now)

    def has(self, session: bytes) -> bool:
        """Whether the session has a part here that is not done with."""
        return session in self._parts

    # -- the first phase -------------------------------------------------------------------------------

    def is_in_the_way(self, session: bytes, frame: Asked, payload: bytes, now: float) -> list[Command] | None:
        """If the session has a transaction in doubt here, what it wants next waits for its end; None: it has none.
        Raises Rejected if there is no room for it to wait."""
        part = self._parts.get(session)
        if part is None:
            return None
        if frame.number < part.number:
            return []  # it was given up, or this one could not have been begun
        if frame.number > part.number:
            self._check_bytes(len(payload))
        self._bytes += len(payload) - (len(part.waiting[1]) if part.waiting is not None else 0)
        part.waiting = (frame, payload)
        return self._ask(part, now)

    def prepare(
        self, session: bytes, frame: frames.CommitPrepare, payload: bytes, wall_ms: int, now: float
    ) -> list[Command]:
        part = self._parts.get(session)
        is_known = part is not None and (part.number, part.is_committed) == (frame.number, None)
        try:
            if part is not None and is_known and part.record.decider == frame.decider:
                # Sent again over another connection: what is prepared is prepared for that one.
                check_attached(self._destinations, session, frame)
                part.attachment = frame.attachment
                return [self._ready(part)] if part.is_durable else []
            if (waits := self.is_in_the_way(session, frame, payload, now)) is not None:
                return waits
            if frame.number < self._numbers.last.get(session, 0):
                raise Rejected("transaction-over", f"transaction {frame.number} is over: a later one is committed")
            self._check_room(len(payload))
            plan = check(self._destinations, session, frame, payload)
        except Rejected as refusal:
            failed = frames.CommitFail(frame.number, self._group, refusal.code, refusal.reason, frame.attachment)
            return [ToSession(session, failed)]
        return [self._prepared(session, frame, plan, wall_ms)]

    def _check_room(self, size_bytes: int) -> None:
        settings = self._settings
        if len(self._parts) >= settings.prepared_max:
            reason = f"{len(self._parts):,} transactions are prepared here, as many as prepared_max allows; try later"
            raise Rejected("too-many-prepared", reason)
        self._check_bytes(size_bytes)

    def _check_bytes(self, size_bytes: int) -> None:
        limit = self._settings.prepared_bytes_max
        if self._bytes + size_bytes > limit:
            reason = (
                f"{self._bytes:,} bytes are prepared here, and {size_bytes:,} more exceed prepared_bytes_max "
                f"{limit:,}; try later, or raise the limit"
            )
            raise Rejected("too-many-prepared", reason)

    def _prepared(self, session: bytes, frame: frames.CommitPrepare, plan: Plan, wall_ms: int) -> Write:
        record = PreparedRecord(
            frame.decider,
            wall_ms,
            [(each.destination.identity, each.producer.identity, each.batch.data) for each in plan.publishes],
            [(each.destination.identity, each.consumer.subscription.name, each.consumer.number, each.ranges)
             for each in plan.settles],
        )  # fmt: skip
        value = msgspec.msgpack.encode(record)
        part = _Part(session, frame.number, record, len(value), frame.attachment)
        self._lock(part)
        self._add(part)
        operations: list[Operation] = [Put(Table.PREPARED, decision_key(*part.key), value)]
        for each in plan.publishes:
            operations += each.destination.state.streams.hold(each.destination.identity, each.batch)
        # Without messages it makes room, in the end; all writes of its record keep their order.
        pending = PendingWrite(follows=lambda now: self._durable(part, now))
        return self._write(operations, pending, freeing=not record.publishes)

    def _lock(self, part: _Part) -> None:
        record = part.record
        for _, subscription, consumer, ranges in self._settles(part):
            if subscription is not None:
                subscription.lock(Lock(part.key, consumer, RangeSet(), record.since_ms, record.decider), ranges)

    def _add(self, part: _Part) -> None:
        self._parts[part.session] = part
        self._bytes += part.size_bytes
        self._reserve(part, 1)

    def _reserve(self, part: _Part, sign: int) -> None:
        for identity, _, data in part.record.publishes:
            if (destination := self._destinations.get(identity)) is not None:
                destination.state.reserved += sign * Batch.trusted(data).count

    def _durable(self, part: _Part, now: float) -> list[Command]:
        part.is_durable = True
        if part.is_committed is not None:
            return []
        self._asking.start(part.session, now)
        return [self._ready(part)]

    def _ready(self, part: _Part) -> ToSession:
        return ToSession(part.session, frames.CommitReady(part.number, self._group, part.attachment))

    # -- in doubt --------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        return self._asking.deadline()

    def tick(self, now: float) -> list[Command]:
        return [self._question(self._parts[session]) for session in self._asking.due(now)]

    def question(self, asker: bytes, frame: frames.CommitQuestion, now: float) -> list[Command] | None:
        """Somebody wants to know what we do not know ourselves: he is told when we do. None: we are not in doubt."""
        part = self._parts.get(frame.session)
        if part is None or part.number != frame.number:
            return None
        part.questions[asker] = frame
        return self._ask(part, now)

    def _ask(self, part: _Part, now: float) -> list[Command]:
        if not part.is_durable or part.is_committed is not None:
            return []  # it will soon be, or is being done
        self._asking.start(part.session, now)
        return [self._question(part)]

    def _question(self, part: _Part) -> ToSession:
        asked = frames.CommitQuestion(part.session, part.number, self._group, part.record.decider)
        return ToSession(ANYBODY, asked)

    # -- the second phase ------------------------------------------------------------------------------

    def decided(self, teller: bytes, frame: Outcome, now: float) -> list[Command]:
        part = self._parts.get(frame.session)
        if part is None or part.number != frame.number:
            # It is done with here. What waits behind another transaction must not be begun any more.
            if part is not None and part.waiting is not None and part.waiting[0].number == frame.number:
                self._forget_waiting(part)
            complete = frames.CommitComplete(frame.session, frame.number, self._group, frame.decider)
            return [ToSession(teller, complete)]
        part.told_by[teller] = None
        if part.is_committed is not None:
            return []
        part.is_committed = isinstance(frame, frames.CommitFinal)
        self._asking.stop(part.session)
        self._reserve(part, -1)
        return self._commit(part, now) if part.is_committed else self._roll_back(part)

    def _commit(self, part: _Part, now: float) -> list[Command]:
        operations = self._numbers.commit(part.session, part.number, now)
        effects = Effects([delete_key(Table.PREPARED, decision_key(*part.key)), *operations])
        for identity, producer, data in part.record.publishes:
            if (destination := self._destinations.get(identity)) is not None:
                batch = Batch.trusted(data)
                effects.publish(destination, destination.producers.find(producer), batch, now)
                effects.let_go(destination, batch)
        for destination, subscription, number, ranges in self._settles(part):
            if subscription is None:
                continue
            count = subscription.settle_locked(part.key, number)
            consumer = subscription.consumers.get((part.session, number))
            if count is None and consumer is not None:
                # A subscription that is not durable has begun anew, and its consumer has claimed what it held.
                count = sum(subscription.settle(consumer, low, high)[0] for low, high in ranges)
            effects.settled(destination, subscription, ranges, count or 0)
        pending = PendingWrite(follows=lambda now: self._completed(part, now), committed=part.key)
        freeing = not part.record.publishes
        return [self._write(effects.finish(pending, freeing=freeing), pending, freeing=freeing)]

    def _roll_back(self, part: _Part) -> list[Command]:
        pending = PendingWrite(follows=lambda now: self._completed(part, now))
        delete: list[Operation] = [delete_key(Table.PREPARED, decision_key(*part.key))]
        for identity, _, data in part.record.publishes:
            if (target := self._destinations.get(identity)) is not None:
                delete += target.state.streams.let_go(identity, Batch.trusted(data))
        commands: list[Command] = [self._write(delete, pending, freeing=not part.record.publishes)]
        for destination, subscription, number, _ in self._settles(part):
            if subscription is not None:
                subscription.unlock(part.key, number)
                commands += destination.consuming.save(subscription, PendingWrite(), patient=True)
                commands += destination.dispatch.pump(subscription)
        return commands

    def _settles(self, part: _Part) -> Iterator[tuple[Destination, Subscription | None, int, list[Range]]]:
        """Where something is to be settled; a destination that was removed has nothing left to settle."""
        for identity, name, consumer, ranges in part.record.settles:
            if (destination := self._destinations.get(identity)) is not None:
                yield destination, destination.subscriptions.get(name), consumer, ranges

    def _completed(self, part: _Part, now: float) -> list[Command]:
        """It is durable how it ended: whoever waits for that is told, and what waits is done."""
        del self._parts[part.session]
        self._bytes -= part.size_bytes
        session, number, decider = part.session, part.number, part.record.decider
        complete = frames.CommitComplete(session, number, self._group, decider)
        commands: list[Command] = [ToSession(teller, complete) for teller in part.told_by]
        kind = frames.CommitFinal if part.is_committed else frames.CommitRollback
        if session not in part.told_by:  # its coordinator may wait for us to be ready
            commands.append(ToSession(session, kind(session, number, COORDINATOR, decider)))
        commands += [ToSession(asker, kind(session, number, asked.group, asked.decider))
                     for asker, asked in part.questions.items()]  # fmt: skip
        waiting = part.waiting
        self._forget_waiting(part)
        return commands if waiting is None else commands + self._again(session, *waiting, now)

    def _forget_waiting(self, part: _Part) -> None:
        self._bytes -= len(part.waiting[1]) if part.waiting is not None else 0
        part.waiting = None

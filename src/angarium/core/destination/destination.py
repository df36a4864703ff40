"""One queue or topic: a log of batches, its producers, and its subscriptions.

    Publish --> order: give positions --> Write --> Written --> Confirm, and deliver to subscriptions
    Settle  --> cursor and ranges     --> Write --> Written --> Settled
    free positions and credit         --> Read  --> BatchesRead --> Deliver

A message is delivered only after it is durable; a settlement is answered only then. The log's prefix that every
subscription has settled is freed in the same write as the settlement that completed it. A topic without subscriptions
stores nothing.

This machine knows nothing of names, other destinations or connections: `message_manager` does.
"""
from collections.abc import Callable, Sequence

from angarium.core.destination.delivery import Damage, deliver
from angarium.core.destination.events import (
    BatchesRead,
    Command,
    DestinationSettings,
    Level,
    Read,
    Report,
    ToSession,
    Write,
)
from angarium.core.destination.pending import PendingRead, PendingWrite
from angarium.core.destination.producers import Producer, ProducerTable
from angarium.core.destination.records import Counters, DestinationRecord, LogField, attached_key, log_put
from angarium.core.destination.subscription import Consumer, ConsumerKey, Subscription, SubscriptionRecord
from angarium.core.destination.subscriptions import Subscriptions
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ranges import Range
from angarium.core.storage import (
    DeleteRange,
    Operation,
    Put,
    Table,
    delete_key,
    delete_prefix,
    key_of,
    position_key,
)
from angarium.core.stream.streams import Streams
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, Outcome


class Destination:
    def __init__(
        self,
        identity: int,
        record: DestinationRecord,
        settings: DestinationSettings,
        *,
        write_token: Callable[[PendingWrite], int],
        read_token: Callable[[PendingRead], int],
        streams: Streams,
        wall_ms_at_zero: float,
    ) -> None:
        self.identity = identity
        self.record = record
        self.settings = settings
        self.first = 0  # positions below are gone
        self.next = 0  # the position that the next message gets
        self.readable = 0  # positions below are durable
        self._stored = 0  # where the last batch that was stored ends
        self._deleted = 0  # batches that end here or before are deleted
        self.subscriptions = Subscriptions(record.kind)
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self.producers = ProducerTable(producers_max=settings.producers_max)
        self.counters = Counters()
        self.blocked = ""  # why writes are blocked
        self._keep_until = 0.0  # a recovered topic keeps its log until its subscribers had time to resume
        self._write_token = write_token
        self._read_token = read_token
        self._streams = streams
        self._wall_ms_at_zero = wall_ms_at_zero
        self._numbers: dict[bytes, dict[int, None]] = {}  # consumers of each session

    # -- start -------------------------------------------------------------------------------------

    def restore_log(self, fields: dict[int, int], *, now: float) -> None:
        self.next = self.readable = fields.get(LogField.NEXT, 0)
        self.first = self._deleted = min(fields.get(LogField.FIRST, 0), self.next)
        self._stored = self.next
        self.counters.damaged = fields.get(LogField.DAMAGED, 0)
        if self.record.kind == DestinationKind.TOPIC:
            self._keep_until = now + self.settings.resume_grace_s
        else:
            self.subscriptions.add(Subscription("", durable=True, cursor=self.first))

    def restore_subscription(
        self, name: str, record: SubscriptionRecord, attached: list[ConsumerKey], *, now: float
    ) -> list[Operation]:
        """Returns what is to be written: the positions that it was saved ahead of will be given out once more."""
        until = now + self.settings.resume_grace_s
        subscription = Subscription.restored(name, record, attached, log_next=self.next, until=until)
        self.subscriptions.add(subscription)
        return [self._subscription_put(subscription)] if record.cursor > subscription.cursor else []

    # -- producing ---------------------------------------------------------------------------------

    def producer_open(self, session: bytes, frame: frames.ProducerOpen, *, now: float) -> list[Command]:
        try:
            producer, forgotten = self.producers.open(session, frame.producer, frame.identity, frame.confirmed)
        except Rejected as refusal:
            return [ToSession(session, frames.ProducerClosed(frame.producer, refusal.code, refusal.reason))]
        producer.used_ms = self._wall_ms(now)
        opened = frames.ProducerOpened(frame.producer, producer.identity, producer.accepted, frame.attachment)
        commands: list[Command] = [ToSession(session, opened)]
        if producer.confirmed > frame.confirmed:
            commands.append(ToSession(session, frames.Confirm(frame.producer, producer.confirmed)))
        if self.blocked:
            commands.append(ToSession(session, frames.Block(frame.producer, "disk-full", self.blocked)))
        if forgotten:
            keys = [key_of(self.identity, identity) for identity in forgotten]
            commands.append(self._write([delete_key(Table.PRODUCER, key) for key in keys], PendingWrite()))
        return commands

    def publish(self, session: bytes, frame: frames.Publish, payload: bytes, *, now: float) -> list[Command]:
        producer = self.producers.get(session, frame.producer)
        if producer is None:
            reason = f"producer {frame.producer} is not open on {self.record.name!r}"
            return [ToSession(session, frames.ProducerClosed(frame.producer, "producer-closed", reason))]
        batch = Batch.trusted(payload)
        new = self.producers.first_new(producer, batch.first_sequence, batch.last_sequence)
        if new is None:
            # Already accepted: its confirm has been lost with a connection, or is still to come.
            if batch.last_sequence <= producer.confirmed:
                return [ToSession(session, frames.Confirm(frame.producer, producer.confirmed))]
            return []
        if new > batch.first_sequence:
            batch = batch.slice(new - batch.first_sequence, batch.count)
        producer.accepted = batch.last_sequence
        producer.used_ms = self._wall_ms(now)
        if (refusal := self._streams.refusal(self.identity, batch)) is not None:
            refused = frames.Refuse(frame.producer, batch.first_sequence, batch.last_sequence, *refusal)
            noted = Put(Table.PRODUCER, key_of(self.identity, producer.identity), producer.record())
            return [self._write([noted], PendingWrite(answers=[ToSession(session, refused)]))]
        self.next += batch.count
        self.counters.messages_in += batch.count
        self.counters.bytes_in += batch.body_bytes
        pending = PendingWrite(readable=self.next, confirmed=(producer.identity, producer.accepted))
        commands: list[Command] = [self._write(self._append(producer, batch), pending)]
        if self.record.confirm == "memory":
            commands += self._confirm(producer.identity, producer.accepted)
        return commands

    def _confirm(self, identity: bytes, sequence: int) -> list[Command]:
        """Confirm to whoever has the producer open by now: it may have resumed over another connection."""
        producer = self.producers.confirm(identity, sequence)
        if producer is None or producer.session is None:
            return []
        return [ToSession(producer.session, frames.Confirm(producer.number, sequence))]

    def _append(self, producer: Producer, batch: Batch) -> list[Operation]:
        operations: list[Operation] = []
        if len(self.subscriptions) or self._keep_until:
            operations.append(Put(Table.BATCH, position_key(self.identity, self.next), batch.data))
            operations += self._streams.bind(self.identity, batch, self.next - batch.count)
            self._stored = self.next
        else:
            self.first = self.next
            operations.append(log_put(self.identity, LogField.FIRST, self.first))
        operations.append(log_put(self.identity, LogField.NEXT, self.next))
        operations.append(Put(Table.PRODUCER, key_of(self.identity, producer.identity), producer.record()))
        return operations

    def producer_close(self, session: bytes, number: int, *, forget: bool) -> list[Command]:
        producer = self.producers.detach(session, number, forget=forget)
        if producer is None or not forget:
            return []
        key = key_of(self.identity, producer.identity)
        return [self._write([delete_key(Table.PRODUCER, key)], PendingWrite(), freeing=True)]

    # -- consuming ---------------------------------------------------------------------------------

    def consumer_open(self, session: bytes, frame: frames.ConsumerOpen, *, now: float) -> list[Command]:
        try:
            self._check_room(session, frame.consumer)
            subscription = self.subscriptions.find_for(session, frame, first=self.first, next_position=self.next)
        except Rejected as refusal:
            return [ToSession(session, frames.ConsumerClosed(frame.consumer, refusal.code, refusal.reason))]
        key = (session, frame.consumer)
        consumer = Consumer(
            session, frame.consumer, subscription, frame.credit, frame.attachment, opening=subscription.durable
        )
        lost = subscription.attach(consumer, frame.held, resumed=frame.resumed)
        self.subscriptions.note_parking(subscription)
        self.consumers[key] = consumer
        self._numbers.setdefault(session, {})[frame.consumer] = None
        if not subscription.durable:
            return [self._opened(consumer, lost), *self.pump(subscription)]
        # Who is attached has to survive a restart: it decides for whom unsettled messages are kept.
        attached = Put(Table.ATTACHED, attached_key(self.identity, key, subscription.name), b"")
        # Whoever opens may be the one who empties a full disk; and all writes of these records keep their order.
        pending = PendingWrite(opened=consumer, lost=lost)
        return [self._write([self._subscription_put(subscription), attached], pending, freeing=True)]

    def _opened(self, consumer: Consumer, lost: list[Range]) -> ToSession:
        # Not beyond what is durable: after a crash those positions may be those of other messages.
        position = min(consumer.position, self.readable)
        opened = frames.ConsumerOpened(consumer.number, lost, consumer.attachment, position)
        return ToSession(consumer.session, opened)

    def _check_room(self, session: bytes, number: int) -> None:
        if len(self.consumers) >= self.settings.consumers_max:
            reason = f"{self.record.name!r} has {len(self.consumers)} consumers: the most is consumers_max"
            raise Rejected("too-many-consumers", reason)
        if (session, number) in self.consumers:
            raise Rejected("consumer-open", f"consumer {number} is open already")

    def consumers_of(self, session: bytes) -> list[Consumer]:
        return [self.consumers[session, number] for number in self._numbers.get(session, {})]

    def credit(self, session: bytes, frame: frames.Credit) -> list[Command]:
        consumer = self.consumers.get((session, frame.consumer))
        if consumer is None:
            return []
        consumer.subscription.credit(consumer, frame.limit)
        self.subscriptions.note_parking(consumer.subscription)
        return self.pump(consumer.subscription)

    def stall(self, session: bytes, stalled: bool) -> list[Command]:
        commands: list[Command] = []
        for consumer in self.consumers_of(session):
            consumer.stalled = stalled
            consumer.subscription.update_ready(consumer)
            commands += self.pump(consumer.subscription)
        return commands

    def settle(self, session: bytes, frame: frames.Settle) -> list[Command]:
        consumer = self.consumers.get((session, frame.consumer))
        if consumer is None:
            return []  # it has been closed meanwhile, and was told so
        if any(not 0 <= low < high <= self.next for low, high in frame.ranges):
            raise RemoteProtocolError("bad-range", f"settlement {frame.number} names positions that do not exist")
        subscription = consumer.subscription
        lost: list[Range] = []
        released: list[Operation] = []
        for low, high in frame.ranges:
            if frame.outcome == Outcome.RELEASE:
                lost += subscription.release(consumer, low, high)
            else:
                settled, not_held = subscription.settle(consumer, low, high)
                self._count_outcome(frame.outcome, settled)
                lost += not_held
                released += self._streams.release(self.identity, [(low, high)], self._is_needed)
        if frame.credit >= 0:
            # As a Credit would: a consumer that resumed with settlements to send grants its first credit with the last.
            subscription.credit(consumer, frame.credit)
            self.subscriptions.note_parking(subscription)
        pending = PendingWrite(settled=(consumer, frame.number), lost=lost)
        return [*self._save(subscription, pending, released, patient=True), *self.pump(subscription)]

    def _is_needed(self, position: int) -> bool:
        """Some subscription has not settled it."""
        return any(position >= s.cursor and position not in s.settled for s in self.subscriptions)

    def holds(self, session: bytes, number: int, position: int) -> bool:
        consumer = self.consumers.get((session, number))
        return consumer is not None and position in consumer.held

    def _count_outcome(self, outcome: Outcome, count: int) -> None:
        if outcome == Outcome.REJECT:
            self.counters.rejected += count
        else:
            self.counters.settled += count

    def consumer_close(
        self, session: bytes, number: int, *, now: float, cut: bool = False, unsubscribe: bool = False
    ) -> list[Command]:
        """Close a consumer: by its client's wish, or because its session was cut off and may come back."""
        consumer = self.consumers.pop((session, number), None)
        if consumer is None:
            return [] if cut else [ToSession(session, frames.ConsumerClosed(number))]
        numbers = self._numbers[session]
        del numbers[number]
        if not numbers:
            del self._numbers[session]
        subscription = consumer.subscription
        subscription.detach(consumer, park_until=now + self.settings.resume_grace_s if cut else None)
        self.subscriptions.note_parking(subscription)
        if cut:
            consumer.cut = True
            return []
        answers = [ToSession(session, frames.ConsumerClosed(number))]
        if not subscription.durable or (unsubscribe and subscription.name):
            return self.end_subscription(subscription, answers, [(session, number)])
        gone = self._detached(subscription, [(session, number)])
        return [*self._save(subscription, PendingWrite(answers=answers), gone), *self.pump(subscription)]

    def end_subscription(
        self, subscription: Subscription, answers: list[ToSession], detached: Sequence[ConsumerKey] = ()
    ) -> list[Command]:
        self.subscriptions.remove(subscription)
        operations: list[Operation] = []
        if subscription.durable:
            operations.append(delete_key(Table.SUBSCRIPTION, self._subscription_key(subscription)))
            keys = [*detached, *subscription.consumers, *subscription.parked, *subscription.awaited]
            operations += self._detached(subscription, keys)
        operations += self._trim()
        if not operations:
            return list(answers)
        return [self._write(operations, PendingWrite(answers=answers), freeing=True)]

    def session_ended(self, session: bytes, *, closed: bool, now: float) -> list[Command]:
        """The session was closed for good, or cut off and may resume: nobody is there to be answered."""
        commands: list[Command] = []
        for consumer in self.consumers_of(session):
            commands += self.consumer_close(session, consumer.number, now=now, cut=not closed)
        for producer in self.producers.of_session(session):
            commands += self.producer_close(session, producer.number, forget=closed)
        if closed:
            commands += self._forget_session(session)
        return commands

    def _forget_session(self, session: bytes) -> list[Command]:
        """What was parked for the session is free."""
        commands: list[Command] = []
        for subscription in self.subscriptions.parking():
            commands += self._given_up(subscription, subscription.forget_session(session))
        return commands

    def _given_up(self, subscription: Subscription, keys: list[ConsumerKey]) -> list[Command]:
        """Those consumers will not come back: note it, and deliver to others what they held."""
        self.subscriptions.note_parking(subscription)
        if not keys:
            return []
        if not subscription.durable and not subscription.consumers and not subscription.parking:
            return self.end_subscription(subscription, [])
        gone = self._detached(subscription, keys)
        return [*self._save(subscription, PendingWrite(), gone), *self.pump(subscription)]

    def _detached(self, subscription: Subscription, keys: list[ConsumerKey]) -> list[Operation]:
        if not subscription.durable:
            return []
        return [delete_key(Table.ATTACHED, attached_key(self.identity, key, subscription.name)) for key in keys]

    # -- reading and delivering ----------------------------------------------------------------------

    def pump(self, subscription: Subscription) -> list[Command]:
        """Ask for what the subscription could deliver next, unless that is under way already."""
        if subscription.reading:
            return []
        position = subscription.wanted(self.readable)
        if position is None:
            return []
        subscription.reading = True
        token = self._read_token(PendingRead(self.identity, subscription.name, position, self.readable))
        return [Read(token, self.identity, position, self.settings.read_bytes_max, self.readable)]

    def batches_read(self, asked: PendingRead, event: BatchesRead, *, now: float) -> list[Command]:
        subscription = self.subscriptions.get(asked.subscription)
        if subscription is None:
            return []
        subscription.reading = False
        result = deliver(subscription, event.batches, (asked.position, asked.end), wall_ms=self._wall_ms(now))
        commands: list[Command] = list(result.deliveries)
        self.counters.messages_out += result.delivered
        self.counters.expired += result.expired
        for damage in result.damaged:
            commands += self._set_aside(damage)
        if result.expired:
            commands += self._save(subscription, PendingWrite())
        elif result.delivered and subscription.durable and not subscription.noting:
            # So that after a crash what was delivered is marked as redelivered. Nobody waits for it, and one such
            # write at a time is enough: it rides along with the next publish.
            subscription.noting = True
            commands += self._save(subscription, PendingWrite(noted=subscription), patient=True)
        return commands + self.pump(subscription)

    def _set_aside(self, damage: Damage) -> list[Command]:
        """What cannot be read is kept apart, skipped by every subscription, and reported."""
        self.counters.damaged += sum(high - low for low, high in damage.positions)
        operations: list[Operation] = [log_put(self.identity, LogField.DAMAGED, self.counters.damaged)]
        if damage.end:
            key = position_key(self.identity, damage.end)
            operations += [Put(Table.DAMAGED, key, damage.raw), delete_key(Table.BATCH, key)]
        for subscription in self.subscriptions:
            for low, high in damage.positions:
                for part in subscription.free_in(low, high):
                    subscription.discard(*part)
            if subscription.durable:
                operations.append(self._subscription_put(subscription))
        operations += self._trim()
        commands: list[Command] = [self._write(operations, PendingWrite(), freeing=True)]
        for low, high in damage.positions:
            text = f"{self.record.name!r}: positions {low} to {high - 1} fail their checksum or are missing: set aside"
            commands.append(Report(Level.ERROR, "batch-damaged", text))
        return commands

    def stream_damaged(self, position: int, reason: str) -> list[Command]:
        """The message is there, its stream cannot be read: who gets it is told so when he opens it."""
        self.counters.damaged += 1
        text = f"{self.record.name!r}, position {position}: {reason}"
        noted = log_put(self.identity, LogField.DAMAGED, self.counters.damaged)
        return [Report(Level.ERROR, "stream-damaged", text), self._write([noted], PendingWrite(), freeing=True)]

    # -- administration ------------------------------------------------------------------------------

    def purge(self) -> tuple[int, list[Operation]]:
        """Settle everything that nobody holds."""
        purged = 0
        operations: list[Operation] = []
        for subscription in self.subscriptions:
            for low, high in subscription.free_in(subscription.cursor, self.readable):
                purged += high - low
                subscription.discard(low, high)
            if subscription.durable:
                operations.append(self._subscription_put(subscription))
        return purged, operations + self._trim()

    def remove(self, code: str, reason: str) -> tuple[list[ToSession], list[Operation]]:
        closings = [
            ToSession(consumer.session, frames.ConsumerClosed(consumer.number, code, reason))
            for consumer in self.consumers.values()
        ]
        for producer in self.producers.attached():
            assert producer.session is not None
            closed = frames.ProducerClosed(producer.number, code, reason)
            closings.append(ToSession(producer.session, closed))
        tables = (Table.BATCH, Table.LOG, Table.SUBSCRIPTION, Table.PRODUCER, Table.DAMAGED,
                  Table.ATTACHED, Table.STREAM, Table.DESTINATION)  # fmt: skip
        return closings, [delete_prefix(table, self.identity) for table in tables]

    # -- writes --------------------------------------------------------------------------------------

    def written(self, pending: PendingWrite) -> list[Command]:
        commands: list[Command] = list(pending.answers)
        if pending.confirmed is not None:
            commands += self._confirm(*pending.confirmed)
        if pending.settled is not None:
            consumer, number = pending.settled
            # One that has closed since is still owed the answer: it may have lost what it settled. One that was cut off
            # asks again.
            if not consumer.cut:
                commands.append(ToSession(consumer.session, frames.Settled(consumer.number, number, pending.lost)))
        if pending.noted is not None:
            pending.noted.noting = False
        if pending.opened is not None and self._is_current(pending.opened):
            consumer = pending.opened
            consumer.opening = False
            consumer.subscription.update_ready(consumer)
            commands += [self._opened(consumer, pending.lost), *self.pump(consumer.subscription)]
        if pending.readable > self.readable:
            self.readable = pending.readable
            for subscription in self.subscriptions:
                commands += self.pump(subscription)
            if operations := self._trim():  # a subscription may begin, or have ended, beyond what was written
                commands.append(self._write(operations, PendingWrite(), freeing=True))
        return commands

    def _is_current(self, consumer: Consumer) -> bool:
        return self.consumers.get((consumer.session, consumer.number)) is consumer

    def _was_replaced(self, consumer: Consumer) -> bool:
        """It has resumed meanwhile, and has repeated, or will repeat, what it wants answered."""
        return self.consumers.get((consumer.session, consumer.number), consumer) is not consumer

    def set_blocked(self, reason: str) -> list[Command]:
        """Tell every open producer that writes are blocked, or (empty reason) are possible again."""
        self.blocked = reason
        commands: list[Command] = []
        for producer in self.producers.attached():
            assert producer.session is not None
            number = producer.number
            signal = frames.Block(number, "disk-full", reason) if reason else frames.Unblock(number)
            commands.append(ToSession(producer.session, signal))
        return commands

    def _save(
        self,
        subscription: Subscription,
        pending: PendingWrite,
        also: list[Operation] | None = None,
        *,
        patient: bool = False,
    ) -> list[Command]:
        """Store the subscription and free what it was the last to need; then what is pending follows."""
        operations = [self._subscription_put(subscription)] if subscription.durable else []
        operations += (also or []) + self._trim()
        if not operations:
            return self.written(pending)
        return [self._write(operations, pending, freeing=True, patient=patient)]

    def _trim(self) -> list[Operation]:
        """Free what no subscription needs any more; not beyond what is written, for a deletion may overtake, on a
        full disk, the batch that it is to delete."""
        if self._keep_until:
            return []
        operations: list[Operation] = []
        slowest = self.subscriptions.slowest_cursor()
        first = self.readable if slowest is None else min(slowest, self.readable)
        if first > self.first:
            self.first = first
            operations.append(log_put(self.identity, LogField.FIRST, first))
            operations += self._streams.release_all(self.identity, 0, first)
        end = min(self.first, self.readable)
        if self._deleted < end and self._deleted < self._stored:
            self._deleted = end
            low, high = position_key(self.identity, 0), position_key(self.identity, end + 1)
            operations.append(DeleteRange(Table.BATCH, low, high))
        return operations

    def _write(
        self, operations: list[Operation], pending: PendingWrite, *, freeing: bool = False, patient: bool = False
    ) -> Write:
        pending.destination = self.identity
        return Write(self._write_token(pending), operations, freeing, patient)

    def _subscription_key(self, subscription: Subscription) -> bytes:
        return key_of(self.identity, subscription.name.encode())

    def _subscription_put(self, subscription: Subscription) -> Operation:
        return Put(Table.SUBSCRIPTION, self._subscription_key(subscription), subscription.record())

    # -- time ----------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        parked = self.subscriptions.deadline()
        if not self._keep_until:
            return parked
        return self._keep_until if parked is None else min(parked, self._keep_until)

    def tick(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for subscription in self.subscriptions.parking():
            commands += self._given_up(subscription, subscription.expire_parked(now))
        if self._keep_until and now >= self._keep_until:
            self._keep_until = 0.0
            operations = self._trim()
            if operations:
                commands.append(self._write(operations, PendingWrite(), freeing=True))
        return commands

    def _wall_ms(self, now: float) -> int:
        return int(self._wall_ms_at_zero + now * 1000)

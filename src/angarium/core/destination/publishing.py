"""From producers into the log: who may append, what is new, where it goes, and when it is confirmed.

    Publish --known sequence--> Confirm
            --no room---------> Refuse
            --known id--------> nothing: confirmed with the rest
            --due later-------> delays
            --with a stage----> staging, until it is committed
            --else------------> the log
"""
from angarium.core.destination import limits, singles
from angarium.core.destination.delays import Delays
from angarium.core.destination.events import Command, DelayedRead, ToSession
from angarium.core.destination.limits import Limits
from angarium.core.destination.log import split_by_lane
from angarium.core.destination.pending import Arrival, PendingWrite
from angarium.core.destination.producers import Producer, Refusal
from angarium.core.destination.staging import Staging
from angarium.core.destination.state import DestinationState
from angarium.core.destination.windows import DeduplicationWindow, LastValues, name_refusal
from angarium.core.errors import Rejected
from angarium.core.report import Level, Report
from angarium.core.storage import Operation, Put, Table, delete_key, key_of
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns

_EXPIRY, _KEY = int(Columns.EXPIRY), int(Columns.KEY)
_DEDUPLICATION, _DUE = int(Columns.DEDUPLICATION), int(Columns.DUE)


class Publishing:
    def __init__(self, state: DestinationState) -> None:
        self._state = state
        self._blocks: dict[str, str] = {}  # code -> reason
        self.node_refusal: tuple[str, str] | None = None  # code and reason, while the node takes nothing new
        self.delays = Delays(state)
        self.limits = Limits(state, self.delays)
        self.staging = Staging(state, self)
        self.window = DeduplicationWindow(state.identity, state.settings.deduplication_ids_max)
        self.last_values = LastValues(state.identity, state.settings.last_value_keys_max)

    @property
    def blocked(self) -> tuple[str, str] | None:
        """Code and reason, while nothing more can be taken."""
        return next(iter(self._blocks.items()), None)

    @property
    def is_full(self) -> bool:
        """Producers are blocked by the destination's own limits."""
        return limits.CODE in self._blocks

    @property
    def is_timed(self) -> bool:
        """Something has to be done when its time comes."""
        return self.delays.next_ms is not None or bool(self.staging.parts)

    @property
    def hindrance(self) -> tuple[str, str] | None:
        """The same, for what is only moved here: what the node holds in all does not grow by it."""
        return next(((code, reason) for code, reason in self._blocks.items() if code != "node-full"), None)

    def open(self, session: bytes, frame: frames.ProducerOpen, *, now: float) -> list[Command]:
        state = self._state
        try:
            producer, forgotten = state.producers.open(session, frame.producer, frame.identity, frame.confirmed)
        except Rejected as refused:
            return [ToSession(session, frames.ProducerClosed(frame.producer, refused.code, refused.reason))]
        producer.used_ms = state.wall_ms(now)
        producer.client, producer.attachment = frame.client, frame.attachment
        producer.stage = (frame.query, frame.batch) if frame.query else None
        opened = frames.ProducerOpened(
            frame.producer, producer.identity, producer.accepted, frame.attachment, self.blocked is not None
        )
        commands: list[Command] = [ToSession(session, opened)]
        for refusal in producer.unheard(frame.confirmed):
            again = frames.Refuse(frame.producer, refusal.first, refusal.last, refusal.code, refusal.reason)
            commands.append(ToSession(session, again))
        if producer.confirmed > frame.confirmed:
            commands.append(ToSession(session, frames.Confirm(frame.producer, producer.confirmed)))
        if self.blocked is not None:
            commands.append(ToSession(session, frames.Block(frame.producer, *self.blocked)))
        if forgotten:
            keys = [key_of(state.identity, identity) for identity in forgotten]
            commands.append(state.write([delete_key(Table.PRODUCER, key) for key in keys], PendingWrite()))
        return commands

    def publish(self, session: bytes, frame: frames.Publish, payload: bytes, *, now: float) -> list[Command]:
        state = self._state
        producer = state.producers.get(session, frame.producer)
        if producer is None:
            reason = f"producer {frame.producer} is not open on {state.record.name!r}"
            return [ToSession(session, frames.ProducerClosed(frame.producer, "producer-closed", reason))]
        batch = Batch.trusted(payload)
        last = batch.last_sequence
        new = state.producers.first_new(producer, batch.first_sequence, last)
        if new is None:
            # Already accepted: its confirm has been lost with a connection, or is still to come.
            if last <= producer.confirmed:
                return [ToSession(session, frames.Confirm(frame.producer, producer.confirmed))]
            return []
        if new > batch.first_sequence:
            batch = batch.slice(new - batch.first_sequence, batch.count)
        producer.accepted = last
        producer.used_ms = state.wall_ms(now)
        refusal = self._refusal(batch)
        if producer.stage is not None:
            refusal = refusal or self.staging.refusal(producer, batch)
        if refusal is not None:
            pending = self._refuse(producer, Refusal(batch.first_sequence, last, *refusal))
            noted = Put(Table.PRODUCER, key_of(state.identity, producer.identity), producer.record())
            return [state.write([noted], pending)]
        if producer.stage is not None:
            pending = PendingWrite(confirmed=(producer.identity, producer.accepted))
            operations = self.staging.hold(producer, batch, pending, now=now)
            operations.append(Put(Table.PRODUCER, key_of(state.identity, producer.identity), producer.record()))
            return [state.write(operations, pending)]  # never confirmed from memory: a commit counts on it
        room = self.limits.room() if self.limits.refuses() else batch.count
        if room < batch.count:
            reason = self.limits.reason() or f"{state.record.name!r} has room for {room} of {batch.count} messages"
            pending = self._refuse(producer, Refusal(batch.sequence(room), last, limits.CODE, reason))
        else:
            pending = PendingWrite(confirmed=(producer.identity, producer.accepted))
        operations = self.take(batch.slice(0, room) if room < batch.count else batch, pending, now=now) if room else []
        operations.append(Put(Table.PRODUCER, key_of(state.identity, producer.identity), producer.record()))
        commands: list[Command] = [state.write(operations, pending)]
        if state.record.confirm == "memory":
            if pending.refused is not None:
                commands += self.refused(*pending.refused)
            commands += self.confirmed(producer.identity, producer.accepted)
        return commands

    def _refusal(self, batch: Batch) -> tuple[str, str] | None:
        """Code and reason, if the node is full, or something in the batch can never be taken: all of it is refused."""
        if self.node_refusal is not None or not batch.columns:
            return self.node_refusal
        if (too_many := singles.refusal([batch], self._state.settings.write_bytes_max)) is not None:
            return too_many
        return self._state.streams.refusal(self._state.identity, batch) or name_refusal(batch)

    def _refuse(self, producer: Producer, refusal: Refusal) -> PendingWrite:
        """It is noted, and told once it is durable: else the message could be stored after a crash, when it is sent
        again, or its refusal be lost with a connection, and never told."""
        producer.refuse(refusal)
        return PendingWrite(confirmed=(producer.identity, producer.accepted), refused=(producer.identity, refusal))

    def refused(self, identity: bytes, refusal: Refusal) -> list[Command]:
        """To whoever has the producer open by now, unless it was told when it opened."""
        producer = self._state.producers.find(identity)
        if producer is None or producer.session is None or producer.confirmed >= refusal.last:
            return []
        refused = frames.Refuse(producer.number, refusal.first, refusal.last, refusal.code, refusal.reason)
        return [ToSession(producer.session, refused)]

    def check_room(self, batch: Batch, *, before: int) -> None:
        """Raise Rejected if the messages would be refused, after `before` others: nothing changes."""
        if (refusal := self._refusal(batch)) is not None:
            raise Rejected(*refusal)
        if self.limits.refuses() and self.limits.room() < before + batch.count:
            name, room = self._state.record.name, self.limits.room()
            reason = self.limits.reason() or (
                f"{name!r} has room for {room:,} messages, and the transaction sends it {before + batch.count:,} or "
                "more; commit fewer at a time, or raise messages_max"
            )
            raise Rejected(limits.CODE, reason)

    def check_count(self, count: int) -> None:
        """The same for messages of which only the number is known."""
        if self.limits.refuses() and (room := self.limits.room()) < count:
            reason = f"{self._state.record.name!r} has room for {room:,} messages, and the batch has {count:,}; "
            raise Rejected(limits.CODE, self.limits.reason() or reason + "write fewer at a time, or raise messages_max")

    def committed(self, producer: Producer, batch: Batch, pending: PendingWrite, *, now: float) -> list[Operation]:
        """The messages are part of a transaction: they are answered with it."""
        state = self._state
        producer.accepted = batch.last_sequence
        pending.sent.append((producer.identity, batch.last_sequence))
        producer.used_ms = state.wall_ms(now)
        noted = Put(Table.PRODUCER, key_of(state.identity, producer.identity), producer.record())
        return [*self.take(batch, pending, now=now), noted]

    def take(self, batch: Batch, pending: PendingWrite, *, now: float) -> list[Operation]:
        """Everything that becomes of new messages: dropped as known, kept until they are due, or appended."""
        if not batch.columns:
            return self.append(batch, pending)
        operations: list[Operation] = []
        rest: Batch | None = batch
        if batch.columns & _DEDUPLICATION:
            kept, operations = self.window.new(batch)
            rest = batch.select(kept) if kept else None
        if rest is not None and rest.columns & _DUE:
            dues_ms = [int(due) for due in rest.dues_ms() or ()]
            wall_ms = self._state.wall_ms(now)
            later = [index for index, due in enumerate(dues_ms) if due > wall_ms]
            if later:
                operations += self.delays.hold(rest.select(later), [dues_ms[index] for index in later], pending)
            due = [index for index, due in enumerate(dues_ms) if due <= wall_ms]
            rest = rest.select(due) if due else None
        return operations + self.append(rest, pending) if rest is not None else operations

    def due(self, event: DelayedRead, *, now: float) -> list[Command]:
        """Move into the log what has become due."""
        pending = PendingWrite()
        batches, operations = self.delays.due(event, pending, now=now)
        if not operations:
            return []
        commands: list[Command] = []
        if damaged := sum(not data for _, data in event.items):
            text = f"{self._state.record.name!r}: {damaged} batches that were to be delivered later fail their checksum"
            commands.append(Report(Level.ERROR, "batch-damaged", text))
        for batch in batches:
            operations += self.append(batch, pending)
            operations += self._state.streams.let_go(self._state.identity, batch)
        return [*commands, self._state.write(operations, pending)]

    def append(self, batch: Batch, pending: PendingWrite, *, lane: int | None = None) -> list[Operation]:
        """Give the messages their positions, in the lanes of their priorities or in the given one; once `pending` is
        written they have arrived."""
        state = self._state
        state.counters.messages_in += batch.count
        state.counters.bytes_in += batch.body_bytes
        wanted = len(state.subscriptions) > 0 or state.keep_until > 0 or state.record.retains
        operations: list[Operation] = []
        for number, part in split_by_lane(batch) if lane is None else ((lane, batch),):
            into = state.log.lane(number)
            if wanted:
                operations += state.log.append(into, part)
                operations += self._note_columns(part, into.next - part.count, pending) if part.columns else []
            else:
                operations += state.log.skip(into, part.count)
            pending.arrived.append(Arrival(into, into.next, part if wanted else None))
        return operations

    def _note_columns(self, batch: Batch, first_position: int, pending: PendingWrite) -> list[Operation]:
        """What follows from what the messages have beside their bodies."""
        state = self._state
        if batch.columns & _EXPIRY:
            state.note_expiring()
        operations = state.streams.bind(state.identity, batch, first_position)
        if batch.columns & _KEY and state.record.last_value:
            superseded, noted = self.last_values.noted(batch, first_position)
            pending.superseded += superseded
            operations += noted
        return operations

    def confirmed(self, identity: bytes, sequence: int) -> list[Command]:
        """Confirm to whoever has the producer open by now: it may have resumed over another connection."""
        producer = self._state.producers.confirm(identity, sequence)
        if producer is None or producer.session is None:
            return []
        return [ToSession(producer.session, frames.Confirm(producer.number, sequence))]

    def close(self, session: bytes, number: int, *, forget: bool) -> list[Command]:
        state = self._state
        forget = forget and not state.subscriptions.no_local_count  # they have to know later whose messages it sent
        producer = state.producers.detach(session, number, forget=forget)
        if producer is None or not forget:
            return []
        key = key_of(state.identity, producer.identity)
        return [state.write([delete_key(Table.PRODUCER, key)], PendingWrite(), freeing=True)]

    def set_blocked(self, code: str, reason: str) -> list[Command]:
        """Tell every open producer that nothing more can be taken, or (empty reason) that it can again."""
        before = self.blocked
        if reason:
            self._blocks[code] = reason
        else:
            self._blocks.pop(code, None)
        blocked = self.blocked
        commands: list[Command] = self.staging.go_on()
        if (blocked and blocked[0]) == (before and before[0]):
            return commands
        for producer in self._state.producers.attached():
            assert producer.session is not None
            number = producer.number
            signal = frames.Unblock(number) if blocked is None else frames.Block(number, *blocked)
            commands.append(ToSession(producer.session, signal))
        return commands + self._state.streams.destination_blocked(self._state.identity, *(blocked or ("", "")))

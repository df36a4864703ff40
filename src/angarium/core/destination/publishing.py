"""From producers into the log: who may append, what is new, where it goes, and when it is confirmed."""
from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.log import split_by_lane
from angarium.core.destination.pending import Arrival, PendingWrite
from angarium.core.destination.state import DestinationState
from angarium.core.errors import Rejected
from angarium.core.storage import Operation, Put, Table, delete_key, key_of
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch


class Publishing:
    def __init__(self, state: DestinationState) -> None:
        self._state = state
        self.blocked: tuple[str, str] | None = None  # code and reason

    def open(self, session: bytes, frame: frames.ProducerOpen, *, now: float) -> list[Command]:
        state = self._state
        try:
            producer, forgotten = state.producers.open(session, frame.producer, frame.identity, frame.confirmed)
        except Rejected as refusal:
            return [ToSession(session, frames.ProducerClosed(frame.producer, refusal.code, refusal.reason))]
        producer.used_ms = state.wall_ms(now)
        producer.client = frame.client
        opened = frames.ProducerOpened(frame.producer, producer.identity, producer.accepted, frame.attachment)
        commands: list[Command] = [ToSession(session, opened)]
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
        new = state.producers.first_new(producer, batch.first_sequence, batch.last_sequence)
        if new is None:
            # Already accepted: its confirm has been lost with a connection, or is still to come.
            if batch.last_sequence <= producer.confirmed:
                return [ToSession(session, frames.Confirm(frame.producer, producer.confirmed))]
            return []
        if new > batch.first_sequence:
            batch = batch.slice(new - batch.first_sequence, batch.count)
        producer.accepted = batch.last_sequence
        producer.used_ms = state.wall_ms(now)
        if (refusal := state.streams.refusal(state.identity, batch)) is not None:
            refused = frames.Refuse(frame.producer, batch.first_sequence, batch.last_sequence, *refusal)
            noted = Put(Table.PRODUCER, key_of(state.identity, producer.identity), producer.record())
            return [state.write([noted], PendingWrite(answers=[ToSession(session, refused)]))]
        pending = PendingWrite(confirmed=(producer.identity, producer.accepted))
        operations = self.append(batch, pending)
        operations.append(Put(Table.PRODUCER, key_of(state.identity, producer.identity), producer.record()))
        commands: list[Command] = [state.write(operations, pending)]
        if state.record.confirm == "memory":
            commands += self.confirmed(producer.identity, producer.accepted)
        return commands

    def append(self, batch: Batch, pending: PendingWrite, *, lane: int | None = None) -> list[Operation]:
        """Give the messages their positions, in the lanes of their priorities or in the given one; once `pending` is
        written they have arrived."""
        state = self._state
        state.counters.messages_in += batch.count
        state.counters.bytes_in += batch.body_bytes
        wanted = len(state.subscriptions) > 0 or state.keep_until > 0
        operations: list[Operation] = []
        for number, part in split_by_lane(batch) if lane is None else ((lane, batch),):
            into = state.log.lane(number)
            if wanted:
                operations += state.log.append(into, part)
                operations += state.streams.bind(state.identity, part, into.next - part.count)
            else:
                operations += state.log.skip(into, part.count)
            pending.arrived.append(Arrival(into, into.next, part if wanted else None))
        return operations

    def confirmed(self, identity: bytes, sequence: int) -> list[Command]:
        """Confirm to whoever has the producer open by now: it may have resumed over another connection."""
        producer = self._state.producers.confirm(identity, sequence)
        if producer is None or producer.session is None:
            return []
        return [ToSession(producer.session, frames.Confirm(producer.number, sequence))]

    def close(self, session: bytes, number: int, *, forget: bool) -> list[Command]:
        state = self._state
        producer = state.producers.detach(session, number, forget=forget)
        if producer is None or not forget:
            return []
        key = key_of(state.identity, producer.identity)
        return [state.write([delete_key(Table.PRODUCER, key)], PendingWrite(), freeing=True)]

    def set_blocked(self, code: str, reason: str) -> list[Command]:
        """Tell every open producer that nothing more can be taken, or (empty reason) that it can again."""
        self.blocked = (code, reason) if reason else None
        commands: list[Command] = []
        for producer in self._state.producers.attached():
            assert producer.session is not None
            number = producer.number
            signal = frames.Block(number, code, reason) if reason else frames.Unblock(number)
            commands.append(ToSession(producer.session, signal))
        return commands

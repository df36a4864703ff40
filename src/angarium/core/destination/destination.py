"""One queue or topic: a log of batches, its producers, and its subscriptions.

    Publish --> order: give positions --> Write --> Written --> Confirm, and deliver to subscriptions
    Settle  --> cursor and ranges     --> Write --> Written --> Settled
    free positions and credit         --> Read  --> BatchesRead --> Deliver

A message is delivered only after it is durable; a settlement is answered only then. The log's prefix that every
subscription has settled is freed in the same write as the settlement that completed it. A topic without subscriptions
stores nothing.

The parts: `publishing` (into the log), `consuming` (consumers and their settlements), `dispatch` (from the log to the
consumers), over one `state`. This machine knows nothing of names, other destinations or connections:
`message_manager` does.
"""
from collections.abc import Iterable

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.consuming import Consuming
from angarium.core.destination.dispatch import Dispatch
from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.limits import CODE
from angarium.core.destination.log import LogField, log_put
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.publishing import Publishing
from angarium.core.destination.records import DestinationRecord
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.subscription_record import StoredSubscription, restored
from angarium.core.destination.tracing import Trace
from angarium.core.report import Level, Report
from angarium.core.storage import Operation, Table, delete_prefix
from angarium.core.wire import frames

_TABLES = (
    Table.BATCH, Table.LOG, Table.SUBSCRIPTION, Table.PAGE, Table.PRODUCER, Table.DAMAGED, Table.ATTACHED, Table.STREAM,
    Table.DELAYED, Table.DEDUPLICATION, Table.LAST_VALUE, Table.STAGE_PART, Table.STAGED, Table.STAGE_COMMIT,
    Table.DESTINATION,
)  # fmt: skip
_DAMAGED = "damaged"


class Destination:
    def __init__(self, state: DestinationState) -> None:
        self.state = state
        self.identity = state.identity
        self.log = state.log
        self.subscriptions = state.subscriptions
        self.producers = state.producers
        self.consumers = state.consumers
        self.counters = state.counters
        self.publishing = Publishing(state)
        self.dispatch = Dispatch(state, self.publishing.last_values)
        self.consuming = Consuming(state, self.dispatch)
        self.dispatch.make_room = lambda subscription: self._make_room((subscription,))[1]
        for subscription in self.subscriptions:  # a queue's own
            self.dispatch.prepare(subscription)

    @property
    def stored_bytes(self) -> int:
        """Of all its messages: retained, not yet due, and the content of streams included."""
        table, delays = self.state.streams.table, self.publishing.delays
        streamed = table.log_bytes(self.identity) + table.waiting_bytes(self.identity)
        return self.log.stored_bytes + delays.bytes + streamed

    @property
    def record(self) -> DestinationRecord:
        return self.state.record

    # -- start -------------------------------------------------------------------------------------

    def restore_log(self, figures: dict[tuple[int, int], tuple[int, int]], *, now: float) -> None:
        state = self.state
        state.log.restore(figures)
        state.counters.damaged, _ = figures.get((LogField.DAMAGED, 0), (0, 0))
        delayed, delayed_bytes = figures.get((LogField.DELAYED, 0), (0, 0))
        self.publishing.delays.restore(delayed, delayed_bytes, state.wall_ms(now))
        if not state.is_queue:
            state.keep_until = now + state.settings.resume_grace_s
            return
        cursors = {lane.number: lane.first for lane in state.log.order}
        settings = state.settings
        self._take_up(
            Subscription(
                "", durable=True, cursors=cursors,
                in_flight_max=settings.in_flight_max, holes_max=settings.holes_max,
            )
        )  # fmt: skip

    def restore_subscription(
        self, name: str, stored: StoredSubscription, attached: dict[ConsumerKey, int], *, now: float
    ) -> list[Operation]:
        """Returns what is to be written: the positions that it was saved ahead of will be given out once more."""
        settings = self.state.settings
        subscription = restored(
            name, stored, attached, log=self.log, until=now + settings.resume_grace_s,
            in_flight_max=settings.in_flight_max, holes_max=settings.holes_max,
        )  # fmt: skip
        self._take_up(subscription)
        ahead = any(cursor > subscription.cursor_of(lane) for lane, cursor in stored.record.cursors.items())
        return self.state.subscription_puts(subscription) if ahead or subscription.changed_pages else []

    def restored(self) -> list[Command]:
        """What was under way when the broker ended goes on: what was to be buried, moved, and what was too much."""
        commands = self.dispatch.bury_restored() + self.publishing.staging.go_on()
        return commands + (self._keep_blocked() if self.record.over_limit == "block" else self._keep_limits())

    def _take_up(self, subscription: Subscription) -> None:
        self.subscriptions.add(subscription)
        self.dispatch.prepare(subscription)

    def restore_names(self, ids: dict[int, bytes], positions: dict[bytes, int]) -> list[Operation]:
        return self.publishing.window.restore(ids) + self.publishing.last_values.restore(positions)

    # -- events ------------------------------------------------------------------------------------

    def frame(self, session: bytes, frame: frames.Frame, payload: bytes, *, now: float) -> list[Command]:
        match frame:
            case frames.Publish():
                return self.publishing.publish(session, frame, payload, now=now)
            case frames.Settle():
                return self.consuming.settle(session, frame, now=now) + self._keep_limits()
            case frames.Credit():
                return self.consuming.credit(session, frame)
            case frames.Recover():
                return self.consuming.recover(session, frame, now=now)
            case frames.ProducerOpen():
                return self.publishing.open(session, frame, now=now)
            case frames.ConsumerOpen():
                return self.consuming.open(session, frame, now=now)
            case frames.Stall(stalled):
                return self.consuming.stall(session, stalled)
            case frames.ProducerClose(number):
                return self.publishing.close(session, number, forget=True)
            case frames.ConsumerClose(number, unsubscribe, seen):
                commands = self.consuming.close(session, number, now=now, unsubscribe=unsubscribe, seen=seen)
                return commands + self._keep_limits()
            case frames.SessionEnded(closed):
                return self._session_ended(session, closed=closed, now=now)
        raise AssertionError(f"{type(frame).__name__} is not for a destination")

    def _session_ended(self, session: bytes, *, closed: bool, now: float) -> list[Command]:
        commands = self.consuming.session_ended(session, closed=closed, now=now)
        for producer in self.producers.of_session(session):
            commands += self.publishing.close(session, producer.number, forget=closed)
        return commands

    def written(self, pending: PendingWrite, *, now: float) -> list[Command]:
        commands: list[Command] = list(pending.answers)
        if pending.refused is not None:  # before the confirm, which may go beyond
            commands += self.publishing.refused(*pending.refused)
        if pending.confirmed is not None:
            commands += self.publishing.confirmed(*pending.confirmed)
        for identity, sequence in pending.sent:
            self.producers.confirm(identity, sequence)
        if pending.settled is not None:
            commands += self.consuming.settled(*pending.settled, pending.lost)
        if pending.noted is not None:
            self.dispatch.noted(pending.noted)
        if pending.held_ms is not None:
            self.publishing.delays.held(pending.held_ms)
        if pending.moved:
            commands += self.publishing.delays.moved(now)
        if pending.opened is not None:
            commands += self.consuming.opened(pending.opened, pending.lost)
        if pending.arrived:
            if not pending.is_handed_out:
                commands += self.dispatch.arrived(pending.arrived, now=now)
            if pending.superseded:
                commands += self._supersede(pending.superseded)
            commands += self._keep_limits()
            # A subscription may begin, or have ended, beyond what was written.
            commands += self.state.freed()
        # Whatever is settled or buried is so in a write, and makes room.
        return commands + self._keep_blocked()

    def stream_damaged(self, position: int, reason: str) -> list[Command]:
        """The message is there, its stream cannot be read: it goes to the dead message queue, and its stream with it.
        Whoever would not have it buried has been told when he opened it."""
        state = self.state
        text = f"{self.record.name!r}, position {position}: {reason}"
        commands: list[Command] = [Report(Level.ERROR, "stream-damaged", text)]
        if position not in self.log:  # it is not yet due: whoever opens it then is told
            return commands
        doomed = [subscription for subscription in self.subscriptions if _doom(subscription, position)]
        if doomed:
            state.counters.damaged += 1
            noted = log_put(self.identity, LogField.DAMAGED, state.counters.damaged)
            commands.append(state.write([noted], PendingWrite(), freeing=True))
        for subscription in doomed:
            commands += [*self.consuming.save(subscription, PendingWrite()), *self.dispatch.pump(subscription)]
        return commands

    def _supersede(self, positions: list[int]) -> list[Command]:
        """There is a later value: what nobody holds is settled."""
        touched: dict[Subscription, None] = {}
        for subscription in self.subscriptions:
            for position in positions:
                if subscription.free_in(position, position + 1):
                    subscription.discard(position, position + 1, "superseded")
                    touched[subscription] = None
        return [c for s in touched for c in self.consuming.save(s, PendingWrite(), patient=True)]

    def _keep_limits(self) -> list[Command]:
        """What follows from the destination's limits, now that it holds more, or less."""
        if not self.publishing.limits.is_set:
            return []
        touched, commands = self._make_room(self.subscriptions)
        for subscription in touched:
            commands += self.dispatch.pump(subscription)
        return commands + self._keep_blocked()

    def _make_room(self, subscriptions: Iterable[Subscription]) -> tuple[list[Subscription], list[Command]]:
        """Where the oldest make it; who of these lost something. Nothing may be delivered to them before: after a
        start, what was to die then would come after what was delivered in its stead."""
        limits, record = self.publishing.limits, self.record
        commands: list[Command] = []
        touched: list[Subscription] = []
        if not limits.is_set:
            return touched, commands
        if record.slow_subscriber == "drop" and not self.state.is_queue:
            touched, commands = limits.drop_behind(subscriptions)
        elif record.over_limit == "oldest":
            touched = limits.doom_oldest(subscriptions)
        for subscription in touched:
            commands += self.consuming.save(subscription, PendingWrite(), patient=True)
        return touched, commands

    def _keep_blocked(self) -> list[Command]:
        if not self.publishing.limits.is_set or self.record.over_limit != "block":
            return []
        if self.record.slow_subscriber == "drop" and not self.state.is_queue:
            return []
        return self.publishing.set_blocked(CODE, self.publishing.limits.reason())

    # -- administration ------------------------------------------------------------------------------

    def purge(self) -> tuple[int, list[Operation]]:
        """Settle everything that nobody holds."""
        purged = 0
        operations: list[Operation] = []
        for subscription in self.subscriptions:
            for lane in self.log.order:
                for low, high in subscription.free_in(subscription.cursor_of(lane.number), lane.readable):
                    purged += high - low
                    subscription.discard(low, high, "purged")
            if subscription.durable:
                operations += self.state.subscription_puts(subscription)
        return purged, operations + self.state.trim_to(lambda lane: lane.next)  # also what is retained

    def alter(self, record: DestinationRecord) -> list[Command]:
        """Other options count from now on."""
        self.state.record = record
        for subscription in self.subscriptions:
            self.dispatch.follow_options(subscription)
        unblocked = self.publishing.set_blocked(CODE, "")
        return unblocked + self._keep_limits()

    def remove(self, code: str, reason: str) -> tuple[list[ToSession], list[Operation]]:
        closings = [
            ToSession(consumer.session, frames.ConsumerClosed(consumer.number, code, reason))
            for consumer in self.consumers.values()
        ]
        for producer in self.producers.attached():
            assert producer.session is not None
            closed = frames.ProducerClosed(producer.number, code, reason)
            closings.append(ToSession(producer.session, closed))
        operations: list[Operation] = [delete_prefix(table, self.identity) for table in _TABLES]
        if self.state.trace is not None:
            self.state.trace.add(Trace.REMOVED)
            operations += self.state.trace.flush(freeing=True)
        return closings, operations

    # -- time ----------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        earliest = self.state.keep_until or None
        publishing = self.publishing
        for deadline in (self.subscriptions.deadline(), publishing.delays.deadline(), publishing.staging.deadline()):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def tick(self, now: float) -> list[Command]:
        commands = self.consuming.tick(now) + self.publishing.delays.tick(now) + self.publishing.staging.tick(now)
        if self.state.keep_until and now >= self.state.keep_until:
            self.state.keep_until = 0.0
            commands += self.state.freed()
        return commands


def _doom(subscription: Subscription, position: int) -> bool:
    """Have it buried, whether a consumer holds it or it is free; False if neither, or if nothing is buried there."""
    if not subscription.buries:
        return False
    for consumer in subscription.consumers.values():
        if position in consumer.held:
            subscription.settle(consumer, position, position + 1, doom=_DAMAGED)
            return True
    free = subscription.free_in(position, position + 1)
    for part in free:
        subscription.doom_free(_DAMAGED, *part)
    return bool(free)

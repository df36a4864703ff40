"""What consumers do at a destination: come, grant credit, settle, go, and come back."""
from collections.abc import Sequence

from angarium.core.destination.consumer import Consumer, ConsumerKey
from angarium.core.destination.dispatch import Dispatch
from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.headers import joined
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.selecting import check_length, compiled, names_of, parsed
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.errors import Rejected, RemoteProtocolError
from angarium.core.ranges import Range
from angarium.core.storage import Operation
from angarium.core.wire import frames
from angarium.core.wire.frames import Outcome


class Consuming:
    def __init__(self, state: DestinationState, dispatch: Dispatch) -> None:
        self._state = state
        self._dispatch = dispatch
        self._numbers: dict[bytes, dict[int, None]] = {}  # consumers of each session

    # -- coming ------------------------------------------------------------------------------------

    def open(self, session: bytes, frame: frames.ConsumerOpen, *, now: float) -> list[Command]:
        state = self._state
        try:
            self._check_owner(frame.client)
            self._check_room(session, frame.consumer)
            subscription, ended = self._subscription_for(session, frame)
        except Rejected as refusal:
            return [ToSession(session, frames.ConsumerClosed(frame.consumer, refusal.code, refusal.reason))]
        consumer = Consumer(
            session, frame.consumer, subscription, frame.credit, frame.attachment,
            opening=subscription.durable, exclusive=frame.exclusive, transacted=frame.transacted,
        )  # fmt: skip
        if state.is_queue and (selector := compiled(frame.selector)) is not None:
            consumer.accepts = selector.match
            consumer.weight = selector.weight
            subscription.names = joined(subscription.names, names_of(frame.selector))
        lost = subscription.attach(consumer, frame.held, resumed=frame.resumed)
        state.subscriptions.note_time(subscription)
        state.consumers[consumer.key] = consumer
        self._numbers.setdefault(session, {})[frame.consumer] = None
        if not subscription.durable:
            return [*ended, self._opened(consumer, lost), *self._dispatch.pump(subscription)]
        # Who is attached has to survive a restart: it decides for whom unsettled messages are kept.
        operations = [*state.subscription_puts(subscription), state.attached_put(consumer)]
        # `freeing`: this consumer may be the one that empties a full disk, and all writes of these records keep order.
        return [*ended, state.write(operations, PendingWrite(opened=consumer, lost=lost), freeing=True)]

    def _subscription_for(self, session: bytes, frame: frames.ConsumerOpen) -> tuple[Subscription, list[Command]]:
        """The subscription that a consumer asks for, and what ends the one that it replaces."""
        subscriptions = self._state.subscriptions
        check_length(frame.selector, self._state.settings.selector_characters_max, repr(frame.destination))
        parsed(frame.selector)  # one that is wrong is refused before anything changes
        name = subscriptions.name_for(session, frame)
        known = subscriptions.get(name)
        ended: list[Command] = []
        if known is not None:
            if subscriptions.check_compatible(known, session, frame, frame.client):
                if frame.no_local:  # whoever takes it up is the one whose own messages it leaves out
                    known.no_local = frame.client.hex()
                return known, []
            ended = self.end_subscription(known, [])
        created = subscriptions.new_for(name, frame, frame.client)
        self._dispatch.prepare(created)
        if self._state.trace is not None:
            self._state.trace.came(created)
        return created, ended

    def _opened(self, consumer: Consumer, lost: list[Range]) -> ToSession:
        # A durable subscription goes on where it was, whatever its consumers know of that.
        lanes = {} if consumer.subscription.durable else self._state.log.lanes
        positions = {number: consumer.position_in(lane) for number, lane in lanes.items()}
        first = positions.pop(0, -1)
        opened = frames.ConsumerOpened(consumer.number, lost, consumer.attachment, first, list(positions.values()))
        return ToSession(consumer.session, opened)

    def opened(self, consumer: Consumer, lost: list[Range]) -> list[Command]:
        """Its record is durable: it may be served, unless it has gone meanwhile."""
        if self._state.consumers.get(consumer.key) is not consumer:
            return []
        consumer.opening = False
        consumer.subscription.line.update(consumer)
        return [self._opened(consumer, lost), *self._dispatch.pump(consumer.subscription)]

    def _check_owner(self, client: bytes) -> None:
        record = self._state.record
        if record.owner and record.owner != client:
            reason = f"{record.name!r} is temporary: only the connection that made it may consume from it"
            raise Rejected("not-owner", reason)

    def _check_room(self, session: bytes, number: int) -> None:
        consumers, limit = self._state.consumers, self._state.settings.consumers_max
        if len(consumers) >= limit:
            reason = (
                f"{self._state.record.name!r} has {len(consumers):,} consumers, as many as consumers_max allows; close "
                "some, or raise the limit"
            )
            raise Rejected("too-many-consumers", reason)
        if (session, number) in consumers:
            raise Rejected("consumer-open", f"consumer {number} is open already")

    # -- consuming ---------------------------------------------------------------------------------

    def consumers_of(self, session: bytes) -> list[Consumer]:
        return [self._state.consumers[session, number] for number in self._numbers.get(session, {})]

    def credit(self, session: bytes, frame: frames.Credit) -> list[Command]:
        consumer = self._state.consumers.get((session, frame.consumer))
        if consumer is None:
            return []
        consumer.subscription.credit(consumer, frame.limit)
        self._state.subscriptions.note_time(consumer.subscription)
        return self._dispatch.pump(consumer.subscription)

    def stall(self, session: bytes, stalled: bool) -> list[Command]:
        commands: list[Command] = []
        for consumer in self.consumers_of(session):
            consumer.stalled = stalled
            consumer.subscription.line.update(consumer)
            commands += self._dispatch.pump(consumer.subscription)
        return commands

    def settle(self, session: bytes, frame: frames.Settle, *, now: float) -> list[Command]:
        state = self._state
        consumer = state.consumers.get((session, frame.consumer))
        if consumer is None:
            return []  # it has been closed meanwhile, and was told so
        ranges, lost = self._there(consumer, frame.ranges, f"settlement {frame.number}")
        subscription = consumer.subscription
        for low, high in ranges:
            if frame.outcome == Outcome.RELEASE:
                lost += subscription.release(consumer, low, high, until=self._redelivery_at(now))
            elif frame.outcome == Outcome.RETURN:
                lost += subscription.hand_back(consumer, low, high)
            else:
                doom = "rejected" if frame.outcome == Outcome.REJECT else ""
                settled, not_held = subscription.settle(consumer, low, high, doom=doom)
                self._count_outcome(frame.outcome, settled)
                lost += not_held
        if frame.credit >= 0:
            # As a Credit would: a consumer that resumed with settlements to send grants its first credit with the last.
            subscription.credit(consumer, frame.credit)
        state.subscriptions.note_time(subscription)
        pending = PendingWrite(settled=(consumer, frame.number), lost=lost)
        released = state.streams.release(state.identity, ranges, state.is_needed)
        return [*self.save(subscription, pending, released, patient=True), *self._dispatch.pump(subscription)]

    def _there(self, consumer: Consumer, ranges: list[Range], what: str) -> tuple[list[Range], list[Range]]:
        """Those that the log has had, and those that it has not. Only who has just come back may name such: its
        destination was removed while it was away, and made anew, and nobody could tell it."""
        has = self._state.log.has_range
        if all(has(low, high) for low, high in ranges):
            return ranges, []
        if consumer.unclaimed is None:
            raise RemoteProtocolError("bad-range", f"{what} names positions that do not exist")
        return [each for each in ranges if has(*each)], [each for each in ranges if not has(*each)]

    def holds(self, session: bytes, number: int, position: int) -> bool:
        consumer = self._state.consumers.get((session, number))
        return consumer is not None and position in consumer.held

    def _redelivery_at(self, now: float) -> float | None:
        delay_ms = self._state.record.redelivery_delay_ms
        return now + delay_ms / 1000 if delay_ms else None

    def _count_outcome(self, outcome: Outcome, count: int) -> None:
        if outcome == Outcome.REJECT:
            self._state.counters.rejected += count
        else:
            self._state.counters.settled += count

    def recover(self, session: bytes, frame: frames.Recover, *, now: float) -> list[Command]:
        """What was sent to the consumer before the answer is void: it comes again after it."""
        state = self._state
        consumer = state.consumers.get((session, frame.consumer))
        if consumer is None:
            return []
        seen, _ = self._there(consumer, frame.seen, f"recovery {frame.number}")
        subscription = consumer.subscription
        subscription.recover(consumer, frame.number, seen, until=self._redelivery_at(now))
        state.subscriptions.note_time(subscription)
        recovered = ToSession(session, frames.Recovered(frame.consumer, frame.number))
        # Counted and noted in one write: asked for again, also after a restart, it is not counted again.
        noted = [state.attached_put(consumer)] if subscription.durable else []
        saved = self.save(subscription, PendingWrite(), noted, patient=True)
        return [recovered, *saved, *self._dispatch.pump(subscription)]

    def settled(self, consumer: Consumer, number: int, lost: list[Range]) -> list[Command]:
        """One that has closed since is still owed the answer: it may have lost what it settled. One that was cut off
        asks again."""
        if consumer.cut:
            return []
        return [ToSession(consumer.session, frames.Settled(consumer.number, number, lost))]

    def save(
        self,
        subscription: Subscription,
        pending: PendingWrite,
        also: list[Operation] | None = None,
        *,
        patient: bool = False,
    ) -> list[Command]:
        """Store the subscription and free what it was the last to need; then what is pending follows."""
        state = self._state
        operations = (also or []) + state.saved(subscription)
        if operations:
            return [state.write(operations, pending, freeing=True, patient=patient)]
        commands: list[Command] = list(pending.answers)
        if pending.settled is not None:
            commands += self.settled(*pending.settled, pending.lost)
        return commands

    # -- going -------------------------------------------------------------------------------------

    def close(
        self,
        session: bytes,
        number: int,
        *,
        now: float,
        cut: bool = False,
        unsubscribe: bool = False,
        seen: list[Range] | None = None,
    ) -> list[Command]:
        """Close a consumer: by its client's wish, or because its session was cut off and may come back. `seen` is as
        for `Subscription.detach`."""
        state = self._state
        consumer = state.consumers.pop((session, number), None)
        if consumer is None:
            return [] if cut else [ToSession(session, frames.ConsumerClosed(number))]
        numbers = self._numbers[session]
        del numbers[number]
        if not numbers:
            del self._numbers[session]
        subscription = consumer.subscription
        subscription.detach(consumer, park_until=now + state.settings.resume_grace_s if cut else None, seen=seen)
        state.subscriptions.note_time(subscription)
        if cut:
            consumer.cut = True
            return self._dispatch.pump(subscription)  # its groups, or its exclusive place, are somebody else's now
        answers = [ToSession(session, frames.ConsumerClosed(number))]
        alone = not subscription.consumers and not subscription.parking
        if (not subscription.durable and alone) or (unsubscribe and subscription.name and alone):
            return self.end_subscription(subscription, answers, [(session, number)])
        gone = state.detached(subscription, [(session, number)])
        return [*self.save(subscription, PendingWrite(answers=answers), gone), *self._dispatch.pump(subscription)]

    def end_subscription(
        self, subscription: Subscription, answers: list[ToSession], detached: Sequence[ConsumerKey] = ()
    ) -> list[Command]:
        state = self._state
        state.subscriptions.remove(subscription)
        self._dispatch.forget(subscription)
        if state.trace is not None:
            state.trace.went(subscription.name)
        operations: list[Operation] = []
        if subscription.durable:
            operations += state.subscription_deletes(subscription)
            keys = [*detached, *subscription.consumers, *subscription.parking.keys]
            operations += state.detached(subscription, keys)
        operations += state.trim()
        if not operations:
            return list(answers)
        return [state.write(operations, PendingWrite(answers=answers), freeing=True)]

    def session_ended(self, session: bytes, *, closed: bool, now: float) -> list[Command]:
        """The session was closed for good, or cut off and may resume: nobody is there to be answered."""
        commands: list[Command] = []
        for consumer in self.consumers_of(session):
            commands += self.close(session, consumer.number, now=now, cut=not closed)
        if closed:
            for subscription in self._state.subscriptions.timed():
                commands += self._given_up(subscription, subscription.forget_session(session))
        return commands

    def _given_up(self, subscription: Subscription, keys: list[ConsumerKey]) -> list[Command]:
        """Those consumers will not come back: note it, and deliver to others what they held."""
        self._state.subscriptions.note_time(subscription)
        if not keys:
            return []
        if not subscription.durable and not subscription.consumers and not subscription.parking:
            return self.end_subscription(subscription, [])
        gone = self._state.detached(subscription, keys)
        return [*self.save(subscription, PendingWrite(), gone), *self._dispatch.pump(subscription)]

    def tick(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for subscription in self._state.subscriptions.timed():
            returned = subscription.end_delays(now)
            commands += self._given_up(subscription, subscription.expire_parked(now))
            if returned:
                self._state.subscriptions.note_time(subscription)
                commands += self._dispatch.pump(subscription)
        return commands

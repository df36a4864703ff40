"""Transactions at one message manager: sends and settlements of a session, on any destinations, all or nothing.

    Commit --already done--> Committed
           --check: everything is still possible--> apply --> one Write --> Written --> Committed (CommitFinal)
           --something is not--> Aborted, and nothing has changed

The client stages, so a transaction that is never committed leaves no trace here. A commit is one group of the disk:
a crash leaves all of it or nothing. The number of the last commit of each session is written with it; a client that
did not hear the answer commits again under the same number, and is told. Only a commit that comes from where the
session is now is taken: one from an earlier connection may be late, and its client have gone on.

If other replica groups take part (`participants`) this commit is the decision for all of them: they have prepared
theirs before (`participating.py`), and what is decided here is remembered until they are done (`deciding.py`).
"""
from collections.abc import Callable

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, DestinationSettings, ToSession, Write
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.restoring import StoredState
from angarium.core.errors import LocalProtocolError, Rejected
from angarium.core.transaction.deciding import Decisions
from angarium.core.transaction.numbers import SESSIONS_MAX, CommitNumbers
from angarium.core.transaction.participating import Participant
from angarium.core.transaction.plan import Asked, Effects, Plan, check
from angarium.core.wire import frames
from angarium.core.wire.frames.transactions import COORDINATOR

FRAMES = (
    frames.TransactionCommit, frames.CommitPrepare, frames.CommitFinal, frames.CommitRollback, frames.CommitQuestion,
    frames.CommitComplete,
)  # fmt: skip


class Transactions:
    def __init__(
        self, group: int, destinations: dict[int, Destination], settings: DestinationSettings, *,
        write: Callable[..., Write], wall_ms_at_zero: float, sessions_max: int = SESSIONS_MAX,
    ) -> None:  # fmt: skip
        self._group = group
        self._destinations = destinations
        self._write = write
        self.wall_ms_at_zero = wall_ms_at_zero
        self.numbers = CommitNumbers(sessions_max=sessions_max)
        self.decisions = Decisions(
            group, write, decisions_max=settings.decisions_max, in_doubt_s=settings.in_doubt_s
        )
        self.participant = Participant(group, destinations, self.numbers, settings, write=write, again=self._asked)

    def restore(self, state: StoredState, *, now: float) -> None:
        """After the destinations."""
        self.numbers.restore(state.transactions)
        self.decisions.restore(state.decisions, now=now)
        self.participant.restore(state.prepared, now=now)

    # -- events ------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        decision, part = self.decisions.deadline(), self.participant.deadline()
        return part if decision is None else decision if part is None else min(decision, part)

    def tick(self, now: float) -> list[Command]:
        return self.participant.tick(now) + self.decisions.tick(now)

    def frame(self, session: bytes, frame: frames.Frame, payload: bytes, *, now: float) -> list[Command]:
        """Any of FRAMES. `session` is who sent it; those of the second phase name the transaction's own."""
        match frame:
            case frames.TransactionCommit() | frames.CommitPrepare():
                return self._asked(session, frame, payload, now)
            case frames.CommitFinal() | frames.CommitRollback():
                return self.participant.decided(session, frame, now)
            case frames.CommitQuestion():
                return self._question(session, frame, now)
            case frames.CommitComplete():
                return self.decisions.completed(frame)
        raise LocalProtocolError(f"{type(frame).__name__} is not of a transaction")

    def _asked(self, session: bytes, frame: Asked, payload: bytes, now: float) -> list[Command]:
        if frame.number == self.numbers.last.get(session, 0) and not self.participant.has(session):
            if self.numbers.unwritten.get(session) == frame.number:
                return []  # it will be answered when it is durable
            return [ToSession(session, self._committed(session, frame))]
        if isinstance(frame, frames.TransactionCommit):
            return self.commit(session, frame, payload, now=now)
        return self.participant.prepare(session, frame, payload, int(self.wall_ms_at_zero + now * 1000), now)

    def _committed(self, session: bytes, frame: Asked) -> frames.Committed | frames.CommitFinal:
        """With others that take part this is no answer for the client: they have to hear of it first."""
        if isinstance(frame, frames.CommitPrepare):
            return frames.CommitFinal(session, frame.number, COORDINATOR, frame.decider)
        if frame.participants:
            return frames.CommitFinal(session, frame.number, COORDINATOR, self._group)
        return frames.Committed(frame.number)

    def written(self, session: bytes, number: int, now: float) -> None:
        self.numbers.written(session, number)
        self.decisions.written(session, number, now)

    def session_ended(self, session: bytes, *, closed: bool) -> list[Command]:
        """One that was cut off may ask again; one that was closed has heard all its answers."""
        operations = self.numbers.forget(session) if closed else []
        return [self._write(operations, PendingWrite(), freeing=True)] if operations else []

    # -- committing, and deciding for others --------------------------------------------------------------

    def commit(self, session: bytes, frame: frames.TransactionCommit, payload: bytes, *, now: float) -> list[Command]:
        try:
            if (waits := self.participant.is_in_the_way(session, frame, payload, now)) is not None:
                return waits
            if frame.number < self.numbers.last.get(session, 0) and not frame.participants:
                return [ToSession(session, frames.Committed(frame.number))]
            self._check_open(session, frame)
            plan = check(self._destinations, session, frame, payload)
        except Rejected as refusal:
            aborted = frames.Aborted(frame.number, refusal.code, refusal.reason, frame.attachment)
            return [ToSession(session, aborted)]
        return self._apply(session, frame.number, plan, self._committed(session, frame), now)

    def _check_open(self, session: bytes, frame: frames.TransactionCommit) -> None:
        """It may still be decided; raises Rejected."""
        if frame.number < self.numbers.last.get(session, 0) or self.numbers.is_refused(session, frame.number):
            reason = f"transaction {frame.number} was given up: a part of it took too long, or could not be done"
            raise Rejected("transaction-refused", reason)
        if frame.participants:
            self.decisions.check_room()

    def _apply(self, session: bytes, number: int, plan: Plan, answer: frames.Frame, now: float) -> list[Command]:
        pending = PendingWrite([ToSession(session, answer)], committed=(session, number))
        operations = self.numbers.commit(session, number, now)
        if plan.participants:
            operations += self.decisions.decide(session, number, plan.participants)
        effects = Effects(operations)
        for publish in plan.publishes:
            effects.publish(publish.destination, publish.producer, publish.batch, now)
        for settle in plan.settles:
            consumer, ranges = settle.consumer, settle.ranges
            count = sum(consumer.subscription.settle(consumer, low, high)[0] for low, high in ranges)
            effects.settled(settle.destination, consumer.subscription, ranges, count)
        # Settlements alone make room. With messages it keeps its place behind earlier publishes, and later settlements
        # of the same subscriptions keep theirs behind it.
        freeing = not plan.publishes
        return [self._write(effects.finish(pending, freeing=freeing), pending, freeing=freeing)]

    def _question(self, asker: bytes, frame: frames.CommitQuestion, now: float) -> list[Command]:
        """What was decided, and if nothing was: that it never will be."""
        session, number = frame.session, frame.number
        if (waits := self.participant.question(asker, frame, now)) is not None:
            return waits
        if self.numbers.unwritten.get(session) == number:
            return []  # committed, as soon as that is durable: who is in doubt asks again, and the coordinator is told
        if self.decisions.is_decided(session, number) or self.numbers.last.get(session) == number:
            return [ToSession(asker, frames.CommitFinal(session, number, frame.group, frame.decider))]
        answer = ToSession(asker, frames.CommitRollback(session, number, frame.group, frame.decider))
        return [self._write(self.numbers.refuse(session, number, now), PendingWrite([answer]))]

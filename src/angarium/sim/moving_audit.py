"""All or nothing while destinations are moved between replica groups: the audit of transactions whose parts may be in
one group when they are first sent, and in another when they are sent again.

So what is compared is not the part of each group, but what becomes of each message:
- what a transaction sends is stored once, and never after its application was told Aborted;
- a position of a queue that is consumed in transactions only is settled by a transaction, or dies;
- Committed leaves a message manager when something of it is durable, and reaches the application when all of it is;
- in the end every transaction has had all its effects or none, whether somebody was told or not.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field

from angarium.core.destination.events import ToSession
from angarium.core.transaction.deciding import decision_key
from angarium.core.wire import frames
from angarium.sim.durable import Change, Place
from angarium.sim.messages import Violation
from angarium.sim.spanning_audit import SpanningAttempt, SpanningAudit
from angarium.sim.transactions import Attempt


@dataclass(slots=True, eq=False)
class MovingAttempt(SpanningAttempt):
    stored: set[bytes] = field(default_factory=set)  # bodies
    settled: set[Place] = field(default_factory=set)

    @property
    def is_touched(self) -> bool:
        return bool(self.stored or self.settled) or not (self.outputs or self.inputs)

    @property
    def is_whole(self) -> bool:
        return self.stored == self.outputs and self.settled == self.inputs


class MovingAudit(SpanningAudit):
    attempt_kind = MovingAttempt

    def committed(self, attempt: Attempt) -> None:
        assert isinstance(attempt, MovingAttempt)
        attempt.is_open = False
        if not attempt.is_whole:
            missing = (sorted(attempt.outputs - attempt.stored)[:3], sorted(attempt.inputs - attempt.settled)[:3])
            raise Violation("committed means durable", f"{attempt.label!r} is committed and lacks {missing}")

    def aborted(self, attempt: Attempt) -> None:
        assert isinstance(attempt, MovingAttempt)
        attempt.is_open, attempt.is_aborted = False, True
        if attempt.stored:
            raise Violation("aborted leaves nothing", f"{attempt.label!r} is aborted, and {len(attempt.stored)} stored")

    def from_manager(self, command: ToSession) -> None:
        frame = command.frame
        if isinstance(frame, frames.CommitReady) and decision_key(command.session, frame.number) not in self._prepared:
            raise Violation("ready means durable", f"{frame.number} of {command.session.hex()[-6:]} in {frame.group}")
        if isinstance(frame, frames.Committed | frames.CommitFinal):
            session = frame.session if isinstance(frame, frames.CommitFinal) else command.session
            attempt = self._numbers[session, frame.number]
            assert isinstance(attempt, MovingAttempt)
            if not attempt.is_touched:
                raise Violation("committed means durable", f"{attempt.label!r} is answered and nowhere on disk")

    def changed_in(self, group: int, change: Change) -> None:
        settled, accounted = set(change.settled), set[Place]()
        found: dict[MovingAttempt, None] = {}
        for body in self._new_bodies(change):
            attempt = self._attempts[body.partition(b":")[0]]
            assert isinstance(attempt, MovingAttempt)
            if attempt.is_aborted:
                raise Violation("aborted leaves nothing", f"{attempt.label!r}: stored after it was aborted")
            attempt.stored.add(body)
            found[attempt] = None
        for session in sorted(change.committed):
            current = self._current.get(session)
            if isinstance(current, MovingAttempt):
                found[current] = None
        for attempt in found:
            effect = attempt.inputs & settled
            if effect and attempt.is_aborted:
                raise Violation("aborted leaves nothing", f"{attempt.label!r}: settled after it was aborted")
            attempt.settled |= effect
            accounted |= effect
            for queue, position in effect:
                self._holdings.subscriptions[queue, ""].finished.add(position)
        for queue, position in sorted(settled - accounted - change.buried):
            if queue in self._queues and position not in self._messages.by_name[queue].damaged:
                raise Violation("all or nothing", f"{queue}: position {position} is settled by no transaction")

    def unfinished(self) -> Iterator[str]:
        for attempt in self._attempted:
            assert isinstance(attempt, MovingAttempt)
            if (attempt.stored or attempt.settled) and not attempt.is_whole:
                yield f"{attempt.label!r}: {len(attempt.stored)} of {len(attempt.outputs)} messages are stored"

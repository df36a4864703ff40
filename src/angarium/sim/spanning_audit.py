"""All or nothing across replica groups: the audit of transactions of which several groups have a part.

As `transactions.py`, part by part:
- the write that stores the first message of a part stores all of them, and settles everything that the part was to
  settle; a part has its effect once;
- who says CommitReady has its part on disk;
- no part has its effect before that of the group that decides, the lowest number;
- Committed leaves a message manager when the decision is durable, and reaches the application when every part is;
- who was told Aborted finds nothing of it, ever, in any group;
- in the end, when all is healed, every transaction has had its effect in all its groups or in none, whether somebody
  was told or not, and no message manager is in doubt about any.
"""
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.storage import Operation, Put, Table
from angarium.core.transaction.deciding import decision_key
from angarium.core.wire import frames
from angarium.sim.durable import Change, Place
from angarium.sim.holdings import Holdings
from angarium.sim.messages import Messages, Violation
from angarium.sim.transactions import Attempt, TransactionAudit


@dataclass(slots=True, eq=False)
class SpanningAttempt(Attempt):
    done: set[int] = field(default_factory=set)  # groups in which it has had its effect


class SpanningAudit(TransactionAudit):
    attempt_kind: type[SpanningAttempt] = SpanningAttempt

    def __init__(
        self, messages: Messages, holdings: Holdings, queues: set[str], group_of_name: Callable[[str], int]
    ) -> None:
        super().__init__(messages, holdings, queues)
        self._group_of_name = group_of_name
        self._attempted: list[SpanningAttempt] = []
        self._prepared: set[bytes] = set()  # session and number of those that were ever durable
        self.spanning = 0  # transactions of several groups that were committed

    # -- from applications ---------------------------------------------------------------------------

    def begin(self, session: bytes) -> Attempt:
        attempt = self.attempt_kind(b"t%d" % next(self._labels), session)
        self._attempts[attempt.label] = self._current[session] = attempt
        self._attempted.append(attempt)
        return attempt

    def committed(self, attempt: Attempt) -> None:
        assert isinstance(attempt, SpanningAttempt)
        attempt.is_open = False
        self.spanning += len(self._groups(attempt)) > 1
        if missing := self._groups(attempt) - attempt.done:
            raise Violation("committed means durable", f"{attempt.label!r} is committed and not in {sorted(missing)}")

    def aborted(self, attempt: Attempt) -> None:
        assert isinstance(attempt, SpanningAttempt)
        attempt.is_open, attempt.is_aborted = False, True
        if attempt.done:
            raise Violation("aborted leaves nothing", f"{attempt.label!r} is aborted and in {sorted(attempt.done)}")

    def _groups(self, attempt: Attempt) -> set[int]:
        outputs = {self._group_of_body(body) for body in attempt.outputs}
        return outputs | {self._group_of_name(queue) for queue, _ in attempt.inputs}

    def _group_of_body(self, body: bytes) -> int:
        return self._group_of_name(body.split(b":")[1].decode())

    # -- from the message managers -------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        attempt = self._current.get(event.session)
        if attempt is not None and isinstance(event.frame, frames.TransactionCommit | frames.CommitPrepare):
            self._numbers.setdefault((event.session, event.frame.number), attempt)

    def from_manager(self, command: ToSession) -> None:
        frame = command.frame
        if isinstance(frame, frames.CommitReady) and decision_key(command.session, frame.number) not in self._prepared:
            raise Violation("ready means durable", f"{frame.number} of {command.session.hex()[-6:]} in {frame.group}")
        if isinstance(frame, frames.Committed | frames.CommitFinal):
            session = frame.session if isinstance(frame, frames.CommitFinal) else command.session
            attempt = self._numbers[session, frame.number]
            assert isinstance(attempt, SpanningAttempt)
            if min(self._groups(attempt)) not in attempt.done:
                raise Violation("committed means durable", f"{attempt.label!r} is answered and not decided on disk")

    # -- from the disks ------------------------------------------------------------------------------

    def prepared_in(self, operations: Sequence[Operation]) -> None:
        puts = (operation for operation in operations if isinstance(operation, Put))
        self._prepared.update(put.key for put in puts if put.table == Table.PREPARED)

    def changed_in(self, group: int, change: Change) -> None:
        settled = set(change.settled)
        found: dict[SpanningAttempt, set[bytes]] = {}
        for body in self._new_bodies(change):
            attempt = self._attempts[body.partition(b":")[0]]
            assert isinstance(attempt, SpanningAttempt)
            found.setdefault(attempt, set()).add(body)
        for session in sorted(change.committed):
            current = self._current.get(session)
            if isinstance(current, SpanningAttempt) and self._inputs_in(current, group) & settled:
                found.setdefault(current, set())
        accounted: set[Place] = set()
        for attempt, bodies in found.items():
            self._check_part(attempt, group, bodies, settled)
            accounted |= self._inputs_in(attempt, group)
        for queue, position in sorted(settled - accounted - change.buried):
            if queue in self._queues and position not in self._messages.by_name[queue].damaged:
                raise Violation("all or nothing", f"{queue}: position {position} is settled by no transaction")

    def _new_bodies(self, change: Change) -> Iterator[bytes]:
        for stored in change.stored:
            if stored.body.partition(b":")[0] not in self._attempts:
                continue
            before = self._stored.get(stored.body)
            self._stored[stored.body] = stored.position
            if before is None:
                yield stored.body
            elif before != -1 or stored.position == -1:
                raise Violation("committed is done once", f"{stored.queue}: {stored.body[:30]!r} is there twice")

    def _inputs_in(self, attempt: Attempt, group: int) -> set[Place]:
        return {place for place in attempt.inputs if self._group_of_name(place[0]) == group}

    def _check_part(self, attempt: SpanningAttempt, group: int, bodies: set[bytes], settled: set[Place]) -> None:
        label = attempt.label
        if attempt.is_aborted or group in attempt.done:
            what = "after it was aborted" if attempt.is_aborted else "once more"
            raise Violation("aborted leaves nothing, committed is done once", f"{label!r}: effect {what}")
        wanted = {body for body in attempt.outputs if self._group_of_body(body) == group}
        if bodies != wanted:
            raise Violation("all or nothing", f"{label!r} in {group}: {len(bodies)} of {len(wanted)} messages")
        inputs = self._inputs_in(attempt, group)
        if missing := inputs - settled:
            raise Violation("all or nothing", f"{label!r} in {group}: {sorted(missing)[:5]} are not settled with it")
        decider = min(self._groups(attempt))
        attempt.done.add(group)
        if decider not in attempt.done:
            raise Violation("first the decision", f"{label!r} is done in {group} and not decided in {decider}")
        for queue, position in inputs:
            self._holdings.subscriptions[queue, ""].finished.add(position)

    # -- in the end ----------------------------------------------------------------------------------

    def unfinished(self) -> Iterator[str]:
        for attempt in self._attempted:
            if attempt.done and (missing := self._groups(attempt) - attempt.done):
                yield f"{attempt.label!r} is committed, and not yet in {sorted(missing)}"

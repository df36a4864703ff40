"""All or nothing: the audit of transactions.

Every message that a transaction sends carries its label, so that the disk tells which transactions took effect:
- the write that stores the first message of a transaction stores all of them, and settles everything that it was to
  settle, which nobody had settled before; and what it stores appears in the logs once;
- a position of a queue that is consumed in transactions only is settled by a transaction, or dies, or has rotted;
- Committed leaves the broker when all of it is durable;
- who was told Aborted finds nothing of it, ever; who was told Committed, everything.
"""
from dataclasses import dataclass, field
from itertools import count

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.wire import frames
from angarium.sim.durable import Change, Place
from angarium.sim.holdings import Holdings
from angarium.sim.messages import Messages, Violation


@dataclass(slots=True, eq=False)
class Attempt:
    """One commit, as its application asked for it."""

    label: bytes
    session: bytes
    inputs: set[Place] = field(default_factory=set)
    outputs: set[bytes] = field(default_factory=set)  # bodies
    is_durable: bool = False
    is_aborted: bool = False  # as the application was told
    is_open: bool = True  # not answered


class TransactionAudit:
    def __init__(self, messages: Messages, holdings: Holdings, queues: set[str]) -> None:
        self._messages = messages
        self._holdings = holdings
        self._queues = queues  # consumed in transactions only
        self._labels = count(1)
        self._attempts: dict[bytes, Attempt] = {}  # by label
        self._current: dict[bytes, Attempt] = {}  # by session: its last
        self._numbers: dict[tuple[bytes, int], Attempt] = {}  # session, number of the commit
        self._stored: dict[bytes, int] = {}  # bodies -> position, -1 while it waits to be due

    # -- from applications ---------------------------------------------------------------------------

    def begin(self, session: bytes) -> Attempt:
        attempt = Attempt(b"t%d" % next(self._labels), session)
        self._attempts[attempt.label] = self._current[session] = attempt
        return attempt

    def committed(self, attempt: Attempt) -> None:
        attempt.is_open = False
        if not attempt.is_durable:
            raise Violation("committed means durable", f"{attempt.label!r} is committed and not on disk")

    def aborted(self, attempt: Attempt) -> None:
        attempt.is_open, attempt.is_aborted = False, True
        if attempt.is_durable:
            raise Violation("aborted leaves nothing", f"{attempt.label!r} is aborted and on disk")

    # -- from the broker -----------------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        if isinstance(event.frame, frames.TransactionCommit) and (attempt := self._current.get(event.session)):
            self._numbers.setdefault((event.session, event.frame.number), attempt)

    def from_manager(self, command: ToSession) -> None:
        if isinstance(command.frame, frames.Committed):
            attempt = self._numbers[command.session, command.frame.number]
            if not attempt.is_durable:
                raise Violation("committed means durable", f"{attempt.label!r} is answered and not on disk")

    # -- from the disk -------------------------------------------------------------------------------

    def changed(self, change: Change, now: float) -> None:
        took_effect = self._outputs_of(change)
        for session in change.committed:
            attempt = self._current.get(session)
            if attempt is not None and not attempt.outputs and not attempt.is_durable:
                took_effect.append(attempt)
        settled = set(change.settled)
        accounted: set[Place] = set()
        for attempt in took_effect:
            self._check_whole(attempt, settled)
            accounted |= attempt.inputs
        for queue, position in settled - accounted - change.buried:
            if queue in self._queues and position not in self._messages.by_name[queue].damaged:
                raise Violation("all or nothing", f"{queue}: position {position} is settled by no transaction")

    def _outputs_of(self, change: Change) -> list[Attempt]:
        """The transactions of which this write stores something; all of it, or it is a violation."""
        found: dict[bytes, set[bytes]] = {}
        for stored in change.stored:
            label, _, _ = stored.body.partition(b":")
            if label not in self._attempts:
                continue
            before = self._stored.get(stored.body)
            self._stored[stored.body] = stored.position
            if before is None:
                found.setdefault(label, set()).add(stored.body)
            elif before != -1 or stored.position == -1:
                raise Violation("committed is done once", f"{stored.queue}: {stored.body[:30]!r} is there twice")
        for label, bodies in found.items():
            attempt = self._attempts[label]
            if bodies != attempt.outputs:
                raise Violation("all or nothing", f"{label!r}: {len(bodies)} of {len(attempt.outputs)} messages")
        return [self._attempts[label] for label in found]

    def _check_whole(self, attempt: Attempt, settled: set[Place]) -> None:
        if attempt.is_aborted or attempt.is_durable:
            what = "after it was aborted" if attempt.is_aborted else "once more"
            raise Violation("aborted leaves nothing, committed is done once", f"{attempt.label!r}: effect {what}")
        attempt.is_durable = True
        missing = attempt.inputs - settled
        for queue, position in attempt.inputs:
            self._holdings.subscriptions[queue, ""].finished.add(position)
        if missing:
            raise Violation("all or nothing", f"{attempt.label!r}: {sorted(missing)[:5]} are not settled with it")

"""The coordinator of a session's transaction when several replica groups take part: at the client manager.

    IDLE --begin--> PREPARING --all others are ready--> DECIDING --CommitFinal--> FINISHING --all complete--> IDLE
                       │                                   │                         ▲
                       └── CommitFail ──> ASKING <─Aborted─┘                         │
                       any of these ── CommitFinal, CommitRollback ──────────────────┘

The group of the lowest number decides: it is asked last, and its own part and the decision are one write. So there is
nothing to be remembered here: a coordinator that is gone leaves participants in doubt, who ask the decider.

What cannot be done is not simply undone: an earlier sending of the same commit, over another connection, may have been
decided. So the decider is asked, and by asking bound; then the answer is passed on. The client is answered when every
participant is done: what it does next finds the transaction's effects everywhere.

If something of the commit is at a destination that is no longer known, it may have been committed before: all groups
are asked (`ask_all`), and it is over.

Whatever is not of this transaction, or in the first phase not of this connection, is ignored. There is no timer: a
participant that is lost detaches the session (`GroupLost`), and one that is slow is given up by those in doubt.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from angarium.core.ids import ANYBODY, destination_id, group_of
from angarium.core.ranges import Range
from angarium.core.session.events import ToBus
from angarium.core.wire import frames
from angarium.core.wire.frames.transactions import COORDINATOR as COORDINATOR

FRAMES = (frames.CommitReady, frames.CommitFail, frames.CommitFinal, frames.CommitRollback, frames.CommitComplete)
# Of a destination, see core/moving.
_MOVING = frames.MoveRows | frames.MoveTaken | frames.MoveRefused | frames.MoveWants | frames.MoveBlock
Answer = frames.Committed | frames.Aborted
_GIVEN_UP = ("transaction-refused", "the transaction was given up: a part of it took too long")


class Phase(Enum):
    IDLE = "idle"
    PREPARING = "preparing"
    DECIDING = "deciding"
    ASKING = "asking"
    ASKING_ALL = "asking all"
    FINISHING = "finishing"


@dataclass(slots=True)
class Part:
    """Of a commit, what is at one group."""

    publishes: list[tuple[int, int, int]] = field(default_factory=list)
    settles: list[tuple[int, int, list[Range]]] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)


def divide(frame: frames.TransactionCommit, payload: bytes) -> dict[int, Part]:
    """By group, the lowest number first. What has no destination is in none."""
    parts: dict[int, Part] = {}
    at = 0
    for destination, producer, size_bytes in frame.publishes:
        part = parts.setdefault(group_of(destination) if destination else COORDINATOR, Part())
        part.publishes.append((destination, producer, size_bytes))
        part.batches.append(payload[at : at + size_bytes])
        at += size_bytes
    for destination, consumer, ranges in frame.settles:
        part = parts.setdefault(group_of(destination) if destination else COORDINATOR, Part())
        part.settles.append((destination, consumer, ranges))
    parts.pop(COORDINATOR, None)
    return dict(sorted(parts.items()))


class Coordinator:
    def __init__(self, session: bytes, attachment: bytes) -> None:
        self._session = session
        self._attachment = attachment
        self._phase = Phase.IDLE
        self._number = 0
        self._decider = 0
        self._part = Part()  # the decider's own
        self._participants: list[int] = []  # the other groups
        self._awaited: set[int] = set()  # of those, or of all when all are asked: who has not answered
        self._is_committed = False
        self._failure = _GIVEN_UP  # code and reason, of the first that could not

    @property
    def is_idle(self) -> bool:
        return self._phase is Phase.IDLE

    # -- from the session ------------------------------------------------------------------------------------

    def begin(self, number: int, parts: dict[int, Part]) -> list[ToBus]:
        """To be called with at least two groups, the lowest number first."""
        (self._decider, self._part), *others = parts.items()
        self._start(number, Phase.PREPARING, [group for group, _ in others])
        return [
            self._to(group, frames.CommitPrepare(
                number, part.publishes, part.settles, self._attachment, self._decider
            ), b"".join(part.batches))
            for group, part in others
        ]  # fmt: skip

    def ask_all(self, number: int, groups: Sequence[int]) -> list[ToBus]:
        """Whether it was committed before: if nobody has, nobody ever will."""
        self._start(number, Phase.ASKING_ALL, list(groups))
        self._failure = ("destination-removed", "a destination of the transaction was removed, or is not open")
        return [
            self._to(group, frames.CommitQuestion(self._session, number, COORDINATOR, group)) for group in groups
        ]

    def _start(self, number: int, phase: Phase, awaited: list[int]) -> None:
        self._number, self._phase = number, phase
        self._participants, self._awaited = awaited, set(awaited)
        self._is_committed, self._failure = False, _GIVEN_UP

    def is_concerned(self, frame: frames.Frame) -> bool:
        """Whether it is an answer to a transaction of several groups."""
        if isinstance(frame, FRAMES):
            return True
        return isinstance(frame, frames.Aborted) and not self.is_idle and frame.number == self._number

    # -- from the groups -------------------------------------------------------------------------------------

    def frame(self, frame: frames.Frame) -> tuple[list[ToBus], Answer | None]:
        """What to send, and what the client is told, if it is over."""
        match frame:
            case frames.CommitReady(number, group, attachment) if self._is_of_phase_one(number, attachment):
                return self._ready(group), None
            case frames.CommitFail(number, _, code, reason, attachment) if self._is_of_phase_one(number, attachment):
                return self._ask(code, reason), None
            case frames.Aborted(number, code, reason, attachment) if attachment == self._attachment:
                return (self._ask(code, reason) if self._phase is Phase.DECIDING else []), None
            case frames.CommitFinal(session, number) | frames.CommitRollback(session, number):
                if (session, number) == (self._session, self._number):
                    return self._told(frame)
            case frames.CommitComplete(session, number, group):
                if (session, number, self._phase) == (self._session, self._number, Phase.FINISHING):
                    return self._completed(frame, group)
        return [], None

    def _is_of_phase_one(self, number: int, attachment: bytes) -> bool:
        return (self._phase, self._number, self._attachment) == (Phase.PREPARING, number, attachment)

    def _ready(self, group: int) -> list[ToBus]:
        self._awaited.discard(group)
        if self._awaited:
            return []
        self._phase = Phase.DECIDING
        part = self._part
        decide = frames.TransactionCommit(
            self._number, part.publishes, part.settles, self._attachment, self._participants
        )
        return [self._to(self._decider, decide, b"".join(part.batches))]

    def _ask(self, code: str, reason: str) -> list[ToBus]:
        self._phase, self._failure = Phase.ASKING, (code, reason)
        return [self._to(
            self._decider, frames.CommitQuestion(self._session, self._number, COORDINATOR, self._decider)
        )]  # fmt: skip

    def _told(self, frame: frames.CommitFinal | frames.CommitRollback) -> tuple[list[ToBus], Answer | None]:
        is_final = isinstance(frame, frames.CommitFinal)
        if self._phase in (Phase.PREPARING, Phase.DECIDING, Phase.ASKING):
            return self._finish(committed=is_final)
        if self._phase is Phase.ASKING_ALL:
            self._is_committed = self._is_committed or is_final
            return self._over(frame.decider)
        return [], None

    def _finish(self, *, committed: bool) -> tuple[list[ToBus], Answer | None]:
        """It is decided: every participant is told."""
        self._phase, self._is_committed = Phase.FINISHING, committed
        self._awaited = set(self._participants)
        kind = frames.CommitFinal if committed else frames.CommitRollback
        told = [
            self._to(group, kind(self._session, self._number, group, self._decider)) for group in self._participants
        ]
        return told, None

    def _completed(self, frame: frames.CommitComplete, group: int) -> tuple[list[ToBus], Answer | None]:
        forgotten = [self._to(self._decider, frame)] if self._is_committed else []
        _, answer = self._over(group)
        return forgotten, answer

    def _over(self, group: int) -> tuple[list[ToBus], Answer | None]:
        self._awaited.discard(group)
        if self._awaited:
            return [], None
        self._phase, self._part = Phase.IDLE, Part()
        if self._is_committed:
            return [], frames.Committed(self._number)
        return [], frames.Aborted(self._number, *self._failure, self._attachment)

    def _to(self, group: int, frame: frames.Frame, payload: bytes = b"") -> ToBus:
        return ToBus(self._session, destination_id(group, 0), frame, payload)


def passed_on(frame: frames.Frame, payload: bytes = b"") -> ToBus | None:
    """What a message manager has any client manager pass on to another one; None: it is nothing of that."""
    if isinstance(frame, frames.CommitQuestion | frames.CommitComplete):
        to = frame.decider
    elif isinstance(frame, frames.CommitFinal | frames.CommitRollback | _MOVING):
        to = frame.group
    else:
        return None
    return ToBus(ANYBODY, destination_id(to, 0), frame, payload)

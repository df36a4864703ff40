"""Sessions, and their transactions."""
from collections.abc import Sequence
from dataclasses import dataclass

from angarium.core.client.gathered import Gathered
from angarium.core.ranges import Range


@dataclass(frozen=True, slots=True)
class OpenSession:
    session: int
    transacted: bool = False  # it sends and settles by `Commit`


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Ends in `SessionEnded`, when everything sent is confirmed and every settlement durable, or at the timeout."""

    session: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Sync:
    """Ends in `Synced`, when the session's settlements so far are durable."""

    session: int
    token: int


@dataclass(frozen=True, slots=True)
class Commit:
    """All of this or nothing, in a transacted session. Ends in `Committed` or `Aborted`."""

    session: int
    publishes: Sequence[tuple[int, Sequence[Gathered]]]  # producer, messages: each part at most one batch
    settles: Sequence[tuple[int, Sequence[Range]]]  # consumer, positions


@dataclass(frozen=True, slots=True)
class WithdrawCommit:
    """Undo a commit that has not left, such as one that waits for a blocked destination. Ends in `Aborted`."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionReady:
    """After each opening, also when it was resumed."""

    session: int
    identity: bytes


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Its producers and consumers have ended with it. Empty code: as asked."""

    session: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Synced:
    """Empty code: durable."""

    session: int
    token: int
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    session: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Nothing of the commit was done. What it was to settle is still held: recover it."""

    session: int
    code: str
    reason: str

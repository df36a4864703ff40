"""Frames of transactions: what a client says, and the two phases between client manager and message managers.

The transaction is named by its session and its number there. What a coordinator and one participant say to each other
in the first phase names the attachment as well, as any answer to something that may be sent again over another
connection. What is said in the second phase is the decider's word on that number, whoever carries it.
"""
from angarium.core.ranges import Range
from angarium.core.wire.frames.vocabulary import Frame

COORDINATOR = -1  # in place of a participant's group


class Commit(Frame, frozen=True):
    """Sends and settlements of a session, all or nothing. Payload: the batches, one after the other."""

    kind = 60
    number: int  # 1, 2, 3, ... within the session; one that is sent again is done once
    publishes: list[tuple[int, int]]  # producer, bytes of its batch in the payload
    settles: list[tuple[int, list[Range]]]  # consumer, positions


class Committed(Frame, frozen=True):
    """All of it is durable."""

    kind = 61
    number: int


class Aborted(Frame, frozen=True):
    """Nothing of it was done: the client still holds what it would have settled, and gives it back with Recover."""

    kind = 62
    number: int
    code: str
    reason: str
    attachment: bytes = b""  # to which sending of the commit this is the answer


class CommitPrepare(Frame, frozen=True):
    """The part of a Commit that is at this replica group. Payload: its batches, one after the other."""

    kind = 63
    number: int
    publishes: list[tuple[int, int, int]]  # as in TransactionCommit
    settles: list[tuple[int, int, list[Range]]]
    attachment: bytes
    decider: int  # the group that logs the decision


class CommitReady(Frame, frozen=True):
    """The group can commit its part, or undo it, whatever happens to it."""

    kind = 64
    number: int
    group: int
    attachment: bytes


class CommitFail(Frame, frozen=True):
    """The group cannot commit its part."""

    kind = 65
    number: int
    group: int
    code: str
    reason: str
    attachment: bytes


class CommitFinal(Frame, frozen=True):
    """It is decided: committed. To a participant, or to whoever has asked."""

    kind = 66
    session: bytes
    number: int
    group: int  # the participant; -1: the coordinator
    decider: int


class CommitComplete(Frame, frozen=True):
    """The participant has committed its part, or has undone it. To the coordinator, and to the decider."""

    kind = 67
    session: bytes
    number: int
    group: int
    decider: int


class CommitRollback(Frame, frozen=True):
    """It is decided: never to be committed. To a participant, or to whoever has asked."""

    kind = 68
    session: bytes
    number: int
    group: int  # as in CommitFinal
    decider: int


class CommitQuestion(Frame, frozen=True):
    """How was it decided? If it was not, it never will be. Answered by CommitFinal or CommitRollback."""

    kind = 69
    session: bytes
    number: int
    group: int  # of the participant in doubt; -1: the coordinator
    decider: int

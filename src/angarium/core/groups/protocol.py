"""What the group services machines of different nodes say to each other.

Messages may be lost, late, repeated and reordered; every one can be understood by itself. Messages between voters name
the disks that speak and are spoken to (`store`), not only the nodes: a node that lost its disk is another voter.
`cluster` is the id of the founding: disks that were founded apart never mix.
"""
from typing import Any

import msgspec

from angarium.core.groups import messages as m
from angarium.core.groups.decisions import AnyDecision
from angarium.core.groups.messages import Message
from angarium.core.groups.records import NodeRecord, Voter


class Entry(msgspec.Struct, frozen=True, array_like=True):
    term: int
    index: int
    data: bytes  # a decision


# -- between voters ------------------------------------------------------------------------------------


class VoteAsk(Message, frozen=True):
    term: int
    candidate: Voter
    to: bytes
    cluster: bytes
    last_term: int
    last_index: int
    is_pre: bool  # would you? Changes nothing at either side
    is_transfer: bool  # the leader has asked me to


class VoteAnswer(Message, frozen=True):
    term: int  # asked for, if granted; else the voter's own
    voter: bytes
    is_granted: bool
    is_pre: bool


class Append(Message, frozen=True):
    """Entries, or none: then it is a heartbeat."""

    term: int
    leader: Voter
    to: bytes
    cluster: bytes
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int
    stamp: float  # the leader's clock; comes back with the answer


class AppendAnswer(Message, frozen=True):
    term: int
    voter: bytes
    is_match: bool
    index: int  # up to here the logs are equal and on disk; or, if they do not match, where to try next
    stamp: float


class SnapshotPart(Message, frozen=True):
    term: int
    leader: Voter
    to: bytes
    cluster: bytes
    index: int
    last_term: int
    total_bytes: int
    offset: int
    data: bytes
    stamp: float


class SnapshotAnswer(Message, frozen=True):
    term: int
    voter: bytes
    index: int
    offset: int  # wanted next; all bytes: the snapshot is on disk
    stamp: float


class TransferNow(Message, frozen=True):
    """Leader to the voter that is to lead next: stand for election at once."""

    term: int
    to: bytes
    cluster: bytes


class FormAsk(Message, frozen=True):
    """The first configured voter to the others, before there is a cluster."""

    founder: Voter
    essential: bytes


class FormAnswer(Message, frozen=True):
    founder: bytes
    voter: Voter
    is_empty: bool  # it holds nothing of any cluster, and has bound itself to this founder
    essential: bytes


# -- membership ------------------------------------------------------------------------------------------


class JoinAsk(Message, frozen=True):
    node: NodeRecord
    essential: bytes


class JoinRefused(Message, frozen=True):
    incarnation: bytes
    code: str
    reason: str


class LeaveAsk(Message, frozen=True):
    node: str
    incarnation: bytes


class Heartbeat(Message, frozen=True):
    """A node to the leader and to the voter that it takes the state from."""

    node: str
    incarnation: bytes
    view_id: int
    applied: int
    wants_feed: bool
    snapshot_index: int  # of the snapshot that is on its way to it; 0: none
    snapshot_offset: int


class Beat(Message, frozen=True):
    """A voter's answer to a heartbeat."""

    leader: str  # empty: none is known
    term: int
    commit: int
    is_full: bool  # takes no more subscribers
    voters: tuple[tuple[str, str], ...] = ()  # by one that does not vote: whom to ask instead, and their addresses


class Feed(Message, frozen=True):
    """Decisions that hold, in order."""

    first_index: int
    decisions: tuple[bytes, ...]


class FeedPart(Message, frozen=True):
    """Of a snapshot, for a node that is behind."""

    index: int
    total_bytes: int
    offset: int
    data: bytes


class Ping(Message, frozen=True):
    """Leader to a node that it suspects, or that asks to join: are you there, under this incarnation?"""

    node: str
    incarnation: bytes
    nonce: int = 0  # an answer to an earlier question proves nothing


class Pong(Message, frozen=True):
    node: str
    incarnation: bytes
    nonce: int = 0


class HeardAsk(Message, frozen=True):
    """Leader to the other voters: do you hear it?"""

    node: str
    incarnation: bytes


class HeardAnswer(Message, frozen=True):
    node: str
    incarnation: bytes
    age_s: float  # since it was last heard


class LostReport(Message, frozen=True):
    """To the leader: my connection to this node broke, or was refused."""

    node: str
    incarnation: bytes  # empty: unknown
    is_refused: bool


# -- requests --------------------------------------------------------------------------------------------


class MovePrimary(Message, frozen=True):
    """Hand over to the in-sync replica of this node."""

    group: str
    epoch: int
    node: str


class TransferLeadership(Message, frozen=True):
    node: str  # empty: to whoever is furthest


Request = AnyDecision | MovePrimary | TransferLeadership


class Ask(Message, frozen=True):
    number: int
    node: str
    incarnation: bytes
    request: Request


class Answer(Message, frozen=True):
    number: int
    incarnation: bytes
    code: str  # empty: done
    reason: str
    index: int  # of the decision


class ToLeader(Message, frozen=True):
    """Through a voter that is not the leader, and passes it on once."""

    sender: str
    message: JoinAsk | LeaveAsk | LostReport | Ask | m.Fenced | m.HandOverReady | m.ShrinkAsk | m.AdmitAsk


class FromLeader(Message, frozen=True):
    """To a replica. The term tells whether it still leads."""

    term: int
    message: m.FenceAsk | m.HandOverAsk | m.ChangeRefused


LEADER_BOUND = (JoinAsk, LeaveAsk, LostReport, Ask, m.Fenced, m.HandOverReady, m.ShrinkAsk, m.AdmitAsk)
BETWEEN_VOTERS = (VoteAsk, VoteAnswer, Append, AppendAnswer, SnapshotPart, SnapshotAnswer, TransferNow)
AnyMessage = (
    VoteAsk | VoteAnswer | Append | AppendAnswer | SnapshotPart | SnapshotAnswer | TransferNow | FormAsk | FormAnswer
    | JoinAsk | JoinRefused | LeaveAsk | Heartbeat | Beat | Feed | FeedPart | Ping | Pong | HeardAsk | HeardAnswer
    | LostReport | Ask | Answer | ToLeader | FromLeader | m.Fenced | m.HandOverReady | m.ShrinkAsk | m.AdmitAsk
)  # fmt: skip

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: Message) -> bytes:
    return _encode(message)


def decode_message(data: bytes) -> Message:
    """Raises `msgspec.DecodeError` for what is none."""
    return _decoder.decode(data)  # type: ignore[no-any-return]

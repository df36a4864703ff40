"""Decisions: the entries of the log. Applying one (`deciding.py`) is a pure function of the state before.

Every decision may be proposed twice, by a requester that did not hear the answer: applied again it is refused
(`stale-epoch`, `stale-version`, `not-here`), or it changes nothing.
"""
import msgspec

from angarium.core.groups.configuration import Replica
from angarium.core.groups.records import Limits, NodeRecord, Voter


class Decision(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Nothing(Decision, frozen=True):
    """A new leader's first entry: once it is committed, so is everything before it."""


class Founding(msgspec.Struct, frozen=True, array_like=True):
    cluster: bytes
    essential: bytes
    limits: Limits


class VotersSet(Decision, frozen=True):
    """In force for the voters themselves from when it is in their log."""

    voters: tuple[Voter, ...]
    founding: Founding | None = None  # in the very first entry only


class VotersWanted(Decision, frozen=True):
    """Nodes that shall vote. The leader adds and removes voters, one at a time, until they do."""

    expected: tuple[str, ...]
    nodes: tuple[str, ...]


class EssentialSet(Decision, frozen=True):
    digest: bytes
    expected: bytes


class LimitsSet(Decision, frozen=True):
    limits: Limits


class NodeJoined(Decision, frozen=True):
    """New, or a new incarnation (the old one is gone by that), or a new record of the same."""

    node: NodeRecord


class NodesGone(Decision, frozen=True):
    nodes: tuple[tuple[str, bytes], ...]  # name, incarnation
    reason: str


class NamedJoined(Decision, frozen=True):
    group: str
    node: str
    incarnation: bytes
    label: str = ""


class NamedLeft(Decision, frozen=True):
    group: str
    node: str
    incarnation: bytes
    label: str = ""


class GroupConfigured(Decision, frozen=True):
    """A replica group that is to be formed, of all these nodes."""

    group: str
    members: tuple[str, ...]


class GroupFormed(Decision, frozen=True):
    group: str
    replicas: tuple[Replica, ...]
    incarnation: bytes


class GroupPromoted(Decision, frozen=True):
    group: str
    epoch: int  # that ends
    in_sync: tuple[Replica, ...]  # the new primary first
    incarnation: bytes


class GroupShrunk(Decision, frozen=True):
    group: str
    epoch: int
    primary: Replica
    gone: tuple[Replica, ...]


class GroupAdmitted(Decision, frozen=True):
    group: str
    epoch: int
    primary: Replica
    replica: Replica


class CopyAdded(Decision, frozen=True):
    group: str
    epoch: int
    node: str


class CopyRemoved(Decision, frozen=True):
    group: str
    epoch: int
    node: str


class DrainSet(Decision, frozen=True):
    """A draining node hands its primaries over."""

    node: str
    is_draining: bool


class SlotsDealt(Decision, frozen=True):
    """Round robin over the groups, in this order; once."""

    groups: tuple[str, ...]


class MoveBegun(Decision, frozen=True):
    """A destination is to be moved from the group that has it to another."""

    destination: str
    group: str


class MoveDone(Decision, frozen=True):
    """All of it is stored in the target: from now on it is there."""

    destination: str
    number: int  # of the move
    epoch: int  # of the source, in which nothing has changed since it was copied


class MoveEnded(Decision, frozen=True):
    """It is given up: the destination stays where it is."""

    destination: str
    number: int
    code: str
    reason: str


class SettingSet(Decision, frozen=True):
    key: str
    value: bytes | None  # None: removed
    version: int | None = None  # of the acquirable configuration that it changes; None: whatever it is


AnyDecision = (
    Nothing | VotersSet | VotersWanted | EssentialSet | LimitsSet | NodeJoined | NodesGone | NamedJoined | NamedLeft
    | GroupConfigured | GroupFormed | GroupPromoted | GroupShrunk | GroupAdmitted | CopyAdded | CopyRemoved
    | DrainSet | SlotsDealt | MoveBegun | MoveDone | MoveEnded | SettingSet
)  # fmt: skip

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyDecision).decode


def encode_decision(decision: Decision) -> bytes:
    return _encode(decision)


def decode_decision(data: bytes) -> AnyDecision:
    return _decode(data)  # type: ignore[no-any-return]

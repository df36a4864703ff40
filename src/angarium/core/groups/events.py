"""Events and commands of the group services machine: what its driver brings, and what it has to do.

A driver delivers `Started` first, then the rest as it comes; after each it performs the commands in order and arms one
timer for `deadline()`. Messages go over a link to the named node, whose addresses are in the view or, before there is
one, among the configured voters; a message to a node that cannot be reached is dropped.
"""
from collections.abc import Mapping

import msgspec

from angarium.core.groups.changes import (
    EssentialChanged,
    NamedGroupChanged,
    PlacementChanged,
    ReplicaGroupChanged,
    SettingsChanged,
    ViewChanged,
    VotersChanged,
)
from angarium.core.groups.messages import FromReplicaMessage, Message, ToReplicaMessage
from angarium.core.groups.protocol import Request
from angarium.core.groups.records import NodeRecord
from angarium.core.report import Report
from angarium.core.storage import Operation

# -- events ----------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """With everything that `Table.GROUPS` holds; empty at the first start, and after the disk was lost."""

    records: Mapping[bytes, bytes]
    fresh_store: bytes  # 16 bytes drawn by chance: the id of this disk if the table is empty


class MessageReceived(msgspec.Struct, frozen=True):
    sender: str  # the node's name, as the link has authenticated it
    message: Message


class Persisted(msgspec.Struct, frozen=True):
    """The operations of this Persist, and of all before it, are on disk."""

    token: int


class NeighbourLost(msgspec.Struct, frozen=True):
    """A connection to that node broke; `is_refused`: a new one was refused, so its process is not there."""

    node: str
    incarnation: bytes = b""  # that the link was to; empty: unknown
    is_refused: bool = False


class NeighbourFound(msgspec.Struct, frozen=True):
    """A connection to that node is up (again)."""

    node: str


class RecordChanged(msgspec.Struct, frozen=True):
    """This node has other addresses, roles or replicas from now on."""

    node: NodeRecord


class Requested(msgspec.Struct, frozen=True):
    """Something that this node, or an administrator at it, wants decided. Answered by `RequestAnswered`, once."""

    number: int  # of the caller's choice, not used before in this incarnation
    request: Request


class Withdrawn(msgspec.Struct, frozen=True):
    """Nobody waits for that request any more: it is asked no more, and not answered. It may have been heard before."""

    number: int


class JoinGroup(msgspec.Struct, frozen=True):
    """This node wants to be in a named group; kept up when it is put out of the view and comes back."""

    group: str
    label: str = ""


class LeaveGroup(msgspec.Struct, frozen=True):
    group: str
    label: str = ""


class FromReplica(msgspec.Struct, frozen=True):
    """Of a replica on this node, for the leader."""

    message: FromReplicaMessage


class Leave(msgspec.Struct, frozen=True):
    """This node is about to stop; `Left` says when."""


class Tick(msgspec.Struct, frozen=True):
    pass


Event = (
    Started | MessageReceived | Persisted | NeighbourLost | NeighbourFound | RecordChanged | Requested | Withdrawn
    | JoinGroup | LeaveGroup | FromReplica | Leave | Tick
)  # fmt: skip

# -- commands --------------------------------------------------------------------------------------------


class SendMessage(msgspec.Struct, frozen=True):
    to: str
    message: Message


class Persist(msgspec.Struct, frozen=True):
    """One atomic group; groups in the order of their tokens. Answered by `Persisted`."""

    token: int
    operations: list[Operation]


class ToReplica(msgspec.Struct, frozen=True):
    """For the replica of this group on this node."""

    message: ToReplicaMessage


class RequestAnswered(msgspec.Struct, frozen=True):
    number: int
    code: str  # empty: done
    reason: str
    index: int  # of the decision; this node may hear of it a little later


class SeekNode(msgspec.Struct, frozen=True):
    """Somebody who may have to be asked is there: have a link to it, if there is none."""

    address: str


class LeaderChanged(msgspec.Struct, frozen=True):
    """As far as this node knows; empty: none. For people: nothing may be decided by it."""

    leader: str
    term: int


class Left(msgspec.Struct, frozen=True):
    """This node is in no view any more, and may stop."""


class StopNode(msgspec.Struct, frozen=True):
    """This node must not go on: another process has its name, or its essential parameters differ."""

    code: str
    reason: str


Command = (
    SendMessage | Persist | ToReplica | RequestAnswered | SeekNode | LeaderChanged | Left | StopNode | Report
    | ViewChanged | NamedGroupChanged | ReplicaGroupChanged | PlacementChanged | SettingsChanged | VotersChanged
    | EssentialChanged
)  # fmt: skip

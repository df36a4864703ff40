"""What a client manager is told, and what it asks for."""
from dataclasses import dataclass
from typing import Any

import msgspec

from angarium.core.report import Report
from angarium.core.wire.codec import Received
from angarium.core.wire.frames import DestinationKind, Frame, Reply, Request

# -- events ----------------------------------------------------------------------------------------


class ConnectionOpened(msgspec.Struct, frozen=True):
    connection: int
    peer: str  # for people


class FramesReceived(msgspec.Struct, frozen=True):
    connection: int
    received: list[Received]


class InputRefused(msgspec.Struct, frozen=True):
    """The connection broke the protocol before there was a frame to handle: its bytes are no frames, or its client has
    not said Hello in time."""

    connection: int
    code: str
    reason: str


class ConnectionStalled(msgspec.Struct, frozen=True):
    """The connection's output has piled up to its limit (or has drained again)."""

    connection: int
    stalled: bool


class ConnectionLost(msgspec.Struct, frozen=True):
    connection: int


class FromBus(msgspec.Struct, frozen=True):
    session: bytes
    frame: Frame
    payload: bytes = b""


class GroupLost(msgspec.Struct, frozen=True):
    """The message manager of that replica group is another one now, which knows only what was stored. All that was
    between us and the one before is void: nothing that it sent may follow this, and nothing that was sent to it may
    reach the new one."""

    group: int


class GroupsKnown(msgspec.Struct, frozen=True):
    """The replica groups that there are, by number, in order. Before it is told there is one, number 0."""

    groups: list[int]


class GroupsStranded(msgspec.Struct, frozen=True):
    """Replica groups that cannot be reached from this node, and have not been for a while, though others may."""

    groups: list[int]


class DestinationsMoved(msgspec.Struct, frozen=True):
    """They are in another replica group than before. A session that has looked for them may wait in vain: the group
    that had them says nothing of them any more."""

    groups: dict[str, int]  # by name
    is_unsure: bool = False  # others may have been elsewhere for a while: a session that is looking for one asks again


class OwnMessage(msgspec.Struct, frozen=True):
    body: bytes
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}


class PublishOwn(msgspec.Struct, frozen=True):
    """Of the node's own accord (`own_session.py`), to a destination that exists; answered by `OwnPublished`."""

    number: int  # of the caller's choice
    destination: str
    destination_kind: DestinationKind
    messages: list[OwnMessage]


class AskManager(msgspec.Struct, frozen=True):
    """A request of the node itself to a message manager, under a number of its own choice; see `ManagerReplied`."""

    frame: Request


class SettingsChanged(msgspec.Struct, frozen=True):
    """From now on, for connections and sessions that are open as well."""

    settings: "SessionSettings"


class Tick(msgspec.Struct, frozen=True): ...


class ShutDown(msgspec.Struct, frozen=True):
    reason: str


Event = (
    ConnectionOpened | FramesReceived | InputRefused | ConnectionStalled | ConnectionLost | FromBus | GroupLost
    | GroupsKnown | GroupsStranded | DestinationsMoved | PublishOwn | AskManager | SettingsChanged | Tick | ShutDown
)  # fmt: skip

# -- commands --------------------------------------------------------------------------------------


class SendFrame(msgspec.Struct, frozen=True):
    connection: int
    session: int
    frame: Frame
    payload: bytes = b""


class CloseConnection(msgspec.Struct, frozen=True):
    """Close after what was sent before has left."""

    connection: int


class ToBus(msgspec.Struct, frozen=True):
    """Destination 0 is the message manager itself; below the number of a replica group, that of this group."""

    session: bytes
    destination: int
    frame: Frame
    payload: bytes = b""


class AskNode(msgspec.Struct, frozen=True):
    """A request about the node itself; answered with FromBus(session, Reply)."""

    session: bytes
    frame: Frame


class OwnPublished(msgspec.Struct, frozen=True):
    """It is stored; or, with a code, it never will be."""

    number: int
    code: str
    reason: str


class ManagerReplied(msgspec.Struct, frozen=True):
    frame: Reply


Command = SendFrame | CloseConnection | ToBus | AskNode | OwnPublished | ManagerReplied | Report


# -- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionSettings:
    # Longest frame accepted. It bounds what one connection can make us buffer.
    frame_bytes_max: int = 8 << 20
    # Longest body of one message; larger ones do not fit a frame together with their properties.
    body_bytes_max: int = 4 << 20
    # Published and unconfirmed in one session. Enough to keep the disk busy, little enough for many sessions.
    unconfirmed_bytes_max: int = 8 << 20
    # We send something at least this often, so that a client notices when we are gone.
    heartbeat_s: float = 5.0
    # Sessions of one connection. Past it opening is refused.
    sessions_max: int = 1_000
    # Producers and consumers of one session. Past it opening is refused.
    links_max: int = 10_000
    # Watches of one session. Past it one more is refused.
    watches_max: int = 100
    # Requests of one session that wait for the one before. Past it the connection is closed.
    requests_max: int = 1_000
    # What one connection may have waiting here: requests behind others, and what it says of consumers that are being
    # found. A frame is as good as read then, so one of the longest must fit. Past it the connection is closed.
    waiting_bytes_max: int = 8 << 20
    # Client connections of this node. Past it new ones are told so and closed.
    connections_max: int = 10_000

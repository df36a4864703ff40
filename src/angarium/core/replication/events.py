"""What the replication of a group on one node is told, and what it asks for.

It stands between a message manager and its disk. A driver has little to do; it performs commands in the order in which
they were given, also when performing one leads to more:

- Everything the message manager asks of its disk (`Write`, and of streams `AppendBlock`, `SyncFile`, `DeleteFile`)
  becomes `WritesAsked` or `FilesAsked`, gathered for a turn of the loop; reads go to the local disk as ever.
- `WriteLocal` goes to the local disk in the order of the commands, as writes that may use its reserve
  (`Write(token, operations, freeing=True)` does exactly that: such writes never overtake one another). What is durable
  is told by `LocallyWritten(token)`, once for a whole group with the last of its tokens; that the disk is full by
  `DiskBlocked`.
- `LocalFile` goes to the files of streams, whose answers (`FileWritten`, …) come back as events.
- `SendOrder` goes to the group's channel, `SendTo` over the link to one replica, `ToGroups` to group services on this
  node. A message that cannot be sent is dropped; a link or a stream of the channel that broke needs no event of its
  own.
- `StartMessageManager`: load the store as at a start of the node, make a message manager, `restore` it, let its writes
  come back here. `StopMessageManager`: drop it with everything it has asked for; nothing that it says may leave the
  node any more.
- `ToManager` are its disk's answers.
- `PayloadReceived` before the frame goes to the message manager, so that its bytes can be recognised in a write.
"""
from dataclasses import dataclass

import msgspec

from angarium.core.destination.events import Write, WritesBlocked, WritesUnblocked
from angarium.core.errors import ConfigError
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.messages import FromReplicaMessage, ToReplicaMessage
from angarium.core.replication.messages import ReplicaMessage
from angarium.core.report import Report
from angarium.core.storage import Operation, Table
from angarium.core.stream.events import (
    AppendBlock,
    BlocksRead,
    DeleteFile,
    FileFailed,
    FilesBlocked,
    FileSynced,
    FileWritten,
    ReadBlocks,
    SyncFile,
)

# -- events ------------------------------------------------------------------------------------------


class ConfigurationChanged(msgspec.Struct, frozen=True):
    configuration: GroupConfiguration


class FromGroups(msgspec.Struct, frozen=True):
    message: ToReplicaMessage


class WritesAsked(msgspec.Struct, frozen=True):
    """What the message manager has asked for in one turn of the loop."""

    writes: list[Write]


class FilesAsked(msgspec.Struct, frozen=True):
    commands: list[AppendBlock | SyncFile | DeleteFile]


class LocallyWritten(msgspec.Struct, frozen=True):
    token: int  # this write and every earlier one is durable on the local disk


class DiskBlocked(msgspec.Struct, frozen=True):
    """The local disk takes nothing more but from its reserve (empty: it does again)."""

    reason: str


class PayloadReceived(msgspec.Struct, frozen=True):
    """The payload of a client manager's message on the group's channel."""

    sender: bytes  # incarnation
    sequence: int  # of its stream
    payload: bytes


class MessageReceived(msgspec.Struct, frozen=True):
    """From another replica of the group, over the channel or the link."""

    sender: Replica
    message: ReplicaMessage
    payload: bytes = b""


class RangeRead(msgspec.Struct, frozen=True):
    """Answers `ReadRange`."""

    token: int
    high: bytes  # lower than was asked if there was more than `bytes_max`
    digest: bytes
    before: int  # the store's position was between these two
    after: int
    data: bytes | None  # `pack_items` of what is there; None: it has the digest that was named
    rows: int = 0  # in the range
    whole: int = 0  # rows of all ranges, about


class Tick(msgspec.Struct, frozen=True): ...


FileAnswer = FileWritten | FileSynced | FileFailed | FilesBlocked | BlocksRead
Event = (
    ConfigurationChanged | FromGroups | WritesAsked | FilesAsked | LocallyWritten | DiskBlocked | PayloadReceived
    | MessageReceived | RangeRead | Tick | FileAnswer
)  # fmt: skip

# -- commands ----------------------------------------------------------------------------------------


class WriteLocal(msgspec.Struct, frozen=True):
    """Make it durable on the local disk, all or none, after every earlier one."""

    token: int
    operations: list[Operation]


class LocalFile(msgspec.Struct, frozen=True):
    command: AppendBlock | SyncFile | DeleteFile | ReadBlocks


class SendOrder(msgspec.Struct, frozen=True):
    """To all replicas of the group."""

    message: ReplicaMessage
    payload: bytes = b""


class SendTo(msgspec.Struct, frozen=True):
    replica: Replica
    message: ReplicaMessage
    payload: bytes = b""


class ToGroups(msgspec.Struct, frozen=True):
    message: FromReplicaMessage


class Written(msgspec.Struct, frozen=True):
    """For the message manager: these writes are as durable as the group promises."""

    tokens: list[int]


class ToManager(msgspec.Struct, frozen=True):
    event: WritesBlocked | WritesUnblocked | FileAnswer


class StartMessageManager(msgspec.Struct, frozen=True):
    epoch: int


class StopMessageManager(msgspec.Struct, frozen=True):
    reason: str


class ReadRange(msgspec.Struct, frozen=True):
    """Read the table from `low` on: whole items, until they reach `bytes_max`, never at or beyond `high`."""

    token: int
    table: Table
    low: bytes
    high: bytes
    bytes_max: int
    unless: bytes  # if all of [low, high) has this digest, the data is not wanted
    with_data: bool


Command = (
    WriteLocal | LocalFile | SendOrder | SendTo | ToGroups | Written | ToManager | StartMessageManager
    | StopMessageManager | ReadRange | Report
)  # fmt: skip

# -- settings ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    # Bytes ordered and not yet on every in-sync disk. Past it the message manager's writes wait to be ordered.
    window_bytes_max: int = 16 << 20
    # Orders not yet on every in-sync disk. Past it the message manager's writes wait to be ordered.
    window_orders_max: int = 10_000
    # Ordered and not yet on the primary's own disk, of what makes no room. If the disk turns out to be full, all of it
    # has to fit the reserve, and leave room there for what empties the disk: half of the reserve, if that is less.
    ahead_bytes_max: int = 4 << 20
    # Waiting to be ordered. Past it the message manager is told that writes are blocked, until half of it is left.
    waiting_bytes_max: int = 64 << 20
    # Bytes of orders kept after they are on every disk, for a replica that was away for a moment. Past it, it has to
    # copy.
    recent_bytes_max: int = 64 << 20
    # How many such orders are kept.
    recent_orders_max: int = 100_000
    # Of one message, and of one local write. Larger ones would hold up others; one larger write still goes, alone.
    batch_bytes_max: int = 1 << 20
    # How long writes that nobody waits for may wait for company.
    patience_s: float = 0.003
    # Heard from the primary at least so often: how a lost tail is noticed.
    heartbeat_s: float = 0.2
    # How long an in-sync backup may take longer than the primary's own disk, before it is asked to be taken out.
    ack_within_s: float = 1.0
    # One that was too late is asked to be admitted again after this long, so that it does not hold up others all the
    # time.
    readmit_after_s: float = 3.0
    # After this long without an answer a question is asked again.
    ask_again_s: float = 0.5
    # An order that came before the payload it refers to waits so long for it; then it is fetched from the primary.
    fetch_after_s: float = 0.02
    # Payloads remembered to be referred to. Past it the oldest is forgotten: whoever needs it fetches it.
    payload_bytes_max: int = 32 << 20
    # Shorter values are sent again rather than referred to.
    reference_bytes_min: int = 256
    # Orders that came too early to be written, and those given to the local disk. Past it they are fetched later.
    inbox_bytes_max: int = 32 << 20
    # What is copied in one step. One step at a time is under way: the memory it takes, here and at the host.
    range_bytes: int = 1 << 20
    # A host that has not answered a step after this long is given up for another. After half of it, it is asked again.
    range_within_s: float = 3.0
    # Steps that a host has under way, for all its guests. Past it they are told to ask again.
    ranges_max: int = 4
    # Epochs whose beginning is remembered. A replica from before them has to copy.
    epochs_max: int = 256
    # A replica that lacks no more orders than this is asked to be admitted, and waited for from then on.
    admit_orders_max: int = 100

    def __post_init__(self) -> None:
        if self.heartbeat_s <= 0 or self.ack_within_s <= self.heartbeat_s:
            raise ConfigError(f"replication.ack_within_s {self.ack_within_s}: more than heartbeat_s {self.heartbeat_s}")



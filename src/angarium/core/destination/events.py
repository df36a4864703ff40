"""What a message manager is told, and what it asks for.

The same shapes serve the message manager and its destinations. `Written` and `BatchesRead` answer `Write` and `Read`
by their token; answers to writes come in the order of the writes. Events and commands are structs: one is made for
every frame, and a frozen dataclass takes five times as long.
"""
from dataclasses import dataclass

import msgspec

from angarium.core.errors import refuse
from angarium.core.groups.records import Placement
from angarium.core.report import Level as Level
from angarium.core.report import Report as Report
from angarium.core.storage import Operation, Table
from angarium.core.stream.events import FileCommand, FileEvent, StreamSettings
from angarium.core.wire.frames import Frame

# -- events ----------------------------------------------------------------------------------------


class FromSession(msgspec.Struct, frozen=True):
    """A frame from the bus. Destination 0 is the message manager itself."""

    session: bytes
    destination: int
    frame: Frame
    payload: bytes = b""


class Written(msgspec.Struct, frozen=True):
    token: int


class StoredBatch(msgspec.Struct, frozen=True):
    end: int  # one past its last position
    data: bytes


class DamagedBatch(msgspec.Struct, frozen=True):
    end: int
    raw: bytes


class BatchesRead(msgspec.Struct, frozen=True):
    """The batches from the one that holds the wanted position on; empty if nothing is stored there."""

    token: int
    batches: list[StoredBatch | DamagedBatch]


class DelayedRead(msgspec.Struct, frozen=True):
    """Key and batch of each; what fails its checksum is without its content."""

    token: int
    items: list[tuple[bytes, bytes]]


class WritesBlocked(msgspec.Struct, frozen=True):
    """Nothing can be written for now. Writes asked for are kept and done when it is over. Told again with another code
    or reason when that changes."""

    reason: str
    code: str = "disk-full"  # one of `blocking.WRITE_CODES`


class WritesUnblocked(msgspec.Struct, frozen=True): ...


class DiskMeasured(msgspec.Struct, frozen=True):
    """So much more can be stored. Told now and then while there is a limit for it."""

    room_bytes: int


class SettingsChanged(msgspec.Struct, frozen=True):
    """From now on. Limits that each destination has taken over when it was made stay as they are there."""

    destination: "DestinationSettings"
    stream: StreamSettings


class ClockStepped(msgspec.Struct, frozen=True):
    """The wall clock was set: what it shows is from now on this, and the milliseconds of `now`."""

    wall_ms_at_zero: float


class Tick(msgspec.Struct, frozen=True): ...


class Placed(msgspec.Struct, frozen=True):
    """Which destinations are where, and which are to be moved: told at the start, and whenever it changes."""

    placement: Placement
    epoch: int  # in which this message manager was started


class RowsRead(msgspec.Struct, frozen=True):
    token: int
    items: list[tuple[bytes, bytes]]  # key and value, in order
    rest: bytes = b""  # from which key on something is left of the range; empty: nothing
    damaged: int = 0  # rows that fail their checksum, and are not among these


Event = (
    FromSession | Written | BatchesRead | WritesBlocked | WritesUnblocked | SettingsChanged | ClockStepped | Tick
    | FileEvent | DelayedRead | Placed | RowsRead | DiskMeasured
)  # fmt: skip

# -- commands --------------------------------------------------------------------------------------


class ToSession(msgspec.Struct, frozen=True):
    session: bytes
    frame: Frame
    payload: bytes = b""


class Write(msgspec.Struct, frozen=True):
    """Make the operations durable, all or none, after every earlier Write."""

    token: int
    operations: list[Operation]
    freeing: bool = False  # it makes room, so it may use the reserve of a full disk
    patient: bool = False  # nobody waits for it


class Read(msgspec.Struct, frozen=True):
    token: int
    destination: int
    position: int
    bytes_max: int  # stop after the batch that reaches this
    end: int  # never at or beyond this position


class ReadDelayed(msgspec.Struct, frozen=True):
    """Batches that are kept beside the log: the first that wait for their time, or those staged in the given parts."""

    token: int
    destination: int
    bytes_max: int  # stop after the batch that reaches this
    parts: list[bytes] = []  # one after the other


class ReadRows(msgspec.Struct, frozen=True):
    """Rows of any table, from `low` up to but without `high`; answered by `RowsRead`."""

    token: int
    table: Table
    low: bytes
    high: bytes
    bytes_max: int  # stop after the row that reaches this


class DecideMove(msgspec.Struct, frozen=True):
    """Have group services decide that the destination has moved; with a code, that it has not."""

    name: str
    number: int
    code: str = ""
    reason: str = ""


Command = ToSession | Write | Read | ReadDelayed | ReadRows | DecideMove | Report | FileCommand


# -- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DestinationSettings:
    # How long what a cut-off session holds is kept for it. Longer delays redelivery after a crash of a
    # consumer; shorter risks a second delivery when a client needs longer to reconnect.
    resume_grace_s: float = 2.0
    # Producers whose sequence each destination remembers. Past it the least recently used one that is not
    # connected is forgotten; if all are connected, a new one is refused.
    producers_max: int = 10_000
    # What one read for delivery asks of the store. Larger reads cost memory, smaller ones trips to the disk thread.
    read_bytes_max: int = 1 << 20
    # Destinations of one message manager. Past it creation is refused.
    destinations_max: int = 100_000
    # Watches for new destinations, of all sessions. Past it one more is refused.
    watches_max: int = 10_000
    # Temporary destinations of one connection. Past it creation is refused.
    temporaries_max: int = 1_000
    # Consumers of one destination. Past it opening is refused.
    consumers_max: int = 100_000
    # Subscriptions of one topic. Past it a new one is refused.
    subscriptions_max: int = 100_000
    # Messages of one subscription that are delivered and not settled. Past it nothing new is delivered.
    in_flight_max: int = 100_000
    # Runs of settled messages behind one that is not: left by settling out of order, by selectors that take messages
    # from the middle of a queue, or by expiry. Past it nothing new is delivered. Each takes about 160 bytes of memory.
    holes_max: int = 500_000
    # Characters of one selector. Past it, or past 65,536 names, literals and signs, opening is refused: to read one
    # takes the time of all others, about 0.3 s for so many, which 10,000 terms have. Lower it where that is too much.
    selector_characters_max: int = 1 << 19
    # Deduplication ids that each destination remembers. Past it the oldest is forgotten.
    deduplication_ids_max: int = 10_000
    # Bytes of one batch or transaction in which messages have a time of delivery, a deduplication id, a last-value key
    # or a stream of their own: each of these counts 2,000 more, for what is stored of it by itself, and each batch of a
    # transaction behind the first 300, with priorities 2,000. Past it all is refused: during one write all others wait.
    # A node lowers it to what its journal takes at once, one of a cluster to what its bus does, about 8 MiB.
    write_bytes_max: int = 12 << 20
    # Last-value keys of one destination. Past it the least recently written is an ordinary message again.
    last_value_keys_max: int = 100_000
    # Parts of transactions that are prepared here and decided by another replica group. Past it one more is refused,
    # and its transaction aborted.
    prepared_max: int = 10_000
    # Bytes of those parts, which are kept in memory. Past it one more is refused, and its transaction aborted.
    prepared_bytes_max: int = 64 << 20
    # Transactions that were decided here and that other groups have not yet finished. Past it none is decided that
    # others take part in: it is aborted.
    decisions_max: int = 100_000
    # After so long a group that waits for a decision asks for it, and one that has decided tells it again to those that
    # are silent; and again after as long. A transaction that takes longer between its phases is aborted.
    in_doubt_s: float = 5.0
    # How long staged messages are kept that nobody commits, from the last that were added to their part. Longer than
    # the longest batch of a query takes between a task's end and the commit.
    staged_keep_s: float = 3_600.0
    # Parts of one destination that are staged and not committed: about one for each task that writes to it. Past it
    # what begins another one is refused.
    staged_parts_max: int = 100_000
    # Queries of which each destination remembers the last batch, so that none is committed twice. Past it the least
    # recently used one is forgotten.
    staged_queries_max: int = 10_000
    # Messages that all destinations together may hold; 0 is no limit. Past it `node_over_limit` says what happens.
    node_messages_max: int = 0
    # Bytes that all destinations together may hold; 0 is no limit. Past it `node_over_limit` says what happens.
    node_bytes_max: int = 0
    # Bytes that the disk must still have room for; 0 is no limit. With less, `node_over_limit` says what happens, but
    # "oldest" blocks: what goes to the dead message queue takes as much room there. A disk that is full always blocks.
    node_disk_free_bytes_min: int = 0
    # Past a limit of the node: "block" all producers, "refuse" what is new, or move the "oldest" messages of whoever
    # holds most to the dead message queue, which may hold as much again; past that its own `over_limit` decides.
    node_over_limit: str = "block"

    def __post_init__(self) -> None:
        if self.node_over_limit not in ("block", "refuse", "oldest"):
            refuse([f"destination.node_over_limit {self.node_over_limit!r}: use 'block', 'refuse' or 'oldest'"])

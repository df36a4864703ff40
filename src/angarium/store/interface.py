"""What a disk looks like to the rest of Angarium: what it returns, what it reports, which calls it answers.

Two disks exist: `DurableStore` (journal and LMDB) and `MemoryStore` (the simulator's). One conformance suite,
tests/store/test_conformance.py, holds both to this page.

Threads. `commit`, `seal`, `retry` and `close` belong to one writer thread; `Overlapped` says what may stand in for
`commit`. Every read may come from any thread, at any time. `peek_memory` never touches a disk, so the event loop may
call it; `get`, `scan` and `first_at_or_after` may have to wait for one.

Visibility. A group becomes visible as a whole, and only once it is durable.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from angarium.core.errors import LocalProtocolError, StorageCorrupt
from angarium.core.storage import Operation, Put, Table

KEY_BYTES_MAX = 510  # LMDB takes 511; one is kept free so that `delete_key`'s upper bound still fits
SCAN_BYTES_MAX = 16 << 20  # what one scan returns unless told otherwise; one larger value still comes, alone


class Item(NamedTuple):
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """A stored value that fails its checksum. Not a tuple, so that nobody unpacks it as an `Item`."""

    key: bytes
    raw: bytes  # as found, without the checksum


class ValueDamaged(StorageCorrupt):
    """The value asked for fails its checksum. The caller sets `raw` aside and deletes the key."""

    def __init__(self, table: Table, key: bytes, raw: bytes) -> None:
        super().__init__(
            f"{table.name} {key.hex()}: value of {len(raw):,} bytes fails its checksum; set it aside, delete the key"
        )
        self.table = table
        self.key = key
        self.raw = raw


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing recovery could not read although it had been confirmed.

    Reported again by every open until the journal segment that holds it is recycled: whoever wants to keep `raw`
    stores it (Table.DAMAGED) right after open.
    """

    table: Table | None  # as read: the flipped bit may sit here or in the key; None: not readable
    key: bytes | None
    reason: str
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    groups_replayed: int = 0
    recovery_s: float = 0.0
    torn_bytes: int = 0  # the last, never confirmed group: dropped as a whole
    damages: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    groups: int = 0  # committed since open
    journal_bytes: int = 0  # in segments that are not yet checkpointed
    memory_bytes: int = 0  # keys and values held in memory
    lmdb_bytes: int = 0  # size of the LMDB file
    ballast_bytes: int = 0  # space held back for deletes on a full disk
    checkpoints: int = 0  # since open
    damages: int = 0  # found by recovery and by reads since open


class NotOver(Exception):
    """What was started is still being written."""


class Overlapped(Protocol):
    """Small commits that nobody waits for, one at a time, in place of `Store.commit`: they may be called from the event
    loop, and no other commit, `seal` or `close` may come in between.

        start --descriptor is readable--> finish --> show
    """

    @property
    def descriptor(self) -> int: ...

    def start(self, operations: Sequence[Operation]) -> bool:
        """False: not this one (it is empty, too large, there is no room, …), it has to be committed."""

    def finish(self) -> None:
        """It is durable, and not visible yet. `Unavailable`: it is not, and has to be committed. `NotOver`: the
        descriptor was not readable."""

    def show(self) -> None: ...


class Store(Protocol):
    recovery: RecoveryReport

    @property
    def group_bytes_max(self) -> int:
        """The most that `group_bytes(operations)` may be in one commit."""

    @property
    def reserve_bytes(self) -> int:
        """What commits that free space find of room when there is none for others."""

    @property
    def blocked_reason(self) -> str | None:
        """Why the latest write or checkpoint failed; None when all is well."""

    def commit(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
        """Blocks until durable. `Unavailable`: nothing changed, the same group may be committed again later."""

    @property
    def overlapped(self) -> Overlapped | None:
        """None: it has no such commits, or no longer."""

    def get(self, table: Table, key: bytes) -> bytes | None: ...

    def first_at_or_after(self, table: Table, low: bytes, high: bytes) -> Item | Damaged | None: ...

    def peek_memory(self, table: Table, low: bytes, high: bytes) -> Item | None: ...

    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, bytes_max: int = SCAN_BYTES_MAX
    ) -> list[Item | Damaged]: ...

    def rows(self, table: Table) -> int:
        """About how many there are: what lies over others, or hides them, is not looked at."""

    def seal(self) -> None: ...

    def retry(self) -> None: ...

    def statistics(self) -> StoreStatistics: ...

    def room_bytes(self) -> int:
        """About how many more bytes fit: those free on the disk, and those free again in the store's own file."""

    def make_room(self) -> None:
        """With the next commit, delete from the disk as well what the journal only notes as deleted."""

    def close(self) -> None: ...


OPERATION_BYTES = 16  # what the journal adds to each operation's key and value


def group_bytes(operations: Sequence[Operation]) -> int:
    """What a group weighs against `group_bytes_max`."""
    total = 0
    for operation in operations:
        if isinstance(operation, Put):
            total += OPERATION_BYTES + len(operation.key) + len(operation.value)
        else:
            total += OPERATION_BYTES + len(operation.low) + len(operation.high)
    return total


def check_operations(operations: Sequence[Operation]) -> None:
    """Raises `LocalProtocolError` for what no disk could store."""
    for operation in operations:
        if isinstance(operation, Put):
            if not 0 < len(operation.key) <= KEY_BYTES_MAX:
                raise LocalProtocolError(
                    f"{operation.table.name}: key of {len(operation.key)} bytes; allowed are 1 to {KEY_BYTES_MAX}"
                )
        elif len(operation.low) > KEY_BYTES_MAX + 1 or len(operation.high) > KEY_BYTES_MAX + 1:
            raise LocalProtocolError(
                f"{operation.table.name}: range bound of {max(len(operation.low), len(operation.high))} bytes; "
                f"allowed are 0 to {KEY_BYTES_MAX + 1}"
            )

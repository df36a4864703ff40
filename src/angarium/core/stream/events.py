"""What the message manager's streams ask of the disk, and what they are told.

Files are written in the order of the commands. `FileWritten` says that the operating system has it (it survives the
process), `FileSynced` that the disk has (it survives the power).
"""
from dataclasses import dataclass

import msgspec

from angarium.core.errors import ConfigError
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block

# -- commands ----------------------------------------------------------------------------------------


class AppendBlock(msgspec.Struct, frozen=True):
    """Number 0 creates the file."""

    stream: bytes
    number: int
    block: Block


class SyncFile(msgspec.Struct, frozen=True):
    """Make everything appended so far durable."""

    stream: bytes
    blocks: int  # so many


class DeleteFile(msgspec.Struct, frozen=True):
    """Whatever was appended before and is not yet written may be dropped. A file that is not there is no error."""

    stream: bytes


class ReadBlocks(msgspec.Struct, frozen=True):
    token: int
    stream: bytes
    first: int
    count: int
    packed: bool = False  # for another replica: compressed (packing.py), by who reads them


FileCommand = AppendBlock | SyncFile | DeleteFile | ReadBlocks

# -- events ------------------------------------------------------------------------------------------


class FileWritten(msgspec.Struct, frozen=True):
    stream: bytes
    blocks: int  # in all


class FileSynced(msgspec.Struct, frozen=True):
    stream: bytes
    blocks: int  # in all


class FileFailed(msgspec.Struct, frozen=True):
    """What was appended and not synced may be lost; nothing more is written to this file."""

    stream: bytes
    reason: str


class FilesBlocked(msgspec.Struct, frozen=True):
    """Nothing can be written for now, and is tried again (empty: it can again). Appended blocks are kept."""

    reason: str


class BlocksRead(msgspec.Struct, frozen=True):
    token: int
    blocks: list[Block]
    damage: str = ""  # why the next one after these cannot be read


FileEvent = FileWritten | FileSynced | FileFailed | FilesBlocked | BlocksRead


# -- what is found at the start ------------------------------------------------------------------------


class StoredFile(msgspec.Struct, frozen=True):
    fragments: int  # whole and undamaged, as far as was looked
    bytes: int
    is_ended: bool  # the last one is the stream's last


# -- settings ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamSettings:
    # Streams of one node: stored with their messages, and being written. Past it opening is refused.
    streams_max: int = 100_000
    # Being written at the same time. Each may have a window in memory. Past it opening is refused.
    open_max: int = 1_000
    # Written, and as many read, by one session at the same time. Past it the connection is closed.
    session_max: int = 64
    # Longest content of one stream. Past it the stream is ended with a reason.
    stream_bytes_max: int = 1 << 40
    # Fragments of 64 KiB that a sender may be ahead of the disk. More would make small messages of the same connection
    # wait behind them; fewer would make the disk wait for the network.
    window_fragments: int = 4
    # Fragments between two syncs. More unsynced ones would hold up the sync of the journal, and with it every confirm.
    sync_fragments: int = 16
    # How long the content of a cut-off sender is kept. Long: sending gigabytes again costs more than their keeping.
    unfinished_keep_s: float = 60.0
    # Streams stop here, so that a full disk still has room for messages and their settlements.
    free_bytes_min: int = 64 << 20

    def __post_init__(self) -> None:
        if self.stream_bytes_max < FRAGMENT_BYTES:
            raise ConfigError(f"stream.stream_bytes_max {self.stream_bytes_max:,}: at least {FRAGMENT_BYTES:,}")

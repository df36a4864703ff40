"""Files of streams in virtual time, with the habits of `runtime/stream_disk.py`.

    append --> written, after a while --sync--> durable
    delete --> forgotten at once, and still there for a while --> gone

A crash keeps what is durable; of what was only written, as many blocks as the seed draws; of a file that was never
synced perhaps not even the name; of one that was about to be deleted all, some or nothing. A full disk takes nothing,
and tries again; deletions go first. Who writes a stream of the same name again finds nothing of the old one. A block
may be written a second time: a backup that becomes primary while its last blocks are on their way is sent them again.
"""
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.stream.blocks import Block, content_bytes
from angarium.core.stream.events import (
    AppendBlock,
    BlocksRead,
    DeleteFile,
    FileCommand,
    FileEvent,
    FilesBlocked,
    FileSynced,
    FileWritten,
    ReadBlocks,
    StoredFile,
    SyncFile,
)
from angarium.core.stream.packing import pack_block
from angarium.sim.clock import Clock
from angarium.sim.messages import Violation

WRITE_S_MAX = 0.002
SYNC_S_MAX = 0.01
READ_S_MAX = 0.005
DELETE_S_MAX = (0.01, 0.2, 2.0)  # a large file is deleted in steps, and others' blocks go first
RETRY_AFTER_S = 0.25


class Audience(Protocol):
    def files_told(self, event: FileEvent) -> None: ...


class SimStreamFiles:
    def __init__(self, clock: Clock, chance: Random) -> None:
        self.is_full = False
        self._blocks: dict[bytes, list[Block]] = {}
        self._deleting: dict[bytes, float] = {}  # still there, and until when
        self._clock = clock
        self._chance = chance
        self._late = Random()  # on its own: how long a deletion takes changes nothing else that is drawn
        self._late.setstate(chance.getstate())
        self._synced: dict[bytes, int] = {}
        self._audience: Audience | None = None
        self._start = 0  # counts starts: what was under way before the last crash is void
        self._waiting: deque[AppendBlock | SyncFile] = deque()
        self._reading = 0
        self._is_busy = False
        self._is_blocked = False

    @property
    def blocks(self) -> dict[bytes, list[Block]]:
        """What lies on the disk now."""
        for stream, until in list(self._deleting.items()):
            if until <= self._clock.now:
                self._delete(stream)
        return self._blocks

    def _delete(self, stream: bytes) -> None:
        self._deleting.pop(stream, None)
        self._blocks.pop(stream, None)
        self._synced.pop(stream, None)

    def _finish_deletion(self, stream: bytes) -> None:
        """Before it is written again."""
        if stream in self._deleting:
            self._delete(stream)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._reading

    def open(self, audience: Audience, held: Container[bytes]) -> dict[bytes, StoredFile]:
        self._audience = audience
        return self.stored(held)

    def stored(self, held: Container[bytes]) -> dict[bytes, StoredFile]:
        return {
            identity: StoredFile(
                len(blocks), content_bytes(len(blocks), len(blocks[-1].payload)) if blocks else 0,
                identity in held or (bool(blocks) and blocks[-1].is_last),
            )
            for identity, blocks in self.blocks.items()
        }  # fmt: skip

    def durable_blocks(self, stream: bytes) -> int:
        return 0 if stream in self._deleting else self._synced.get(stream, 0)

    def do(self, command: FileCommand) -> None:
        match command:
            case ReadBlocks():
                self._reading += 1
                self._later(self._chance.random() * READ_S_MAX, partial(self._read, command))
            case DeleteFile(stream):
                self._waiting = deque(item for item in self._waiting if item.stream != stream)
                if stream in self._blocks:
                    self._deleting[stream] = self._clock.now + self._late.random() * self._late.choice(DELETE_S_MAX)
            case AppendBlock() | SyncFile():
                self._waiting.append(command)
                self._begin()

    def crash(self) -> None:
        """Everything written may have reached the disk, or only what was synced."""
        self._start += 1
        there = self.blocks
        leaving = {stream: there[stream] for stream in self._deleting}
        for stream, blocks in list(there.items()):
            if stream in leaving:
                continue
            synced = self._synced.get(stream, 0)
            del blocks[self._chance.randint(synced, len(blocks)) :]
            if stream not in self._synced and self._chance.random() < 0.5:
                del there[stream]
            else:
                self._synced[stream] = len(blocks)
        for stream, blocks in leaving.items():  # from its end, in steps
            del blocks[self._late.choice((0, len(blocks), self._late.randint(0, len(blocks)))) :]
            self._synced[stream] = len(blocks)
            if not blocks:
                self._delete(stream)
        self._deleting.clear()
        self._waiting.clear()
        self._reading = 0
        self._is_busy = self._is_blocked = False
        self._audience = None

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        start = self._start
        self._clock.after(delay_s, lambda: action() if start == self._start else None)

    def _tell(self, event: FileEvent) -> None:
        assert self._audience is not None
        self._audience.files_told(event)

    def _begin(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        is_sync = isinstance(self._waiting[0], SyncFile)
        self._later(self._chance.random() * (SYNC_S_MAX if is_sync else WRITE_S_MAX), self._do_next)

    def _do_next(self) -> None:
        self._is_busy = False
        if not self._waiting:
            return
        if self.is_full and isinstance(self._waiting[0], AppendBlock):
            if not self._is_blocked:
                self._is_blocked = True
                self._tell(FilesBlocked("no space left on device"))
            self._is_busy = True
            self._later(RETRY_AFTER_S, self._do_next)
            return
        command = self._waiting.popleft()
        self._finish_deletion(command.stream)
        if isinstance(command, AppendBlock):
            blocks = self.blocks.setdefault(command.stream, [])
            if len(blocks) < command.number:
                raise Violation("blocks are appended in order", f"{command.number} after {len(blocks)}")
            if blocks[command.number : command.number + 1] not in ([], [command.block]):
                raise Violation("a block has one content for ever", f"{command.number} of {len(blocks)}")
            blocks[command.number : command.number + 1] = [command.block]
            self._tell(FileWritten(command.stream, command.number + 1))
        else:
            assert len(self.blocks[command.stream]) >= command.blocks
            self._synced[command.stream] = max(command.blocks, self._synced.get(command.stream, 0))
            self._tell(FileSynced(command.stream, command.blocks))
        if self._is_blocked:
            self._is_blocked = False
            self._tell(FilesBlocked(""))
        self._begin()

    def _read(self, command: ReadBlocks) -> None:
        self._reading -= 1
        found = self.blocks.get(command.stream, [])[command.first : command.first + command.count]
        damage = "" if len(found) == command.count else "is not there"
        if command.packed:
            found = [pack_block(block) for block in found]
        self._tell(BlocksRead(command.token, found, damage))

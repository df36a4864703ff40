"""The driver of stream files: one thread writes, syncs and deletes, another reads, and compresses what is for another
replica; the event loop never waits.

Blocks that have queued up for one file are written together. A disk that cannot write (full, or below what is left to
messages) loses nothing: what waits is tried again, in order, and deletions go first, for they make room. Deleting
a large file is done in steps, so that it holds nothing else up for long.

A stream that was deleted may be written again, under the same name: a destination that is moved here once more brings
it. So what is left of the deletion is done first, and what was done to the old file is not told any more.
"""
import queue
from collections import deque
from collections.abc import Callable

from angarium.core.errors import Unavailable
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import (
    AppendBlock,
    BlocksRead,
    DeleteFile,
    FileEvent,
    FileFailed,
    FilesBlocked,
    FileSynced,
    FileWritten,
    ReadBlocks,
    SyncFile,
)
from angarium.core.stream.packing import pack_block
from angarium.runtime.threads import LoopThreads
from angarium.store.stream_files import StreamFiles

_RETRY_AFTER_S = 0.25
_BLOCKS_PER_WRITE_MAX = 16
_DELETE_PAUSE_S = 0.005  # between the steps of one deletion
_Write = AppendBlock | SyncFile | DeleteFile


class StreamDisk:
    """Callbacks are called on the event loop: told(events) and failed(error)."""

    def __init__(
        self,
        files: StreamFiles,
        *,
        told: Callable[[list[FileEvent]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._files = files
        self._told = told
        self._threads = LoopThreads(failed)
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[ReadBlocks | None] = queue.SimpleQueue()
        self._waiting: deque[AppendBlock | SyncFile] = deque()  # the writer's: not yet done
        self._deleting: dict[bytes, None] = {}  # the writer's: in steps, the first one first
        self._is_kept = False  # the writer's: the disk would not delete the last one that it was asked to
        self._dead: set[bytes] = set()  # the writer's: files that failed to sync, until they are deleted
        self._deleted: dict[bytes, int] = {}  # the loop's: how often, and the writer has not seen it yet
        self._is_blocked = False
        self._stopping = False
        self._threads.start(self._write_loop, "stream-writer")
        self._threads.start(self._read_loop, "stream-reader")

    # -- on the event loop -----------------------------------------------------------------------------

    def write(self, command: _Write) -> None:
        if isinstance(command, DeleteFile):
            self._deleted[command.stream] = self._deleted.get(command.stream, 0) + 1
        self._writes.put(command)

    def _tell(self, events: list[FileEvent]) -> None:
        """By the writer: but what it has done before it saw that a file is to be deleted."""
        if self._deleted:
            events = [event for event in events if not self._is_old(event)]
        if events:
            self._told(events)

    def _is_old(self, event: FileEvent) -> bool:
        return isinstance(event, FileWritten | FileSynced | FileFailed) and event.stream in self._deleted

    def _deletion_seen(self, stream: bytes) -> None:
        self._deleted[stream] -= 1
        if not self._deleted[stream]:
            del self._deleted[stream]

    def read(self, command: ReadBlocks) -> None:
        self._reads.put(command)

    async def close(self) -> None:
        """Finish what can be finished; what a full disk does not take was never said to be stored."""
        self._stopping = True
        self._writes.put(None)
        self._reads.put(None)
        await self._threads.joined()
        self._files.close()

    # -- in the threads --------------------------------------------------------------------------------

    def _read_loop(self) -> None:
        while (read := self._reads.get()) is not None:
            blocks, damage = self._files.read(read.stream, read.first, read.count)
            if read.packed:
                blocks = [pack_block(block) for block in blocks]
            self._threads.call(self._told, [BlocksRead(read.token, blocks, damage)])

    def _write_loop(self) -> None:
        while True:
            self._take()
            events: list[FileEvent] = []
            self._delete_some()
            try:
                if self._waiting:
                    self._do_next(events)
                if self._is_blocked:  # it was done, or its stream was deleted
                    self._is_blocked = False
                    events.append(FilesBlocked(""))
            except Unavailable as error:
                if self._stopping:
                    return
                if not self._is_blocked:
                    self._is_blocked = True
                    events.append(FilesBlocked(str(error)))
            if events:
                self._threads.call(self._tell, events)
            if self._stopping and not self._waiting:
                return

    def _delete_some(self) -> None:
        """One step. What a disk that takes no writes at all keeps is tried again, behind the others: nobody waits for
        it, and whoever writes is told what is wrong."""
        self._is_kept = False
        for stream in self._deleting:
            try:
                if self._files.delete(stream):
                    del self._deleting[stream]
            except Unavailable:
                self._is_kept = True
                del self._deleting[stream]
                self._deleting[stream] = None
            return

    def _take(self) -> None:
        """Move what has queued up; wait for something if there is nothing to do."""
        wait_s: float | None = None
        if self._deleting and (self._is_blocked or not self._waiting):
            wait_s = _RETRY_AFTER_S if self._is_kept else _DELETE_PAUSE_S
        elif self._waiting:
            wait_s = _RETRY_AFTER_S if self._is_blocked else 0.0
        if self._stopping:
            wait_s = 0.0
        try:
            self._accept(self._writes.get(wait_s != 0.0, wait_s))
            while True:
                self._accept(self._writes.get_nowait())
        except queue.Empty:
            return

    def _accept(self, command: _Write | None) -> None:
        if isinstance(command, DeleteFile):
            self._waiting = deque(item for item in self._waiting if item.stream != command.stream)
            self._dead.discard(command.stream)
            self._deleting[command.stream] = None
            self._threads.call(self._deletion_seen, command.stream)
        elif command is not None and command.stream not in self._dead:
            self._waiting.append(command)

    def _do_next(self, events: list[FileEvent]) -> None:
        command = self._waiting[0]
        stream = command.stream
        if stream in self._deleting:
            while not self._files.delete(stream):
                pass
            del self._deleting[stream]
        if isinstance(command, SyncFile):
            try:
                self._files.sync(stream)
            except OSError as error:
                # What a failed sync has lost is not known, and trying again would only hide it.
                self._dead.add(stream)
                self._waiting = deque(item for item in self._waiting if item.stream != stream)
                events.append(FileFailed(stream, f"could not be made durable: {error.strerror}"))
                return
            self._waiting.popleft()
            events.append(FileSynced(stream, command.blocks))
            return
        blocks: list[Block] = []
        for item in self._waiting:
            if not isinstance(item, AppendBlock) or item.stream != stream or len(blocks) == _BLOCKS_PER_WRITE_MAX:
                break
            blocks.append(item.block)
        self._files.append(stream, command.number, blocks)
        for _ in blocks:
            self._waiting.popleft()
        events.append(FileWritten(stream, command.number + len(blocks)))

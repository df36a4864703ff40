"""Disks, files and threads of a simulated node, as `node/cluster/machinery.py` asks for them."""
import asyncio
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from random import Random
from typing import Any

from angarium.core.destination.events import BatchesRead, DelayedRead, Read, ReadDelayed, Write
from angarium.core.storage import Operation
from angarium.core.stream.events import AppendBlock, DeleteFile, FileEvent, ReadBlocks, StoredFile, SyncFile
from angarium.runtime.disk import DiskSettings
from angarium.sim.disk import SimDisk
from angarium.sim.loop import SimLoop
from angarium.sim.stream_files import SimStreamFiles

_CLOSE_STEP_S, _CLOSE_STEPS_MAX = 0.005, 400


class NodeDisk:
    """A simulated disk, for one start of the process that uses it."""

    def __init__(
        self, loop: SimLoop, disk: SimDisk, settings: DiskSettings, *, written: Callable[[list[int]], None],
        read: Callable[[BatchesRead], None], delayed: Callable[[DelayedRead], None], blocked: Callable[[str], None],
        failed: Callable[[BaseException], None], ordered: Callable[[Sequence[Operation]], None],
    ) -> None:  # fmt: skip
        """`ordered` is shown what is to be written."""
        self._loop = loop
        self._disk = disk
        self._ordered = ordered
        self._is_closed = False
        self._written, self._read, self._delayed, self._blocked = written, read, delayed, blocked
        disk.open(self)

    # -- from the disk ---------------------------------------------------------------------------------

    def written(self, tokens: list[int]) -> None:
        self._loop.call_soon(self._written, tokens)

    def read_done(self, event: BatchesRead | DelayedRead) -> None:
        if isinstance(event, DelayedRead):
            self._loop.call_soon(self._delayed, event)
        else:
            self._loop.call_soon(self._read, event)

    def writes_blocked(self, reason: str) -> None:
        self._loop.call_soon(self._blocked, reason)

    # -- from the node ---------------------------------------------------------------------------------

    def write(self, write: Write) -> None:
        if not self._is_closed:  # as the real one, whose thread has ended by then
            self._ordered(write.operations)
            self._disk.write(write)

    def read(self, read: Read) -> BatchesRead | None:
        return self._disk.read(read)

    def read_delayed(self, read: ReadDelayed) -> None:
        self._disk.read_delayed(read)

    async def close(self) -> bool:
        for _ in range(_CLOSE_STEPS_MAX):
            if not self._disk.is_idle:
                await asyncio.sleep(_CLOSE_STEP_S)
        is_written, self._is_closed = self._disk.is_idle, True
        self._disk.finish()
        return is_written


class NodeFiles:
    """In place of `store.stream_files.StreamFiles`."""

    def __init__(self, files: SimStreamFiles) -> None:
        self.files = files

    def scan(
        self, held: Container[bytes], *, unsynced_blocks_max: int, in_use: bool = False
    ) -> dict[bytes, StoredFile]:
        return self.files.stored(held)


class NodeStreamDisk:
    def __init__(
        self, loop: SimLoop, files: NodeFiles, *, told: Callable[[list[FileEvent]], None],
        failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._files = files.files
        self._told = told
        self._files.open(self, ())

    def files_told(self, event: FileEvent) -> None:
        self._loop.call_soon(self._told, [event])

    def write(self, command: AppendBlock | SyncFile | DeleteFile) -> None:
        self._files.do(command)

    def read(self, command: ReadBlocks) -> None:
        self._files.do(command)

    async def close(self) -> None: ...


def in_thread(chance: Random, seconds_max: float) -> Callable[..., Any]:
    """What takes long, takes a while; when in it the store is looked at, nobody knows."""

    async def run(work: Callable[..., Any], *arguments: object) -> Any:
        early = chance.random() < 0.5
        done = work(*arguments) if early else None
        await asyncio.sleep(chance.random() * seconds_max)
        return done if early else work(*arguments)

    return run


def path_group(path: Path) -> str:
    """Of the directory of a replica."""
    return path.name.removeprefix("replica-")

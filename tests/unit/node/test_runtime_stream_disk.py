"""Goal: stream files are written in order and together, a full disk loses nothing and is told once, deletions make room
and take what they delete out of the line, a failed sync is the end of its stream, and one that was deleted may be
written again: nothing that was done before, or is still to be done, to the file of that name is taken for the new one.
Method: the driver on files that a test fills, breaks and looks at."""
import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from angarium.core.checksum import crc32
from angarium.core.errors import Unavailable
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block
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
from angarium.core.stream.packing import PackedBlock, pack_block, unpack_content
from angarium.runtime import stream_disk
from angarium.runtime.stream_disk import StreamDisk
from angarium.store import stream_files
from angarium.store.stream_files import StreamFiles
from tests.unit.node.disk_driver import WAIT_S_MAX

A, B = b"a" * 16, b"b" * 16


class FakeFiles:
    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes, int]] = []  # what was done, to which, and how much
        self.is_full = False
        self.bad_sync: bytes = b""
        self.steps = 1  # of a deletion
        self.kept: set[bytes] = set()  # those that cannot be deleted
        self.failing: BaseException | None = None
        self.is_closed = False
        self.may_sync = threading.Event()
        self.may_sync.set()

    def append(self, stream: bytes, first: int, blocks: Sequence[Block]) -> None:
        if self.failing is not None:
            raise self.failing
        if self.is_full:
            raise Unavailable("no space left")
        self.calls.append(("append", stream, len(blocks)))

    def sync(self, stream: bytes) -> None:
        if stream == self.bad_sync:
            raise OSError(5, "Input/output error")
        assert self.may_sync.wait(WAIT_S_MAX)
        self.calls.append(("sync", stream, 0))

    def delete(self, stream: bytes) -> bool:
        self.calls.append(("delete", stream, 0))
        if stream in self.kept:
            raise Unavailable("read-only file system")
        self.steps -= 1
        return self.steps <= 0

    def read(self, stream: bytes, first: int, count: int) -> tuple[list[Block], str]:
        return [Block(0, False, b"x")] * (count - 1), "block 1 is bad"

    def close(self) -> None:
        self.is_closed = True


class Driven:
    """To be made on a running loop."""

    def __init__(self, real: StreamFiles | None = None) -> None:
        self.files = FakeFiles()
        self.told: list[FileEvent] = []
        self.failures: list[BaseException] = []
        files = real or cast(StreamFiles, self.files)
        self.disk = StreamDisk(files, told=self.told.extend, failed=self.failures.append)

    def append(self, stream: bytes, *numbers: int) -> None:
        for number in numbers:
            self.disk.write(AppendBlock(stream, number, Block(0, False, b"x")))

    async def until(self, happened: Callable[[], Any]) -> None:
        for _ in range(int(WAIT_S_MAX / 0.002)):
            if happened():
                return
            await asyncio.sleep(0.002)
        pytest.fail(f"not in time: told {self.told}, done {self.files.calls}")


def drive(scenario: Callable[[Driven], Awaitable[None]], real: StreamFiles | None = None) -> Driven:
    async def run() -> Driven:
        driven = Driven(real)
        await scenario(driven)
        await driven.disk.close()
        await asyncio.sleep(0)
        return driven

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_disk, "_RETRY_AFTER_S", 0.002)
    monkeypatch.setattr(stream_disk, "_DELETE_PAUSE_S", 0.001)


def test_blocks_that_have_queued_up_are_written_together_and_in_order() -> None:
    async def scenario(driven: Driven) -> None:
        driven.files.is_full = True
        driven.append(A, 0)
        await driven.until(lambda: driven.told)
        driven.append(A, *range(1, 20))
        driven.append(B, 0)
        driven.disk.write(SyncFile(A, 20))
        driven.files.is_full = False
        await driven.until(lambda: FileSynced(A, 20) in driven.told)

    driven = drive(scenario)
    appended = [(stream, count) for name, stream, count in driven.files.calls if name == "append"]
    assert sum(count for stream, count in appended if stream == A) == 20
    assert max(count for _, count in appended) == stream_disk._BLOCKS_PER_WRITE_MAX
    order = [event for event in driven.told if isinstance(event, FileWritten | FileSynced)]
    assert order[-3:] == [FileWritten(A, 20), FileWritten(B, 1), FileSynced(A, 20)]


def test_a_full_disk_is_told_once_with_the_reason_and_loses_nothing() -> None:
    async def scenario(driven: Driven) -> None:
        driven.append(A, 0)
        await driven.until(lambda: FileWritten(A, 1) in driven.told)
        driven.files.is_full = True
        driven.append(A, 1, 2)
        await driven.until(lambda: FilesBlocked("no space left") in driven.told)
        await asyncio.sleep(0.02)
        driven.files.is_full = False
        await driven.until(lambda: FileWritten(A, 3) in driven.told)
        await driven.until(lambda: FilesBlocked("") in driven.told)

    told = [event for event in drive(scenario).told if isinstance(event, FilesBlocked)]
    assert told == [FilesBlocked("no space left"), FilesBlocked("")]


def test_while_it_is_full_deletions_go_on_in_steps_and_take_their_stream_out_of_the_line() -> None:
    async def scenario(driven: Driven) -> None:
        driven.files.is_full, driven.files.steps = True, 3
        driven.append(A, 0, 1)
        await driven.until(lambda: driven.told)
        driven.disk.write(DeleteFile(A))
        await driven.until(lambda: driven.files.calls.count(("delete", A, 0)) == 3)
        await driven.until(lambda: FilesBlocked("") in driven.told)  # nothing is left that would need room

    driven = drive(scenario)
    assert not any(isinstance(event, FileWritten) for event in driven.told)
    assert ("append", A, 1) not in driven.files.calls and ("append", A, 2) not in driven.files.calls


def test_what_cannot_be_deleted_is_tried_again_and_keeps_nobody_waiting() -> None:
    async def scenario(driven: Driven) -> None:
        driven.files.kept = {A}
        driven.disk.write(DeleteFile(A))
        await driven.until(lambda: driven.files.calls.count(("delete", A, 0)) > 2)
        driven.disk.write(DeleteFile(B))
        driven.append(b"c" * 16, 0)
        await driven.until(lambda: driven.told and ("delete", B, 0) in driven.files.calls)
        driven.append(A, 0)  # it begins anew: not over what is left of the old one
        await driven.until(lambda: FilesBlocked("read-only file system") in driven.told)
        driven.files.kept = set()
        await driven.until(lambda: FileWritten(A, 1) in driven.told)

    driven = drive(scenario)
    assert driven.failures == []
    assert driven.told[-1] == FilesBlocked("")


def test_a_sync_that_fails_is_the_end_of_its_stream_and_of_no_other() -> None:
    async def scenario(driven: Driven) -> None:
        driven.files.bad_sync = A
        driven.append(A, 0)
        driven.disk.write(SyncFile(A, 1))
        await driven.until(lambda: any(isinstance(event, FileFailed) for event in driven.told))
        driven.append(A, 1)
        driven.append(B, 0)
        driven.disk.write(SyncFile(B, 1))
        await driven.until(lambda: FileSynced(B, 1) in driven.told)
        driven.disk.write(DeleteFile(A))
        driven.files.bad_sync = b""
        driven.append(A, 0)
        driven.disk.write(SyncFile(A, 1))
        await driven.until(lambda: FileSynced(A, 1) in driven.told)

    driven = drive(scenario)
    failed = [event for event in driven.told if isinstance(event, FileFailed)]
    assert failed == [FileFailed(A, "could not be made durable: Input/output error")]
    assert FileWritten(A, 2) not in driven.told, "what follows is ignored until it is deleted"


def test_one_that_is_written_again_while_it_is_still_being_deleted_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_files, "_DELETE_STEP_BYTES", 1)
    files = StreamFiles(tmp_path)
    block = Block(0x8CDC1683, True, b"x")
    for stream in (A, B):
        files.append(stream, 0, [block])

    async def scenario(driven: Driven) -> None:
        driven.disk.write(DeleteFile(B))  # in many steps, and A has to wait until it is gone
        driven.disk.write(DeleteFile(A))
        driven.disk.write(AppendBlock(A, 0, block))
        driven.disk.write(SyncFile(A, 1))
        await driven.until(lambda: FileSynced(A, 1) in driven.told)
        await driven.until(lambda: not (tmp_path / "streams" / B.hex()).exists())
        await asyncio.sleep(0.01)

    assert drive(scenario, files).failures == []
    assert files.read(A, 0, 1) == ([block], "")


def test_what_was_done_to_the_file_that_was_deleted_is_not_told_of_the_new_one() -> None:
    async def scenario(driven: Driven) -> None:
        driven.append(A, 0, 1, 2)
        driven.files.may_sync.clear()
        driven.disk.write(SyncFile(A, 3))
        await driven.until(lambda: FileWritten(A, 3) in driven.told)
        driven.disk.write(DeleteFile(A))
        driven.append(A, 0)
        driven.files.may_sync.set()
        await driven.until(lambda: FileWritten(A, 1) in driven.told)
        driven.disk.write(SyncFile(A, 1))
        await driven.until(lambda: FileSynced(A, 1) in driven.told)

    driven = drive(scenario)
    assert ("sync", A, 0) in driven.files.calls
    assert FileSynced(A, 3) not in driven.told, "three blocks of the new one are not there"


def test_reading_tells_what_there_is_and_what_is_wrong() -> None:
    async def scenario(driven: Driven) -> None:
        driven.disk.read(ReadBlocks(7, A, 0, 2))
        await driven.until(lambda: driven.told)

    assert drive(scenario).told == [BlocksRead(7, [Block(0, False, b"x")], "block 1 is bad")]


def test_what_is_for_another_replica_is_compressed_by_the_thread_that_reads(tmp_path: Path) -> None:
    contents = [bytes(FRAGMENT_BYTES), random.Random(1).randbytes(FRAGMENT_BYTES), b"x"]
    blocks = [Block(crc32(content), number == 2, content) for number, content in enumerate(contents)]
    files = StreamFiles(tmp_path)
    files.append(A, 0, blocks)
    threads: list[str] = []

    def pack(block: Block) -> Block:
        threads.append(threading.current_thread().name)
        return pack_block(block)

    async def scenario(driven: Driven) -> None:
        driven.disk.read(ReadBlocks(7, A, 0, 3))
        driven.disk.read(ReadBlocks(8, A, 0, 3, packed=True))
        await driven.until(lambda: len(driven.told) == 2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_disk, "pack_block", pack)
        plain, packed = drive(scenario, files).told
    assert plain == BlocksRead(7, blocks)
    assert isinstance(packed, BlocksRead) and packed.blocks[1:] == blocks[1:], "where it makes them no shorter"
    assert isinstance(packed.blocks[0], PackedBlock) and len(packed.blocks[0].payload) < 1_000
    assert unpack_content(packed.blocks[0].payload, blocks[0].crc) == contents[0]
    assert set(threads) == {"stream-reader"}


def test_a_broken_invariant_is_told_and_not_swallowed() -> None:
    async def scenario(driven: Driven) -> None:
        driven.files.failing = AssertionError("this cannot be")
        driven.append(A, 0)
        await driven.until(lambda: driven.failures)

    assert str(drive(scenario).failures[0]) == "this cannot be"


@pytest.mark.parametrize("is_full", [False, True])
def test_closing_finishes_what_can_be_finished(is_full: bool) -> None:
    async def scenario(driven: Driven) -> None:
        driven.files.is_full = is_full
        driven.append(A, 0, 1)
        driven.disk.write(SyncFile(A, 2))

    driven = drive(scenario)
    assert driven.files.is_closed and driven.failures == []
    assert (FileSynced(A, 2) in driven.told) is not is_full

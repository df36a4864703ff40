"""Files of streams: DIR/streams/<identity>, appended block by block, synced when told, read from anywhere.

Every block carries its checksum (`core.stream.blocks`), so what was torn by a power cut or rots on the disk is found.
At the start only what may never have been synced is looked at: the last `unsynced_blocks_max` blocks of files that no
message holds. Threads: `append`, `sync`, `delete` and `scan` belong to one, `read` may come from another.
"""
import contextlib
import errno
import os
from collections import OrderedDict
from collections.abc import Container, Sequence
from pathlib import Path

from angarium.core.errors import Unavailable
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.stream.blocks import (
    BLOCK_BYTES,
    HEADER,
    Block,
    block_count,
    block_header,
    content_bytes,
    parse_block,
)
from angarium.core.stream.events import StoredFile
from angarium.store.disk import DiskCalls, sync_directory

_OPEN_FILES_MAX = 128
_DELETE_STEP_BYTES = 64 << 20  # one step of a file system takes long enough for others to notice


class StreamFiles:
    def __init__(self, directory: Path, *, free_bytes_min: int = 0, disk: DiskCalls | None = None) -> None:
        self._directory = directory / "streams"
        self._disk = disk or DiskCalls()
        self._free_bytes_min = free_bytes_min
        self._open: OrderedDict[bytes, int] = OrderedDict()  # identity -> descriptor, the least used first
        self._new: set[bytes] = set()  # their names are not yet durable
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o750, parents=True)
            sync_directory(self._disk, directory)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _path(self, identity: bytes) -> Path:
        return self._directory / identity.hex()

    # -- writing -------------------------------------------------------------------------------------

    def append(self, identity: bytes, first: int, blocks: Sequence[Block]) -> None:
        """`Unavailable`: nothing is lost, and the same call may be made again later."""
        size = len(blocks) * BLOCK_BYTES
        free = self._disk.free_bytes(self._directory)
        if free - size < self._free_bytes_min:
            raise Unavailable(
                f"{self._directory}: {free:,} bytes are free, and streams leave free_bytes_min "
                f"{self._free_bytes_min:,} of them to messages; consume some, or give it room"
            )
        buffers: list[bytes] = []
        for number, block in enumerate(blocks, first):
            buffers += (block_header(number, block), block.payload)
        try:
            fd = self._descriptor(identity, create=first == 0)
            written = self._disk.pwritev(fd, buffers, first * BLOCK_BYTES)
        except OSError as error:
            raise Unavailable(f"{self._path(identity)}: {error.strerror}") from error
        if written != sum(map(len, buffers)):
            raise Unavailable(f"{self._path(identity)}: {os.strerror(errno.ENOSPC)}")

    def sync(self, identity: bytes) -> None:
        """Raises OSError: what was appended since the last time may be lost."""
        self._disk.fdatasync(self._descriptor(identity, create=False))
        if identity in self._new:
            sync_directory(self._disk, self._directory)
            self._new.discard(identity)

    def delete(self, identity: bytes) -> bool:
        """One step; False: there is more to do. `Unavailable`: the disk takes no writes at all."""
        self._forget(identity)
        self._new.discard(identity)
        path = self._path(identity)
        try:
            size = path.stat().st_size
            if size > _DELETE_STEP_BYTES:
                os.truncate(path, size - _DELETE_STEP_BYTES)
                return False
            self._disk.remove(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        return True

    def _descriptor(self, identity: bytes, *, create: bool) -> int:
        fd = self._open.pop(identity, None)
        if fd is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                os.close(self._open.popitem(last=False)[1])
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            fd = os.open(self._path(identity), flags, 0o640)
            if create:
                self._new.add(identity)
        self._open[identity] = fd
        return fd

    def _forget(self, identity: bytes) -> None:
        fd = self._open.pop(identity, None)
        if fd is not None:
            os.close(fd)

    # -- reading -------------------------------------------------------------------------------------

    def read(self, identity: bytes, first: int, count: int) -> tuple[list[Block], str]:
        """As many whole blocks as there are, and why there are no more if that is fewer."""
        try:
            fd = os.open(self._path(identity), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return [], f"{self._path(identity)}: {error.strerror}"
        blocks: list[Block] = []
        try:
            for number in range(first, first + count):
                block = parse_block(number, self._disk.pread(fd, BLOCK_BYTES, number * BLOCK_BYTES))
                if block is None:
                    return blocks, f"{self._path(identity)}: block {number} fails its checksum or is cut short"
                blocks.append(block)
        except OSError as error:
            return blocks, f"{self._path(identity)}: {error.strerror}"
        finally:
            os.close(fd)
        return blocks, ""

    # -- at the start --------------------------------------------------------------------------------

    def scan(
        self, held: Container[bytes], *, unsynced_blocks_max: int, in_use: bool = False
    ) -> dict[bytes, StoredFile]:
        """Every file, by identity. Of one that a message holds only its length is looked at. Of any other the blocks
        that are whole count, and the rest is cut off; unless files are `in_use`, for then another thread may be
        appending to one or deleting it."""
        found: dict[bytes, StoredFile] = {}
        for path in sorted(self._directory.iterdir()):
            try:
                identity = bytes.fromhex(path.name)
            except ValueError:
                identity = b""
            if len(identity) != GLOBAL_ID_BYTES:
                continue  # not one of ours
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                size = path.stat().st_size
                blocks = block_count(size)
                if identity in held:
                    found[identity] = StoredFile(blocks, size - blocks * HEADER.size, True)
                elif (whole := self._whole(path, identity, blocks, unsynced_blocks_max, cut=not in_use)) is not None:
                    found[identity] = whole
        if any(identity not in held for identity in found):
            sync_directory(self._disk, self._directory)  # nor may their names be known to anybody but the system
        return found

    def _whole(
        self, path: Path, identity: bytes, blocks: int, unsynced_blocks_max: int, *, cut: bool
    ) -> StoredFile | None:
        first = max(0, blocks - unsynced_blocks_max)
        whole, _ = self.read(identity, first, blocks - first)
        if first and not whole:  # damage beyond what can have been unsynced: nobody can go on with this
            if cut:
                path.unlink()
            return None
        count = first + len(whole)
        last = whole[-1] if whole else Block(0, False, b"")
        if cut:
            os.truncate(path, (count - 1) * BLOCK_BYTES + HEADER.size + len(last.payload) if count else 0)
        with path.open("rb") as file:
            self._disk.fsync(file.fileno())  # what was only in the system's memory is told to be durable from now on
        return StoredFile(count, content_bytes(count, len(last.payload)), last.is_last)

"""The journal: two preallocated segment files, written round robin, one group for each commit.

    segment:  | group | group | group | seal | remains of an earlier life ... |
                                      ^ place: the next group goes here, over the seal

A group is one vectored write and one fdatasync. The files were written full of zeros when created, so fdatasync finds
no metadata to change. Taking a segment writes nothing: there is no segment header that could be torn. What is left
from its earlier life is told apart by sequence (recovery.py).

A segment is taken again only after everything in it is durable in LMDB; the caller (`DurableStore`) sees to that.

A small group may also be written by nobody (overlapped.py): `start` gives it to the kernel, `finish` tells how it went.
It is not asked for a while once it has kept us waiting, or has refused too often.

When a call fails:
  write      The pages were never asked to be durable. The same place is written again.
  fdatasync  Linux may mark the failed pages clean: a second fdatasync would report success for data that never reached
             the disk. The place is given up for this life of the segment, the retry goes to pages behind it.
             Earlier groups are safe: groups share no page. A seal behind the given-up place says that the failed group
             does not count, should it have reached the disk after all.
  finish     Refused: like a write. Failed, or short: like an fdatasync, without the seal, for which nobody may wait.
             What is written next has the same sequence and a later stamp: that one counts.

The *reserve*, the last eighth of each segment, is only for commits that free space. The very last page is only for a
seal. All methods but `used_bytes` belong to one thread at a time: the writer's, or between `start` and `finish` whoever
called that.
"""
import errno
import mmap
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from angarium.core.errors import LocalProtocolError, StorageCorrupt, Unavailable
from angarium.core.storage import Operation
from angarium.store.disk import DiskCalls, sync_directory
from angarium.store.groups import HEAD_BYTES, Body, Head, encode, paged, seed
from angarium.store.overlapped import BUFFER_BYTES, NotBegun, OverlappedWriter
from angarium.store.recovery import Recovered, read_segment, recover
from angarium.store.settings import MIB, PAGE_BYTES, SEGMENT_BYTES_MIN

SEGMENT_COUNT = 2  # one that is written, one that is being checkpointed or free
RESERVE_SHARE = 8  # the reserve is this part of a segment
BUFFERS_MAX = 1024  # IOV_MAX
START_S_MAX = 0.002  # that the kernel may keep us waiting, before it is not asked for a while
PAUSE_GROUPS = 256  # little groups that are written by the thread then
PAUSE_REFUSALS = 16  # one after the other, for the same: a file system that always refuses
REFUSALS_MAX = 4  # little groups that the kernel did not begin, one after the other, before cached pages go


class Segment(NamedTuple):
    fd: int
    size_bytes: int


class Group(NamedTuple):
    """A group ready to be written, under a stamp of its own."""

    body: Body
    stamp: int


class Segments(NamedTuple):
    identity: int
    files: list[Segment]
    created: list[str]  # names of those that were missing
    cut: list[str]  # what is told of those that were shorter than the others
    overlapped: OverlappedWriter | None  # on the same files; None: not here


def prepare_segments(directory: Path, segment_bytes: int, disk: DiskCalls) -> Segments:
    """Opens the journal of `directory`, creating what is missing, and filling up with zeros what was cut."""
    for unfinished in directory.glob("journal-*.new"):
        unfinished.unlink()
    names = sorted(path.name for path in directory.glob("journal-*.seg"))
    identities = {name[len("journal-") : -len("-0.seg")] for name in names}
    if len(identities) > 1:
        raise StorageCorrupt(f"{directory}: segments of different journals ({', '.join(names)}); keep those of one")
    identity = int(identities.pop(), 16) if identities else secrets.randbits(64)
    segments: list[Segment] = []
    created: list[str] = []
    cut: list[str] = []
    paths = [directory / f"journal-{identity:016x}-{index}.seg" for index in range(SEGMENT_COUNT)]
    present = [path for path in paths if path.exists()]
    if present:  # all are of one size, whatever is wanted by now
        longest = max(present, key=lambda path: path.stat().st_size)
        segment_bytes = longest.stat().st_size
        if segment_bytes < SEGMENT_BYTES_MIN or segment_bytes % PAGE_BYTES:
            raise StorageCorrupt(f"{longest}: a journal segment of {segment_bytes:,} bytes; it was cut")
    try:
        for path in paths:
            if path not in present:
                _create_segment(path, segment_bytes, disk)
                created.append(path.name)
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            segments.append(Segment(fd, segment_bytes))
            size_bytes = os.fstat(fd).st_size
            if size_bytes < segment_bytes:
                _write_zeros(fd, size_bytes, segment_bytes, disk)
                cut.append(f"{path.name}: {size_bytes:,} bytes of {segment_bytes:,}: cut, with whatever was behind")
    except BaseException as error:
        for segment in segments:
            os.close(segment.fd)
        if isinstance(error, OSError):
            raise Unavailable(
                f"{directory}: cannot prepare a journal segment of {segment_bytes:,} bytes: {error.strerror}"
            ) from error
        raise
    return Segments(identity, segments, created, cut, disk.overlapped_writer(paths))


def _create_segment(path: Path, segment_bytes: int, disk: DiskCalls) -> None:
    """Zeros, durable, under a name of their own first: a segment either exists in full or not at all."""
    unfinished = path.with_suffix(".new")
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        _write_zeros(fd, 0, segment_bytes, disk)
        unfinished.rename(path)
        sync_directory(disk, path.parent)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _write_zeros(fd: int, offset: int, end: int, disk: DiskCalls) -> None:
    zeros = bytes(MIB)
    while offset < end:
        offset += disk.pwritev(fd, [zeros[: end - offset]], offset)
    disk.fsync(fd)


def _ordinary_bytes(segment_bytes: int) -> int:
    return segment_bytes - paged(segment_bytes // RESERVE_SHARE) - PAGE_BYTES


def group_bytes_max_of(segment_bytes: int) -> int:
    """What a journal with segments of that size takes at once."""
    return _ordinary_bytes(segment_bytes) - 2 * HEAD_BYTES


class Journal:
    def __init__(self, segments: Segments, disk: DiskCalls) -> None:
        self._identity = segments.identity
        self._segments = segments.files
        self._overlapped = segments.overlapped
        self._overlaps = segments.overlapped is not None
        self._started: Body | None = None
        self._refusals = 0  # of little groups, by the kernel, one after the other
        self._is_cached = False  # pages of the active segment may be in the way of `start`
        self._pause_groups = 0  # little ones for which the kernel is not asked
        self._seal_page = mmap.mmap(-1, PAGE_BYTES)  # aligned, as direct I/O wants it
        self._ordinary_bytes = [_ordinary_bytes(segment.size_bytes) for segment in segments.files]  # without reserve
        self.group_bytes_max = min(group_bytes_max_of(segment.size_bytes) for segment in segments.files)
        self._disk = disk
        self._life = secrets.randbits(64)
        self._active = 0
        self._place = 0  # offset in the active segment where the next group goes
        self._sealed = False  # the page at the place holds a seal that says all there is to say
        self._stamp_next = 1
        self.sequence_next = 1
        self.applied = 0  # goes into every head: groups up to here are durable in LMDB

    def recover(self, applied: int) -> Recovered:
        """Finds out what counts, makes it durable, and takes up writing behind it."""
        data = [read_segment(self._disk, segment.fd, segment.size_bytes) for segment in self._segments]
        found = recover(data, self._identity, applied)
        self._active, self._place = found.active, found.place
        self.sequence_next, self._stamp_next, self.applied = found.sequence_next, found.stamp_next, found.applied
        if (last := found.unsure) is not None:
            fd = self._segments[last.segment].fd
            try:
                self._write_all(fd, [data[last.segment][last.offset : last.end]], last.offset)
                self._disk.fdatasync(fd)
            except OSError as error:
                raise Unavailable(f"journal: cannot make the last group durable: {error.strerror}") from error
        self._forget_cached()
        return found

    def _forget_cached(self) -> None:
        """Of the active segment, so that `start` finds nothing in its way."""
        self._is_cached = False
        if self.overlapped is not None:
            self.overlapped.forget_cached(self._active)

    @property
    def segment_bytes(self) -> int:
        return self._segments[0].size_bytes

    @property
    def reserve_bytes(self) -> int:
        return min(segment.size_bytes for segment in self._segments) // RESERVE_SHARE

    @property
    def used_bytes(self) -> int:
        return self._place

    def encode(self, operations: Sequence[Operation]) -> Group:
        stamp = self._stamp_next
        body = encode(operations, seed(self._life, stamp))
        if body.body_bytes > self.group_bytes_max:
            raise LocalProtocolError(
                f"group of {body.body_bytes:,} bytes exceeds group_bytes_max {self.group_bytes_max:,}; "
                "commit it in parts, or start with a larger segment_bytes"
            )
        self._stamp_next += 1
        return Group(body, stamp)

    def fits(self, group: Group, *, reserved: bool) -> bool:
        limit = self._segments[self._active].size_bytes - PAGE_BYTES if reserved else self._ordinary_bytes[self._active]
        return self._place + group.body.group_bytes <= limit

    def switch(self) -> None:
        """Goes on in the other segment, whose groups must all be durable in LMDB."""
        self._active = 1 - self._active
        self._place = 0
        self._sealed = False

    def write(self, group: Group) -> None:
        """Returns when the group is durable. `Unavailable`: it does not count, and may be written again."""
        body, fd = group.body, self._segments[self._active].fd
        if body.group_bytes > BUFFER_BYTES:  # it would be slower without those pages
            self._refusals, self._is_cached = 0, False
        elif self._is_cached:
            self._forget_cached()
        buffers = body.finish(self._head(group.stamp, body.body_bytes, body.operation_count))
        self._sealed = False
        try:
            self._write_all(fd, buffers, self._place)
        except OSError as error:
            raise Unavailable(f"journal: cannot write {body.group_bytes:,} bytes: {error.strerror}") from error
        try:
            self._disk.fdatasync(fd)
        except OSError as error:
            self._place += body.group_bytes
            # Without it the failed group is still not confirmed, only less clearly void after a crash.
            self._try_seal()
            raise Unavailable(f"journal: cannot make a group durable: {error.strerror}") from error
        self._place += body.group_bytes
        self.sequence_next += 1

    @property
    def overlapped(self) -> OverlappedWriter | None:
        """None: only `write` can."""
        return self._overlapped if self._overlaps else None

    def start(self, group: Group) -> bool:
        """Begins to write a group, and does not wait for it: `finish` says how it went, once the descriptor is
        readable. False: this group, or any, has to be written by `write`."""
        writer, body = self.overlapped, group.body
        if writer is None or body.group_bytes > BUFFER_BYTES or self._pause_groups:
            self._pause_groups = max(0, self._pause_groups - 1)
            return False
        at = 0
        for part in body.finish(self._head(group.stamp, body.body_bytes, body.operation_count)):
            writer.buffer[at : at + len(part)] = part
            at += len(part)
        asked_at = time.monotonic()
        try:
            writer.start(self._active, at, self._place)
        except OSError:
            self._overlaps = False  # its file system cannot do it, whatever it said when the file was opened
            return False
        if time.monotonic() - asked_at > START_S_MAX:
            self._pause_groups = PAUSE_GROUPS
        self._started = body
        self._sealed = False
        return True

    def finish(self) -> None:
        """Like the end of `write`, but for the seal: that would have to be waited for."""
        body, writer = self._started, self._overlapped
        assert body is not None
        assert writer is not None
        try:
            durable_bytes = writer.finish()
            self._started = None
            self._refusals = 0
            if durable_bytes < body.group_bytes:
                raise OSError(errno.EIO, f"the device took {durable_bytes:,} of {body.group_bytes:,} bytes")
        except NotBegun as error:
            self._started = None
            self._refusals += 1
            self._is_cached = self._refusals % REFUSALS_MAX == 0  # that may be why
            if self._refusals % PAUSE_REFUSALS == 0:
                self._pause_groups = PAUSE_GROUPS
            raise Unavailable(f"journal: the kernel would have had to wait: {error.strerror}") from error
        except OSError as error:
            self._started = None
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                self._overlaps = False  # nothing was written, and never will be
            self._place += body.group_bytes
            raise Unavailable(f"journal: cannot make a group durable: {error.strerror}") from error
        self._place += body.group_bytes
        self.sequence_next += 1

    def seal(self) -> None:
        """Says, where the next group will go, that every group so far was confirmed. A process crash cannot undo it."""
        if self._sealed:
            return
        head = self._head(self._stamp_next, 0, 0)
        self._stamp_next += 1
        page = Body([bytearray(HEAD_BYTES)], 0, 0).finish(head)
        try:
            if self.overlapped is None:
                self._write_all(self._segments[self._active].fd, page, self._place)
            else:  # a page in the system's cache would be in the way of the next `start`
                self._seal_page[:] = b"".join(page)
                self._write_all(self.overlapped.files[self._active], [memoryview(self._seal_page)], self._place)
        except OSError as error:
            raise Unavailable(f"journal: cannot write a seal: {error.strerror}") from error
        self._sealed = True

    def close(self) -> None:
        self._try_seal()
        with suppress(OSError):  # only the seal can be lost: every group was durable when its commit returned
            self._disk.fdatasync(self._segments[self._active].fd)
        self.release()

    def release(self) -> None:
        if self._overlapped is not None:
            self._overlapped.close()
        for segment in self._segments:
            os.close(segment.fd)

    def _try_seal(self) -> None:
        with suppress(Unavailable):  # a seal only sharpens what recovery can tell; nothing confirmed depends on it
            self.seal()

    def _head(self, stamp: int, body_bytes: int, operation_count: int) -> Head:
        return Head(
            self._identity, self._life, stamp, self.sequence_next, self.applied, body_bytes, operation_count
        )

    def _write_all(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        while buffers:
            batch, buffers = buffers[:BUFFERS_MAX], buffers[BUFFERS_MAX:]
            batch_bytes = sum(map(len, batch))
            written = self._disk.pwritev(fd, batch, offset)
            if written < batch_bytes:  # rare: a signal, or the last free block; the next attempt names the reason
                if written == 0:
                    raise OSError(errno.EIO, "the device takes no more bytes")
                buffers = [b"".join(batch)[written:], *buffers]
            offset += written

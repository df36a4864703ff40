"""One write at a time that the kernel makes durable while nobody waits for it: asynchronous direct I/O.

A thread that waits for the disk needs the interpreter before and after, which the event loop has; somebody has to wake
it, and it has to wake the loop. The kernel needs none of that: it is given a page-aligned buffer, and says through a
descriptor when the bytes are durable (`RWF_DSYNC`). What it sees that it cannot begin at once it refuses
(`RWF_NOWAIT`), and somebody who may wait has to write it. It does not see everything: a device whose queue is full, or
a file system that has to note the time of the write, may keep it waiting all the same. Whoever must not wait has to
look at how long `start` takes.

Only whole pages can be written, to files that have them allocated and written before: kernels 6.15 and 6.16 did not
synchronise such a write to pages that were only allocated.

This is the kernel's first interface for asynchronous I/O (io_submit), which Python has no module for. Its successor,
io_uring, is forbidden in most containers, and was slower here (docs/adr/0025-lone-messages.md).
"""
import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path

from angarium.store.interface import NotOver

BUFFER_BYTES = 64 * 1024  # of one write: more is better written by a thread, which need not copy it

_SYSTEM_CALLS = {  # io_setup, io_destroy, io_submit, io_getevents
    "x86_64": (206, 207, 209, 208),
    "aarch64": (0, 1, 2, 4),
}
_REQUEST = struct.Struct("<QIiHhIQQqQII")  # struct iocb of linux/aio_abi.h
_EVENT = struct.Struct("<QQqq")  # struct io_event
_PWRITE = 1
_TELL_DESCRIPTOR = 1  # IOCB_FLAG_RESFD
_DSYNC_NOWAIT = 0x02 | 0x08


class NotBegun(OSError):
    """Nothing was written that counts: the kernel would have had to wait."""


class OverlappedWriter:
    """Made by `overlapped_writer`. `start` and `finish` take turns."""

    def __init__(self, paths: Sequence[Path], calls: tuple[int, int, int, int]) -> None:
        setup, self._destroy, self._submit, self._get_events = calls
        self._system = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self.files: list[int] = []  # for direct I/O, in the order of the paths
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable: what was started is over
        try:
            for path in paths:
                self.files.append(os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC))
            self._ask(setup, 1, ctypes.byref(self._context))
        except OSError:
            self._close_files()
            raise
        self.buffer = mmap.mmap(-1, BUFFER_BYTES)  # what `start` writes, from its beginning
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        self._number = 0  # of the last that was started
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = ctypes.create_string_buffer(_EVENT.size)

    def start(self, file: int, length: int, offset: int) -> None:
        """Begins to write the first `length` bytes of the buffer, which stay as they are until `finish`. An error says
        that this file can never be written so."""
        self._number += 1
        _REQUEST.pack_into(
            self._request, 0, self._number, 0, _DSYNC_NOWAIT, _PWRITE, 0, self.files[file], self._address, length,
            offset, 0, _TELL_DESCRIPTOR, self.descriptor,
        )  # fmt: skip
        self._ask(self._submit, self._context, 1, self._requests)

    def finish(self) -> int:
        """How many bytes are durable. `NotOver` unless the descriptor is readable."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            raise NotOver from None
        ended = self._ask(self._get_events, self._context, 1, 1, self._event, None)
        number, _, result, _ = _EVENT.unpack(self._event)
        if ended != 1 or number != self._number:
            raise RuntimeError(f"the end of write {number}, not {self._number}")
        if result == -errno.EAGAIN:
            raise NotBegun(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return int(result)

    def forget_cached(self, file: int) -> None:
        """Lets go of its pages in the system's cache, which are in the way. Those that are not on disk stay."""
        os.posix_fadvise(self.files[file], 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Waits for what was started."""
        self._ask(self._destroy, self._context)
        self._close_files()

    def _ask(self, call: int, *arguments: object) -> int:
        answer: int = self._system(call, *arguments)
        if answer < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return answer

    def _close_files(self) -> None:
        for file in self.files:
            os.close(file)
        os.close(self.descriptor)


def overlapped_writer(paths: Sequence[Path]) -> OverlappedWriter | None:
    """None where the system or the file system has no such thing."""
    calls = _SYSTEM_CALLS.get(platform.machine())
    if calls is None or platform.system() != "Linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        return OverlappedWriter(paths, calls)
    except OSError:
        return None

"""A small disk, and more messages than it holds."""
import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import WAIT_S, until_async
from tests.process.process_ledger import body_of

BODY_BYTES = 4_000
BULK = angarium.Queue("bulk")
_DISK_MIB = 48


@contextmanager
def mounted(path: Path, size_mib: int = _DISK_MIB) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class BulkProducer:
    """Sends more than the disk holds, and keeps every handle."""

    def __init__(self, session: angarium.Session, count: int) -> None:
        self.bodies = [body_of("bulk", number, BODY_BYTES) for number in range(count)]
        self.handles: list[angarium.Sending] = []
        self._session = session

    def start(self) -> None:
        for body in self.bodies:
            self.handles.append(self._session.send(BULK, body))

    def confirmed(self) -> int:
        return sum(handle.done for handle in self.handles)

    async def blocked(self) -> str:
        session = self._session
        await until_async(lambda: session.is_blocked(BULK), lambda: f"blocked: {self.confirmed()} are confirmed")
        return session.blocked_reason(BULK)

    async def finished(self) -> None:
        await asyncio.wait_for(self._session.flush(), WAIT_S)
        ids = [await handle for handle in self.handles]
        assert len(ids) == len(set(ids)) == len(self.bodies)

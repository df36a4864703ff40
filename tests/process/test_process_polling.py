"""Goal: a broker stays awake for messages that come one by one, and for nothing else.
Method: the system's own account of a real broker: how often its loop went to sleep while such messages came, and the
processor time that it took when they had ended."""
import asyncio
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

import angarium
from angarium.runtime.processors import processors
from angarium.store.overlapped import overlapped_writer
from tests.process.process_broker import Broker, running

_MESSAGES = 300
_ROUNDS = 4
_QUIET_S = 1.0


def _processor_s(broker: Broker) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _has_overlapped_writes(path: Path) -> bool:
    file = path / "probe"
    file.write_bytes(bytes(4096))
    writer = overlapped_writer([file])
    if writer is not None:
        writer.close()
    return writer is not None


def _sleeps(broker: Broker) -> int:
    """Of its event loop. Whoever gives way does not sleep."""
    status = Path(f"/proc/{broker.pid}/task/{broker.pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


async def _one_by_one(address: str, count: int) -> None:
    async with angarium.connect(address) as connection, connection.session() as session:
        for _ in range(count):
            await session.send("orders", bytes(100))


def test_a_broker_sleeps_when_messages_have_ended(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        asyncio.run(_one_by_one(broker.address, _MESSAGES))
        time.sleep(0.1)  # what follows from the last of them: seals, timers
        before_s = _processor_s(broker)
        time.sleep(_QUIET_S)
        assert _processor_s(broker) - before_s < 0.2 * _QUIET_S
        assert broker.stop() == 0


def test_it_is_awake_between_messages_and_asleep_if_it_was_told_to(tmp_path: Path) -> None:
    """Each waits for the last one's confirm, and then a moment in which a broker has nothing to do."""

    async def sparsely(address: str) -> None:
        async with angarium.connect(address) as connection, connection.session() as session:
            for _ in range(_MESSAGES):
                await session.send("orders", bytes(100))
                await asyncio.sleep(0.001)

    if processors() < 2 or not _has_overlapped_writes(tmp_path):
        pytest.skip("no two processors, or a file system whose writes the kernel is not given: it never stays awake")
    sleeps = {}
    for name, settings in (("awake", {"node.poll_s_max": 1}), ("asleep", {"node.poll_s_max": 0})):
        (tmp_path / name).mkdir()
        with running(tmp_path / name, settings) as broker:
            counted = [_sleeps(broker)]
            for _ in range(_ROUNDS):
                asyncio.run(sparsely(broker.address))
                counted.append(_sleeps(broker))
            # In the first it falls awake. A kernel that is slow to begin has the thread write 256 groups: another one.
            sleeps[name] = min(after - before for before, after in pairwise(counted[1:]))
    assert sleeps["asleep"] > _MESSAGES, sleeps
    if sleeps["awake"] > _MESSAGES / 2 and os.getloadavg()[0] > processors():
        pytest.skip(f"others need the processors, and it gives them up, as it should: {sleeps}")
    assert sleeps["awake"] < _MESSAGES / 2, sleeps

"""Goal: a node that fails says why; where in the code, only if the code is at fault."""
import asyncio
import logging

import pytest

from angarium.core.errors import StorageCorrupt, Unavailable
from angarium.node.running import finish


async def never() -> bool:
    raise AssertionError("what has failed is not stopped in order")


@pytest.mark.parametrize(
    ("error", "is_of_the_disk"),
    [
        (StorageCorrupt("data.mdb: MDB_CORRUPTED; keep a copy"), True),
        (Unavailable("data.mdb: MDB_PANIC; check the disk and restart this node"), True),
        (RuntimeError("an invariant"), False),
    ],
)
def test_a_failure_of_the_disk_is_told_in_a_sentence(
    caplog: pytest.LogCaptureFixture, error: Exception, is_of_the_disk: bool
) -> None:
    async def end() -> int:
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failure.set_exception(error)
        return await finish("n", failure, never)

    assert asyncio.run(end()) == 70
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert record.getMessage() == f"node-failed: {error!r}"
    assert (record.exc_info is None) == is_of_the_disk

"""Goal: a copy that cannot be read ends its node, whoever was reading: nobody waits for a primary that never begins.
Method: a replica on a real event loop, which says nothing of a task that has failed while somebody refers to it."""
import asyncio
from pathlib import Path

import pytest

from angarium.core.errors import StorageCorrupt
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.node.cluster import replica
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.replica import ReplicaHost, Ways
from angarium.node.config import NodeConfig
from angarium.store.interface import Store
from angarium.store.memory import MemoryStore

ME = Replica("one", b"1" * 16)
INCARNATION = b"i" * 16
ALONE = GroupConfiguration("a", 1, 1, ME, (ME,), ("one",), 1, 1, INCARNATION)


def test_a_primary_that_cannot_read_its_tables_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(store: Store) -> None:
        raise StorageCorrupt("this page is ruined")

    monkeypatch.setattr(replica, "load", load)

    async def run() -> BaseException:
        failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        ways = Ways(
            multicast=lambda group, parts: None, send=lambda node, head, payload: None,
            answer=lambda client_manager, parts: None, pass_on=lambda parts: None, serving=lambda: None,
            pause=lambda group, paused: None, to_groups=lambda message: None, decide=lambda move: None,
            failed=failure.set_result,
        )  # fmt: skip
        host = ReplicaHost("a", ME, INCARNATION, MemoryStore(), tmp_path, NodeConfig(), ways, Machinery())
        host.configured(ALONE)
        try:
            return await asyncio.wait_for(failure, 10)
        finally:
            await host.stop()

    assert str(asyncio.run(run())) == "this page is ruined"

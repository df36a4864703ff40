"""Goal: a broker's own disk tells its own polling of lone messages, whoever else is on the machine.
Method: a real broker and its client on one loop; a polling that counts what it is told, and never stays awake."""
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import angarium
from angarium.node import broker as broker_module
from angarium.node.acquired import Acquired
from angarium.node.broker import Broker
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog
from angarium.node.live_config import LiveConfig
from angarium.runtime.interrupts import interrupted_processors
from angarium.runtime.polling import Polling
from angarium.store.durable import DurableStore

_MESSAGES = 50  # a busy kernel may refuse some: those are written by the thread


class Told(Polling):
    """Never awake; counts what it is told."""

    def __init__(self, window_s: float, **given: Any) -> None:
        super().__init__(0.0)
        self.window_s, self.given, self.count = window_s, given, 0

    def came(self) -> None:
        self.count += 1


def test_a_broker_hears_of_its_lone_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Told] = []

    def make(window_s: float, **given: Any) -> Told:
        made.append(Told(window_s, **given))
        return made[-1]

    monkeypatch.setattr(broker_module, "Polling", make)

    async def run() -> bool:
        default = NodeConfig()
        node = replace(default.node, data=str(tmp_path), listen="127.0.0.1:0", poll_s_max=0.25)
        live = LiveConfig(replace(default, node=node), {}, Acquired(), path=None)
        store = DurableStore.open(tmp_path, default.store)
        broker = Broker(live, store, "n", EventLog("n", default.events))
        ready = await broker.start()
        async with angarium.connect(ready.address) as connection, connection.session() as session:
            for _ in range(_MESSAGES):
                await session.send("orders", b"one")
        is_possible = store.overlapped is not None
        assert await broker.stop("done")
        return is_possible

    if not asyncio.run(run()):
        pytest.skip(f"{tmp_path}: its file system has no asynchronous direct I/O")
    (told,) = made
    assert (told.window_s, told.given) == (0.25, {"near": interrupted_processors(tmp_path)})
    assert 0 < told.count <= 2 * _MESSAGES

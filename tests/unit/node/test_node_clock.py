"""A broker whose wall clock is set while it runs goes by the new time."""
import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from angarium.core.destination.events import ClockStepped, Command, Event
from angarium.core.destination.message_manager import MessageManager
from angarium.node import broker as broker_module
from angarium.node.acquired import Acquired
from angarium.node.broker import Broker
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog
from angarium.node.live_config import LiveConfig
from angarium.store.durable import DurableStore


def test_a_clock_that_is_set_is_told_to_the_message_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    stepped = asyncio.Event()
    handle, wall_s = MessageManager.handle, time.time

    def watched(self: MessageManager, event: Event, *, now: float) -> list[Command]:
        if isinstance(event, ClockStepped):
            told.append(event.wall_ms_at_zero + now * 1000)
            stepped.set()
        return handle(self, event, now=now)

    monkeypatch.setattr(MessageManager, "handle", watched)
    monkeypatch.setattr(broker_module, "_CLOCK_EVERY_S", 0.01)

    async def run() -> None:
        default = NodeConfig()
        config = replace(default, node=replace(default.node, data=str(tmp_path), listen="127.0.0.1:0"))
        live = LiveConfig(config, {}, Acquired(), path=None)
        broker = Broker(live, DurableStore.open(tmp_path, config.store), "n", EventLog("n", config.events))
        await broker.start()
        await asyncio.sleep(0.1)
        assert told == [], "nobody has set it"
        monkeypatch.setattr(time, "time", lambda: wall_s() + 3_600)
        await asyncio.wait_for(stepped.wait(), 10)
        await broker.stop("done")

    asyncio.run(run())
    (shown_ms,) = told
    assert shown_ms == pytest.approx(wall_s() * 1000 + 3_600_000, abs=60_000)

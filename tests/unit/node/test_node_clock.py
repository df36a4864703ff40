"""A broker whose wall clock is set while it runs goes by the new time; a machine that is busy sets no clock."""
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from angarium.core.destination.events import ClockStepped, Command, Event
from angarium.core.destination.message_manager import MessageManager
from angarium.core.storage import Operation
from angarium.node import wall_clock
from angarium.node.acquired import Acquired
from angarium.node.broker import Broker
from angarium.node.config import NodeConfig
from angarium.node.event_log import EventLog
from angarium.node.live_config import LiveConfig
from angarium.store.durable import DurableStore

BUSY_S = 0.1  # more than what counts as a step


class Watched:
    """What the message manager is told of its clock, by a broker that looks at it all the time."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self.told: list[float] = []
        self.stepped = asyncio.Event()
        handle = MessageManager.handle

        def watched(manager: MessageManager, event: Event, *, now: float) -> list[Command]:
            if isinstance(event, ClockStepped):
                self.told.append(event.wall_ms_at_zero + now * 1000)
                self.stepped.set()
            return handle(manager, event, now=now)

        monkeypatch.setattr(MessageManager, "handle", watched)
        monkeypatch.setattr(wall_clock, "_LOOK_EVERY_S", 0.01)

    def run(self, store: type[DurableStore] = DurableStore, then: Callable[[], None] | None = None) -> None:
        """`then`: what sets the clock, and it is waited until that is noticed."""

        async def run() -> None:
            default = NodeConfig()
            config = replace(default, node=replace(default.node, data=str(self._path), listen="127.0.0.1:0"))
            live = LiveConfig(config, {}, Acquired(), path=None)
            broker = Broker(live, store.open(self._path, config.store), "n", EventLog("n", config.events))
            await broker.start()
            await asyncio.sleep(0.1)
            assert self.told == [], "nobody has set it"
            if then is not None:
                then()
                await asyncio.wait_for(self.stepped.wait(), 30)
            await broker.stop("done")

        asyncio.run(run())


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_clock_that_is_set_is_told_to_the_message_manager(broker: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    wall_s = time.time
    broker.run(then=lambda: monkeypatch.setattr(time, "time", lambda: wall_s() + 3_600))
    (shown_ms,) = broker.told
    assert shown_ms == pytest.approx(wall_s() * 1000 + 3_600_000, abs=60_000)


def test_a_disk_that_is_slow_when_the_broker_starts_sets_no_clock(broker: Watched) -> None:
    """Once: the wall clock was read before the first write, and the other clock after it."""

    class Slow(DurableStore):
        def commit(self, operations: Sequence[Operation], *, reserved: bool = False) -> None:
            time.sleep(BUSY_S)
            super().commit(operations, reserved=reserved)

    broker.run(store=Slow)


def test_who_is_made_to_wait_between_two_clocks_takes_it_for_no_step(
    broker: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_s, looks = time.time, 0

    def interrupted() -> float:
        nonlocal looks
        looks += 1
        if looks % 5 == 0:
            time.sleep(BUSY_S)
        return wall_s()

    monkeypatch.setattr(time, "time", interrupted)
    broker.run()
    assert looks >= 5

"""Goal: a node promises no more than its journal and its system can bear, and says what it had to lower."""
import asyncio
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.session.events import SessionSettings
from angarium.node import broker as broker_module
from angarium.node.acquired import Acquired
from angarium.node.broker import Broker
from angarium.node.config import NodeConfig, NodeSettings
from angarium.node.event_log import EventLog
from angarium.node.inspecting import inspect
from angarium.node.limits import fit, raise_descriptors_max
from angarium.node.live_config import LiveConfig
from angarium.store.durable import DurableStore
from angarium.store.settings import StoreSettings

_ASKED = SessionSettings(frame_bytes_max=8 << 20, body_bytes_max=4 << 20, connections_max=100)
_WRITES = DestinationSettings(write_bytes_max=8 << 20)


def test_what_fits_stays_and_nothing_is_said() -> None:
    fitted = fit(_ASKED, _WRITES, group_bytes_max=(8 << 20) + 4_096, descriptors_max=140)
    assert fitted.session == _ASKED
    assert fitted.lowered == []


@pytest.mark.parametrize(
    ("group_bytes_max", "descriptors_max", "parts"),
    [
        ((8 << 20) + 4_095, 140, ["session.frame_bytes_max 8,388,608 is 8,388,607 here", "session.body_bytes_max"]),
        (28 << 20, 139, ["session.connections_max 100 is 99 here", "ulimit -n"]),
        (28 << 20, 3, ["session.connections_max 100 is 1 here"]),
        (4 << 20, 140, ["destination.write_bytes_max 8,388,608 is 4,190,208 here: a group of the journal takes"]),
    ],
)
def test_what_does_not_fit_is_lowered_and_told(group_bytes_max: int, descriptors_max: int, parts: list[str]) -> None:
    told = "\n".join(fit(_ASKED, _WRITES, group_bytes_max=group_bytes_max, descriptors_max=descriptors_max).lowered)
    for part in parts:
        assert part in told


def test_what_was_lowered_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not again with each setting that is changed; but what a change lowers is."""
    monkeypatch.setattr(broker_module, "raise_descriptors_max", lambda connections_max: 60)
    node = NodeSettings(data=str(tmp_path), listen="127.0.0.1:0")
    session = replace(_ASKED, connections_max=10)
    config = NodeConfig(node=node, session=session, store=StoreSettings(segment_bytes=4 << 20))

    async def run() -> None:
        store = DurableStore.open(tmp_path, config.store)
        broker = Broker(LiveConfig(config, {}, Acquired(), path=None), store, "n", EventLog("n", config.events))
        await broker.start()
        told = len(caplog.messages)
        assert [text.split()[1] for text in caplog.messages] == [
            "session.frame_bytes_max", "session.body_bytes_max", "destination.write_bytes_max",
        ]  # fmt: skip
        changed = replace(config, destination=replace(config.destination, consumers_max=5))
        broker.change_settings(changed)
        assert len(caplog.messages) == told
        broker.change_settings(replace(changed, session=replace(session, connections_max=21)))
        assert ["session.connections_max" in text for text in caplog.messages[told:]] == [True]
        await broker.stop("done")

    asyncio.run(run())


def test_a_check_tells_of_what_a_start_would_lower(tmp_path: Path) -> None:
    node = NodeSettings(data=str(tmp_path / "new"), listen="127.0.0.1:0")
    session = SessionSettings(frame_bytes_max=8 << 20, body_bytes_max=5 << 20, connections_max=100)
    [told] = inspect(NodeConfig(node=node, session=session)).warnings
    assert told.startswith("session.body_bytes_max 5,242,880 is 4,194,304 here: half of frame_bytes_max")
    small = StoreSettings(segment_bytes=4 << 20)
    told = "\n".join(inspect(NodeConfig(node=node, session=_ASKED, store=small)).warnings)
    assert "session.frame_bytes_max 8,388,608 is" in told and "raise store.segment_bytes" in told
    assert inspect(NodeConfig(node=node, session=_ASKED)).warnings == []


def test_a_check_knows_the_journal_that_is_there(tmp_path: Path) -> None:
    node = NodeSettings(data=str(tmp_path), listen="127.0.0.1:0")
    DurableStore.open(tmp_path, StoreSettings(segment_bytes=4 << 20)).close()
    told = "\n".join(inspect(NodeConfig(node=node, session=_ASKED)).warnings)
    assert "session.frame_bytes_max 8,388,608 is" in told and "raise store.segment_bytes" in told


def test_the_soft_limit_is_raised_as_far_as_needed_and_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, soft), hard))
        assert raise_descriptors_max(100) == 200, "enough: left as it is"
        assert raise_descriptors_max(300) == 340 == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raise_descriptors_max(hard) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

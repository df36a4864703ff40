"""Goal: a replay that was ended goes on, also if its times were said as times ago; and no other is taken for it."""
from pathlib import Path

import msgspec
import pytest

from angarium.core.errors import ConfigError
from angarium.spark.pipelines.replay import ReplaySelection, load_state


def noted(directory: Path, selection: ReplaySelection) -> Path:
    (directory / "state.json").write_bytes(msgspec.json.encode(load_state(directory, selection)))
    return directory


def test_a_time_ago_counts_from_the_first_run_on(tmp_path: Path) -> None:
    began = ReplaySelection(into="q", from_ms=1_000, to_ms=5_000, ago=("from_ms",))
    noted(tmp_path, began)
    later = ReplaySelection(into="q", from_ms=1_700, to_ms=5_000, ago=("from_ms",))
    assert load_state(tmp_path, later).selection == began
    for other in (
        ReplaySelection(into="q", from_ms=1_000, to_ms=5_001, ago=("from_ms",)),
        ReplaySelection(into="q", from_ms=1_000, to_ms=5_000),  # a time, and not a time ago
        ReplaySelection(into="r", from_ms=1_700, to_ms=5_000, ago=("from_ms",)),
    ):
        with pytest.raises(ConfigError, match="begun with another selection"):
            load_state(tmp_path, other)


def test_a_state_that_is_damaged_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match="is not the state of a replay"):
        load_state(tmp_path, ReplaySelection())

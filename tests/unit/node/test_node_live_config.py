"""Goal: a setting that is changed while a node runs is checked, counts at once, and is in the node's file; whatever is
read from there later is what was written, and what is not understood is left out and told."""
import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from angarium.core.errors import ConfigError, Rejected
from angarium.node.acquirable import ACQUIRABLE
from angarium.node.acquired import FILE_NAME, Acquired, Setting, read_acquired, write_acquired
from angarium.node.config import NodeConfig, config_as_toml, load_config, load_with_sources, value_of
from angarium.node.live_config import LiveConfig, open_live_config, settings_at_start, with_setting

GRACE = "destination.resume_grace_s"


def live_config(path: Path, settings: Mapping[str, object] | None = None) -> LiveConfig:
    return open_live_config(load_config(None, {"node.data": str(path), **(settings or {})}), {})


# -- the file ------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    assert read_acquired(file) == Acquired()
    acquired = Acquired(7, {GRACE: Setting(5.0, 3), "node.log_level": Setting("warning", 7)})
    write_acquired(file, acquired)
    assert read_acquired(file) == acquired
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME], "nothing else is left behind"


@pytest.mark.parametrize("text", ["not toml", "version = 'x'", "['a.b']\nvalue = 1", "version = 1\n['a.b']\nvalue = 1"])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigError, match=FILE_NAME):
        live_config(tmp_path)


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / FILE_NAME
    write_acquired(file, Acquired(1, {GRACE: Setting(5.0, 1)}))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_acquired(file, Acquired(2, {GRACE: Setting(6.0, 2)}))
    assert read_acquired(file).version == 1


# -- checking ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "taken"), [("5", 5.0), (5, 5.0), ("5.5", 5.5), (0, 0.0)])
def test_a_value_may_be_text(tmp_path: Path, given: object, taken: object) -> None:
    assert live_config(tmp_path).check(GRACE, given) == taken


@pytest.mark.parametrize(
    ("key", "value", "code", "said"),
    [
        (GRACE, "long", "bad-setting", "cannot be 'long'"),
        (GRACE, -1, "bad-setting", "negative"),
        (GRACE, float("inf"), "bad-setting", "finite"),
        (GRACE, True, "bad-setting", "has to be a number"),
        ("session.links_max", 0, "bad-setting", "positive"),
        ("session.links_max", 1.5, "bad-setting", "has to be a whole number"),
        ("node.log_level", "loud", "bad-setting", "'info', 'warning' or 'error'"),
        ("node.unwritten_bytes_max", 5, "bad-setting", "at least 1,048,576"),
        ("listener.output_bytes_max", 5, "bad-setting", "output_bytes_high < output_bytes_max"),
        ("destination.resume_grace", 5, "unknown-setting", "did you mean 'destination.resume_grace_s'"),
        ("nowhere.key", 5, "unknown-setting", "no setting 'nowhere.key'; 'angarium config get' shows"),
        ("node.listen", "0.0.0.0:1", "not-acquirable", "start it again"),
        ("cluster.secret", "0123456789abcdef", "not-acquirable", "start it again"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    tmp_path: Path, key: str, value: object, code: str, said: str
) -> None:
    with pytest.raises(Rejected, match=said) as caught:
        live_config(tmp_path).check(key, value)
    assert caught.value.code == code


def test_every_acquirable_setting_exists() -> None:
    for key in ACQUIRABLE:
        value_of(NodeConfig(), key)


# -- changing ------------------------------------------------------------------------------------------------


def test_a_change_counts_at_once_and_after_the_next_start(tmp_path: Path) -> None:
    async def change() -> None:
        live = live_config(tmp_path)
        told: list[float] = []
        live.used_by(lambda config: told.append(config.destination.resume_grace_s))
        assert live.source(GRACE) == "default"
        for value in (5.0, 6.0, 7.0):  # faster than the disk
            live.adopt(with_setting(live.acquired, GRACE, value))
        assert told == [5.0, 6.0, 7.0] and live.config.destination.resume_grace_s == 7.0
        await live.settled(3, 10.0)
        assert live.saved_version == live.version == 3
        assert live.source(GRACE) == "changed online, version 3"

    asyncio.run(change())
    again = live_config(tmp_path)
    assert again.config.destination.resume_grace_s == 7.0 and again.version == 3

    async def unset() -> None:
        again.adopt(with_setting(again.acquired, GRACE, None))
        await again.settled(4, 10.0)

    asyncio.run(unset())
    assert again.config.destination.resume_grace_s == 2.0 and again.source(GRACE) == "default"
    assert live_config(tmp_path).acquired == Acquired(4, {})


def test_what_was_decided_replaces_what_the_file_had(tmp_path: Path) -> None:
    """As a node that comes back to a cluster which knows nothing of it: also a lower version counts."""
    write_acquired(tmp_path / FILE_NAME, Acquired(9, {GRACE: Setting(5.0, 9)}))

    async def adopt() -> LiveConfig:
        live = live_config(tmp_path)
        live.adopt(Acquired(2, {"session.links_max": Setting(50, 2)}))
        await live.settled(2, 10.0)
        return live

    live = asyncio.run(adopt())
    assert live.config.destination.resume_grace_s == 2.0 and live.config.session.links_max == 50
    assert read_acquired(tmp_path / FILE_NAME).version == 2


def test_what_is_not_understood_is_left_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"later.key": Setting(1, 1), GRACE: Setting(5.0, 2), "session.links_max": Setting("many", 3)}
    write_acquired(tmp_path / FILE_NAME, Acquired(3, settings))
    live = live_config(tmp_path)
    assert live.config.destination.resume_grace_s == 5.0 and live.config.session.links_max == 10_000
    assert set(live.left_out) == {"later.key", "session.links_max"}
    assert caplog.text.count("setting-left-out") == 2
    assert live.source("session.links_max") == "default"


def test_a_disk_that_refuses_is_told_and_the_change_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def change() -> LiveConfig:
        live = live_config(tmp_path / "not-there")
        live.adopt(with_setting(live.acquired, GRACE, 5.0))
        await live.settled(1, 10.0)
        return live

    live = asyncio.run(change())
    assert live.config.destination.resume_grace_s == 5.0
    assert live.failure and live.saved_version == 0 and "configuration-unsaved" in caplog.text


def test_waiting_for_a_version_has_an_end(tmp_path: Path) -> None:
    async def wait() -> None:
        await live_config(tmp_path).settled(5, 0.02)

    asyncio.run(wait())


def test_what_changed_is_an_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def change() -> None:
        live = live_config(tmp_path)
        with caplog.at_level(logging.INFO):
            live.adopt(with_setting(live.acquired, GRACE, 5.0))
        await live.settled(1, 10.0)

    asyncio.run(change())
    assert f"configuration-changed: {GRACE} = 5.0, it was 2.0; version 1" in caplog.text


# -- where values come from ----------------------------------------------------------------------------------


def test_every_value_says_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'[node]\nname = "alpha"\ndata = "{tmp_path}"\n[session]\nlinks_max = 5\n')
    write_acquired(tmp_path / FILE_NAME, Acquired(4, {GRACE: Setting(5.0, 4)}))
    environment = {"ANGARIUM_SESSION__SESSIONS_MAX": "7"}
    loaded = load_with_sources(file, {"node.listen": "127.0.0.1:1"}, environment)
    found = settings_at_start(loaded)
    shown = config_as_toml(found.config, found.sources)
    lines = {line.split(" = ")[0]: line for line in reversed(shown.splitlines()) if " = " in line}
    assert lines["name"].endswith(f"# file {file}")
    assert lines["sessions_max"].endswith("# environment ANGARIUM_SESSION__SESSIONS_MAX")
    assert lines["listen"].endswith("# option")
    assert lines["resume_grace_s"] == f"{'resume_grace_s = 5.0':<40}  # changed online, version 4"
    assert lines["watches_max"].endswith("# default")
    again = tmp_path / "again.toml"
    again.write_text(shown)
    assert load_config(again, {}) == found.config

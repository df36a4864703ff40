"""Goal: what the pipelines over traces are told, by options or by a file, is what they get."""
from pathlib import Path

import pytest

from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.pipeline_traces import TraceSettings
from angarium.core.errors import ConfigError

MONDAY_MS = 1_794_787_200_000  # 2026-11-16, UTC


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "traffic.toml"
    file.write_text('[traffic]\nfrom = "2026-11-15"\nto = "2026-11-17"\noutput = "found"\n')
    settings = TraceSettings("traffic", file, ["orders"], "2026-11-16", None, tmp_path / "page.html", None)
    assert (settings.from_ms, settings.to_ms) == (MONDAY_MS, MONDAY_MS + 86_400_000)
    assert settings.get("destinations", ()) == ["orders"]
    assert settings.output == Path("found").absolute()
    settings.write_report(lambda: "a page")
    assert (tmp_path / "page.html").read_text() == "a page"


def test_nothing_is_written_that_nobody_asked_for() -> None:
    settings = TraceSettings("audit", None, None, None, None, None, None)
    assert (settings.output, settings.from_ms, settings.to_ms) == (None, None, None)
    settings.write_report(lambda: pytest.fail("no page is wanted"))


@pytest.mark.parametrize(("from_time", "to_time"), [("2026-11-17", "2026-11-16"), ("1h", "2h"), ("2026-11-16",) * 2])
def test_a_time_in_which_nothing_can_lie_is_refused(from_time: str, to_time: str) -> None:
    with pytest.raises(Failure, match=f"--to {to_time} does not lie behind --from {from_time}") as refused:
        TraceSettings("audit", None, None, from_time, to_time, None, None)
    assert refused.value.exit_code == EXIT_USAGE


def test_what_is_no_time_and_what_is_no_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"--from '5': use a time ago, as 90s or 2h, or a time"):
        TraceSettings("audit", None, None, "5", None, None, None)
    file = tmp_path / "audit.toml"
    file.write_text("[audit]\nform = '2h'\n")
    with pytest.raises(ConfigError, match="unknown key 'form'; there are destinations, from, to, report, output"):
        TraceSettings("audit", file, None, None, None, None, None)

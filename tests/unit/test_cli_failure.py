"""Goal: the exit code says how a command ended: an interrupt is one wherever it strikes, and what may not be read is no
wrong usage."""
import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from angarium.cli import failure, options
from angarium.cli.commands import app


class Field:
    """As a library has them that looks at a class while it is made."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_while_a_module_is_imported_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        type("Body", (), {"field": Field()})  # Python 3.11 makes a RuntimeError of whatever is raised there

    with pytest.raises(SystemExit) as ended:
        failure.run(command)
    assert ended.value.code == failure.EXIT_INTERRUPTED
    assert capsys.readouterr().err == ""


def test_what_fails_for_another_reason_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise RuntimeError("broken") from ValueError("a reason")

    with pytest.raises(SystemExit) as ended:
        failure.run(command)
    assert ended.value.code == failure.EXIT_FAILED
    assert "unexpected RuntimeError: broken" in capsys.readouterr().err


@pytest.mark.parametrize("is_watched", [True, False])
def test_only_a_person_is_shown_where_the_mistake_of_a_selector_is(
    is_watched: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_watched)
    with pytest.raises(SystemExit) as ended:
        failure.run(lambda: app(["receive", "q", "--selector", "a = = 1"], standalone_mode=False))
    assert ended.value.code == failure.EXIT_USAGE
    told, *shown = capsys.readouterr().err.splitlines()
    assert told.startswith("angarium: selector, column 5: ")
    assert shown == (["    a = = 1", "        ^"] if is_watched else [])


def test_a_command_hears_sigterm_as_long_as_it_works() -> None:
    """Behind it the signal is the system's again: left to a loop that is closed, nobody could end the process."""

    async def work() -> None:
        heard.append(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)

    async def is_ended() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

    heard: list[bool] = []
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for _ in range(2):
            options.run(work)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        with pytest.raises(failure.Terminated):
            options.run(is_ended)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [True, True]


@pytest.mark.parametrize("call", [["config", "show"], ["config", "show", "--config"]])
def test_settings_that_this_user_may_not_read_are_no_wrong_usage(
    call: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.toml").write_text("[node]\n")
    (tmp_path / "settings.toml").chmod(0)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may read anything
    with suppress(PermissionError):  # which is said as it is, with the file's name
        app([*call, str(tmp_path / "settings.toml")], standalone_mode=False)

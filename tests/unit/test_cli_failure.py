"""Goal: an interrupt is one, wherever it strikes: the exit code says so, and no error is shown."""
import pytest

from angarium.cli import failure


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

"""Goal: what is wrong with what was typed is said in plain words, with what would be right, and is exit code 2."""
import pytest

from angarium.cli import failure
from angarium.cli.commands import app


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("send q m --priority 10", "--priority 10: it can be at most 9"),
        ("send q m --delay -1", "--delay -1: it has to be at least 0"),
        (
            "send q m --group g --group-sequence -2147483649",
            "--group-sequence -2147483649: it has to be at least -2,147,483,648",
        ),
        ("send q m --ttl -1", "--ttl -1: it has to be above 0"),
        ("receive q --timeout soon", "--timeout 'soon': use a number"),
        ("receive q --count 2.5", "--count '2.5': use a whole number"),
        ("create q --confirm foo", "--confirm 'foo': use one of disk, memory"),
        ("receive q --count", "--count needs a value"),
        ("receive q --json=1", "--json takes no value"),
        ("node", "--config is missing"),
        ("send", "DESTINATION is missing"),
        ("send q m n", "more was given than it takes: n"),
        ("ls --nonsense", "there is no option --nonsense"),
        ("ls --jsn", "there is no option --jsn. Did you mean --json? See 'angarium ls --help'"),
        ("nonsense", "there is no command 'nonsense'"),
    ],
)
def test_a_mistake_is_told_in_plain_words(typed: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        failure.run(lambda: app(typed.split(), prog_name="angarium", standalone_mode=False))
    assert ended.value.code == failure.EXIT_USAGE
    assert capsys.readouterr().err.removeprefix("angarium: ").partition("; see ")[0].strip() == told


def test_help_says_that_a_time_to_live_is_above_zero(capsys: pytest.CaptureFixture[str]) -> None:
    app(["send", "--help"], prog_name="angarium", standalone_mode=False)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "--ttl" in line]
    assert "Expires after so long.  [x>0]" in line

"""Times as they are written on a command line."""
import pytest

from angarium.cli.durations import parse_seconds
from angarium.cli.failure import Failure


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("1.5min", 90), ("2h", 7_200), ("3 d", 259_200)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_seconds("--older-than", text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "1w", "1h30", "nan", "9" * 50])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="--older-than"):
        parse_seconds("--older-than", text)

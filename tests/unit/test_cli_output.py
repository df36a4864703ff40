"""Goal: what a command writes is where it was asked for, and if it cannot be, the error says where that was."""
import io
import sys
from pathlib import Path

import pytest

from angarium.cli import failure, output


def test_a_table_that_cannot_be_written_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        with pytest.raises(failure.Failure, match="standard output: No space left on device"):
            output.write_table(("NAME",), [("q",)])

"""Goal: the demonstration proves what it says, ends by itself, and fails when a message is missing from the books.
With Spark it is tried in tests/spark/test_spark_demo.py."""
import subprocess
import sys

import pytest

from benchmarks.demo import console_here
from tests.process.cli_node import environment

DEMO_S_MAX = 100.0  # `make demo` takes less than a minute on an idle machine


def _demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.demo", "--seconds", "3", "--no-pipeline", *options],
        capture_output=True, text=True, env=environment(), timeout=DEMO_S_MAX,
    )  # fmt: skip


def test_lines_are_not_folded_where_a_program_reads(capsys: pytest.CaptureFixture[str]) -> None:
    line = " ".join(["angarium://127.0.0.1:4600"] * 10)
    console_here().print(line)
    assert capsys.readouterr().out == f"{line}\n"


def test_the_broker_is_killed_and_nothing_is_lost() -> None:
    done = _demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill -9") == 2
    assert "PROVED" in done.stdout


@pytest.mark.parametrize(
    ("plant", "found"),
    [("loss", "1 confirmed messages were lost"), ("twice", "messages again that it had settled")],
)
def test_a_planted_fault_is_found(plant: str, found: str) -> None:
    done = _demo("--plant", plant)
    assert done.returncode == 1
    assert found in done.stdout
    assert "FAILED" in done.stdout

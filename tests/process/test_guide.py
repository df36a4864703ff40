"""Goal: the examples for people who come from JMS, and of operations, run as they are written there, but for the
address."""
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.process_broker import WAIT_S, Broker, environment, running

GUIDES = [Path(__file__).parents[2] / "docs/guide" / name for name in ("jms.md", "operations.md")]
EXAMPLES = [
    example
    for page in GUIDES
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
]
_EXPECTED = re.compile(r"#: (.*)$", re.MULTILINE)  # what the line prints


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("guide")) as broker:
        yield broker


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_print_what_they_say(broker: Broker, number: int) -> None:
    program = EXAMPLES[number]
    assert '"angarium://localhost"' in program
    expected = _EXPECTED.findall(program)
    assert expected, "an example shows something"
    done = subprocess.run(
        [sys.executable, "-c", program.replace("angarium://localhost", broker.address)],
        capture_output=True, text=True, env=environment(), timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected

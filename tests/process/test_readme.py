"""Goal: what the README shows works as it is written there, but for the address."""
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli_node import COMMAND, WAIT_S, Node, environment
from tests.process.process_broker import free_port

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data", free_port())
    yield node
    node.stop()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_first_program_runs(node: Node) -> None:
    (program,) = blocks("python")
    assert '"angarium://localhost"' in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("angarium://localhost", node.address)],
        capture_output=True, text=True, env=environment(), timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'one' {'region': 'EU'} False\n"


def test_the_first_steps_run(node: Node) -> None:
    steps = [line.split("#")[0].strip() for line in blocks("sh")[1].splitlines()]
    commands = [step for step in steps if step and not step.startswith(("pip ", "angarium up"))]
    assert len(commands) == 4
    spoken = {"angarium": shlex.join(COMMAND)}
    output = ""
    for command in commands:
        line = " | ".join(
            part.replace("angarium", spoken["angarium"], 1) if part.startswith("angarium") else part
            for part in command.split(" | ")
        )
        done = subprocess.run(
            ["bash", "-c", line],
            capture_output=True, text=True, env=environment(ANGARIUM_ADDRESS=node.address), timeout=WAIT_S,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        output += done.stdout
    assert output.startswith("hello\n")
    assert "1,000,000" in output


@pytest.mark.parametrize("target", ["up", "test", "demo"])
def test_the_commands_named_exist(target: str) -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert f"`make {target}`" in README or f"make {target} " in README
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)

"""Goal: what the README shows works as it is written there, but for the address."""
import os
import re
import shlex
import signal
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
    commands = [step for step in steps if step and not step.startswith((". ", "angarium up"))]
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


def test_what_make_up_prints_works_in_the_directory_where_it_was_made(tmp_path: Path) -> None:
    """In a copy, with the environment that is there already: `angarium` itself is on nobody's PATH."""
    programs = Path(sys.prefix) / "bin"
    if not (programs / "angarium").exists():
        pytest.skip("this environment has no command `angarium`")
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((Path(__file__).parents[2] / name).read_bytes())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(programs)
    (tmp_path / ".venv/runtime").touch()
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != programs)
    surroundings = environment(PATH=path, ANGARIUM_NODE__LISTEN=f"127.0.0.1:{free_port()}")
    made = subprocess.Popen(
        ["make", "up"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=surroundings, start_new_session=True
    )
    try:
        assert made.stdout is not None
        lines = [made.stdout.readline() for _ in range(5)]
        assert "ready" in lines[0]
        commands = [line.strip() for line in lines[2:]]
        assert [shlex.split(command)[0] for command in commands] == [".venv/bin/angarium"] * 3
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, env=surroundings, timeout=WAIT_S
            )
            assert done.returncode == 0, (command, done.stderr)
    finally:
        os.killpg(made.pid, signal.SIGTERM)
        made.wait(WAIT_S)

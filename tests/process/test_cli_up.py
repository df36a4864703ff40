"""Goal: a broker starts, says so, stops and starts again by the command line, and its settings can be checked first."""
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli_node import COMMAND, WAIT_S, Node, assert_one_sentence, environment, run
from tests.process.process_broker import free_port


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


def test_up_says_ready_and_what_to_try(node: Node) -> None:
    assert node.greeting == f"angarium ready on {node.address}, data in {node.data}, node test\n"


def test_up_prints_three_commands_that_work(tmp_path: Path) -> None:
    node = Node(tmp_path / "data", free_port())
    assert node.process.stdout is not None
    try:
        lines: list[str] = []
        while len(lines) < 3:
            line = node.process.stdout.readline()
            assert line, "the broker ended"
            if line.startswith("  ") and "angarium" in line:
                lines.append(line.strip())
        for line in lines:  # as they are printed: for the program as it was called
            assert line.startswith(" ".join(COMMAND) + " ")
            assert subprocess.run(line, shell=True, env=environment(), timeout=WAIT_S).returncode == 0, line
    finally:
        node.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_stops_cleanly_and_a_second_start_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    first = Node(tmp_path / "data", port)
    assert first.run("send", "kept", "before {n}", "--count", "3").returncode == 0
    assert first.stop(number) == 0
    second = Node(tmp_path / "data", port)
    try:
        received = second.run("receive", "kept", "--count", "3", "--timeout", "5")
        assert received.stdout == b"before 1\nbefore 2\nbefore 3\n"
    finally:
        second.stop()


def test_up_on_a_port_in_use_is_refused(node: Node, tmp_path: Path) -> None:
    listen = node.address.removeprefix("angarium://")
    text = assert_one_sentence(run("up", "--data", str(tmp_path / "other"), "--listen", listen))
    assert listen in text


def test_up_on_data_in_use_is_refused(node: Node) -> None:
    done = run("up", "--data", str(node.data), "--listen", f"127.0.0.1:{free_port()}")
    assert str(node.data) in assert_one_sentence(done)


def test_up_with_a_bad_listen_address_is_refused(tmp_path: Path) -> None:
    done = run("up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:notaport")
    assert "notaport" in assert_one_sentence(done)


def test_up_with_data_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("up", "--data", str(tmp_path / "file" / "data"), "--listen", f"127.0.0.1:{free_port()}")
    assert_one_sentence(done)


# -- version, help, completion, config -----------------------------------------------------------


def test_version() -> None:
    assert re.fullmatch(rb"angarium \d+\.\d+\.\d+\S*\n", run("--version").stdout)


def test_help_names_every_command() -> None:
    text = run("--help").stdout.decode()
    commands = ("up", "send", "receive", "topic", "ls", "create", "browse", "purge", "rm", "status", "config", "bench")
    for command in commands:
        assert f" {command} " in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    done = run("--show-completion", shell)
    assert (done.returncode, b"angarium" in done.stdout) == (0, True)


def test_config_show_is_a_file_that_config_check_accepts(tmp_path: Path) -> None:
    shown = run("config", "show", "--listen", "127.0.0.1:4999", ANGARIUM_NODE__NAME="from-environment")
    assert b'listen = "127.0.0.1:4999"' in shown.stdout
    assert b'name = "from-environment"' in shown.stdout
    file = tmp_path / "node.toml"
    file.write_bytes(shown.stdout)
    assert run("config", "check", str(file)).returncode == 0
    assert run("config", "show", str(file)).stdout == shown.stdout


def test_config_check_names_the_mistake(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nlisen = "127.0.0.1:1"\n')
    text = assert_one_sentence(run("config", "check", str(file)))
    assert "lisen" in text
    assert "listen" in text

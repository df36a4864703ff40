"""Goal: a broker starts, says so, stops and starts again by the command line, and its settings can be checked first."""
import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
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
    assert second.process.stdout is not None
    assert second.process.stdout.readline().startswith("  1 destination, ")
    try:
        received = second.run("receive", "kept", "--count", "3", "--timeout", "5")
        assert received.stdout == b"before 1\nbefore 2\nbefore 3\n"
    finally:
        second.stop()


def test_up_on_a_port_in_use_is_refused(node: Node, tmp_path: Path) -> None:
    listen = node.address.removeprefix("angarium://")
    text = assert_one_sentence(run("up", "--data", str(tmp_path / "other"), "--listen", listen))
    assert listen in text
    assert not (tmp_path / "other").exists(), "a start that fails leaves nothing behind"


def test_up_on_data_in_use_is_refused(node: Node) -> None:
    done = run("up", "--data", str(node.data), "--listen", f"127.0.0.1:{free_port()}")
    assert str(node.data) in assert_one_sentence(done)


def test_up_with_a_bad_listen_address_is_refused(tmp_path: Path) -> None:
    done = run("up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:notaport")
    assert "notaport" in assert_one_sentence(done, code=2)


def test_up_with_data_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("up", "--data", str(tmp_path / "file" / "data"), "--listen", f"127.0.0.1:{free_port()}")
    assert_one_sentence(done)


def test_data_is_not_for_everybody(node: Node) -> None:
    for path in (node.data, *node.data.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_up_says_what_should_not_go_unsaid(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    process = subprocess.Popen(
        [*COMMAND, "up", "--data", str(tmp_path), "--listen", "0.0.0.0:0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "held no store: it has letters.txt" in errors
    assert "there is no authentication" in errors


def test_up_does_not_need_an_output(tmp_path: Path) -> None:
    port = free_port()
    command = shlex.join([*COMMAND, "up", "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"])
    process = subprocess.Popen(["bash", "-c", f"exec {command} >&-"], stderr=subprocess.PIPE, env=environment())
    try:
        done = run("status", "--address", f"127.0.0.1:{port}", "--wait", "20")
        assert done.returncode == 0, done.stderr
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, b"Traceback" in errors) == (0, False)


# -- version, help, completion, config -----------------------------------------------------------


def test_version() -> None:
    assert re.fullmatch(rb"angarium \d+\.\d+\.\d+\S*\n", run("--version").stdout)


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "angarium", "--version"], capture_output=True, env=environment())
    assert done.stdout.startswith(b"angarium ")


def test_without_a_command_the_whole_help_is_shown() -> None:
    for arguments in ((), ("topic",)):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"\n") > 5 and done.stderr.lstrip().startswith(b"Usage: angarium")
        assert done.stderr.split(b"Usage:")[1] == run(*arguments, "--help").stdout.split(b"Usage:")[1]


def test_a_command_that_is_mistyped_is_guessed() -> None:
    text = assert_one_sentence(run("sned", "orders"), code=2)
    assert text.strip() == "angarium: there is no command 'sned'. Did you mean 'send'? See 'angarium --help'"


STARTING = """
import importlib.abc, signal, sys
from angarium.cli.main import main
assert "asyncio" not in sys.modules and "typer" not in sys.modules

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "angarium.cli.commands":
            print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL, flush=True)

sys.meta_path.insert(0, Watch())
sys.argv = ["angarium", "--version"]
try:
    main()
finally:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_an_interrupt_while_it_still_imports_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, env=environment(), timeout=WAIT_S)
    first, _, last = done.stdout.splitlines()
    assert (first, last) == (b"True", b"True"), done.stderr


def test_help_names_every_command() -> None:
    text = run("--help").stdout.decode()
    commands = ("up", "send", "receive", "topic", "ls", "create", "browse", "purge", "rm", "status", "config", "bench")
    for command in commands:
        assert f" {command} " in text


@pytest.mark.parametrize("group", [(), ("cluster",), ("config",), ("dmq",), ("pipeline",), ("topic",)])
def test_what_a_command_does_is_read_in_one_line_of_a_terminal(group: tuple[str, ...]) -> None:
    _, commands = run(*group, "--help", COLUMNS="80").stdout.decode().split("Commands:\n")
    assert commands.strip() and "..." not in commands


@pytest.mark.parametrize(
    ("command", "example"),
    [
        (("create",), "angarium create prices --topic --messages-max 100000 --slow-subscriber drop"),
        (("pipeline", "replay"), "--archive /srv/archive --name monday --from 2026-11-16 --to 2026-11-17"),
        (("pipeline", "archive"), '      destinations = ["orders", "prices.*"]\n'),
    ],
)
def test_an_example_can_be_copied_whatever_its_length(command: tuple[str, ...], example: str) -> None:
    assert example in run(*command, "--help", COLUMNS="80").stdout.decode()


@pytest.mark.parametrize(
    ("shell", "registers"),
    [
        ("bash", b"complete -o default -F _angarium_completion angarium"),
        ("zsh", b"compdef _angarium_completion angarium"),
        ("fish", b"complete --command angarium"),
    ],
)
def test_completion(shell: str, registers: bytes) -> None:
    """Asked for by name: `--show-completion` looks which shell started it, and here that may be none."""
    done = run(_ANGARIUM_COMPLETE=f"source_{shell}")
    assert (done.returncode, registers in done.stdout) == (0, True)


def test_config_show_is_a_file_that_config_check_accepts(tmp_path: Path) -> None:
    shown = run("config", "show", "--listen", "127.0.0.1:4999", ANGARIUM_NODE__NAME="from-environment")
    assert b'listen = "127.0.0.1:4999"' in shown.stdout
    assert b'name = "from-environment"' in shown.stdout
    file = tmp_path / "node.toml"
    file.write_bytes(shown.stdout)
    assert run("config", "check", str(file)).returncode == 0
    again = run("config", "show", str(file)).stdout
    assert tomllib.loads(again.decode()) == tomllib.loads(shown.stdout.decode())
    assert b"# environment ANGARIUM_NODE__NAME" in shown.stdout and f"# file {file}".encode() in again


def test_config_check_names_the_mistake(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nlisen = "127.0.0.1:1"\n')
    text = assert_one_sentence(run("config", "check", str(file)))
    assert "lisen" in text
    assert "listen" in text


def test_config_check_names_all_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nlisen = "127.0.0.1:1"\nsite = "x"\n[store]\nsegment_bytes = 1\n')
    done = run("config", "check", str(file))
    said = done.stderr.decode().splitlines()
    assert done.returncode == 1 and said[0] == "angarium: 3 mistakes:" and len(said) == 4
    assert all(line.startswith(f"    {file}: ") for line in said[1:])


def test_config_check_finds_what_would_keep_a_broker_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file is a file" in assert_one_sentence(run("config", "check", "--data", str(tmp_path / "file")))
    assert "abc.invalid" in assert_one_sentence(run("config", "check", ANGARIUM_NODE__LISTEN="abc.invalid"))


def test_config_check_refuses_what_up_refuses_and_leaves_nothing(node: Node, tmp_path: Path) -> None:
    """One after the other: what the one says of the place, the other says as well."""
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.mdb").write_bytes(b"not LMDB's" * 100)
    (tmp_path / "lock" / "lock").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    taken, free = node.address.removeprefix("angarium://"), f"127.0.0.1:{free_port()}"
    for data, listen, said in (
        (tmp_path / "new", taken, "Address already in use"),
        (Path("/proc/angarium"), free, "/proc"),
        (tmp_path / "nowhere" / "data", free, "is a link to nowhere"),
        (tmp_path / "other", free, "data.mdb there is no store"),
        (tmp_path / "lock", free, "lock there is a directory"),
    ):
        where = ("--data", str(data), "--listen", listen)
        assert said in assert_one_sentence(run("config", "check", *where)), where
        assert run("up", *where).returncode == 1, where
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "events.jsonl") == before


def _check(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """With as few connections as any system has files for: else a warning says so."""
    return run("config", "check", *arguments, ANGARIUM_SESSION__CONNECTIONS_MAX="100")


def test_config_check_says_what_it_has_looked_at(node: Node, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    new = assert_one_sentence(_check("--data", str(tmp_path / "new"), "--listen", listen), code=0)
    assert f"no mistakes found; {tmp_path}/new can be made, {listen} is free" in new
    assert not (tmp_path / "new").exists()
    (tmp_path / "letters").touch()
    done = run("config", "check", "--data", str(tmp_path), "--listen", listen)
    assert done.returncode == 0 and b"warning: " in done.stderr and b"it has letters" in done.stderr


def test_a_program_reads_what_config_check_found(tmp_path: Path) -> None:
    listen, file = f"127.0.0.1:{free_port()}", tmp_path / "node.toml"
    done = _check("--json", "--data", str(tmp_path / "new"), "--listen", listen)
    assert (done.returncode, done.stderr) == (0, b"")
    facts = [f"{tmp_path}/new can be made", f"{listen} is free"]
    assert json.loads(done.stdout) == {"mistakes": [], "warnings": [], "facts": facts}
    (tmp_path / "letters").touch()
    warned = json.loads(_check("--json", "--data", str(tmp_path), "--listen", listen).stdout)
    assert not warned["mistakes"] and "it has letters" in warned["warnings"][0]
    file.write_text('[node]\nlisen = "127.0.0.1:1"\nsite = "x"\n')
    refused = run("config", "check", "--json", str(file))
    assert (refused.returncode, refused.stderr) == (1, b"")
    assert [mistake.startswith(f"{file}: ") for mistake in json.loads(refused.stdout)["mistakes"]] == [True, True]


def test_a_program_reads_the_settings_and_where_they_come_from() -> None:
    done = run("config", "show", "--json", "--listen", "127.0.0.1:4999")
    settings = {setting["key"]: setting for setting in json.loads(done.stdout)}
    assert settings["node.listen"] == {"key": "node.listen", "value": "127.0.0.1:4999", "source": "option"}
    assert settings["node.site"] == {"key": "node.site", "value": 0, "source": "default"}


def test_the_settings_of_a_broker_that_runs_can_be_checked(node: Node) -> None:
    """It is to be started again with them: that it has its data and its address is no mistake."""
    listen = node.address.removeprefix("angarium://")
    done = run("config", "check", "--data", str(node.data), "--listen", listen)
    assert done.returncode == 0
    assert f"in use by process {node.process.pid} now".encode() in done.stderr


def test_a_misspelt_environment_variable_is_refused_by_every_command(node: Node) -> None:
    assert "ANGARIUM_ADDRESS" in assert_one_sentence(run("ls", ANGARIUM_ADRESS=node.address))
    assert "ANGARIUM_NODE__LISTEN" in assert_one_sentence(run("config", "show", ANGARIUM_NODE_LISTEN="x"))

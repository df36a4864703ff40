"""Goal: every command of `angarium` comes to its end by itself, as a process of its own.
Method: real processes. The other tests of the command line fork commands off one process and end them at once
(cli_forks.py), which would hide a thread or an event loop that keeps one from ending."""
import subprocess
from collections.abc import Iterator

import pytest
from typer.main import get_command

from angarium.cli.commands import app
from tests.process.cli_node import COMMAND, WAIT_S, Node, environment
from tests.process.process_broker import free_port

# What each is called with, and its exit code. A broker that is alone refuses what is about a cluster.
CALLS: dict[str, tuple[list[str], int]] = {
    "send": (["sent", "m{n}", "--count", "3"], 0),
    "receive": (["filled", "--count", "1"], 0),
    "ls": ([], 0),
    "create": (["created"], 0),
    "alter": (["altered", "--messages-max", "7"], 0),
    "describe": (["described"], 0),
    "explain": (["described"], 0),
    "browse": (["filled"], 0),
    "purge": (["purged"], 0),
    "rm": (["removed"], 0),
    "status": ([], 0),
    "admin": (["--list"], 0),
    "log": ([], 0),
    "bench": (["--count", "100", "--size", "10"], 0),
    "topic tail": (["described"], 1),  # a queue
    "dmq ls": ([], 0),
    "dmq show": ([], 0),
    "dmq redrive": ([], 0),
    "dmq discard": ([], 0),
    "cluster status": ([], 1),
    "cluster drain": (["n1"], 1),
    "cluster move-primary": (["a", "n1"], 1),
    "cluster move-destination": (["described", "a"], 1),
    "cluster add-copy": (["a", "n1"], 1),
    "cluster remove-copy": (["a", "n1"], 1),
    "cluster set-voters": (["n1"], 1),
    "config check": ([], 0),
    "config show": ([], 0),
    "config get": ([], 0),
    "config set": (["session.links_max", "500"], 0),
    "config unset": (["session.links_max"], 0),
}
# Some run until they are told to stop, as tests of processes do; those of pipelines need Spark: not tried here.
OTHERS = {"up", "node", "cluster up", "pipeline archive", "pipeline audit", "pipeline replay", "pipeline traffic"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("exit"), free_port())
    for name in ("filled", "altered", "described", "purged", "removed"):
        assert node.run("send", name, "m", "--count", "2").returncode == 0
    yield node
    node.stop()


def test_all_commands_are_here() -> None:
    names = set()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        names |= {name} if inner is None else {f"{name} {each}" for each in inner}
    assert names == {*CALLS, *OTHERS}


@pytest.mark.parametrize("name", CALLS)
def test_a_command_ends(node: Node, name: str) -> None:
    arguments, code = CALLS[name]
    done = subprocess.run(
        [*COMMAND, *name.split(), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, env=environment(ANGARIUM_ADDRESS=node.address),
    )  # fmt: skip
    assert done.returncode == code, done

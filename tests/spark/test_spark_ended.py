"""Goal: a pipeline that cannot work says so before Spark starts; one that is ended says one line, and leaves nothing
behind.
Method: real commands. Java that runs, and whatever Spark puts into the temporary directory, are looked for."""
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.process.cli_node import COMMAND, environment
from tests.process.process_broker import free_port, until
from tests.spark.spark_messages import Orders

pytestmark = pytest.mark.timeout(600)
WAIT_S = 180.0  # Java and Spark start in ten seconds, and in a minute beside others of their kind


def start(orders: Orders, *arguments: str, **extra: str) -> subprocess.Popen[bytes]:
    scratch = orders.directory / "tmp"
    scratch.mkdir(exist_ok=True)
    environ = environment(ANGARIUM_ADDRESS=orders.address, TMPDIR=str(scratch), **extra)
    return subprocess.Popen(
        [*COMMAND, "pipeline", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environ,
    )  # fmt: skip


def java_of(scratch: Path) -> list[int]:
    """Processes whose command line names that directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"java" in words and os.fsencode(scratch) in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting", "working"])
def test_one_that_is_ended_says_one_line(
    spark_master: str, orders: Orders, number: signal.Signals, moment: str
) -> None:
    orders.create("a")
    orders.send("a", 20_000)
    target, scratch = orders.directory / "archive", orders.directory / "tmp"
    command = start(orders, "archive", f"{orders.prefix}.a", "--to", str(target), "--messages-per-step", "20")
    try:
        if moment == "starting":
            until(lambda: bool(java_of(scratch)), "Java is there", WAIT_S)
        else:
            until((target / "_manifest" / "current.json").exists, "the first step is done", WAIT_S)
        command.send_signal(number)
        out, errors = command.communicate(timeout=WAIT_S)
    finally:
        command.kill()
    what = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert errors.decode() == f"angarium: {what}; it may be run again at any time\n"
    assert (command.returncode, out) == (128 + number, b"")
    until(lambda: not java_of(scratch), "Java has gone", WAIT_S)
    assert list(scratch.iterdir()) == []


WRONG = {
    "archive": (("archive", "nobody", "--to", "DIR/archive"), "there is no destination 'nobody'"),
    "glob": (("archive", "--to", "DIR/archive"), "DESTINATION is missing"),
    "audit": (("audit", "nobody"), "there is no destination 'nobody'"),
    "traffic": (("traffic", "nobody"), "there is no destination 'nobody'"),
    "report": (("audit", "--report", "DIR/none/audit.html"), "a directory that is there"),
    "replay": (("replay", "--archive", "DIR/empty", "--name", "x"), "has nothing of what is asked for"),
    "name": (("replay", "--archive", "DIR/empty", "--name", "a b"), "--name 'a b'"),
    "time": (("replay", "--archive", "DIR/empty", "--name", "x", "--from", "soon"), "--from 'soon'"),
    "period": (("replay", "--archive", "DIR/empty", "--name", "x", "--from", "1h", "--to", "2h"), "nothing is between"),
    "positions": (
        ("replay", "--archive", "DIR/empty", "--name", "x", "--from-position", "9", "--to-position", "9"),
        "--to-position 9 does not lie behind",
    ),
    "selector": (("replay", "--archive", "DIR/empty", "--name", "x", "--selector", "a ="), "selector, column 4"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_before_spark_starts(orders: Orders, case: str) -> None:
    """There is no Java at all: whoever starts Spark fails otherwise."""
    arguments, named = WRONG[case]
    given = [word.replace("DIR", str(orders.directory)) for word in arguments]
    command = start(orders, *given, JAVA_HOME="/nonexistent")
    _, errors = command.communicate(timeout=WAIT_S)
    assert command.returncode in (1, 2)
    assert named in errors.decode() and "Java" not in errors.decode()


def test_a_broker_that_is_not_there_is_noticed_before_spark_starts(orders: Orders) -> None:
    address = f"angarium://127.0.0.1:{free_port()}"
    for arguments in (("archive", "a", "--to", "DIR/archive"), ("audit",), ("traffic",)):
        given = [word.replace("DIR", str(orders.directory)) for word in arguments]
        command = start(orders, *given, "--address", address, JAVA_HOME="/nonexistent")
        _, errors = command.communicate(timeout=WAIT_S)
        assert errors.decode().startswith("angarium: no broker answered at"), errors
    assert not (orders.directory / "archive").exists()


def test_without_java_the_command_says_so(orders: Orders) -> None:
    orders.create("a")
    orders.send("a", 1)
    target = str(orders.directory / "archive")
    command = start(orders, "archive", f"{orders.prefix}.a", "--to", target, JAVA_HOME="/nonexistent")
    _, errors = command.communicate(timeout=WAIT_S)
    assert command.returncode == 1
    assert errors.decode().startswith("angarium: Spark's Java could not be started: ")
    assert errors.count(b"\n") == 1

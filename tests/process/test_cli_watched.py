"""Goal: whoever watches a long command sees how far it is and what came of it; whoever reads its output and goes away
ends it, and takes nothing along.
Method: real commands, one of them at a terminal (a pseudo one), interrupted, or left by their reader."""
import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from angarium.cli.output import PROGRESS_AFTER_S
from tests.process.cli_node import COMMAND, WAIT_S, Node, assert_one_sentence, environment
from tests.process.process_broker import POLL_S, free_port, until

PIECE = b"x" * (1 << 20)
LINES = (b"y" * 99 + b"\n") * 500


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("watched"), free_port())
    yield node
    node.stop()


@contextlib.contextmanager
def at_terminal(node: Node, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command whose standard error is a terminal, and the other end of that."""
    terminal, inner = pty.openpty()
    command = subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=inner,
        env=environment(ANGARIUM_ADDRESS=node.address, TERM="xterm"),
    )  # fmt: skip
    os.close(inner)
    os.set_blocking(terminal, False)
    try:
        yield command, terminal
    finally:
        command.kill()
        command.wait(WAIT_S)
        os.close(terminal)


def feed(command: subprocess.Popen[bytes], piece: bytes) -> None:
    assert command.stdin is not None
    command.stdin.write(piece)
    command.stdin.flush()


def shown_while(go_on: Callable[[], object], terminal: int, wanted: bytes) -> bytes:
    """What the terminal shows while something is done again and again; until `wanted` is there."""
    seen, deadline = b"", time.monotonic() + WAIT_S
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        go_on()
        time.sleep(POLL_S)  # there would be gigabytes of it, were nothing ever shown
        with contextlib.suppress(BlockingIOError):
            seen += os.read(terminal, 1 << 16)
    return seen


def interrupt(command: subprocess.Popen[bytes]) -> None:
    command.send_signal(signal.SIGINT)
    assert command.wait(WAIT_S) == 130


def test_a_person_sees_how_far_a_stream_is(node: Node) -> None:
    with at_terminal(node, "send", "filmed", "--stream", "-") as (command, terminal):
        seen = shown_while(lambda: feed(command, PIECE), terminal, b"MB/s")
        assert b"sending to filmed" in seen
        interrupt(command)


def test_a_person_sees_how_far_sending_is(node: Node) -> None:
    with at_terminal(node, "send", "lined", "--lines") as (command, terminal):
        seen = shown_while(lambda: feed(command, LINES), terminal, b"/s")
        assert b"sending to lined" in seen
        interrupt(command)


def test_a_person_sees_how_far_receiving_is(node: Node) -> None:
    feeder = node.start("send", "taken", "--lines")
    try:
        with at_terminal(node, "receive", "taken", "--follow") as (command, terminal):
            seen = shown_while(lambda: feed(feeder, LINES), terminal, b"/s")
            assert b"receiving from taken" in seen
            interrupt(command)
    finally:
        feeder.kill()


def test_a_person_sees_how_far_a_measurement_is(node: Node) -> None:
    with at_terminal(node, "bench", "--count", "10000000", "--size", "1") as (command, terminal):
        seen = shown_while(lambda: None, terminal, b"/s")
        assert b" of 10,000,000" in seen
        interrupt(command)


def test_a_pipe_is_not_told_how_far_anything_is(node: Node) -> None:
    """However long it takes."""
    assert node.run("create", "untold").returncode == 0
    sending, measuring = node.start("send", "untold", "--lines"), node.start("bench", "--count", "100000")
    receiving = node.start("receive", "untold", "--follow")
    try:
        assert receiving.stdout is not None
        until_s = time.monotonic() + 3 * PROGRESS_AFTER_S
        while time.monotonic() < until_s:
            feed(sending, LINES)
            receiving.stdout.read(len(LINES) // 2)
        receiving.send_signal(signal.SIGINT)
        for command, said in ((sending, rb"angarium: [\d,]+ messages confirmed\n"), (measuring, b""), (receiving, b"")):
            errors = command.communicate(timeout=WAIT_S)[1]
            assert re.fullmatch(said, errors), errors
    finally:
        for command in (sending, measuring, receiving):
            command.kill()


@pytest.mark.parametrize("options", [("--lines",), ("--stream", "-")])
def test_who_types_what_is_sent_sees_nothing_else(node: Node, options: tuple[str, ...]) -> None:
    terminal, inner = pty.openpty()
    command = subprocess.Popen(
        [*COMMAND, "send", "typed", *options], stdin=inner, stdout=subprocess.PIPE, stderr=inner,
        env=environment(ANGARIUM_ADDRESS=node.address, TERM="xterm"),
    )  # fmt: skip
    os.close(inner)
    os.set_blocking(terminal, False)
    seen, began = b"", time.monotonic()
    try:
        while time.monotonic() < began + 3 * PROGRESS_AFTER_S or seen.count(b"typed line") < 5:
            os.write(terminal, b"typed line\n")
            node.run("status")
            with contextlib.suppress(BlockingIOError):
                seen += os.read(terminal, 1 << 16)
            assert time.monotonic() < began + WAIT_S
        assert b"sending to" not in seen
        os.write(terminal, b"\x04")  # the end of what is typed
        assert command.wait(WAIT_S) == 0
    finally:
        command.kill()
        os.close(terminal)


def test_a_pipe_is_told_nothing_but_the_end(node: Node, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(PIECE * 100)
    done = node.run("send", "piped", "--stream", str(tmp_path / "file"))
    assert (done.returncode, done.stderr) == (0, b"angarium: 1 message of 104,857,600 bytes confirmed\n")


def test_an_interrupted_stream_says_what_became_of_it(node: Node) -> None:
    command = node.start("send", "cut", "--stream", "-")
    assert command.stdin is not None
    try:
        command.stdin.write(PIECE * 3)
        command.stdin.flush()
        until(lambda: node.run("describe", "cut").returncode == 0, "the stream is open")
        command.send_signal(signal.SIGINT)
        assert command.stderr is not None
        errors = command.stderr.read()
        assert command.wait(WAIT_S) == 130
    finally:
        command.kill()
    assert errors.startswith(b"angarium: interrupted after ") and errors.endswith(b"; there is no message\n")
    assert node.run("receive", "cut", "--timeout", "0", "--count", "1").returncode == 1


def test_a_stream_that_is_not_taken_gives_up_and_says_why(node: Node, tmp_path: Path) -> None:
    assert node.run("create", "small", "--bytes-max", "1000000").returncode == 0
    (tmp_path / "file").write_bytes(PIECE * 30)
    assert node.run("send", "small", "--file", "-", stdin=PIECE).returncode == 0
    done = node.run("send", "small", "--stream", str(tmp_path / "file"), "--timeout", "1")
    assert done.returncode == 1 and b"bytes_max is 1,000,000" in done.stderr, done.stderr


def test_who_fills_a_queue_and_has_no_more_does_not_wait(node: Node) -> None:
    assert node.run("create", "full", "--messages-max", "3").returncode == 0
    done = node.run("send", "full", "m{n}", "--count", "3")
    assert (done.returncode, done.stderr) == (0, b"angarium: 3 messages confirmed\n")
    done = node.run("send", "full", "one more", "--timeout", "1")
    said = done.stderr.decode().splitlines()
    assert done.returncode == 1 and len(said) == 2, said
    assert said[0].startswith("angarium: 'full' takes no more for now, waiting: destination-full: 'full' holds 3")


@pytest.mark.parametrize("command", [("receive", "left", "--follow"), ("receive", "left", "--timeout", "600")])
def test_a_reader_that_has_gone_ends_who_waits_for_more(node: Node, command: tuple[str, ...]) -> None:
    following = node.start(*command)
    assert following.stdout is not None and following.stderr is not None
    try:
        assert node.run("send", "left", "first").returncode == 0
        assert following.stdout.readline() == b"first\n"
        following.stdout.close()
        assert following.wait(WAIT_S) == 141
        assert b"Traceback" not in following.stderr.read()
    finally:
        following.kill()
    assert node.run("send", "left", "second").returncode == 0
    assert node.run("receive", "left", "--timeout", "0").stdout == b"second\n"


@pytest.mark.parametrize("command", [("topic", "tail", "news"), ("log", "--follow")])
def test_others_that_follow_end_as_well(node: Node, command: tuple[str, ...]) -> None:
    assert node.run("create", "news", "--topic").returncode == 0
    following = node.start(*command)
    assert following.stdout is not None and following.stderr is not None
    following.stdout.close()
    try:
        assert following.wait(WAIT_S) == 141
        assert following.stderr.read() == b""
    finally:
        following.kill()


def test_a_body_that_does_not_fit_is_left_and_the_place_is_named(node: Node, tmp_path: Path) -> None:
    assert node.run("send", "saved", "--file", "-", stdin=PIECE).returncode == 0
    receive = shlex.join([*COMMAND, "receive", "saved", "--output-dir", str(tmp_path), "--count", "1"])
    command = ["bash", "-c", f"ulimit -f 64; exec {receive}"]  # so many KiB of one file
    done = subprocess.run(
        command, capture_output=True, env=environment(ANGARIUM_ADDRESS=node.address), timeout=WAIT_S, check=False
    )
    said = assert_one_sentence(done)
    assert f"{tmp_path}/" in said and "File too large; the message is left where it was" in said
    assert list(tmp_path.iterdir()) == []
    assert node.run("receive", "saved", "--count", "1").stdout == PIECE + b"\n"

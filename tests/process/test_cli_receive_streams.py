"""Goal: what `receive` has not printed is nobody's loss: it goes back as if it had never been fetched.
Method: queues that bury what was delivered too often, received from more often than that."""
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from angarium.cli.receiving import PRINTED_MAX
from tests.process.cli_node import COMMAND, WAIT_S, Node, environment
from tests.process.process_broker import free_port, until


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


# What lay before a stream was not printed, came again each time, and died of it.
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_lies_before_a_stream_is_printed_and_what_lies_behind_it_was_never_delivered(
    node: Node, tmp_path: Path, options: tuple[str, ...]
) -> None:
    name = "before" + "".join(options)
    node.run("create", name, "--redeliveries-max", "2")
    (tmp_path / "stream").write_bytes(b"a very large message")
    node.run("send", name, "m{n}", "--count", "2")
    node.run("send", name, "--stream", str(tmp_path / "stream"))
    node.run("send", name, "behind")
    for attempt in range(5):
        done = node.run("receive", name, "--timeout", "1", *options)
        text = done.stderr.decode()
        assert (done.returncode, text.count("\n")) == (1, 1), text
        assert "is a stream of 20 bytes; receive it with --output-dir" in text
        printed = [json.loads(line)["body"] for line in done.stdout.splitlines()] if options else done.stdout.split()
        assert printed == ([] if attempt else ["m1", "m2"] if options else [b"m1", b"m2"])
    assert [found for found in _dead(node) if found["dead_letter"]["destination"] == name] == []
    saved = node.run("receive", name, "--output-dir", str(tmp_path / "saved"), "--count", "1")
    assert Path(saved.stdout.decode().strip()).read_bytes() == b"a very large message"
    last = json.loads(node.run("receive", name, "--count", "1", "--json").stdout)
    assert (last["body"], last["redelivery_count"]) == ("behind", 0)


def test_of_the_dead_what_lies_before_a_stream_is_printed(node: Node, tmp_path: Path) -> None:
    node.run("purge", "_DMQ")
    (tmp_path / "stream").write_bytes(b"a very large message")
    node.run("send", "dying", "first", "--ttl", "0.1")
    node.run("send", "dying", "--stream", str(tmp_path / "stream"), "--ttl", "0.1")
    until(lambda: len(_dead(node)) == 2, "both have expired")
    for expected in (b"first\n", b""):
        done = node.run("receive", "_DMQ", "--timeout", "1")
        assert (done.returncode, done.stdout) == (1, expected), done.stderr
    assert len(_dead(node)) == 1


def test_tail_prints_what_lies_before_a_stream(node: Node, tmp_path: Path) -> None:
    (tmp_path / "stream").write_bytes(b"a very large message")
    tail = node.start("topic", "tail", "tailed")
    assert tail.stderr is not None
    assert b"it has been created" in tail.stderr.readline()
    node.run("send", "tailed", "first")
    node.run("send", "tailed", "--stream", str(tmp_path / "stream"))
    out, errors = tail.communicate()
    assert (tail.returncode, out) == (1, b"first\n")
    assert b"is a stream of 20 bytes" in errors


def test_what_could_not_be_saved_was_never_delivered(node: Node, tmp_path: Path) -> None:
    """Once: a disk that was full buried it."""
    node.run("create", "saved", "--redeliveries-max", "2")
    node.run("send", "saved", "body")
    identity = json.loads(node.run("browse", "saved", "--json").stdout)["id"].removeprefix("ID:")
    hindrance = tmp_path / identity  # which no file replaces
    hindrance.mkdir()
    for _ in range(5):
        done = node.run("receive", "saved", "--count", "1", "--output-dir", str(tmp_path))
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"the message is left where it was" in done.stderr
    hindrance.rmdir()
    found = json.loads(node.run("receive", "saved", "--count", "1", "--json").stdout)
    assert (found["body"], found["redelivery_count"]) == ("body", 0)


def test_what_stands_behind_what_could_not_be_written_was_never_delivered(node: Node, tmp_path: Path) -> None:
    (tmp_path / "stream").write_bytes(b"a very large message")
    node.run("send", "unwritten", "m{n}", "--count", "150")
    node.run("send", "unwritten", "--stream", str(tmp_path / "stream"))
    node.run("send", "unwritten", "behind")
    command = [*COMMAND, "receive", "unwritten", "--count", "152", "--address", node.address]
    for _ in range(3):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=WAIT_S)
        assert (done.returncode, done.stderr) == (1, b"angarium: standard output: No space left on device\n")
    printed = node.run("receive", "unwritten", "--count", "150", "--json").stdout.splitlines()
    counts = [json.loads(line)["redelivery_count"] for line in printed]
    assert counts[0] == 3, "of what was begun nobody knows who saw it"
    assert set(counts[PRINTED_MAX:]) == {0}
    node.run("receive", "unwritten", "--output-dir", str(tmp_path / "saved"), "--count", "1")
    last = json.loads(node.run("receive", "unwritten", "--count", "1", "--json").stdout)
    assert (last["body"], last["redelivery_count"]) == ("behind", 0)


def test_what_was_being_saved_when_the_command_was_interrupted_was_never_delivered(node: Node, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(4_000_000))
    node.run("send", "interrupted", "--file", str(tmp_path / "body"))
    identity = json.loads(node.run("browse", "interrupted", "--json").stdout)["id"].removeprefix("ID:")
    slow = tmp_path / f".{identity}.part"  # a disk that takes a while
    os.mkfifo(slow)
    reader = os.open(slow, os.O_RDONLY | os.O_NONBLOCK)
    saving = node.start("receive", "interrupted", "--count", "1", "--output-dir", str(tmp_path))
    until(lambda: bool(_read(reader)), "it saves")
    saving.send_signal(signal.SIGINT)
    until(lambda: not _read(reader) and saving.poll() is not None, "it has ended")
    os.close(reader)
    assert saving.communicate() == (b"", b"") and saving.returncode == 130
    found = json.loads(node.run("receive", "interrupted", "--count", "1", "--json").stdout)
    assert found["redelivery_count"] == 0


def _read(descriptor: int) -> bytes:
    """What is there."""
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""


def _dead(node: Node) -> list[dict[str, dict[str, str]]]:
    return [json.loads(line) for line in node.run("dmq", "show", "--json").stdout.splitlines()]

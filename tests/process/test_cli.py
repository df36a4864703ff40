"""Goal: scripts can rely on `send`, `receive` and `topic tail`: output, exit codes, and nothing lost on the way.
Method: `angarium` as a subprocess against a real `angarium up`. Each test uses names of its own."""
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from angarium import blocking
from tests.process.cli_node import COMMAND, WAIT_S, Node, assert_one_sentence, environment
from tests.process.process_broker import free_port


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


def test_a_body_goes_in_and_comes_out(node: Node) -> None:
    sent = node.run("send", "plain", "hello")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, b"", b"angarium: 1 message confirmed\n")
    received = node.run("receive", "plain", "--count", "1", "--timeout", "5")
    assert (received.returncode, received.stdout, received.stderr) == (0, b"hello\n", b"")


def test_what_was_printed_is_settled(node: Node) -> None:
    node.run("send", "settled", "m{n}", "--count", "5")
    assert node.run("receive", "settled", "--count", "2").stdout == b"m1\nm2\n"
    assert node.run("receive", "settled", "--count", "3").stdout == b"m3\nm4\nm5\n"
    assert node.run("receive", "settled", "--count", "1", "--timeout", "0.2").returncode == 1


def test_receive_takes_no_more_than_it_prints(node: Node) -> None:
    node.run("send", "modest", "m{n}", "--count", "10")
    assert node.run("receive", "modest", "--count", "4").stdout == b"m1\nm2\nm3\nm4\n"
    rest = node.run("receive", "modest", "--count", "6", "--json")
    found = [json.loads(line) for line in rest.stdout.splitlines()]
    assert [message["body"] for message in found] == ["m5", "m6", "m7", "m8", "m9", "m10"]
    assert {message["redelivery_count"] for message in found} == {0}


def test_too_few_messages_are_an_error_that_counts_them(node: Node) -> None:
    node.run("send", "few", "only")
    done = node.run("receive", "few", "--count", "3", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (1, b"only\n")
    assert done.stderr == b"angarium: 1 of 3 messages came from 'few': nothing for 0.3 s\n"
    none = assert_one_sentence(node.run("receive", "few", "--count", "1", "--timeout", "0"))
    assert none == "angarium: no message came from 'few': there is nothing more now\n"


def test_no_time_is_enough_for_what_is_there(node: Node) -> None:
    node.run("send", "present", "m{n}", "--count", "3")
    assert node.run("receive", "present", "--timeout", "0").stdout == b"m1\nm2\nm3\n"
    assert node.run("receive", "present", "--timeout", "0").stdout == b""


def test_no_time_is_enough_for_one_message_of_a_session(node: Node) -> None:
    node.run("send", "present.one", "m{n}", "--count", "2")
    with blocking.connect(node.address) as connection, connection.session() as session:
        for body in (b"m1", b"m2"):
            message = session.receive("present.one", timeout_s=0)
            assert message is not None and message.body == body
            message.settle()
        assert session.receive("present.one", timeout_s=0) is None


def test_a_queue_that_was_not_there_is_said_to_be_new(node: Node) -> None:
    done = node.run("receive", "mistyped", "--timeout", "0.1")
    assert done.returncode == 0
    assert done.stderr == b"angarium: queue 'mistyped' was not there; it has been created, and is empty\n"
    assert node.run("receive", "mistyped", "--timeout", "0.1").stderr == b""


def test_braces_are_numbers_only_when_counting(node: Node) -> None:
    node.run("send", "braces", "{n}")
    node.run("send", "braces", "{n}: {{n}}", "--count", "2")
    assert node.run("receive", "braces", "--count", "3").stdout == b"{n}\n1: {n}\n2: {n}\n"


def test_a_file_too_long_is_refused_before_it_is_read(node: Node, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    text = assert_one_sentence(node.run("send", "huge", "--file", str(tmp_path / "huge")))
    assert "1,099,511,627,776 bytes exceed" in text and "--stream" in text
    text = assert_one_sentence(node.run("send", "huge", "--file", "-", stdin=bytes(5 << 20)))
    assert "more than 4,194,304 bytes" in text


@pytest.mark.parametrize("options", ["--file -", "--lines", "--stream -"])
def test_an_input_that_is_closed_is_not_an_empty_one(node: Node, options: str) -> None:
    command = shlex.join([*COMMAND, "send", "unsaid", "--address", node.address, *options.split()])
    done = subprocess.run(
        ["bash", "-c", f"{command} <&-"], capture_output=True, env=environment(), timeout=WAIT_S
    )
    assert assert_one_sentence(done) == "angarium: standard input: it is closed\n"
    assert node.run("receive", "unsaid", "--count", "1", "--timeout", "0").stdout == b""


def test_nothing_is_taken_for_an_output_that_is_closed(node: Node) -> None:
    node.run("send", "kept", "here")
    command = shlex.join([*COMMAND, "receive", "kept", "--count", "1", "--address", node.address])
    done = subprocess.run(["bash", "-c", f"{command} >&-"], stderr=subprocess.PIPE, env=environment(), timeout=WAIT_S)
    assert (done.returncode, b"standard output" in done.stderr, done.stderr.count(b"\n")) == (1, True, 1), done.stderr
    assert node.run("receive", "kept", "--count", "1").stdout == b"here\n"


def test_the_first_interrupt_ends_a_sender_that_reads_its_body(node: Node) -> None:
    sender = node.start("send", "never", "--file", "-")
    _wait_for(lambda: json.loads(node.run("status", "--json").stdout)["connections"] > 1)
    sender.send_signal(signal.SIGINT)
    _, errors = sender.communicate(timeout=WAIT_S)
    assert (sender.returncode, b"Traceback" in errors) == (130, False)


def test_a_lost_connection_is_said(tmp_path: Path) -> None:
    node = Node(tmp_path / "data", free_port())
    node.run("create", "quiet")
    waiting = node.start("receive", "quiet", "--timeout", "10")
    _wait_for_consumer(node, "quiet")
    node.stop(signal.SIGKILL)
    _, errors = waiting.communicate(timeout=WAIT_S)
    assert waiting.returncode == 1
    first, last = errors.decode().splitlines()
    assert first.startswith("angarium: connection lost, trying again: 127.0.0.1:")
    assert "connection lost" in last or "no broker came back" in last


def test_without_count_what_is_there_is_taken(node: Node) -> None:
    node.run("send", "all", "m{n}", "--count", "3")
    done = node.run("receive", "all", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (0, b"m1\nm2\nm3\n")


def test_lines_of_stdin_are_messages(node: Node) -> None:
    sent = node.run("send", "lines", "--lines", stdin=b"one\n\nthree \xff\0\nlast without newline")
    assert (sent.returncode, sent.stderr) == (0, b"angarium: 4 messages confirmed\n")
    received = node.run("receive", "lines", "--count", "4")
    assert received.stdout == b"one\n\nthree \xff\0\nlast without newline\n"


def test_no_lines_are_no_messages(node: Node) -> None:
    sent = node.run("send", "none", "--lines", stdin=b"")
    assert (sent.returncode, sent.stderr) == (0, b"angarium: 0 messages confirmed\n")


def test_many_lines_come_out_in_order(node: Node) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(200_000))
    sent = node.run("send", "many", "--lines", "--json", stdin=lines)
    assert json.loads(sent.stdout) == {"destination": "many", "confirmed": 200_000}
    received = node.run("receive", "many", "--count", "200000", "--timeout", "10")
    assert received.returncode == 0
    assert received.stdout == lines


def test_lines_are_sent_as_they_come(node: Node) -> None:
    sender = node.start("send", "slow", "--lines")
    assert sender.stdin is not None
    try:
        sender.stdin.write(b"first\n")
        sender.stdin.flush()
        received = node.run("receive", "slow", "--count", "1", "--timeout", "10")
        assert received.stdout == b"first\n"
    finally:
        sender.communicate(b"second\n", timeout=WAIT_S)
    assert sender.returncode == 0


def test_a_file_is_one_message(node: Node, tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    (tmp_path / "body").write_bytes(content)
    assert node.run("send", "file", "--file", str(tmp_path / "body")).returncode == 0
    assert node.run("send", "file", "--file", "-", stdin=b"from\nstdin").returncode == 0
    assert node.run("receive", "file", "--count", "2").stdout == content + b"\nfrom\nstdin\n"


def test_lines_of_a_file_are_messages(node: Node, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    assert node.run("send", "filelines", "--lines", "--file", str(tmp_path / "lines")).returncode == 0
    assert node.run("receive", "filelines", "--count", "2").stdout == b"a\nb\n"


@pytest.mark.parametrize("options", [(), ("--lines",)])
def test_a_directory_is_no_body_and_is_named(node: Node, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = node.run("send", "file", "--file", str(tmp_path), *options)
    assert assert_one_sentence(done) == f"angarium: {tmp_path}: is a directory\n"


def test_fields_of_a_message_come_out_as_json(node: Node) -> None:
    node.run(
        "send", "fields", "text", "--property", "region=EU", "-p", "count=12", "-p", "urgent=true", "-p", 'code:="7"',
        "--priority", "7", "--ttl", "600",
    )  # fmt: skip
    done = node.run("receive", "fields", "--count", "1", "--json")
    found = json.loads(done.stdout)
    assert found["body"] == "text"
    assert found["properties"] == {"region": "EU", "count": 12, "urgent": True, "code": "7"}
    assert (found["priority"], found["destination"], found["redelivery_count"]) == (7, "fields", 0)
    assert found["expires_ms"] - found["timestamp_ms"] == pytest.approx(600_000, abs=10_000)
    assert found["id"].startswith("ID:")


def test_a_body_that_is_no_text_is_base64_in_json(node: Node) -> None:
    node.run("send", "binary", "--file", "-", stdin=b"\xff\xfe")
    found = json.loads(node.run("receive", "binary", "--count", "1", "--json").stdout)
    assert (found["body_base64"], "body" in found) == ("//4=", False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_follow_goes_on_until_interrupted(node: Node, number: signal.Signals, code: int) -> None:
    following = node.start("receive", "followed", "--follow")
    assert following.stdout is not None
    try:
        for body in ("first", "second"):
            assert node.run("send", "followed", body).returncode == 0
            assert following.stdout.readline() == f"{body}\n".encode()
        following.send_signal(number)
        _, errors = following.communicate(timeout=WAIT_S)
    finally:
        following.kill()
    assert following.returncode == code
    assert b"Traceback" not in errors
    assert node.run("receive", "followed", "--count", "1", "--timeout", "0.3").returncode == 1  # both were settled


def test_a_reader_that_goes_away_ends_receive_quietly(node: Node) -> None:
    node.run("send", "piped", "x" * 1_000, "--count", "2000")
    following = node.start("receive", "piped", "--follow")
    assert following.stdout is not None
    following.stdout.readline()
    following.stdout.close()
    assert following.stderr is not None
    errors = following.stderr.read()
    assert following.wait(WAIT_S) == 141
    assert errors == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupting_a_sender_that_waits_for_lines(node: Node, number: signal.Signals, code: int) -> None:
    sender = node.start("send", "waiting", "--lines")
    assert sender.stdin is not None
    sender.stdin.write(b"one\n")
    sender.stdin.flush()
    assert node.run("receive", "waiting", "--count", "1", "--timeout", "10").returncode == 0
    sender.send_signal(number)
    _, errors = sender.communicate(timeout=WAIT_S)
    assert sender.returncode == code
    assert b"Traceback" not in errors
    assert b"1 message" in errors


# Ended at once, its connection looked lost: what it had fetched was kept for it until the grace time was over.
def test_what_a_terminated_receiver_fetched_and_did_not_write_is_free_at_once(node: Node) -> None:
    node.run("create", "fetched")
    following = node.start("receive", "fetched", "--follow", "--json")  # into a pipe that nobody reads
    _wait_for_consumer(node, "fetched")
    node.run("send", "fetched", "x" * 1_000, "--count", "2000")
    _wait_for(lambda: json.loads(node.run("describe", "fetched", "--json").stdout)["in_flight"] >= 1000)
    following.send_signal(signal.SIGTERM)
    assert following.wait(WAIT_S) == 143
    assert json.loads(node.run("describe", "fetched", "--json").stdout)["in_flight"] == 0
    following.communicate()
    node.run("purge", "fetched")


# -- topics --------------------------------------------------------------------------------------


def test_tail_follows_a_topic(node: Node) -> None:
    tail = node.start("topic", "tail", "news", "--count", "2")
    _wait_for_consumer(node, "news")
    assert node.run("send", "news", "item {n}", "--count", "2").returncode == 0
    out, errors = tail.communicate(timeout=WAIT_S)
    told = b"angarium: topic 'news' was not there; it has been created, and is empty\n"
    assert (tail.returncode, out, errors) == (0, b"item 1\nitem 2\n", told)


def test_a_person_is_told_what_became_of_it(node: Node) -> None:
    def send_at_a_terminal(name: str) -> bytes:
        ours, theirs = os.openpty()
        command = [*COMMAND, "send", name, "hello", "--address", node.address]
        with os.fdopen(ours, "rb", buffering=0) as screen:
            subprocess.run(command, stderr=theirs, env=environment(), timeout=WAIT_S, check=True)
            os.close(theirs)
            return screen.read(1_000).replace(b"\r\n", b"\n")

    assert node.run("create", "unheard", "--topic").returncode == 0
    confirmed = b"angarium: 1 message confirmed\n"
    told = b"angarium: topic 'unheard': nobody subscribes: messages that are sent to it are not kept\n"
    assert send_at_a_terminal("unheard") == confirmed + told
    assert send_at_a_terminal("heard") == confirmed + b"angarium: queue 'heard' was not there; it has been created\n"
    assert send_at_a_terminal("heard") == confirmed
    assert node.run("send", "unheard", "hello").stderr == confirmed, "quiet in a pipe"


def test_a_durable_subscription_keeps_what_came_while_nobody_listened(node: Node) -> None:
    assert node.run("receive", "prices", "--durable", "ledger", "--timeout", "0.2").returncode == 0
    assert node.run("send", "prices", "p{n}", "--count", "3", "--topic").returncode == 0
    received = node.run("receive", "prices", "--durable", "ledger", "--count", "3")
    assert received.stdout == b"p1\np2\np3\n"
    assert node.run("rm", "prices", "--subscription", "ledger").returncode == 0
    assert b"ledger" in assert_one_sentence(node.run("rm", "prices", "--subscription", "ledger")).encode()


def _wait_for_consumer(node: Node, name: str) -> None:
    def is_there() -> bool:
        listed = json.loads(node.run("ls", "--json").stdout)
        return any(found["name"] == name and found["consumers"] for found in listed)

    _wait_for(is_there)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"

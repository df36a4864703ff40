"""Goal: who waits for messages that are there and do not come is told why, once; who waits for nothing is not."""
from collections.abc import Iterator
from pathlib import Path

import pytest

from angarium import blocking
from tests.process.cli_node import WAIT_S, Node
from tests.process.process_broker import free_port


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


def test_who_follows_is_told_once_that_a_message_is_delayed(node: Node) -> None:
    node.run("send", "later", "m", "--delay", "3600")
    following = node.start("receive", "later", "--follow")
    assert following.stderr is not None
    said = following.stderr.readline().decode()
    assert said.startswith("angarium: waiting for 'later': 1 message is delayed by the sender, the next until ")
    node.run("send", "later", "now")
    following.terminate()
    out, errors = following.communicate(timeout=WAIT_S)
    assert (out, errors) in ((b"", b""), (b"now\n", b""))


def test_who_gives_up_is_told_of_it_once(node: Node) -> None:
    node.run("send", "much.later", "m", "--delay", "3600")
    done = node.run("receive", "much.later", "--timeout", "0.2")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"angarium: no message came from 'much.later': 1 message is delayed by the sender, ")
    counting = node.run("receive", "much.later", "--timeout", "0.2", "--count", "2")
    assert counting.returncode == 1
    assert b"nothing for 0.2 s; 1 message is delayed by the sender, " in counting.stderr
    longer = node.run("receive", "much.later", "--timeout", "4")
    assert longer.stderr.startswith(b"angarium: waiting for 'much.later': 1 message is delayed"), longer.stderr
    assert longer.stderr.count(b"\n") == 1


def test_who_selects_nothing_or_finds_all_held_is_told(node: Node) -> None:
    node.run("send", "chosen", "m", "--property", "region=EU")
    done = node.run("receive", "chosen", "--timeout", "0.2", "--selector", "region = 'US'")
    assert b"1 message waits; the selector of the only consumer excludes it" in done.stderr
    with blocking.connect(node.address) as connection, connection.session() as session:
        assert session.receive("chosen", timeout_s=WAIT_S) is not None
        done = node.run("receive", "chosen", "--timeout", "0.2")
        assert b"1 message is held by 1 consumer" in done.stderr


def test_who_waits_at_an_empty_queue_or_got_some_is_told_nothing(node: Node) -> None:
    node.run("create", "empty")
    done = node.run("receive", "empty", "--timeout", "3.5")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    node.run("send", "empty", "m")
    node.run("send", "empty", "later", "--delay", "3600")
    done = node.run("receive", "empty", "--timeout", "0.2")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"m\n", b"")


def test_who_looks_at_the_dead_where_there_are_none_is_told_so(tmp_path: Path) -> None:
    node = Node(tmp_path / "data", free_port())
    try:
        for command in ("ls", "show"):
            assert node.run("dmq", command).stderr == b"angarium: there are no dead messages\n"
            assert node.run("dmq", command, "--from", "q").stderr == b"angarium: there are no such dead messages\n"
    finally:
        node.stop()


def test_of_a_durable_subscription_its_own_reason_is_told(node: Node) -> None:
    node.run("receive", "news", "--durable", "all", "--timeout", "0")
    node.run("receive", "news", "--durable", "few", "--selector", "region = 'US'", "--timeout", "0")
    node.run("send", "news", "m", "--topic", "--property", "region=EU")
    done = node.run("receive", "news", "--durable", "few", "--selector", "region = 'US'", "--timeout", "0.2")
    assert b"its selector excludes it" in done.stderr

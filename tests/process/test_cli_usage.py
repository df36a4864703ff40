"""Goal: what can be right nowhere is wrong usage, exit code 2, and one sentence that names it and what is right."""
from collections.abc import Iterator

import pytest

from tests.process.cli_node import Node, assert_one_sentence, run
from tests.process.process_broker import free_port

WHOLE_MAX = "4,611,686,018,427,387,904"
SECONDS_MAX = "4,611,686,018,427,387 seconds"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("send", "q"), "BODY"),
        (("send", "q", "m", "--lines"), "--lines"),
        (("send", "q", "--lines", "--count", "2"), "--count"),
        (("send", "q", "m", "--priority", "10"), "--priority"),
        (("send", "q", "m", "--property", "novalue"), "novalue"),
        (("receive", "q", "--count", "0"), "--count"),
        (("receive", "q", "--timeout", "soon"), "--timeout"),
        (("receive", "q", "--timeout", "nan"), "--timeout"),
        (("send", "q", "m", "--ttl", "inf"), "--ttl"),
        (("create", "q", "--confirm", "never"), "--confirm"),
        (("receive",), "destination"),
        (("ls", "--nonsense"), "--nonsense"),
        (("send", "bad name", "m"), "bad name"),
        (("send", "bad name", "m", "--count", "2"), "bad name"),
        (("send", "q", "m", "--reply-to", "bad name"), "bad name"),
        (("send", "_reserved", "m"), "reserved"),
        (("send", "_DMQ", "m"), "reserved"),
        (("receive", "bad name"), "bad name"),
        (("receive", "_ADMIN"), "reserved"),
        (("topic", "tail", "a..b"), "a..b"),
        (("topic", "tail", "(", "--regex"), "missing )"),
        (("ls", "["), "'['"),
        (("ls", "[", "--regex"), "missing ]"),
        (("browse", "[", "--regex"), "missing ]"),
        (("create", "a/b"), "a/b"),
        (("create", "--", "--"), "'--'"),
        (("ls", "--address", "http://x"), "http://x"),
        (("send", "q", "m", "--address", "localhost:99999"), "localhost:99999"),
        (("up", "--listen", "127.0.0.1:99999"), "127.0.0.1:99999"),
        (("send", "q", "m", "--property", "JMSFoo=1"), "JMSFoo"),
        (("send", "q", "m", "--type", ""), "type"),
        (("send", "q", "m", "--ttl", "1e30"), "ttl"),
        (("send", "q", "m", "--delay", "1e30"), "delay"),
        (("dmq", "redrive", "--id", "xx"), "xx"),
        (("admin", "nosuch"), "nosuch"),
        (("admin", "nosuch", "--list"), "nosuch"),
        (("config", "set", "no.such", "1"), "no.such"),
        (("config", "set", "destination.resume_grace", "1"), "did you mean 'destination.resume_grace_s'?"),
        (("config", "get", "no.such"), "no.such"),
        (("pipeline", "archive", "q"), "--to"),
        (("cluster", "up", "--groups", "1", "--buses", "2"), "--buses"),
        (("nonsense",), "nonsense"),
        (("describe", "bad name"), "bad name"),
        (("explain", "bad name"), "bad name"),
        (("browse", "bad name"), "bad name"),
        (("purge", "bad name"), "bad name"),
        (("purge", "c*"), "; it is no pattern"),
        (("rm", "bad name"), "bad name"),
        (("alter", "bad name", "--messages-max", "1"), "bad name"),
        (("rm", "_LOG", "--subscription", "bad name"), "bad name"),
        (("rm", "_LOG", "--subscription", ""), "subscription name ''"),
        (("dmq", "redrive", "--to", "bad name"), "bad name"),
        (("dmq", "show", "--from", "bad name"), "bad name"),
        (("dmq", "discard", "--subscription", "bad name"), "bad name"),
        (("up", "--name", "bad name"), "bad name"),
        (("--install-completion", "zsh"), "takes no value: it is for the shell that it is called from"),
        (("--show-completion", "fish"), "takes no value"),
        (("send", "q", "m", "-p", "a=1", "-p", "a=2"), "property 'a' is given twice"),
        (("config", "check", "a.toml", "-c", "b.toml"), "two files are given, a.toml and --config b.toml"),
        (("config", "show", "a.toml", "-c", "b.toml"), "two files are given"),
        (("ls", "--address", ""), "--address, or ANGARIUM_ADDRESS, is empty"),
        (("ls", "--address", ","), "--address, or ANGARIUM_ADDRESS, is empty"),
        (("ls", "--address", "::1"), "in brackets, [::1]:4560"),
        (("ls", "--address", "http://localhost:4560"), "write angarium://host:port"),
        (("send", "q", "-5"), "there is no option -5; write -- before a value that begins with -"),
        (("send", "q", "--file", ""), "--file is empty"),
        (("send", "q", "--stream", ""), "--stream is empty"),
        (("receive", "q", "--output-dir", ""), "--output-dir is empty"),
        (("up", "--data", ""), "--data is empty"),
        (("up", "--config", ""), "--config is empty"),
        (("config", "check", ""), "FILE is empty"),
        (("pipeline", "archive", "q", "--to", ""), "--to is empty"),
        (("pipeline", "replay", "--archive", ""), "--archive is empty"),
        (("pipeline", "audit", "--report", ""), "--report is empty"),
        (("pipeline", "traffic", "--output", ""), "--output is empty"),
        (("receive", "q", "--selector", ""), "--selector is empty: give it a value, or leave it out"),
        (("dmq", "discard", "--selector", " "), "--selector is empty"),
        (("dmq", "redrive", "--to", ""), "--to is empty"),
        (("admin", "node.status", "--node", ""), "--node is empty"),
        (("log", "--node", ""), "--node is empty"),
        (("config", "get", "--node", ""), "--node is empty"),
        (("send", "q", "m", "--ttl", "0"), "--ttl 0: it has to be above 0"),
    ],
)
def test_wrong_usage_is_exit_code_2(node: Node, arguments: tuple[str, ...], named: str) -> None:
    assert named.lower() in assert_one_sentence(node.run(*arguments), code=2).lower()


@pytest.mark.parametrize(
    "command",
    [
        ("browse", "aselected"), ("receive", "aselected"), ("dmq", "ls"), ("topic", "tail", "nothing.yet.*"),
        ("browse", "nothing.yet.*"),
    ],
)  # fmt: skip
def test_a_wrong_selector_is_exit_code_2_and_says_where(node: Node, command: tuple[str, ...]) -> None:
    node.run("create", "aselected")
    done = node.run(*command, "--selector", "a =")
    assert "selector, column 4: " in assert_one_sentence(done, code=2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("create", "q", "--messages-max", "99999999999999999999999999"), WHOLE_MAX),
        (("create", "q", "--bytes-max", "9223372036854775808"), WHOLE_MAX),
        (("create", "q", "--redelivery-delay", "1e30"), SECONDS_MAX),
        (("create", "q", "--retain", "99999999999999999d"), SECONDS_MAX),
        (("alter", "q", "--redeliveries-max", "18446744073709551616"), WHOLE_MAX),
        (("alter", "q", "--retain-bytes", "18446744073709551616"), WHOLE_MAX),
        (("alter", "q", "--retain-messages", "18446744073709551616"), WHOLE_MAX),
        (("log", "--count", "99999999999999999999"), WHOLE_MAX),
        (("bench", "--count", "10", "--size", "99999999999999999999"), WHOLE_MAX),
        (("bench", "--count", "99999999999999999999"), WHOLE_MAX),
        (("dmq", "redrive", "--count", "99999999999999999999"), WHOLE_MAX),
        (("dmq", "show", "--count", "99999999999999999999"), WHOLE_MAX),
        (("dmq", "ls", "--older-than", "99999999999999999d"), SECONDS_MAX),
        (("browse", "q", "--count", "99999999999999999999"), WHOLE_MAX),
        (("receive", "q", "--count", "9" * 5_000), WHOLE_MAX),
        (("receive", "q", "--timeout", "1e300"), SECONDS_MAX),
        (("send", "q", "m", "--ttl", "1e14"), "--ttl 1e+14: it can be at most 10,000,000,000 seconds"),
        (("send", "q", "m", "--delay", "1e14"), "--delay 1e+14: it can be at most 10,000,000,000 seconds"),
        (("send", "q", "m", "--deliver-at", "1e14"), "not from 0 to 1e+10"),
        (("pipeline", "replay", "--from-position", "18446744073709551616"), WHOLE_MAX),
        (("pipeline", "archive", "--messages-per-step", "18446744073709551616"), WHOLE_MAX),
        (("topic", "tail", "t", "--count", "99999999999999999999"), WHOLE_MAX),
        (("send", "q", "m", "--count", "99999999999999999999"), WHOLE_MAX),
        (("ls", "--wait", "1e300"), SECONDS_MAX),
        (("admin", "destination.create", "name=q", "messages_max:=9223372036854775808"), WHOLE_MAX),
        (("admin", "destination.create", "name=q", "messages_max:=18446744073709551616"), "18,446,744,073,709,551,615"),
        (("admin", "destination.create", "name=q", "messages_max=abc"), "as a whole number, not 'abc'"),
        (("config", "set", "session.sessions_max", "99999999999999999999"), WHOLE_MAX),
        (("browse", "q", "--from", str(10 << 56)), str((10 << 56) - 1)),
        (("browse", "q", "--from", str(1 << 80)), str((10 << 56) - 1)),
    ],
)
def test_what_is_too_large_is_refused_with_the_limit(node: Node, arguments: tuple[str, ...], named: str) -> None:
    """Once: `unexpected OverflowError`."""
    assert named in assert_one_sentence(node.run(*arguments), code=2)


@pytest.mark.parametrize("address", ["", " ", ","])
def test_a_variable_that_was_never_set_is_not_this_machine(address: str) -> None:
    text = assert_one_sentence(run("send", "q", "m", ANGARIUM_ADDRESS=address), code=2)
    assert text == "angarium: --address, or ANGARIUM_ADDRESS, is empty: write angarium://HOST:PORT\n"


def test_bodies_of_a_benchmark_are_no_longer_than_the_broker_takes(node: Node) -> None:
    text = assert_one_sentence(node.run("bench", "--count", "10", "--size", "99999999999"))
    assert text == "angarium: --size: 99,999,999,999 bytes exceed the broker's body_bytes_max 4,194,304\n"
    assert b"bench" not in node.run("ls").stdout

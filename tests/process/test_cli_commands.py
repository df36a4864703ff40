"""Goal: administration by the command line does what it says, and every error is one sentence and an exit code."""
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns, pack
from tests.process.cli_node import COMMAND, WAIT_S, Node, assert_one_sentence, environment, run
from tests.process.process_broker import free_port, until
from tests.process.process_wire import RawClient


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


def test_ls_lists_and_counts(node: Node) -> None:
    node.run("send", "listed", "m", "--count", "7")
    (found,) = [d for d in json.loads(node.run("ls", "--json").stdout) if d["name"] == "listed"]
    assert (found["kind"], found["messages"], found["confirm"]) == ("queue", 7, "disk")
    rows = [line.split() for line in node.run("ls").stdout.decode().splitlines()]
    assert rows[0][:3] == ["NAME", "KIND", "MESSAGES"]
    assert ["listed", "queue", "7"] in [row[:3] for row in rows]


def test_a_message_whose_properties_nobody_can_read_does_not_keep_the_others_from_coming(node: Node) -> None:
    """Once: one such message, and `receive --json` failed for ever."""
    with RawClient(int(node.address.rpartition(":")[2])) as client:
        client.hello()
        client.open_session()
        identity = client.open_producer("strange", kind=DestinationKind.QUEUE)
        columns = MessageColumns(properties=[b"\xc1"])
        client.send(1, frames.Publish(1), pack(identity, 1, 0, [b"strange"], columns))
        client.send(1, frames.Publish(1), pack(identity, 2, 0, [b"plain"]))
        client.expect(frames.Confirm)
    done = node.run("receive", "strange", "--count", "2", "--timeout", "5", "--json")
    assert done.returncode == 0, done.stderr
    strange, plain = (json.loads(line) for line in done.stdout.splitlines())
    assert (strange["body"], plain["body"]) == ("strange", "plain")
    assert "no map" in strange["unreadable"] and "unreadable" not in plain


def test_create_is_idempotent_and_says_when_it_cannot_be(node: Node) -> None:
    for _ in range(2):
        done = node.run("create", "made", "--topic", "--json")
        assert json.loads(done.stdout)["kind"] == "topic"
    assert "made" in assert_one_sentence(node.run("create", "made"))
    done = node.run("create", "fast", "--confirm", "memory", "--json")
    assert json.loads(done.stdout)["confirm"] == "memory"


def test_browse_shows_without_taking(node: Node) -> None:
    node.run("send", "shown", "m{n}", "--count", "30", "--property", "region=EU")
    done = node.run("browse", "shown", "--count", "25", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["body"] for message in found] == [f"m{n}" for n in range(1, 26)]
    assert found[0]["properties"] == {"region": "EU"}
    later = node.run("browse", "shown", "--from", str(found[-1]["position"] + 1), "--json")
    assert [json.loads(line)["body"] for line in later.stdout.splitlines()] == [f"m{n}" for n in range(26, 31)]
    assert re.search(rb"region=EU  m1\n", node.run("browse", "shown").stdout)
    assert node.run("receive", "shown", "--count", "30").returncode == 0


def test_browsed_control_characters_do_not_reach_the_terminal(node: Node) -> None:
    node.run("send", "control", "\x1b[2Jgone\n")
    shown = node.run("browse", "control").stdout
    assert b"\x1b" not in shown
    assert shown.count(b"\n") == 1


def test_a_message_sent_at_no_time_of_a_calendar_is_browsed_with_the_others(node: Node) -> None:
    with RawClient(int(node.address.rpartition(":")[2])) as client:
        client.hello()
        client.open_session()
        identity = client.open_producer("undated", kind=DestinationKind.QUEUE)
        client.send(1, frames.Publish(1), pack(identity, 1, (1 << 63) - 1, [b"odd"]))
        client.expect(frames.Confirm)
    node.run("send", "undated", "usual")
    shown = node.run("browse", "undated").stdout
    assert b"9,223,372,036,854,775,807 ms after 1970  odd" in shown
    assert b"  usual\n" in shown


def test_purge_and_rm(node: Node) -> None:
    node.run("send", "doomed", "m", "--count", "4")
    assert node.run("purge", "doomed").stderr == b"angarium: 4 messages purged from 'doomed'\n"
    assert node.run("receive", "doomed", "--count", "1", "--timeout", "0.2").returncode == 1
    assert node.run("rm", "doomed").returncode == 0
    assert b"doomed" not in node.run("ls").stdout
    assert "doomed" in assert_one_sentence(node.run("rm", "doomed"))


def test_every_result_comes_as_json(node: Node) -> None:
    node.run("send", "told", "m", "--count", "2")
    assert json.loads(node.run("purge", "told", "--json").stdout) == {"destination": "told", "purged": 2}
    removed = {"destination": "told", "subscription": None, "removed": True}
    assert json.loads(node.run("rm", "told", "--json").stdout) == removed


def test_browse_and_receive_describe_a_message_alike_with_all_that_was_sent(node: Node) -> None:
    node.run("create", "alike", "--last-value")
    sent = {
        "correlation_id": "c1", "reply_to": "answers", "reply_to_kind": "topic", "type": "order", "group": "g1",
        "group_sequence": 7, "deduplication_id": "d1", "last_value_key": "k1", "delivery_mode": "non-persistent",
    }  # fmt: skip
    given = [text for name, value in sent.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    done = node.run("send", "alike", "text", "--property", "region=EU", "--deliver-at", "1000000000.5", *given)
    assert done.returncode == 0, done.stderr
    browsed = json.loads(node.run("browse", "alike", "--json").stdout)
    received = json.loads(node.run("receive", "alike", "--count", "1", "--json").stdout)
    assert received.pop("redelivery_count") == 0
    assert browsed == received
    assert {name: received[name] for name in sent} == sent
    assert (received["due_ms"], received["properties"]) == (1_000_000_000_500, {"region": "EU"})
    node.run("send", "alike", "plain", "--deliver-at", "2001-09-09T03:46:41+02:00", "--last-value-key", "k2")
    plain = json.loads(node.run("receive", "alike", "--count", "1", "--json").stdout)
    assert (plain["group"], plain["reply_to_kind"], plain["delivery_mode"]) == (None, None, "persistent")
    assert plain["due_ms"] == 1_000_000_001_000


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (("--deliver-at", "2026-11-17T08:00"), "a time with its zone"),
        (("--deliver-at", "soon"), "a time with its zone"),
        (("--deliver-at", "2000000000", "--delay", "1"), "give one of them"),
        (("--group-sequence", "1"), "say which with --group"),
        (("--reply-to-kind", "queue"), "that --reply-to names"),
    ],
)
def test_fields_that_make_no_sense_are_refused_before_anything_is_sent(given: tuple[str, ...], part: str) -> None:
    assert part in assert_one_sentence(run("send", "q", "m", *given), code=2)


def test_status(node: Node) -> None:
    found = json.loads(node.run("status", "--json").stdout)
    assert (found["name"], found["pid"], found["blocked"]) == ("test", node.process.pid, "")
    assert found["connections"] >= 1
    assert found["listen"] == node.address, "as in a cluster, and as --address takes it"
    text = node.run("status").stdout.decode()
    assert "messages in" in text
    assert not re.search(r"\d{5}", text.partition("store")[2]), "figures are for people"


def test_an_unknown_setting_is_an_error_and_no_empty_table(node: Node) -> None:
    assert "foo" in assert_one_sentence(node.run("config", "get", "foo"), code=2)


def test_bench_measures_and_tidies_up(node: Node) -> None:
    found = json.loads(node.run("bench", "--count", "2000", "--size", "100", "--json").stdout)
    assert (found["count"], found["body_bytes"]) == (2_000, 100)
    assert min(found["in_rate"], found["out_rate"], found["single_p50_us"]) > 0
    assert b"bench" not in node.run("ls").stdout
    assert b"one at a time" in node.run("bench", "--count", "100").stdout


# -- errors --------------------------------------------------------------------------------------

CLIENT_COMMANDS = [
    ("send", "q", "m"),
    ("send", "q", "--lines"),
    ("receive", "q"),
    ("topic", "tail", "q"),
    ("ls",),
    ("create", "q"),
    ("alter", "q", "--messages-max", "1"),
    ("describe", "q"),
    ("explain", "q"),
    ("dmq", "ls"),
    ("dmq", "redrive"),
    ("browse", "q"),
    ("purge", "q"),
    ("rm", "q"),
    ("status",),
    ("bench",),
]


def test_a_broker_that_is_not_there() -> None:
    port = free_port()
    address = ["--address", f"angarium://127.0.0.1:{port}"]
    started = [
        subprocess.Popen(
            [*COMMAND, *arguments, *address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        for arguments in CLIENT_COMMANDS
    ]
    for process in started:
        out, errors = process.communicate(timeout=WAIT_S)
        done = subprocess.CompletedProcess(process.args, process.returncode, out, errors)
        assert str(port) in assert_one_sentence(done), process.args


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("browse", "nothing.here"), "nothing.here"),
        (("purge", "nothing.here"), "nothing.here"),
        (("rm", "nothing.here"), "nothing.here"),
        (("send", "q", "--file", "/nowhere/at/all"), "/nowhere/at/all"),
        (("send", "q", "--file", "/tmp"), "/tmp"),
        (("receive", "q", "--output-dir", "/dev/null/x"), "/dev/null is a file; name a directory"),
        (("config", "check", "/nowhere/at/all.toml"), "/nowhere/at/all.toml"),
    ],
)
def test_what_is_refused_is_named(node: Node, arguments: tuple[str, ...], named: str) -> None:
    assert named in assert_one_sentence(node.run(*arguments))


def test_the_wrong_kind_is_refused(node: Node) -> None:
    node.run("create", "aqueue")
    assert "aqueue" in assert_one_sentence(node.run("topic", "tail", "aqueue"))
    assert "aqueue" in assert_one_sentence(node.run("send", "aqueue", "m", "--topic"))


def test_something_else_on_the_port_is_no_broker() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        command = [*COMMAND, "ls", "-a", f"127.0.0.1:{port}"]
        listing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        server.settimeout(WAIT_S)
        with server.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)
            server.close()
            out, errors = listing.communicate(timeout=WAIT_S)
    text = assert_one_sentence(subprocess.CompletedProcess([], listing.returncode, out, errors))
    assert f"127.0.0.1:{port} (not an Angarium broker: it speaks HTTP)" in text


def test_an_address_that_stays_silent_is_passed_over(node: Node) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        assert run("status", "-a", mute, "-a", node.address).returncode == 0
        assert f"{mute} (no greeting within" in assert_one_sentence(run("status", "-a", mute))


def test_a_short_wait_is_short() -> None:
    address = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    assert "Connection refused" in assert_one_sentence(run("status", "-a", address, "--wait", "0.1"))
    assert time.monotonic() - began < 2.5


def test_the_first_address_that_answers_is_used(node: Node) -> None:
    dead = f"127.0.0.1:{free_port()}"
    for addresses in (["-a", dead, "-a", node.address], ["-a", f"{dead},{node.address}"]):
        assert run("status", *addresses).returncode == 0


def test_what_is_no_command_is_not_confirmed(node: Node) -> None:
    refused = assert_one_sentence(node.run("send", "_ADMIN", "x"), code=2)
    assert "a command is JSON" in refused and "angarium admin" in refused
    done = node.run("send", "_ADMIN", '{"command": "node.status"}')
    assert done.returncode == 0 and b"1 message confirmed" in done.stderr and b"angarium admin" in done.stderr


def _complete(words: str, address: str) -> subprocess.CompletedProcess[bytes]:
    """As bash asks when the tab key is pressed after `words`."""
    word = str(len(words.split()) - 1)
    return run(_ANGARIUM_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=word, ANGARIUM_ADDRESS=address)


def test_names_are_completed_from_the_broker(node: Node) -> None:
    node.run("create", "completed.one")
    node.run("create", "completed.two")
    offered = _complete("angarium browse completed.", node.address)
    assert offered.stdout.split() == [b"completed.one", b"completed.two"]
    node.run("create", "completed.three", "--topic")
    assert _complete("angarium topic tail completed.", node.address).stdout.split() == [b"completed.three"]
    node.run("send", "completed.dying", "m", "--ttl", "0.1")
    until(lambda: b"_DMQ" in node.run("ls").stdout, "it has died")
    assert b"_DMQ" in _complete("angarium receive _", node.address).stdout.split()
    assert _complete("angarium send _", node.address).stdout.split() == [], "nobody may send to the dead"
    nobody = _complete("angarium browse completed.", f"127.0.0.1:{free_port()}")
    assert (nobody.stdout.strip(), nobody.stderr) == (b"", b"")


def test_commands_and_settings_are_completed_from_the_broker(node: Node) -> None:
    assert b"node.status" in _complete("angarium admin node.s", node.address).stdout.split()
    for command in ("get", "set", "unset"):
        offered = _complete(f"angarium config {command} destination.resume_g", node.address)
        assert offered.stdout.split() == [b"destination.resume_grace_s"], command
    alone = _complete("angarium cluster drain n", node.address)
    assert (alone.stdout.strip(), alone.stderr) == (b"", b""), "it is in no cluster"

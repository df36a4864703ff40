"""Goal: dead messages are found, sent back and discarded from the command line, also across kill -9; a destination's
options are set, shown and changed; and what keeps messages from being delivered is said in one sentence."""
import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import angarium
from angarium.admin.administration import Administration
from tests.process.cli_node import Node, assert_one_sentence
from tests.process.process_broker import free_port
from tests.process.process_proxy import Proxy


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node") / "data", free_port())
    yield node
    node.stop()


def reject_all(node: Node, name: str, count: int) -> None:
    async def main() -> None:
        async with angarium.connect(node.address) as connection, connection.session() as session:
            async with session.consume(name) as consumer:
                for _ in range(count):
                    message = await consumer.receive(timeout_s=20)
                    assert message is not None
                    message.reject()
            await session.sync()

    asyncio.run(main())


async def redrive_killed_in_the_middle(node: Node, name: str) -> None:
    """Its requests come through this very process: while this one looks and kills, no further page is asked for."""
    port = int(node.address.rpartition(":")[2])
    async with Proxy(port, seed=0, bytes_max=1 << 30) as proxy:
        proxy.heal()
        connection = await angarium.connect(node.address, close_timeout_s=0.1)
        redriving = node.start("dmq", "redrive", "--address", proxy.address)
        while not (await Administration(connection).describe(name)).messages:
            pass  # the next answer is the next look
        node.stop(signal.SIGKILL)
        redriving.kill()
        redriving.communicate()
        with suppress(angarium.Unavailable):
            await connection.close()


def said(node: Node, *arguments: str) -> Any:
    done = node.run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bodies(node: Node, name: str, *options: str) -> list[str]:
    done = node.run("browse", name, "--count", "1000", "--json", *options)
    return [json.loads(line)["body"] for line in done.stdout.splitlines()]


def test_dead_messages_are_listed_shown_redriven_and_discarded(node: Node) -> None:
    node.run("send", "orders", "m{n}", "--count", "6", "--property", "region=EU", "--type", "order")
    sent = [json.loads(line)["id"] for line in node.run("browse", "orders", "--json").stdout.splitlines()]
    reject_all(node, "orders", 6)
    (group,) = said(node, "dmq", "ls")
    assert (group["destination"], group["reason"], group["count"]) == ("orders", "rejected", 6)
    rows = node.run("dmq", "ls").stdout.decode().splitlines()
    assert rows[0].split()[:3] == ["DESTINATION", "SUBSCRIPTION", "REASON"] and "rejected" in rows[1]
    shown = [json.loads(line) for line in node.run("dmq", "show", "--json", "--count", "2").stdout.splitlines()]
    assert [(message["id"], message["body"]) for message in shown] == [(sent[0], "m1"), (sent[1], "m2")]
    assert shown[0]["dead_letter"]["destination"] == "orders" and shown[0]["properties"] == {"region": "EU"}
    text = node.run("dmq", "show", "--id", sent[2]).stdout.decode()
    words = (sent[2], "died in      orders", "reason       rejected", "deliveries   1", "property region EU", "m3")
    assert all(each in text for each in words), text
    assert bodies(node, "_DMQ") == [f"m{n}" for n in range(1, 7)]
    browsed = json.loads(node.run("browse", "_DMQ", "--count", "1", "--json").stdout.splitlines()[0])
    assert browsed["dead_letter"] == shown[0]["dead_letter"]
    assert said(node, "dmq", "redrive", "--from", "orders", "--count", "2")["moved"] == 2
    assert said(node, "dmq", "redrive", "--selector", "region = 'US'")["moved"] == 0
    assert said(node, "dmq", "redrive", "--older-than", "1h")["moved"] == 0
    assert node.run("dmq", "redrive", "--id", sent[2]).stderr == b"angarium: 1 message redriven\n"
    again = [json.loads(line)["id"] for line in node.run("browse", "orders", "--json").stdout.splitlines()]
    assert again == sent[:3]
    assert said(node, "dmq", "discard", "--id", sent[3])["discarded"] == 1
    received = json.loads(node.run("receive", "_DMQ", "--count", "1", "--json").stdout)
    assert received["body"] == "m5"
    assert (received["dead_letter"]["destination"], received["dead_letter"]["deliveries"]) == ("orders", 1)
    assert said(node, "dmq", "discard", "--newer-than", "1h")["discarded"] == 1
    assert said(node, "dmq", "ls") == []
    assert b"there are no dead messages" in node.run("dmq", "show").stderr


def test_what_has_nowhere_to_go_stays_and_the_exit_code_says_so(node: Node) -> None:
    node.run("send", "shortlived", "m", "--ttl", "0.01")
    node.run("receive", "shortlived", "--timeout", "0.5")
    assert said(node, "dmq", "ls", "--reason", "expired")[0]["count"] == 1
    node.run("rm", "shortlived")
    done = node.run("dmq", "redrive", "--from", "shortlived")
    assert done.returncode == 1 and b"there is no 'shortlived' (any more)" in done.stderr
    assert "nowhere" in assert_one_sentence(node.run("dmq", "redrive", "--to", "nowhere"))
    node.run("create", "elsewhere")
    assert node.run("dmq", "redrive", "--from", "shortlived", "--to", "elsewhere").returncode == 0
    assert bodies(node, "elsewhere") == ["m"]


def test_a_stream_goes_along_with_its_dead_message(node: Node, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8_000
    (tmp_path / "large").write_bytes(content)
    assert node.run("send", "large", "--stream", str(tmp_path / "large")).returncode == 0
    reject_all(node, "large", 1)
    assert said(node, "dmq", "redrive", "--from", "large")["moved"] == 1
    (tmp_path / "out").mkdir()
    done = node.run("receive", "large", "--count", "1", "--output-dir", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    (received,) = (tmp_path / "out").iterdir()
    assert received.read_bytes() == content


def test_the_dead_message_queue_is_there_before_anything_has_died(tmp_path: Path) -> None:
    node = Node(tmp_path / "data", free_port())
    try:
        found = said(node, "describe", "_DMQ")
        assert (found["name"], found["kind"], found["messages"]) == ("_DMQ", "queue", 0)
        assert "is always there" in assert_one_sentence(node.run("rm", "_DMQ"), code=2)
        assert said(node, "purge", "_DMQ")["purged"] == 0
        assert b"no message to show" in node.run("browse", "_DMQ").stderr
        assert node.run("explain", "_DMQ").returncode == 0
    finally:
        node.stop()


def test_nobody_sends_to_the_dead_message_queue(node: Node) -> None:
    assert "reserved" in assert_one_sentence(node.run("send", "_DMQ", "m"), code=2)


def test_a_redrive_that_is_killed_with_its_broker_is_repeated_and_loses_nothing(tmp_path: Path) -> None:
    port, count = free_port(), 3_000
    node = Node(tmp_path / "data", port)
    try:
        node.run("send", "q", "m{n} " + "x" * 4_000, "--count", str(count))  # some ten pages
        reject_all(node, "q", count)
        asyncio.run(redrive_killed_in_the_middle(node, "q"))
        node = Node(tmp_path / "data", port)
        assert 0 < said(node, "describe", "q")["messages"] < count, "it was interrupted in the middle"
        node.run("dmq", "redrive")
        assert said(node, "dmq", "ls") == []
        done = node.run("receive", "q", "--count", str(count), "--timeout", "5")
        assert [line.split()[0] for line in done.stdout.splitlines()] == [b"m%d" % n for n in range(1, count + 1)]
    finally:
        node.stop()


def test_options_are_set_shown_and_changed(node: Node) -> None:
    made = said(
        node, "create", "limited", "--messages-max", "10", "--over-limit", "refuse", "--redeliveries-max", "3",
        "--redelivery-delay", "1.5", "--last-value", "--no-dead-letters",
    )  # fmt: skip
    assert (made["messages_max"], made["over_limit"], made["redelivery_delay_ms"]) == (10, "refuse", 1_500)
    assert (made["redeliveries_max"], made["last_value"], made["buries"]) == (3, True, False)
    assert "messages_max = 10" in assert_one_sentence(node.run("create", "limited", "--messages-max", "11"))
    changed = said(node, "alter", "limited", "--messages-max", "20", "--dead-letters")
    assert (changed["messages_max"], changed["buries"], changed["over_limit"]) == (20, True, "refuse")
    text = node.run("describe", "limited").stdout.decode()
    assert "messages_max = 20, over_limit = refuse, redeliveries_max = 3, redelivery_delay = 1.5 s, last_value" in text
    assert b"messages_max = 20" in node.run("ls").stdout
    assert said(node, "describe", "limited") == changed
    assert "nothing to change" in assert_one_sentence(node.run("alter", "limited"), code=2)
    assert "missing" in assert_one_sentence(node.run("alter", "missing", "--messages-max", "1"))


def test_selectors_choose_what_is_browsed_and_received(node: Node) -> None:
    for region in ("EU", "US", "EU"):
        node.run("send", "regions", region, "--property", f"region={region}")
    assert bodies(node, "regions", "--selector", "region = 'EU'") == ["EU", "EU"]
    done = node.run("receive", "regions", "--selector", "region = 'US'", "--count", "1")
    assert done.stdout == b"US\n"
    explained = node.run("explain", "regions").stdout.decode()
    assert explained == "regions: 2 messages wait, and there is no consumer\n"
    assert "column 9" in assert_one_sentence(node.run("browse", "regions", "--selector", "region ="), code=2)


def test_fields_of_a_message_are_given_on_the_command_line(node: Node) -> None:
    for _ in range(2):
        node.run("send", "fields", "once", "--deduplication-id", "d1", "--correlation-id", "c", "--reply-to", "answers")
    (found,) = [json.loads(line) for line in node.run("browse", "fields", "--json").stdout.splitlines()]
    assert (found["correlation_id"], found["reply_to"]) == ("c", "answers")
    node.run("send", "later", "m", "--delay", "3600")
    explained = said(node, "explain", "later")
    assert (explained["code"], explained["figures"]["delayed"]) == ("delayed", 1)
    assert "--deduplication-id" in assert_one_sentence(
        node.run("send", "fields", "m", "--count", "2", "--deduplication-id", "x"), code=2
    )


def test_a_topic_is_explained_subscription_by_subscription(node: Node) -> None:
    node.run("receive", "prices", "--durable", "ledger", "--timeout", "0.1")
    node.run("send", "prices", "m")
    line = node.run("explain", "prices").stdout.decode()
    assert line == "prices, ledger: 1 message waits, and there is no consumer\n"
    assert "nothing.here" in assert_one_sentence(node.run("explain", "nothing.here"))

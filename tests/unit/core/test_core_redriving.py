"""Goal: dead messages are found, sent back and discarded, in bounded pages; nothing is lost or doubled on the way.
Method: requests to one message manager; crashes between any two writes; two who redrive at once."""
import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from angarium.admin.dead_messages import DeadMessages
from angarium.core.destination import browsing, selecting
from angarium.core.destination.events import DestinationSettings
from angarium.core.errors import Rejected
from angarium.core.ids import format_id, message_id
from angarium.core.selector.compiled import CompiledSelector, making
from angarium.core.selector.pace import Pace, Portions
from angarium.core.selector.parser import parsing
from angarium.core.selector.syntax import Selector
from angarium.core.storage import Table, key_of, position_key
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World
from tests.unit.core.core_node import Node


def kill(world: World, name: str, *bodies: bytes, columns: MessageColumns | None = None) -> bytes:
    """Messages of a queue that its consumer rejects; the identity of their producer."""
    queue = world.locate(name)
    producer, consumer = world.producer(queue), world.consumer(queue)
    producer.publish(*bodies, columns=columns or MessageColumns())
    for position in consumer.positions:
        consumer.reject((position, position + 1))
    consumer.close()
    producer.close()
    return producer.identity


def ask(world: World, command: str, **arguments: Any) -> dict[str, Any]:
    reply = world.request(command, **arguments)
    assert not reply.code, reply.reason
    assert isinstance(reply.result, dict)
    return reply.result


def ask_all(world: World, command: str, **arguments: Any) -> list[dict[str, Any]]:
    """Page by page, to what was the end when it began."""
    pages = [ask(world, command, **arguments)]
    end = pages[0]["end"]
    while pages[-1]["next"] < end:
        pages.append(ask(world, command, **arguments, position=pages[-1]["next"]))
    return pages


def dead_bodies(world: World, **arguments: Any) -> list[bytes]:
    reply, payload = world.request_with_payload("dmq.list", **arguments)
    assert not reply.code, reply.reason
    found: list[bytes] = []
    for part in reply.result["parts"]:
        found += Batch.parse(payload[: part["bytes"]]).bodies()
        payload = payload[part["bytes"] :]
    return found


def test_redriven_messages_are_what_they_were_before_they_died() -> None:
    world = World()
    properties = [msgspec.msgpack.encode({"region": region}) for region in ("EU", "US", "EU")]
    headers = [msgspec.msgpack.encode({"type": "order"}), b"", b""]
    later = world.wall_ms + 3_600_000
    columns = MessageColumns([7, 4, 7], [later, 0, 0], headers, properties)
    producer = kill(world, "q", b"a", b"b", b"c", columns=columns)
    assert ask(world, "dmq.redrive") == {"moved": 3, "held": 0, "staying": [], "next": 3, "end": 3}
    consumer = world.consumer(world.locate("q"))
    assert consumer.bodies == [b"a", b"c", b"b"], "by priority, and within one in their order"
    batches = [Batch.parse(p) for f, p in world.sent[consumer.session] if isinstance(f, frames.Deliver)]
    found = {
        message_id(batch.producer, batch.sequence(i)): (
            batch.body(i), batch.headers_of(i), batch.properties_of(i), (batch.expiries_ms() or [0] * batch.count)[i]
        )
        for batch in batches for i in range(batch.count)
    }  # fmt: skip
    assert found == {
        message_id(producer, 1): (b"a", headers[0], properties[0], later),
        message_id(producer, 2): (b"b", b"", properties[1], 0),
        message_id(producer, 3): (b"c", b"", properties[2], 0),
    }
    assert world.describe("_DMQ")["messages"] == 0
    assert world.disk.records_of(world.locate("_DMQ")).get(Table.BATCH) is None


def test_what_has_expired_does_not_expire_again() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"late", columns=MessageColumns(expiries_ms=[world.wall_ms + 10]))
    world.advance(1)
    consumer = world.consumer(queue)
    assert consumer.bodies == []
    assert ask(world, "dmq.summary")["groups"][0]["reason"] == "expired"
    assert ask(world, "dmq.redrive")["moved"] == 1
    assert consumer.bodies == [b"late"]


def test_each_filter_means_what_it_says() -> None:
    world = World()
    eu, us = msgspec.msgpack.encode({"region": "EU"}), msgspec.msgpack.encode({"region": "US"})
    first = kill(world, "a", b"a1", b"a2", columns=MessageColumns(properties=[eu, us]))
    world.advance(10)
    middle_ms = world.wall_ms
    kill(world, "b", b"b1", b"b2", columns=MessageColumns(properties=[us, eu]))
    topic = world.locate("t", DestinationKind.TOPIC)
    subscriber = world.consumer(topic, subscription="ledger")
    world.producer(topic).publish(b"t1")
    subscriber.reject((0, 1))
    assert dead_bodies(world) == [b"a1", b"a2", b"b1", b"b2", b"t1"]
    assert dead_bodies(world, destination="a") == [b"a1", b"a2"]
    assert dead_bodies(world, subscription="ledger") == [b"t1"]
    assert dead_bodies(world, reason="expired") == []
    assert dead_bodies(world, reason="rejected", destination="b") == [b"b1", b"b2"]
    assert dead_bodies(world, died_before_ms=middle_ms) == [b"a1", b"a2"]
    assert dead_bodies(world, died_after_ms=middle_ms) == [b"b1", b"b2", b"t1"]
    assert dead_bodies(world, selector="region = 'EU'") == [b"a1", b"b2"]
    assert dead_bodies(world, ids=[format_id(message_id(first, 2))]) == [b"a2"]
    assert dead_bodies(world, selector="region = 'EU'", count=1) == [b"a1"]
    summary = ask(world, "dmq.summary")["groups"]
    groups = {group["destination"]: (group["subscription"], group["count"], group["bytes"]) for group in summary}
    assert groups == {"a": ("", 2, 4), "b": ("", 2, 4), "t": ("ledger", 1, 2)}
    assert ask(world, "dmq.discard", selector="region = 'US'")["discarded"] == 2
    assert dead_bodies(world) == [b"a1", b"b2", b"t1"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"selector": "region = "}, "bad-selector"),
        ({"ids": ["ID:nonsense"]}, "bad-argument"),
        ({"ids": "ID:x"}, "bad-argument"),
        ({"ids": ["x"] * 1_001}, "bad-argument"),
        ({"destination": 1}, "bad-argument"),
        ({"died_before_ms": "now"}, "bad-argument"),
        ({"to": "missing"}, "unknown-destination"),
        ({"to": "_DMQ"}, "reserved-name"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(arguments: dict[str, Any], code: str) -> None:
    world = World()
    kill(world, "q", b"1")
    before = {table: dict(records) for table, records in world.disk.tables.items()}
    assert world.request("dmq.redrive", **arguments).code == code
    assert world.disk.tables == before


def test_without_a_dead_message_queue_there_is_nothing_to_do() -> None:
    world = World()
    assert ask(world, "dmq.list") == {"parts": [], "next": 0, "ends": [], "end": 0}
    assert ask(world, "dmq.redrive") == {"moved": 0, "held": 0, "staying": [], "next": 0, "end": 0}
    assert world.manager.destinations == {}


def test_messages_without_a_way_back_stay_and_the_reason_is_told() -> None:
    world = World()
    for name in ("gone", "here"):
        kill(world, name, b"1", b"2")
    world.request("destination.remove", name="gone")
    result = ask(world, "dmq.redrive")
    assert result["moved"] == 2
    (staying,) = result["staying"]
    assert (staying["destination"], staying["code"], staying["count"]) == ("gone", "unknown-destination", 2)
    assert ask(world, "dmq.redrive", to="here")["moved"] == 2
    assert world.describe("here")["messages"] == 4


def test_a_topic_that_nobody_subscribes_to_would_lose_them() -> None:
    world = World()
    kill(world, "q", b"1")
    world.locate("t", DestinationKind.TOPIC)
    assert world.request("dmq.redrive", to="t").code == "no-subscription"
    world.consumer(world.locate("t", DestinationKind.TOPIC), subscription="s").close()
    assert ask(world, "dmq.redrive", to="t")["moved"] == 1
    assert world.consumer(world.locate("t", DestinationKind.TOPIC), subscription="s").bodies == [b"1"]


def test_limits_of_the_destination_hold_for_a_redrive_too() -> None:
    world = World()
    kill(world, "q", b"1", b"2", b"3")
    world.request("destination.alter", name="q", messages_max=2, over_limit="refuse")
    result = ask(world, "dmq.redrive")
    assert (result["moved"], result["staying"][0]["code"]) == (2, "destination-full")
    world.request("destination.alter", name="q", over_limit="block")
    result = ask(world, "dmq.redrive")
    assert (result["moved"], result["staying"][0]["count"]) == (0, 1)


class Requests:
    """What `admin` asks, answered by a world; `before` is told the number of each page."""

    def __init__(self, world: World, before: Callable[[int], None]) -> None:
        self._world, self._before = world, before
        self._pages = 0

    async def request(self, command: str, arguments: dict[str, Any] | None = None, **_: object) -> frames.Reply:
        if command == "node.groups":
            raise Rejected("unknown-command", "this broker is alone")
        self._pages += 1
        self._before(self._pages)
        return self._world.request(command, **(arguments or {}))


def test_what_comes_later_does_not_overtake_what_had_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination fills, and is emptied before the third page."""
    monkeypatch.setattr(browsing, "READ_BYTES_MAX", 1)  # one batch in a page
    world = World()
    for number in range(4):
        kill(world, "q", b"%da" % number, b"%db" % number)
    kill(world, "other", b"x")
    world.request("destination.alter", name="q", messages_max=1, over_limit="refuse")
    consumer = world.consumer(world.locate("q"))
    requests = Requests(world, lambda page: consumer.settle((8, 9)) if page == 3 else None)
    redriven = asyncio.run(DeadMessages(requests).redrive())  # type: ignore[arg-type]
    assert consumer.bodies == [b"0a"]
    assert (redriven.moved, [(one.destination, one.code, one.count) for one in redriven.staying]) == (
        2, [("q", "destination-full", 7)]
    )  # fmt: skip
    assert world.describe("other")["messages"] == 1


def test_a_selector_that_is_too_long_is_refused_wherever_one_is_asked_for() -> None:
    world = World(DestinationSettings(selector_characters_max=30))
    kill(world, "q", b"1")
    long = "colour = 'a very long one, a very long one'"
    for command in ("destination.browse", "dmq.list", "dmq.summary", "dmq.redrive", "dmq.discard"):
        named = {"name": "q"} if command == "destination.browse" else {}
        reply = world.request(command, selector=long, **named)
        assert reply.code == "selector-too-long", command
        assert f"{command}: a selector of {len(long)} characters exceeds selector_characters_max 30" in reply.reason


def test_a_selector_is_compiled_once_for_all_pages_and_all_who_open(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    parsed: list[str] = []

    def counted_making(selector: Selector, pace: Pace) -> Portions[CompiledSelector]:
        compiled.append(selector)
        return making(selector, pace)

    def counted_parsing(selector: str, pace: Pace) -> Portions[Selector | None]:
        parsed.append(selector)
        return parsing(selector, pace)

    monkeypatch.setattr(selecting, "making", counted_making)
    monkeypatch.setattr(selecting, "parsing", counted_parsing)
    world = World()
    queue = world.queue_with(1, 1)
    text = "number = 12345678901"
    for _ in range(5):
        world.request("destination.browse", name="q", selector=text)
        world.consumer(queue, selector=text)
    assert (len(compiled), parsed.count(text)) == (1, 1)


def test_what_a_consumer_of_the_dead_message_queue_holds_is_left_to_it() -> None:
    world = World()
    kill(world, "q", b"1", b"2", b"3")
    reader = world.consumer(world.locate("_DMQ"), credit=1)
    assert reader.bodies == [b"1"]
    assert ask(world, "dmq.redrive") == {"moved": 2, "held": 1, "staying": [], "next": 3, "end": 3}
    assert world.consumer(world.locate("q")).bodies == [b"2", b"3"]
    reader.settle((0, 1))
    assert reader.settled[-1].lost == []
    assert world.describe("_DMQ")["messages"] == 0


@pytest.mark.parametrize("command", ["dmq.redrive", "dmq.discard"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["damaged", "gone"])
@pytest.mark.parametrize("spoiled", [1, 2, 3])
def test_what_cannot_be_read_any_more_is_set_aside_and_takes_no_room(
    command: str, is_gone: bool, spoiled: int
) -> None:
    world = World()
    for body in (b"1", b"2", b"3"):
        kill(world, "q", body)
    queue = world.locate("_DMQ")
    key = position_key(queue, spoiled)
    if is_gone:
        del world.disk.tables[Table.BATCH][key]
    else:
        world.disk.damaged.add(key)
    assert sum(group["count"] for group in ask(world, "dmq.summary")["groups"]) == 2
    assert world.describe("_DMQ")["messages"] == 3  # who only looks changes nothing
    answers = ask_all(world, command)
    assert sum(answer["moved" if command == "dmq.redrive" else "discarded"] for answer in answers) == 2
    described = world.describe("_DMQ")
    assert (described["messages"], described["damaged"]) == (0, 1)
    assert [report.code for report in world.reports if "checksum" in report.text] == ["batch-damaged"]
    assert (key in world.disk.tables[Table.DAMAGED]) is not is_gone
    assert not [key for key in world.disk.tables[Table.BATCH] if key[:8] == key_of(queue)]
    world = world.restarted()
    assert (world.describe("_DMQ")["messages"], world.describe("_DMQ")["damaged"]) == (0, 1)


def test_a_redrive_is_one_write_and_answers_when_it_is_durable() -> None:
    world = World()
    kill(world, "a", b"1")
    kill(world, "b", b"2")
    world.auto = False
    session = world.session()
    world.frame(session, 0, frames.Request(1, "dmq.redrive", {}))
    assert world.complete_read()
    assert len(world.disk.waiting) == 1
    assert session not in world.sent
    world.run_disk()
    assert world.last(session, frames.Reply).result["moved"] == 2


@pytest.mark.parametrize("seed", range(30))
def test_interrupted_anywhere_and_repeated_nothing_is_lost_or_doubled(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(browsing, "READ_BYTES_MAX", random.choice([1, 200, 1_000]))
    world = World()
    for name in ("a", "b"):
        kill(world, name, *(b"%s%d" % (name.encode(), n) for n in range(random.randint(3, 9))))
    bodies = dead_bodies(world, bytes_max=1 << 20, count=100) if browsing.READ_BYTES_MAX == 1_000 else []
    total = world.describe("_DMQ")["messages"]
    for _ in range(6):
        world.auto = False
        for _ in range(random.randint(1, 2)):  # two at once do not disturb each other
            world.frame(world.session(), 0, frames.Request(1, "dmq.redrive", {"count": random.randint(1, 4)}))
        for _ in range(random.randint(0, 4)):
            _ = world.complete_read() or world.complete_write()
        world.auto = True
        world = world.restarted(kept=random.randint(0, len(world.disk.waiting)))
        held = sum(world.describe(name)["messages"] for name in ("a", "b", "_DMQ"))
        assert held == total
    ask_all(world, "dmq.redrive")
    a, b = (world.consumer(world.locate(name)).bodies for name in ("a", "b"))
    assert len(a) + len(b) == total
    assert a == [b"a%d" % n for n in range(len(a))]
    assert b == [b"b%d" % n for n in range(len(b))]
    assert not bodies or set(bodies) <= {*a, *b}


def test_pages_are_bounded_by_bytes_and_by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "READ_BYTES_MAX", 1)
    world = World()
    for number in range(5):
        kill(world, "q", b"%d" % number)
    pages = ask_all(world, "dmq.redrive")
    assert [page["moved"] for page in pages] == [1] * 5
    assert world.consumer(world.locate("q")).bodies == [b"%d" % n for n in range(5)]


def test_announcements_come_back_so_that_groups_are_still_groups() -> None:
    world = World()
    header = msgspec.msgpack.encode({"group": "g"})
    columns = MessageColumns(headers=[header], announcements=int(Columns.GROUP))
    kill(world, "q", b"1", columns=columns)
    ask(world, "dmq.redrive")
    consumer = world.consumer(world.locate("q"))
    (delivered,) = [Batch.parse(p) for f, p in world.sent[consumer.session] if isinstance(f, frames.Deliver)]
    assert delivered.columns & Columns.GROUP and delivered.headers_of(0) == header


def test_the_dead_die_no_second_death() -> None:
    world = World()
    kill(world, "q", b"1", b"2", b"3")
    assert not world.request("destination.alter", name="_DMQ", buries=True, messages_max=2, over_limit="oldest").code
    assert world.describe("_DMQ")["buries"] is False
    assert dead_bodies(world) == [b"2", b"3"]


def test_who_reads_an_absent_dead_message_queue_waits_at_an_empty_one() -> None:
    world = World()
    reader = world.consumer(world.locate("_DMQ", DestinationKind.ANY))
    assert world.describe("_DMQ")["buries"] is False
    kill(world, "q", b"1")
    assert reader.bodies == [b"1"]
    assert world.request("destination.create", name="_DMQ", kind="queue").code == ""
    session = world.session()
    world.frame(session, 0, frames.Locate("_DMQ", DestinationKind.TOPIC))
    assert world.last(session, frames.Located).code == "wrong-kind"


def test_clients_may_read_the_dead_message_queue_and_not_write_to_it() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.ProducerOpen(1, "_DMQ", DestinationKind.ANY))
    assert client.last(frames.ProducerClosed).code == "reserved-name"
    client.send(frames.StreamOpen(1, "_DMQ", DestinationKind.ANY))
    assert client.last(frames.StreamClosed).code == "reserved-name"
    client.open_consumer("_DMQ", number=2)
    assert client.last(frames.ConsumerOpened).consumer == 2
    client.open_consumer("_ADMIN", number=3)
    assert client.last(frames.ConsumerClosed).code == "reserved-name"

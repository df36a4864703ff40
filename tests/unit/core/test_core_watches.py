"""Goal: who watches is told of every destination that matches, once it exists, within a second; nothing published to a
new topic is missed; nobody is held up by somebody's patterns.
Method: whole nodes without sockets, in virtual time."""
import pytest

from angarium.core.destination.directory import COST_MAX, OUTDATED_MAX
from angarium.core.destination.events import DestinationSettings
from angarium.core.session.events import SessionSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, PatternSyntax, Start
from angarium.core.wire.packing import pack
from tests.unit.core.core_node import Client, Node

TOPIC = DestinationKind.TOPIC


def create(client: Client, *names: str, kind: DestinationKind = TOPIC) -> None:
    for name in names:
        asked = {"name": name, "kind": kind.name.lower()}
        client.send(frames.Request(1, "destination.create", asked), session=0)
        assert not client.last(frames.Reply).code


def watch(client: Client, pattern: str = "orders.*", kind: DestinationKind = TOPIC, *, number: int = 1) -> None:
    client.send(frames.Watch(number, pattern, PatternSyntax.GLOB, kind))
    client.node.advance(1.0)


def found(client: Client, *, created: bool) -> list[str]:
    told = [frame for frame in client.received(frames.WatchFound) if frame.created == created]
    return sorted(name for frame in told for name in frame.names)


def test_those_that_exist_are_told_and_then_each_new_one() -> None:
    node = Node()
    client = node.connect_with_session()
    create(client, "orders.eu", "orders.us", "orders", "other.eu", "orders.eu.west")
    create(client, "orders.queue", kind=DestinationKind.QUEUE)
    watch(client)
    assert found(client, created=False) == ["orders.eu", "orders.us"]
    assert [frame.complete for frame in client.received(frames.WatchFound)][-1]
    create(client, "orders.new", "more")
    node.advance(0.5)
    assert found(client, created=True) == ["orders.new"]


def test_both_kinds_can_be_watched_for_and_are_told_apart() -> None:
    node = Node()
    client = node.connect_with_session()
    create(client, "a.topic")
    create(client, "a.queue", kind=DestinationKind.QUEUE)
    watch(client, "a.*", DestinationKind.ANY)
    told = {frame.destination_kind: frame.names for frame in client.received(frames.WatchFound) if frame.names}
    assert told == {TOPIC: ["a.topic"], DestinationKind.QUEUE: ["a.queue"]}


def test_a_new_topic_keeps_what_is_published_until_its_watcher_has_come() -> None:
    node = Node()
    client, other = node.connect_with_session(), node.connect_with_session()
    watch(client)
    other.send(frames.ProducerOpen(1, "orders.new", TOPIC))
    producer = other.last(frames.ProducerOpened).identity
    other.send_with(frames.Publish(1), pack(producer, 1, 0, [b"first"]))
    node.advance(0.9)
    client.send(frames.ConsumerOpen(1, "orders.new", TOPIC, start=Start.OLDEST, credit=10, existing=True))
    assert client.bodies == [b"first"]


def test_without_watchers_a_topic_keeps_nothing() -> None:
    node = Node()
    client = node.connect_with_session()
    watch(client)
    client.send(frames.WatchClose(1))
    create(client, "orders.new")
    assert node.world.manager.deadline() is None


def test_it_ends_with_its_session_and_is_asked_again() -> None:
    node = Node()
    client = node.connect_with_session()
    watch(client)
    client.lose()
    other = node.connect_with_session()
    other.send(frames.ProducerOpen(1, "orders.meanwhile", TOPIC))
    other.send_with(frames.Publish(1), pack(other.last(frames.ProducerOpened).identity, 1, 0, [b"kept"]))
    again = node.connect()
    again.open_session(identity=client.identity)
    watch(again)
    assert found(again, created=False) == ["orders.meanwhile"]
    again.send(frames.ConsumerOpen(1, "orders.meanwhile", TOPIC, start=Start.OLDEST, credit=10))
    assert again.bodies == [b"kept"], "it may come back within the grace time"


@pytest.mark.parametrize("pattern", ["a..b", "_TEMP.*", "", "x" * 2_000])
def test_what_cannot_be_watched_is_refused(pattern: str) -> None:
    client = Node().connect_with_session()
    watch(client, pattern)
    assert client.last(frames.WatchClosed).code in ("bad-pattern", "reserved-name")
    watch(client, "fine")
    assert not client.closed


def test_limits_of_a_session_and_of_the_node() -> None:
    node = Node(SessionSettings(watches_max=2), destination_settings=DestinationSettings(watches_max=3))
    first, second = node.connect_with_session(), node.connect_with_session()
    for number in (1, 2, 3):
        watch(first, number=number)
    assert [frame.watch for frame in first.received(frames.WatchClosed)] == [3]
    watch(second, number=1)
    watch(second, number=2)
    assert second.last(frames.WatchClosed).code == "too-many-watches"
    first.send(frames.WatchClose(1))
    watch(second, number=2)
    assert len(second.received(frames.WatchClosed)) == 1


def test_a_number_in_use_is_an_error() -> None:
    client = Node().connect_with_session()
    watch(client)
    watch(client)
    assert client.failure == "number-in-use"


def test_a_consumer_of_what_has_to_exist_creates_nothing() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.ConsumerOpen(1, "gone", TOPIC, existing=True), frames.ProducerOpen(1, "other", TOPIC))
    assert client.last(frames.ConsumerClosed).code == "unknown-destination"
    assert node.world.manager.find("gone") is None and node.world.manager.find("other") is not None


def test_a_costly_pattern_is_matched_in_small_portions() -> None:
    node = Node()
    client = node.connect_with_session()
    create(client, *(f"topic{number}" for number in range(100)))
    client.send(frames.Watch(1, "(?:a?){120}topic.*", PatternSyntax.REGEX, TOPIC))
    directory = node.world.manager._directory
    ticks = 0
    while directory.deadline() is not None:
        directory.tick(node.world.now + ticks)
        ticks += 1
    cost = next(iter(directory._entries.values())).pattern.cost
    assert ticks >= 100 * cost // (COST_MAX + cost) > 1


def test_watches_that_are_closed_again_at_once_leave_nothing_to_do() -> None:
    node = Node()
    client = node.connect_with_session()
    create(client, "orders.eu")
    client.send(frames.Watch(1, "orders.*", PatternSyntax.GLOB, TOPIC))
    for _ in range(1_000):
        client.send(frames.Watch(2, "*.eu", PatternSyntax.GLOB, TOPIC), frames.WatchClose(2))
    assert len(node.world.manager._directory._work) <= 2 * 2 + OUTDATED_MAX + 1
    node.advance(1.0)
    assert found(client, created=False) == ["orders.eu"]

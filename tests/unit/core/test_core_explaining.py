"""Goal: of every reason for which messages are not delivered, `destination.explain` names the right one.
Method: one small world for each reason; the sentence is checked for what a person needs from it."""
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns


def explain(world: World, name: str = "q") -> dict[str, Any]:
    reply = world.request("destination.explain", name=name)
    assert not reply.code, reply.reason
    assert isinstance(reply.result, dict)
    return reply.result


def opened(world: World, queue: int, **options: Any) -> bytes:
    """A consumer with options that `World.consumer` does not know; its session."""
    session = world.session()
    world.frame(session, queue, frames.ConsumerOpen(1, "q", DestinationKind.ANY, **{"credit": 10, **options}))
    return session


def nothing_waiting(world: World) -> None:
    world.consumer(world.queue_with(2)).settle((0, 2))


def never_sent(world: World) -> None:
    world.locate("q")


def rejected(world: World) -> None:
    world.consumer(world.queue_with(2)).reject((0, 2))


def no_consumer(world: World) -> None:
    world.queue_with(3)


def one_held(world: World) -> None:
    world.consumer(world.queue_with(1))


def one_excluded_by_the_one_that_is_ready(world: World) -> None:
    queue = world.queue_with(2)
    world.consumer(queue, credit=1)
    opened(world, queue, selector="region = 'EU'")


def no_credit(world: World) -> None:
    world.consumer(world.queue_with(5), credit=2)


def stalled(world: World) -> None:
    consumer = world.consumer(queue := world.locate("q"))
    world.stall(consumer.session, True)
    world.producer(queue).publish(b"x")


def opening(world: World) -> None:
    """Who is attached has to be durable before anything is delivered."""
    queue = world.queue_with(3)
    world.auto = False
    opened(world, queue)


def selectors_exclude(world: World) -> None:
    opened(world, world.queue_with(3), selector="region = 'EU'")


def delayed(world: World) -> None:
    world.producer(world.locate("q")).publish(b"x", columns=MessageColumns(dues_ms=[world.wall_ms + 60_000]))


def delayed_beyond_any_calendar(world: World) -> None:
    world.producer(world.locate("q")).publish(b"x", columns=MessageColumns(dues_ms=[(1 << 63) - 1]))


def redelivery_delayed_beyond_any_calendar(world: World) -> None:
    world.request("destination.create", name="q", kind="queue", redelivery_delay_ms=10**15)
    world.consumer(world.queue_with(2)).release((0, 2))


def redelivery_delayed(world: World) -> None:
    world.request("destination.create", name="q", kind="queue", redelivery_delay_ms=5_000)
    world.consumer(world.queue_with(2)).release((0, 2))


def held(world: World) -> None:
    world.consumer(world.queue_with(4))


def in_transaction(world: World) -> None:
    world.consumer(world.queue_with(4), transacted=True)


def awaiting_session(world: World) -> None:
    consumer = world.consumer(world.queue_with(2))
    world.end(consumer.session, closed=False)


def awaiting_after_restart(world: World) -> World:
    world.consumer(world.queue_with(2))
    return world.restarted()


def resuming(world: World) -> None:
    consumer = world.consumer(world.queue_with(2))
    world.end(consumer.session, closed=False)
    consumer.resume([], credit=None)


def exclusive_busy(world: World) -> None:
    queue = world.queue_with(3)
    opened(world, queue, exclusive=True, credit=1)
    world.consumer(queue)


def group_busy(world: World) -> None:
    queue = world.locate("q")
    header = msgspec.msgpack.encode({"group": "g"})
    world.consumer(queue, credit=1)
    producer = world.producer(queue)
    for _ in range(3):
        producer.publish(b"x", columns=MessageColumns(headers=[header], announcements=int(Columns.GROUP)))
    world.consumer(queue)


def in_flight_max(world: World) -> World:
    world = World(DestinationSettings(in_flight_max=2))
    world.consumer(world.queue_with(5))
    return world


def disk_full(world: World) -> None:
    producer = world.producer(world.locate("q"))
    world.block("no space left on /data")
    producer.publish(b"x")


def disk_full_and_empty(world: World) -> None:
    world.locate("q")
    world.block("no space left on /data")


def node_full(world: World) -> World:
    world = World(DestinationSettings(node_messages_max=2))
    world.queue_with(2, name="other")
    world.locate("q")
    return world


def unwritten(world: World) -> None:
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(b"x")


def dying(world: World) -> None:
    queue = world.queue_with(2)
    consumer = world.consumer(queue)
    world.auto = False
    consumer.reject((0, 2))


def destination_full(world: World) -> None:
    world.request("destination.create", name="q", kind="queue", messages_max=2)
    world.queue_with(3)


Scene = Callable[[World], World | None]


@pytest.mark.parametrize(
    ("scene", "code", "said"),
    [
        (nothing_waiting, "nothing-waiting", ["nothing is waiting: all that was sent is settled"]),
        (never_sent, "nothing-waiting", ["nothing is waiting: nothing was ever sent here"]),
        (rejected, "nothing-waiting", ["nothing is waiting", "2 messages rejected since the broker started"]),
        (no_consumer, "no-consumer", ["3 messages wait", "no consumer"]),
        (no_credit, "no-credit", ["3 messages wait", "only consumer", "2 unsettled", "no credit"]),
        (stalled, "stalled", ["1 message waits", "does not read"]),
        (opening, "opening", ["3 messages wait", "being opened"]),
        (selectors_exclude, "selectors-exclude", ["3 messages wait", "selector", "3 were looked at"]),
        (one_held, "held", ["1 message is held by 1 consumer"]),
        (
            one_excluded_by_the_one_that_is_ready, "selectors-exclude",
            ["the selector of the one that is ready excludes it (1 was looked at)", "1 consumer is not ready"],
        ),
        (delayed, "delayed", ["1 message is delayed", "2023-11-14 22:31:00 UTC"]),
        (delayed_beyond_any_calendar, "delayed", ["until 9,223,372,036,854,775,807 ms after 1970"]),
        (redelivery_delayed_beyond_any_calendar, "redelivery-delayed", ["all 2 messages", "ms after 1970"]),
        (redelivery_delayed, "redelivery-delayed", ["all 2 messages", "2023-11-14 22:30:05 UTC"]),
        (held, "held", ["all 4 messages are held", "1 consumer", "ID:", "unsettled, some of it since 20"]),
        (in_transaction, "in-transaction", ["all 4 messages are held", "ID:", "in a transaction", "since 20"]),
        (awaiting_session, "awaiting-session", ["all 2 messages", "a session that was cut off", "2.0 s"]),
        (awaiting_after_restart, "awaiting-session", ["all 2 messages", "cut off", "2.0 s"]),
        (resuming, "resuming", ["all 2 messages", "have come back"]),
        (exclusive_busy, "exclusive-busy", ["2 messages wait", "exclusive", "the other is not served"]),
        (group_busy, "group-busy", ["2 messages wait", "2 of 2", "'g'", "no credit"]),
        (in_flight_max, "in-flight-max", ["3 messages wait", "in_flight_max"]),
        (disk_full, "disk-full", ["1 message cannot be written", "no space left on /data"]),
        (disk_full_and_empty, "disk-full", ["nothing is waiting", "no space left on /data"]),
        (node_full, "node-full", ["nothing is waiting", "node_messages_max is 2"]),
        (unwritten, "unwritten", ["1 message is being written"]),
        (dying, "dying", ["all 2 messages", "dead message queue"]),
        (destination_full, "no-consumer", ["3 messages wait", "destination-full", "messages_max is 2"]),
    ],
)
def test_the_reason_is_the_right_one(scene: Scene, code: str, said: list[str]) -> None:
    world = World()
    world = scene(world) or world
    session = world.session()
    world.frame(session, 0, frames.Request(1, "destination.explain", {"name": "q"}))
    while world.complete_read():
        pass
    reply = world.last(session, frames.Reply)
    found: dict[str, Any] = reply.result
    assert found["code"] == code, found
    assert "\n" not in found["sentence"] and "all 1 " not in found["sentence"]
    for words in said:
        assert words in found["sentence"], found["sentence"]
    waiting = found["figures"]["waiting"]
    parts = ("free", "held", "parked", "redelivery_delayed", "locked", "dying")
    assert waiting == sum(found["figures"][part] for part in parts), "the figures add up"


def test_a_topic_has_a_sentence_for_each_subscription() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    assert explain(world, "t")["code"] == "no-subscription"
    assert "are not kept" in explain(world, "t")["sentence"]
    world.request("destination.create", name="kept", kind="topic", retain_s=60)
    found = explain(world, "kept")
    assert found["code"] == "no-subscription" and "are retained in its log" in found["sentence"]
    world.consumer(topic, subscription="slow", credit=0)
    fast = world.consumer(topic, subscription="fast")
    world.consumer(topic, subscription="away").close()
    world.producer(topic).publish(b"1", b"2")
    fast.settle((0, 2))
    found = explain(world, "t")
    assert {s["name"]: s["code"] for s in found["subscriptions"]} == {
        "slow": "no-credit", "fast": "nothing-waiting", "away": "no-consumer",
    }  # fmt: skip
    assert found["code"] in ("no-credit", "no-consumer"), "who is furthest behind speaks for the topic"
    assert found["subscription_count"] == 3


def coloured(world: World, topic: int, *regions: str) -> None:
    producer = world.producer(topic)
    producer.publish(*[b"x" for _ in regions], columns=columns(properties=[{"region": region} for region in regions]))
    producer.close()


@pytest.mark.parametrize("name", ["", "durable"])
def test_what_a_topics_subscription_does_not_select_is_told(name: str) -> None:
    """Whether it looked for itself, because it was behind, or an index over all selectors left it out."""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    session = opened(world, topic, selector="region = 'EU'", subscription=name, durable=bool(name))
    coloured(world, topic, "US", "US")
    coloured(world, topic, "US")
    (told,) = explain(world, "t")["subscriptions"]
    assert told["code"] == "selectors-exclude" and told["figures"]["unselected"] == 3
    assert "3 messages that came since it subscribed" in told["sentence"]
    assert "its selector excludes them" in told["sentence"]
    coloured(world, topic, "EU", "US")
    world.frame(session, topic, frames.Settle(1, 1, frames.Outcome.SETTLE, [(3, 4)]))
    (told,) = explain(world, "t")["subscriptions"]
    assert told["code"] == "nothing-waiting" and told["figures"]["unselected"] == 4
    assert "the rest is settled; 4 messages" in told["sentence"]


def test_what_a_subscription_that_was_behind_did_not_select_is_told() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    world.end(opened(world, topic, selector="region = 'EU'", subscription="s", durable=True), closed=True)
    coloured(world, topic, "US", "US")
    world = world.restarted()
    coloured(world, topic, "US")
    opened(world, topic, selector="region = 'EU'", subscription="s", durable=True)
    coloured(world, topic, "US")
    (told,) = explain(world, "t")["subscriptions"]
    assert told["code"] == "selectors-exclude" and told["figures"]["unselected"] >= 2


def test_explaining_changes_nothing_and_a_missing_destination_is_refused() -> None:
    world = World()
    selectors_exclude(world)
    before = {table: dict(records) for table, records in world.disk.tables.items()}
    assert explain(world) == explain(world)
    assert world.disk.tables == before
    assert world.request("destination.explain", name="missing").code == "unknown-destination"


def test_one_that_is_removed_while_it_is_explained() -> None:
    world = World()
    selectors_exclude(world)
    world.auto = False
    session = world.session()
    world.frame(session, 0, frames.Request(1, "destination.explain", {"name": "q"}))
    world.frame(world.session(), 0, frames.Request(1, "destination.remove", {"name": "q"}))
    world.run_disk()
    assert world.last(session, frames.Reply).code == "unknown-destination"

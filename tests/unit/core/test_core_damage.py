"""Goal: what has expired or cannot be read is taken out of the way, counted and freed, and the rest goes on, for every
subscription.
Method: one message manager; batches on its disk that expire, rot or vanish."""
import pytest

from angarium.core.destination.events import Level
from angarium.core.storage import Table, position_key
from angarium.core.wire import frames
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World

# -- expiry ----------------------------------------------------------------------------------------------------


def test_expired_messages_are_settled_instead_of_delivered() -> None:
    world = World()
    destination = world.locate("q")
    producer = world.producer(destination)
    now_ms = world.wall_ms
    expiries = [0, now_ms, now_ms + 1_000, now_ms - 1, now_ms + 60_000]
    producer.publish(*(b"m%d" % number for number in range(5)), columns=MessageColumns(expiries_ms=expiries))
    consumer = world.consumer(destination, credit=2)
    assert consumer.bodies == [b"m0", b"m2"]
    world.now += 2.0
    consumer.release((2, 3))
    consumer.credit(100)
    assert consumer.bodies == [b"m0", b"m2", b"m4"], "what expires while it waits is not delivered again"
    consumer.settle((0, 1), (4, 5))
    described = world.describe("q")
    assert (described["expired"], described["messages"]) == (3, 0)
    assert world.disk.batch_ends(destination) == []


def test_a_wholly_expired_backlog_is_freed_on_disk() -> None:
    world = World()
    destination = world.locate("q")
    producer = world.producer(destination)
    producer.publish(b"a", b"b", columns=MessageColumns(expiries_ms=[1, 1]))
    producer.publish(b"c")
    consumer = world.consumer(destination)
    assert consumer.deliveries == [(2, b"c", 0)]
    assert world.disk.batch_ends(destination) == [3]


# -- damage ------------------------------------------------------------------------------------------------------


def test_a_damaged_batch_is_set_aside_and_the_rest_goes_on() -> None:
    world = World()
    destination = world.queue_with(2, 2, 2)
    key = position_key(destination, 4)
    raw = world.disk.tables[Table.BATCH][key]
    world.disk.damaged.add(key)
    consumer = world.consumer(destination)
    assert consumer.positions == [0, 1, 4, 5]
    assert world.disk.tables[Table.DAMAGED] == {key: raw}
    assert world.disk.batch_ends(destination) == [2, 6]
    assert [(r.level, r.code) for r in world.reports] == [(Level.ERROR, "batch-damaged")]
    consumer.settle((0, 2), (4, 6))
    described = world.describe("q")
    assert (described["damaged"], described["messages"]) == (2, 0)
    world = world.restarted()
    world.advance(5)
    assert world.describe("q")["damaged"] == 2
    assert world.consumer(destination).positions == []


@pytest.mark.parametrize("missing", [2, 4, 6])
def test_a_missing_batch_is_reported_and_the_rest_goes_on(missing: int) -> None:
    world = World()
    destination = world.queue_with(2, 2, 2)
    del world.disk.tables[Table.BATCH][position_key(destination, missing)]
    consumer = world.consumer(destination)
    assert consumer.positions == [p for p in range(6) if not missing - 2 <= p < missing]
    assert [report.code for report in world.reports] == ["batch-damaged"]
    assert world.describe("q")["damaged"] == 2


def test_nothing_but_damage_ends_in_an_empty_queue() -> None:
    world = World()
    destination = world.queue_with(2, 2)
    world.disk.damaged.update([position_key(destination, 2), position_key(destination, 4)])
    consumer = world.consumer(destination)
    assert consumer.positions == []
    described = world.describe("q")
    assert (described["damaged"], described["messages"]) == (4, 0)
    assert world.disk.batch_ends(destination) == []
    world.producer(destination).publish(b"new")
    assert consumer.deliveries == [(4, b"new", 0)]


# Once: the key of a set-aside batch is the end of what was free of it, not of the batch: the damaged batch stays in the
# log, its bytes are filed under a position where no batch ends, and held positions between free ones count as damaged.
def test_a_damaged_batch_of_which_some_is_held_is_filed_under_its_own_end() -> None:
    world = World()
    destination = world.queue_with(6)
    first = world.consumer(destination, credit=6)
    first.release((0, 1))
    first.credit(0)
    first.release((3, 4))
    key = position_key(destination, 6)
    raw = world.disk.tables[Table.BATCH][key]
    world.disk.damaged.add(key)
    world.consumer(destination)
    assert world.disk.tables[Table.DAMAGED] == {key: raw}
    assert world.describe("q")["damaged"] == 2, "only what could not be delivered counts"
    first.settle((1, 3), (4, 6))
    assert first.settled[-1].lost == []
    assert world.describe("q")["messages"] == 0


def test_damage_in_a_topic_is_set_aside_for_every_subscription() -> None:
    world = World()
    topic = world.locate("t", frames.DestinationKind.TOPIC)
    fast = world.consumer(topic, subscription="fast", credit=2)
    slow = world.consumer(topic, subscription="slow", credit=1)
    waiting = world.consumer(topic, subscription="waiting", credit=0)
    passing = world.consumer(topic, credit=2)
    producer = world.producer(topic)
    producer.publish(b"m0", b"m1")
    producer.publish(b"m2", b"m3")
    producer.publish(b"m4", b"m5")
    world.disk.damaged.add(position_key(topic, 4))
    for consumer in (fast, slow, waiting, passing):
        consumer.credit(100)
    for consumer in (fast, slow, waiting, passing):
        assert consumer.positions == [0, 1, 4, 5], consumer.subscription
        consumer.settle((0, 2), (4, 6))
        assert consumer.settled[-1].lost == []
    assert [report.code for report in world.reports] == ["batch-damaged"]
    described = world.describe("t")
    assert (described["damaged"], described["messages"]) == (2, 0)
    assert world.disk.batch_ends(topic) == []

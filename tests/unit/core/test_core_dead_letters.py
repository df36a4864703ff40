"""What dies goes to the dead message queue with what happened to it; the move is one write, so that after any crash a
message is in exactly one of the two places."""
from collections.abc import Callable

import pytest

from angarium.core.destination.headers import read_map
from angarium.core.ids import message_id
from angarium.core.storage import Put, Table, position_key
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns, dead_letters, stored

HOUR_S = 3_600.0


def test_a_rejected_message_is_buried_with_where_it_was_and_why() -> None:
    world = World()
    queue = world.queue_with(3)
    consumer = world.consumer(queue)
    consumer.release((1, 2))
    consumer.reject((1, 2))
    ((body, letter),) = dead_letters(world)
    assert body == b"m1"
    assert letter == {
        "destination": "q", "subscription": "", "position": 1, "reason": "rejected", "deliveries": 2,
        "died_ms": world.wall_ms, "expiry_ms": 0,
    }  # fmt: skip
    assert world.describe("q")["messages"] == 2


def test_an_expired_message_is_buried_with_the_time_at_which_it_was_to_expire() -> None:
    world = World()
    queue = world.locate("q")
    expiry_ms = world.wall_ms + 1_000
    fields = columns(expiries_ms=[expiry_ms, 0, expiry_ms + int(HOUR_S) * 1_000])
    world.producer(queue).publish(b"soon", b"never", b"late", columns=fields)
    world.advance(2)
    assert world.consumer(queue).bodies == [b"never", b"late"]
    ((body, letter),) = dead_letters(world)
    assert (body, letter["reason"], letter["expiry_ms"], letter["deliveries"]) == (b"soon", "expired", expiry_ms, 0)
    assert expiry_ms <= letter["died_ms"] <= expiry_ms + 1_000


def test_a_dead_message_keeps_its_id_body_properties_headers_and_priority_and_expires_no_more() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    fields = columns(
        properties=[{"n": n} for n in range(3)], headers=[{"type": "t"}] * 3, priorities=[4, 9, 4],
        expiries_ms=[world.wall_ms + 10**6] * 3,
    )  # fmt: skip
    producer.publish(b"m0", b"m1", b"m2", columns=fields)
    consumer = world.consumer(queue)
    consumer.reject((0, 1), (1, 2))
    batches = stored(world, world.locate("_DMQ"))
    found = {
        batch.body(i): (
            message_id(batch.producer, batch.sequence(i)), read_map(batch.properties_of(i)),
            read_map(batch.headers_of(i))["type"], (batch.priorities() or b"\4" * batch.count)[i], batch.expiries_ms(),
        )
        for batch in batches for i in range(batch.count)
    }  # fmt: skip
    assert found == {
        b"m0": (message_id(producer.identity, 1), {"n": 0}, "t", 4, None),
        b"m2": (message_id(producer.identity, 3), {"n": 2}, "t", 4, None),
    }


def test_the_dead_can_be_consumed_and_a_rejected_dead_message_is_gone() -> None:
    world = World()
    consumer = world.consumer(world.queue_with(2))
    consumer.reject((0, 2))
    mourner = world.consumer(world.locate("_DMQ"))
    assert mourner.bodies == [b"m0", b"m1"]
    mourner.reject((0, 1))
    mourner.settle((1, 2))
    assert dead_letters(world) == [] and world.describe("_DMQ")["messages"] == 0


def test_each_durable_subscription_buries_for_itself_and_others_bury_nothing() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    named, nameless = world.consumer(topic, subscription="s"), world.consumer(topic)
    world.producer(topic).publish(b"m0")
    named.reject((0, 1))
    nameless.reject((0, 1))
    ((_, letter),) = dead_letters(world)
    assert letter["subscription"] == "s"


def test_the_move_is_one_write() -> None:
    world = World()
    queue = world.queue_with(2)
    consumer = world.consumer(queue)
    consumer.reject((0, 1))  # so that the dead message queue exists
    world.auto = False
    consumer.reject((1, 2))
    while world.disk.waiting or world.reads:
        graves = [w for w in world.disk.waiting if any(_is_batch(world, o, "_DMQ") for o in w.operations)]
        for write in graves:
            settles = [o for o in write.operations if o.table == Table.SUBSCRIPTION]
            assert len(settles) == 1, "appended there and settled here"
        assert world.complete_write() or world.complete_read()
    assert len(dead_letters(world)) == 2


def _is_batch(world: World, operation: object, name: str) -> bool:
    return (
        isinstance(operation, Put)
        and operation.table == Table.BATCH
        and int.from_bytes(operation.key[:8], "big") == _known(world, name)
    )


def _known(world: World, name: str) -> int:
    queue = world.manager.find(name)
    return 0 if queue is None else queue.identity


def _reject(world: World, queue: int) -> None:
    world.consumer(queue).reject((1, 3))


def _expire(world: World, queue: int) -> None:
    world.now += HOUR_S
    world.consumer(queue)


def _wear_out(world: World, queue: int) -> None:
    consumer = world.consumer(queue)
    for _ in range(2):
        consumer.release((1, 3))
        while world.complete_write() or world.complete_read():
            pass


@pytest.mark.parametrize("die", [_reject, _expire, _wear_out])
@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("kept", range(3))
def test_a_crash_between_any_two_writes_leaves_each_message_in_exactly_one_place(
    die: Callable[[World, int], None], steps: int, kept: int
) -> None:
    world = World()
    reply = world.request("destination.create", name="q", kind="queue", redeliveries_max=1)
    assert not reply.code, reply.reason
    queue = world.locate("q")
    soon = world.wall_ms + 1_000
    expiries = columns(expiries_ms=[0, soon, soon, 0]) if die is _expire else columns()
    world.producer(queue).publish(b"m0", b"m1", b"m2", b"m3", columns=expiries)
    world.auto = die is _wear_out
    die(world, queue)
    world.auto = False
    for _ in range(steps):
        if not (world.complete_write() or world.complete_read()):
            break
    world.disk.crash(kept)
    successor = World(world.settings, disk=world.disk, now=world.now + 10)
    successor._last_identity = 1_000
    successor.run_disk()
    successor.advance(HOUR_S)
    alive = successor.consumer(queue)
    dead = [body for body, _ in dead_letters(successor)]
    assert sorted(alive.bodies + dead) == [b"m0", b"m1", b"m2", b"m3"], (alive.bodies, dead)
    assert len(set(dead)) == len(dead) and set(dead) <= {b"m1", b"m2"}


def test_what_was_doomed_before_a_crash_is_buried_without_waiting_for_a_consumer() -> None:
    world = World()
    queue = world.queue_with(1)
    consumer = world.consumer(queue)
    world.auto = False
    consumer.reject((0, 1))
    while world.complete_write():
        pass  # the rejection is durable, the message has not been read for its burial
    world.auto = True
    world = world.restarted()
    assert [body for body, _ in dead_letters(world)] == [b"m0"]


def test_a_rejected_message_of_a_damaged_batch_is_set_aside_and_reported() -> None:
    world = World()
    queue = world.queue_with(2, 1)
    consumer = world.consumer(queue)
    world.disk.damaged.add(position_key(queue, 2))
    consumer.reject((0, 3))
    assert [body for body, _ in dead_letters(world)] == [b"m2"]
    assert [report.code for report in world.reports] == ["batch-damaged"]
    assert world.describe("q")["messages"] == 0 and world.disk.batch_ends(queue) == []


def test_a_rejected_message_that_is_not_stored_any_more_is_reported() -> None:
    world = World()
    queue = world.queue_with(2)
    consumer = world.consumer(queue)
    del world.disk.tables[Table.BATCH][position_key(queue, 2)]
    consumer.reject((0, 2))
    assert dead_letters(world) == [] and [report.code for report in world.reports] == ["batch-damaged"]
    assert world.describe("q")["messages"] == 0


def test_the_dead_are_buried_on_a_full_disk_too() -> None:
    """The move frees what it takes: it is written out of the reserve, in order with all settlements."""
    world = World()
    queue = world.queue_with(3)
    consumer = world.consumer(queue)
    world.block()
    consumer.reject((0, 2))
    assert [body for body, _ in dead_letters(world)] == [b"m0", b"m1"]
    world.unblock()
    world = world.restarted()
    world.advance(10)
    assert [body for body, _ in dead_letters(world)] == [b"m0", b"m1"]
    assert world.consumer(queue).bodies == [b"m2"]


def test_a_destination_that_buries_nothing_lets_the_dead_go() -> None:
    world = World()
    reply = world.request("destination.create", name="q", kind="queue", buries=False)
    assert not reply.code, reply.reason
    queue = world.locate("q")
    world.producer(queue).publish(b"m0")
    world.consumer(queue).reject((0, 1))
    assert dead_letters(world) == [] and world.describe("q")["messages"] == 0

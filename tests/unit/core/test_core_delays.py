"""Delivery delay: not before its time, soon after it, across restarts, once."""
from time import process_time

import msgspec
import pytest

from angarium.core.destination import delays
from angarium.core.destination.events import ClockStepped, DelayedRead, DestinationSettings, ReadDelayed
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns
from angarium.store.groups import encode as encode_group
from tests.unit.core.core_manager import WALL_MS_AT_ZERO, World


def delayed(world: World, *delays_s: float) -> MessageColumns:
    return MessageColumns(dues_ms=[world.wall_ms + int(delay * 1000) if delay else 0 for delay in delays_s])


def test_a_delayed_message_is_confirmed_at_once_and_delivered_when_it_is_due() -> None:
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    producer.publish(b"later", columns=delayed(world, 5.0))
    producer.publish(b"now")
    assert producer.confirmed == 2
    assert consumer.bodies == [b"now"]
    world.advance(4.9)
    assert consumer.bodies == [b"now"]
    world.advance(0.2)
    assert consumer.bodies == [b"now", b"later"]
    assert world.describe("q")["delayed"] == 0


def test_messages_of_one_batch_come_each_at_its_own_time() -> None:
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    producer.publish(b"3", b"0", b"1", b"2", b"1b", columns=delayed(world, 3, 0, 1, 2, 1))
    seen = []
    for _ in range(4):
        seen.append(list(consumer.bodies))
        world.advance(1.0)
    assert seen == [[b"0"], [b"0", b"1", b"1b"], [b"0", b"1", b"1b", b"2"], [b"0", b"1", b"1b", b"2", b"3"]]


def test_a_delay_survives_a_restart_and_what_became_due_meanwhile_comes_at_once() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(b"soon", b"late", columns=delayed(world, 10, 60))
    world = world.restarted(after_s=20.0)
    consumer = world.consumer(queue)
    world.advance(5.0)
    assert consumer.bodies == [b"soon"]
    assert world.describe("q")["delayed"] == 1
    world = world.restarted(after_s=1.0)
    consumer = world.consumer(queue)
    world.advance(40.0)
    assert b"late" in consumer.bodies
    assert world.describe("q")["delayed"] == 0


def test_a_crash_while_it_is_moved_leaves_it_in_exactly_one_place() -> None:
    for kept in (0, 1):
        world = World(auto=False)
        queue = 0
        world.auto = True
        queue = world.locate("q")
        world.producer(queue).publish(b"m", columns=delayed(world, 1.0))
        world.auto = False
        world.advance(1.5)
        assert world.complete_read()
        assert len(world.disk.waiting) == 1, "out of the table and into the log in one write"
        world.auto = True
        world = world.restarted(kept=kept, after_s=1.0)
        consumer = world.consumer(queue)
        world.advance(5.0)
        assert consumer.bodies == [b"m"]


def test_what_is_held_while_others_are_moved_is_not_lost_between_them() -> None:
    """Its time lies between theirs, and it became durable after the read that found them."""
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    producer.publish(b"1", b"3", columns=delayed(world, 1, 3))
    world.auto = False
    world.advance(1.0)  # they are being read
    producer.send(3, b"2", columns=delayed(world, 1))
    world.advance(2.5)
    assert world.complete_read()
    world.auto = True
    world.run_disk()
    world.advance(1.0)
    assert sorted(consumer.bodies) == [b"1", b"2", b"3"]


def test_a_delayed_message_that_expires_while_it_waits_is_not_delivered() -> None:
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    columns = MessageColumns(expiries_ms=[world.wall_ms + 1_000], dues_ms=[world.wall_ms + 2_000])
    producer.publish(b"m", columns=columns)
    world.advance(3.0)
    assert consumer.bodies == []
    assert world.describe("q")["expired"] == 1


def test_very_many_delayed_messages_are_moved_in_parts_and_none_is_lost() -> None:
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue, credit=100_000), world.producer(queue)
    bodies = [b"%06d" % number + bytes(5_000) for number in range(500)]
    for body in bodies:
        producer.publish(body, columns=delayed(world, 1.0))
    world.advance(10.0)
    assert sorted(consumer.bodies) == bodies


def test_what_is_moved_at_once_is_a_megabyte_or_one_batch() -> None:
    """Once both, where a small journal takes but little more than the longest frame."""
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    bodies = [bytes(delays.READ_BYTES_MAX // 2), b"short", bytes(3 * delays.READ_BYTES_MAX), b"last"]
    for number, body in enumerate(bodies):
        producer.publish(body, columns=delayed(world, 1.0 + number))
    world.auto = False
    world.advance(9.0)
    longest = 0
    while world.disk.waiting or world.reads:
        longest = max([longest, *(encode_group(write.operations, 0).body_bytes for write in world.disk.waiting)])
        world.complete_read() or world.complete_write()
    assert longest < 3 * delays.READ_BYTES_MAX + 2_000
    assert consumer.bodies == bodies
    assert world.describe("q")["delayed"] == 0


def test_a_batch_of_very_many_times_costs_no_look_at_every_message_for_each() -> None:
    """Once 8,000 times in one batch held the node up for seconds."""
    world = World(DestinationSettings(write_bytes_max=1 << 30))
    queue = world.locate("q")
    producer = world.producer(queue)
    count = 16_000
    dues_ms = [world.wall_ms + 1_000 + number % (count // 2) for number in range(count)]
    began = process_time()
    producer.publish(*[b"%d" % number for number in range(count)], columns=MessageColumns(dues_ms=dues_ms))
    assert process_time() - began < 3.0
    assert world.describe("q")["delayed"] == count


# -- the ids of deduplication --------------------------------------------------------------------------


def named(*names: str | None, header: str = "deduplication_id", announcement: int = 1 << 17) -> MessageColumns:
    headers = [msgspec.msgpack.encode({header: name}) if name is not None else b"" for name in names]
    return MessageColumns(headers=headers, announcements=announcement)


def test_a_known_deduplication_id_is_confirmed_and_dropped() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    first, second = world.producer(queue), world.producer(queue)
    first.publish(b"a", b"b", b"plain", columns=named("1", "2", None))
    second.publish(b"again", b"c", b"c again", columns=named("2", "3", "3"))
    assert second.confirmed == 3
    assert consumer.bodies == [b"a", b"b", b"plain", b"c"]
    second.publish(b"1 again", columns=named("1"))
    assert second.confirmed == 4
    assert consumer.bodies == [b"a", b"b", b"plain", b"c"]


@pytest.mark.parametrize(("header", "announcement"), [("deduplication_id", 1 << 17), ("last_value_key", 1 << 18)])
def test_names_that_begin_alike_are_two_and_one_too_long_is_refused_not_cut(header: str, announcement: int) -> None:
    world = World()
    assert not world.request("destination.create", name="q", kind="queue", last_value=True).code
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    longest = ["é" * 200, "é" * 199 + "ab"]
    producer.publish(b"1", b"2", columns=named(*longest, header=header, announcement=announcement))
    assert consumer.bodies == [b"1", b"2"]
    producer.publish(b"3", b"4", columns=named("x", "x" * 401, header=header, announcement=announcement))
    refusal = world.last(producer.session, frames.Refuse)
    assert (refusal.first, refusal.last, refusal.code) == (3, 4, "bad-header")
    assert f"sequence 4: {header} of 401 bytes exceeds 400" in refusal.reason
    producer.publish(b"5", columns=named("x", header=header, announcement=announcement))
    assert consumer.bodies == [b"1", b"2", b"5"]


def test_deduplication_ids_survive_a_restart_and_the_oldest_are_forgotten() -> None:
    world = World(DestinationSettings(deduplication_ids_max=3))
    queue = world.locate("q")
    world.producer(queue).publish(b"1", b"2", b"3", b"4", columns=named("1", "2", "3", "4"))
    world = world.restarted()
    consumer = world.consumer(queue)
    world.producer(queue).publish(b"4 again", b"2 again", b"1 again", columns=named("4", "2", "1"))
    assert consumer.bodies[-1:] == [b"1 again"]
    assert b"4 again" not in consumer.bodies
    assert b"2 again" not in consumer.bodies


# -- last values ---------------------------------------------------------------------------------------


def test_of_messages_with_one_key_only_the_last_is_kept() -> None:
    world = World()
    world.request("destination.create", name="prices", kind="queue", last_value=True)
    queue = world.locate("prices")
    producer = world.producer(queue)
    for price in (b"1.10", b"1.11", b"1.12"):
        producer.publish(price, columns=named("EURUSD", header="last_value_key", announcement=1 << 18))
    producer.publish(b"150", columns=named("USDJPY", header="last_value_key", announcement=1 << 18))
    assert world.describe("prices")["messages"] == 2
    world = world.restarted()
    producer = world.producer(queue)
    producer.publish(b"1.13", columns=named("EURUSD", header="last_value_key", announcement=1 << 18))
    consumer = world.consumer(queue)
    assert consumer.bodies == [b"150", b"1.13"]


def test_a_value_that_somebody_holds_is_not_taken_away() -> None:
    world = World()
    world.request("destination.create", name="prices", kind="queue", last_value=True)
    queue = world.locate("prices")
    consumer, producer = world.consumer(queue, credit=1), world.producer(queue)
    for price in (b"1.10", b"1.11", b"1.12"):
        producer.publish(price, columns=named("EURUSD", header="last_value_key", announcement=1 << 18))
    consumer.settle((0, 1))
    assert consumer.settled[-1].lost == []
    consumer.credit(10)
    assert consumer.bodies == [b"1.10", b"1.12"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["released", "cut"])
def test_a_value_that_was_superseded_while_somebody_held_it_does_not_come_back(how: str, restarts: bool) -> None:
    world = World()
    world.request("destination.create", name="prices", kind="queue", last_value=True)
    queue = world.locate("prices")
    consumer, producer = world.consumer(queue, credit=1), world.producer(queue)
    for price in (b"1.10", b"1.11", b"1.12"):
        producer.publish(price, columns=named("EURUSD", header="last_value_key", announcement=1 << 18))
    assert consumer.bodies == [b"1.10"]
    if how == "released":
        consumer.release((0, 1))
    world.end(consumer.session, closed=how == "released")
    if restarts:
        world = world.restarted()
    world.advance(1_000)
    after = world.consumer(queue)
    assert after.bodies == [b"1.12"]
    after.settle((2, 3))
    assert world.describe("prices")["messages"] == 0


def test_a_value_is_not_superseded_by_one_that_is_not_durable_yet() -> None:
    world = World()
    world.request("destination.create", name="prices", kind="queue", last_value=True)
    queue = world.locate("prices")
    consumer, producer = world.consumer(queue, credit=1), world.producer(queue)
    producer.publish(b"1.10", columns=named("EURUSD", header="last_value_key", announcement=1 << 18))
    world.auto = False
    producer.publish(b"1.11", columns=named("EURUSD", header="last_value_key", announcement=1 << 18))
    consumer.release((0, 1))
    other = world.consumer(queue)
    while world.complete_read():
        pass
    consumer.credit(2)
    while world.complete_read():
        pass
    assert consumer.bodies == [b"1.10", b"1.10"]
    world.auto = True
    world.run_disk()
    assert other.bodies + consumer.bodies == [b"1.11", b"1.10", b"1.10"]


def test_fewer_ids_and_keys_than_before_are_remembered_from_the_next_start_on() -> None:
    for fewer in (3, 7):
        world = World(DestinationSettings(deduplication_ids_max=5, last_value_keys_max=5))
        world.request("destination.create", name="q", kind="queue", last_value=True)
        queue = world.locate("q")
        names = [str(number) for number in range(12)]
        producer = world.producer(queue)
        for header, announcement in (("deduplication_id", 1 << 17), ("last_value_key", 1 << 18)):
            for name in names:
                producer.publish(b"x", columns=named(name, header=header, announcement=announcement))
        less = DestinationSettings(deduplication_ids_max=fewer, last_value_keys_max=fewer)
        world = world.restarted(settings=less)
        remembered = min(5, fewer)
        assert len(world.destination(queue).publishing.window) == remembered
        records = world.disk.records_of(queue)
        assert len(records[Table.DEDUPLICATION]) == len(records[Table.LAST_VALUE]) == remembered
        producer = world.producer(queue)
        producer.publish(b"y", columns=named("new"))
        world = world.restarted()
        before = world.describe("q")["messages"]
        known = [*names[-remembered:], "new"][-fewer:]
        world.producer(queue).publish(*[b"again" for _ in known], columns=named(*known))
        assert world.describe("q")["messages"] == before, (fewer, known)


def test_what_was_due_before_it_was_durable_comes_when_it_is() -> None:
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    world.auto = False  # the disk is slow
    producer.publish(b"soon", columns=delayed(world, 0.01))
    world.advance(1.0)
    assert not world.reads, "there is nothing to be found yet"
    world.run_disk()
    world.advance(1.0)
    world.run_disk()
    assert consumer.bodies == [b"soon"]


def test_what_becomes_durable_during_a_read_is_waited_for() -> None:
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    producer.publish(b"first", columns=delayed(world, 1.0))
    world.auto = False
    world.advance(1.5)
    read = world.reads.popleft()
    assert isinstance(read, ReadDelayed)
    found = world.disk.read_delayed(read)
    producer.publish(b"second", columns=delayed(world, 1.0))
    world.run_disk()
    world.tell(DelayedRead(read.token, found))
    world.auto = True
    world.run_disk()
    assert consumer.bodies == [b"first"]
    world.advance(2.0)
    assert consumer.bodies == [b"first", b"second"]


def test_a_delayed_message_goes_to_the_subscriptions_that_are_there_when_it_is_due() -> None:
    """Different from 7.9, where those count that are there when it is sent."""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    early = world.consumer(topic, subscription="early")
    columns = MessageColumns(dues_ms=[world.wall_ms + 5_000])
    world.producer(topic).publish(b"later", columns=columns)
    between = world.consumer(topic, subscription="between")
    early.close(unsubscribe=True)
    world.advance(5.1)
    assert (early.bodies, between.bodies) == ([], [b"later"])


def test_what_is_not_yet_due_is_not_browsed() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"now", b"later", columns=MessageColumns(dues_ms=[0, world.wall_ms + 5_000]))
    assert sum(part["count"] for part in world.request("destination.browse", name="q").result["parts"]) == 1
    world.advance(5.1)
    assert sum(part["count"] for part in world.request("destination.browse", name="q").result["parts"]) == 2


def test_a_due_time_counts_from_the_sending_and_not_from_the_commit() -> None:
    """What a transaction sends carries the time at which it is due, whenever it is committed."""
    world = World()
    queue = world.locate("q")
    consumer, producer = world.consumer(queue), world.producer(queue)
    due_ms = world.wall_ms + 1_000
    world.advance(3.0)
    producer.publish(b"committed late", columns=MessageColumns(dues_ms=[due_ms]))
    assert consumer.bodies == [b"committed late"]


def test_a_purge_leaves_what_is_not_yet_due() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(b"now", b"later", columns=delayed(world, 0, 5))
    assert world.request("destination.purge", name="q").result == {"purged": 1}
    world.advance(6)
    assert world.consumer(queue).bodies == [b"later"]


def test_a_clock_that_is_set_forward_or_back_moves_delays_and_expiries() -> None:
    for step_s, waits_s in ((60.0, 40.0), (-60.0, 160.0)):
        world = World()
        queue = world.locate("q")
        consumer, producer = world.consumer(queue), world.producer(queue)
        producer.publish(b"later", columns=delayed(world, 100))
        held = world.locate("unconsumed")
        expiring = MessageColumns(expiries_ms=[world.wall_ms + 100_000])
        world.producer(held).publish(b"expires", columns=expiring)
        world.tell(ClockStepped(WALL_MS_AT_ZERO + step_s * 1000))
        world.advance(waits_s - 1)
        assert consumer.bodies == [] and world.describe("unconsumed")["messages"] == 1
        world.advance(3)
        assert consumer.bodies == [b"later"] and world.describe("unconsumed")["messages"] == 0

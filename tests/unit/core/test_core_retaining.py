"""Goal: what is settled stays as long as it is to be retained, no longer, over restarts, and in nobody's way."""
import random

import pytest

from angarium.core.destination.gauge import ByteGauge
from angarium.core.destination.retaining import LOOK_S, MARKS
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Start
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World
from tests.unit.core.test_core_log_reading import whole


def retaining(world: World, kind: str = "queue", **options: int | str) -> int:
    reply = world.request("destination.create", name="q", kind=kind, **options)
    assert not reply.code, reply.reason
    return world.locate("q", DestinationKind[kind.upper()])


def stored(world: World) -> list[int]:
    return [position for position, _ in whole(world)]


def test_settled_messages_stay_for_readers_alone() -> None:
    world = World()
    queue = retaining(world, retain_s=3_600)
    world.producer(queue).publish(b"a", b"b", b"c")
    consumer = world.consumer(queue)
    consumer.settle((0, 3))
    world.advance(10)
    assert stored(world) == [0, 1, 2]
    described = world.describe("q")
    assert (described["messages"], described["retained"]) == (0, 3)
    assert world.consumer(queue).bodies == [], "they are not delivered again"
    assert not world.request("destination.browse", name="q").result["parts"], "nor waiting"


def test_without_options_nothing_is_retained() -> None:
    world = World()
    queue = world.queue_with(3)
    world.consumer(queue).settle((0, 3))
    assert stored(world) == []
    world.rest()
    assert world.manager.deadline() is None
    assert not world.disk.tables[Table.BATCH]


def test_time_frees_what_has_come_before() -> None:
    world = World()
    queue = retaining(world, retain_s=600)
    producer, consumer = world.producer(queue), world.consumer(queue)
    for number in range(120):
        producer.publish(b"%d" % number)
        consumer.settle((number, number + 1))
        world.advance(10)
        kept = stored(world)
        # Everything of the last 600 s, and no more than of a mark's time, a look and a second more.
        assert kept == list(range(kept[0], number + 1))
        assert kept[0] <= max(0, number - 58)
        assert kept[0] >= number - (600 + 600 / MARKS + 2 * LOOK_S) / 10 - 2
    world.advance(700)
    assert stored(world) == [] and not world.disk.tables[Table.BATCH]


def test_what_somebody_has_not_settled_is_never_freed() -> None:
    world = World()
    queue = retaining(world, retain_s=5, retain_messages=1, retain_bytes=1)
    world.producer(queue).publish(*[b"x"] * 10)
    consumer = world.consumer(queue)
    consumer.settle((0, 4))
    world.advance(1_000)
    assert stored(world) == [4, 5, 6, 7, 8, 9]
    consumer.settle((4, 9))
    world.advance(LOOK_S)
    assert stored(world) == [9]


def test_a_number_of_messages_is_kept() -> None:
    world = World()
    queue = retaining(world, retain_messages=5)
    producer, consumer = world.producer(queue), world.consumer(queue)
    for number in range(20):
        producer.publish(b"x")
        consumer.settle((number, number + 1))
    world.advance(LOOK_S)
    assert stored(world) == [15, 16, 17, 18, 19]


def test_a_number_of_bytes_is_kept() -> None:
    world = World()
    queue = retaining(world, retain_bytes=10_000)
    producer, consumer = world.producer(queue), world.consumer(queue)
    for number in range(20):
        producer.publish(bytes(1_000 - 72))
        consumer.settle((number, number + 1))
    world.advance(LOOK_S)
    assert stored(world) == list(range(10, 20))
    assert world.describe("q")["bytes"] == 10_000


def test_each_priority_has_the_limits_for_itself() -> None:
    world = World()
    queue = retaining(world, retain_messages=2)
    world.producer(queue).publish(*[b"x"] * 6, columns=MessageColumns(priorities=[4, 9, 4, 9, 4, 9]))
    consumer = world.consumer(queue)
    consumer.settle(*((position, position + 1) for position in consumer.positions))
    world.advance(LOOK_S)
    log = world.destination(queue).log
    assert [lane.next - lane.first for lane in log.order] == [2, 2]


def test_a_topic_retains_what_nobody_subscribed_to_and_a_late_subscriber_gets_it() -> None:
    world = World()
    topic = retaining(world, "topic", retain_s=60)
    world.advance(10)
    world.producer(topic).publish(b"early")
    assert [body for _, body in whole(world)] == [b"early"]
    assert world.consumer(topic).bodies == []
    late = world.consumer(topic, subscription="late", start=Start.OLDEST)
    assert late.bodies == [b"early"]


def test_over_a_restart_they_stay_and_time_goes_on() -> None:
    world = World()
    queue = retaining(world, retain_s=100)
    world.producer(queue).publish(b"a", b"b")
    consumer = world.consumer(queue)
    consumer.settle((0, 2))
    consumer.close()
    world.advance(50)
    world = world.restarted(after_s=10)
    assert stored(world) == [0, 1]
    assert world.consumer(queue).bodies == [], "what is settled stays settled"
    world.advance(30)
    assert stored(world) == [0, 1]
    world.advance(30)
    assert stored(world) == []


def test_what_was_not_marked_before_a_crash_counts_from_the_start() -> None:
    world = World()
    queue = retaining(world, retain_s=100)
    consumer = world.consumer(queue)
    world.producer(queue).publish(b"a")
    consumer.settle((0, 1))
    world = world.restarted(after_s=500)
    world.advance(50)
    assert stored(world) == [0]
    world.advance(60)
    assert stored(world) == []


def test_limits_count_only_what_is_not_settled() -> None:
    world = World()
    queue = retaining(world, retain_s=3_600, messages_max=5, bytes_max=2_000)
    producer, consumer = world.producer(queue), world.consumer(queue)
    for number in range(20):
        producer.publish(bytes(400))
        consumer.settle((number, number + 1))
    assert not world.received(producer.session, frames.Block)
    assert len(stored(world)) == 20


def test_limits_of_a_topic_count_only_what_its_slowest_subscriber_has_to_settle() -> None:
    world = World()
    topic = retaining(world, "topic", retain_s=3_600, messages_max=5)
    consumer = world.consumer(topic, subscription="s")
    producer = world.producer(topic)
    for number in range(20):
        producer.publish(b"x")
        consumer.settle((number, number + 1))
    assert not world.received(producer.session, frames.Block)
    producer.publish(*[b"x"] * 6)
    assert world.received(producer.session, frames.Block)


def test_purging_takes_what_is_retained_too() -> None:
    world = World()
    queue = retaining(world, retain_s=3_600)
    world.producer(queue).publish(b"a", b"b", b"c")
    world.consumer(queue, credit=1).settle((0, 1))
    assert world.request("destination.purge", name="q").result == {"purged": 2}
    assert stored(world) == [] and not world.disk.tables[Table.BATCH]


def test_options_may_change_while_it_runs() -> None:
    world = World()
    queue = world.queue_with(2)
    assert not world.request("destination.alter", name="q", retain_messages=10).code
    world.consumer(queue).settle((0, 2))
    world.advance(5)
    assert stored(world) == [0, 1]
    assert not world.request("destination.alter", name="q", retain_messages=0).code
    world.advance(LOOK_S)
    assert stored(world) == []
    world.rest()
    assert world.manager.deadline() is None


def test_removed_ones_are_forgotten() -> None:
    world = World()
    retaining(world, retain_s=1)
    world.request("destination.remove", name="q")
    world.advance(5)
    assert world.manager.deadline() is None
    assert not world.disk.tables[Table.LOG]


@pytest.mark.parametrize("seed", range(20))
def test_the_gauge_finds_where_the_last_bytes_begin(seed: int) -> None:
    chance, gauge, ends = random.Random(seed), ByteGauge(0), [0]
    for _ in range(chance.choice((1, 10, 100))):
        ends.append(ends[-1] + chance.randrange(1, 9))
        gauge.add(ends[-1], chance.randrange(1, 1_000))
    gauge.free(chance.randrange(0, ends[-1] + 1))
    for limit in (0, 1, gauge.total // 2, max(0, gauge.total - 1), gauge.total, gauge.total + 5):
        position = gauge.latest(limit)
        assert gauge.total_from(position) <= limit
        if position > 0 and limit < gauge.total:
            assert gauge.total_from(position - 1) >= limit, "no more is freed than has to be"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_what_is_needed_or_retained_is_there_as_it_was_sent(seed: int) -> None:
    """Messages come, are settled out of order, time passes, the node restarts: nothing is freed that somebody has not
    settled, nor before its time, and what is read is what was sent."""
    chance, world = random.Random(seed), World()
    retain_s = chance.choice((5, 60, 600))
    queue = retaining(world, retain_s=retain_s)
    producer, consumer = world.producer(queue), world.consumer(queue, credit=10_000)
    sent: list[tuple[bytes, float]] = []  # body, when
    unsettled: set[int] = set()
    for _ in range(100):
        match chance.choice(("send", "send", "settle", "wait", "restart")):
            case "send":
                bodies = [b"%d" % (len(sent) + n) for n in range(chance.randrange(1, 5))]
                unsettled |= set(range(len(sent), len(sent) + len(bodies)))
                sent += [(body, world.now) for body in bodies]
                producer.publish(*bodies)
            case "settle" if unsettled:
                position = chance.choice(sorted(unsettled)[:8])
                unsettled.discard(position)
                consumer.settle((position, position + 1))
            case "wait":
                world.advance(chance.choice((0.5, 2, retain_s / 7, retain_s / 2)))
            case "restart" if chance.random() < 0.3:
                world = world.restarted(after_s=chance.choice((0.1, retain_s / 3)))
                producer.resume(world=world)
                consumer.resume(
                    [(position, position + 1) for position in sorted(unsettled)], world=world,
                    next_position=len(sent), credit=10_000,
                )  # fmt: skip
        found = whole(world)
        first = found[0][0] if found else len(sent)
        assert [position for position, _ in found] == list(range(first, len(sent)))
        assert [body for _, body in found] == [body for body, _ in sent[first:]]
        assert not unsettled or first <= min(unsettled)
        assert all(at <= world.now - retain_s for _, at in sent[:first]), "freed before its time"
    consumer.settle(*((position, position + 1) for position in sorted(unsettled)))
    world.advance(retain_s * (1 + 2 / MARKS) + 5)
    assert stored(world) == []

"""What a destination may hold, and each policy one past it."""
import pytest

from angarium.core.destination.gauge import MARKS_MAX, ByteGauge
from angarium.core.destination.limits import Limits
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World


def limited(world: World, name: str = "q", **options: object) -> int:
    reply = world.request("destination.create", name=name, **{"kind": "queue", **options})
    assert not reply.code, reply.reason
    kind = DestinationKind.TOPIC if options.get("kind") == "topic" else DestinationKind.QUEUE
    return world.locate(name, kind)


def signals(producer: Producer) -> list[str]:
    sent = [frame for frame, _ in producer.world.sent.get(producer.session, [])]
    return [type(frame).__name__ for frame in sent if isinstance(frame, frames.Block | frames.Unblock)]


def test_block_at_the_limit_and_unblock_well_below_it() -> None:
    world = World()
    queue = limited(world, messages_max=10)
    producer, consumer = world.producer(queue), world.consumer(queue, credit=0)
    producer.publish(*[b"x"] * 9)
    assert signals(producer) == []
    producer.publish(b"x", b"x")
    assert signals(producer) == ["Block"]
    block = world.last(producer.session, frames.Block)
    assert block.code == "destination-full" and "messages_max is 10" in block.reason
    assert producer.confirmed == 11, "what was sent stays accepted"
    consumer.credit(11)
    consumer.settle((0, 2))
    assert signals(producer) == ["Block"], "not at the first message that goes"
    consumer.settle((2, 3))
    assert signals(producer) == ["Block", "Unblock"]


def test_whoever_streams_to_a_full_destination_is_told_what_producers_are() -> None:
    world = World()
    queue = limited(world, messages_max=2)
    early, late = world.session(), world.session()
    world.frame(early, queue, frames.StreamOpen(1, "q", DestinationKind.QUEUE, identity=b"1" * 16))
    producer, consumer = world.producer(queue), world.consumer(queue)
    producer.publish(b"x", b"x", b"x")
    world.frame(late, queue, frames.StreamOpen(1, "q", DestinationKind.QUEUE, identity=b"2" * 16))
    block = world.last(producer.session, frames.Block)
    for session in (early, late):
        (told,) = world.received(session, frames.StreamStored)
        assert (told.code, told.reason) == (block.code, block.reason) and block.code == "destination-full"
    consumer.settle((0, 3))
    assert [world.last(session, frames.StreamStored).code for session in (early, late)] == ["", ""]


def test_a_producer_that_comes_while_the_destination_is_full_is_told() -> None:
    world = World()
    queue = limited(world, bytes_max=1_000)
    world.producer(queue).publish(bytes(2_000))
    late = world.producer(queue)
    assert signals(late) == ["Block"]


def test_refuse_names_the_messages_that_have_no_room() -> None:
    world = World()
    queue = limited(world, messages_max=3, over_limit="refuse")
    producer = world.producer(queue)
    producer.publish(b"1", b"2", b"3", b"4", b"5")
    refusal = world.last(producer.session, frames.Refuse)
    assert (refusal.first, refusal.last, refusal.code) == (4, 5, "destination-full")
    assert producer.confirmed == 5, "confirmed, but for those that were refused"
    assert world.describe("q")["messages"] == 3
    consumer = world.consumer(queue)
    consumer.settle((0, 3))
    producer.publish(b"6")
    assert consumer.bodies == [b"1", b"2", b"3", b"6"]


def test_the_oldest_go_to_the_dead_message_queue() -> None:
    world = World()
    queue = limited(world, messages_max=3, over_limit="oldest")
    world.producer(queue).publish(*[b"%d" % n for n in range(5)])
    assert world.describe("q")["messages"] == 3
    assert world.describe("_DMQ")["messages"] == 2
    consumer = world.consumer(queue)
    assert consumer.bodies == [b"2", b"3", b"4"]


def test_what_was_too_much_when_the_broker_ended_goes_when_it_starts() -> None:
    """Without waiting for more (trade, seed 44)."""
    world = World()
    queue = limited(world, messages_max=3, over_limit="oldest")
    producer = world.producer(queue)
    world.auto = False
    producer.publish(*[b"%d" % n for n in range(5)])
    assert world.complete_write()
    world = world.restarted()
    world.auto = True
    world.run_disk()
    assert world.describe("q")["messages"] == 3
    assert world.describe("_DMQ")["messages"] == 2


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 3_300}])
def test_nothing_dies_for_what_is_not_durable(limit: dict[str, int]) -> None:
    """It may never be; and after a crash what was to die would come after what was delivered in its stead (trade,
    seeds 700151, 700317, 700352)."""
    world = World()
    queue = limited(world, "q", over_limit="oldest", **limit)
    producer = world.producer(queue)
    (subscription,) = world.manager.destinations[queue].subscriptions
    world.auto = False
    producer.publish(*[bytes(1_000)] * 3)
    producer.publish(*[bytes(1_000)] * 2)
    assert world.complete_write()
    assert not any(ranges.count for ranges in subscription.doom.sets())
    assert world.complete_write()
    assert sum(ranges.count for ranges in subscription.doom.sets()) == 2


def test_what_somebody_holds_is_never_the_oldest() -> None:
    world = World()
    queue = limited(world, messages_max=2, over_limit="oldest")
    consumer, producer = world.consumer(queue, credit=2), world.producer(queue)
    producer.publish(*[b"%d" % n for n in range(5)])
    consumer.settle((0, 2))
    assert consumer.settled[-1].lost == []
    consumer.credit(10)
    assert consumer.bodies[:2] == [b"0", b"1"]


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 3_300}])
def test_of_two_subscribers_only_the_slow_one_loses_its_oldest(limit: dict[str, int]) -> None:
    """What one waits for too long is no debt of the other one, which is behind by two and never by more."""
    world = World()
    topic = limited(world, "t", kind="topic", over_limit="oldest", **limit)
    slow = world.consumer(topic, subscription="slow", credit=0)
    quick = world.consumer(topic, subscription="quick", credit=1)
    producer = world.producer(topic)
    for number in range(20):
        producer.publish(b"%02d" % number + bytes(1_000))
        if number >= 2:
            quick.settle((number - 2, number - 1), credit=number)
    quick.credit(100)
    assert [body[:2] for body in quick.bodies] == [b"%02d" % number for number in range(20)]
    slow.credit(100)
    assert [body[:2] for body in slow.bodies] == [b"17", b"18", b"19"]
    assert world.describe("_DMQ")["messages"] == 17


def test_of_two_subscribers_only_the_slow_one_loses_bytes() -> None:
    """The log keeps what the slow one waits for; that is no debt of the other one."""
    world = World()
    topic = limited(world, "t", kind="topic", bytes_max=3_000, slow_subscriber="drop")
    slow = world.consumer(topic, subscription="slow", credit=0)
    quick = world.consumer(topic, subscription="quick", credit=100)
    holder = world.consumer(topic, subscription="holder", credit=1)
    producer = world.producer(topic)
    for _ in range(20):
        producer.publish(b"x" * 1_000)
        quick.settle(*((p, p + 1) for p in quick.positions[-1:]))
    dropped = {each["name"]: each["dropped"] for each in world.describe("t")["subscriptions"]}
    assert len(quick.bodies) == 20 and dropped["quick"] == 0, "it was never behind"
    assert dropped["slow"] >= 16 and len(holder.bodies) == 1
    slow.credit(100)
    assert 1 <= len(slow.bodies) <= 3


def test_a_slow_subscriber_loses_its_oldest_and_is_told_how_many() -> None:
    world = World()
    topic = limited(world, "t", kind="topic", messages_max=5, slow_subscriber="drop")
    slow, fast = world.consumer(topic, credit=0), world.consumer(topic)
    producer = world.producer(topic)
    for number in range(12):
        producer.publish(b"%d" % number)
        fast.settle((number, number + 1))
    assert fast.bodies == [b"%d" % n for n in range(12)]
    assert sum(frame.count for frame in world.received(slow.session, frames.Dropped)) == 7
    slow.credit(100)
    assert slow.bodies == [b"%d" % n for n in range(7, 12)]
    assert signals(producer) == []


def test_a_topic_waits_for_its_slowest_subscriber_otherwise() -> None:
    world = World()
    topic = limited(world, "t", kind="topic", messages_max=5)
    slow, producer = world.consumer(topic, credit=0), world.producer(topic)
    producer.publish(*[b"x"] * 6)
    assert signals(producer) == ["Block"]
    slow.credit(10)
    slow.settle((0, 6))
    assert signals(producer) == ["Block", "Unblock"]


def test_options_are_changed_while_it_runs_and_survive_a_restart() -> None:
    world = World()
    queue = world.queue_with(8)
    producer = world.producer(queue)
    assert not world.request("destination.alter", name="q", messages_max=5).code
    assert signals(producer) == ["Block"]
    world.request("destination.alter", name="q", messages_max=0)
    assert signals(producer) == ["Block", "Unblock"]
    world.request("destination.alter", name="q", messages_max=7, over_limit="refuse")
    world = world.restarted()
    assert world.describe("q")["messages_max"] == 7
    assert world.describe("q")["over_limit"] == "refuse"


@pytest.mark.parametrize(
    "option", [{"messages_max": -1}, {"over_limit": "explode"}, {"last_value": 1}, {"bytes_max": True}, {"confirm": ""}]
)
def test_a_wrong_option_is_refused_with_the_right_ones(option: dict[str, object]) -> None:
    world = World()
    reply = world.request("destination.create", name="q", kind="queue", **option)
    assert reply.code == "bad-argument"
    assert next(iter(option)) in reply.reason
    assert world.manager.find("q") is None


def test_a_disk_that_is_full_as_well_is_told_first_and_the_limit_after_it() -> None:
    world = World()
    queue = limited(world, messages_max=2)
    producer = world.producer(queue)
    producer.publish(b"1", b"2", b"3")
    world.block()
    world.unblock()
    assert signals(producer) == ["Block"], "it is blocked throughout, by the limit"


# -- the gauge -----------------------------------------------------------------------------------------


def test_the_gauge_is_exact_for_few_batches() -> None:
    gauge = ByteGauge(0)
    for number in range(100):
        gauge.add(10 * (number + 1), 1_000 + number)
    assert gauge.total == sum(1_000 + number for number in range(100))
    gauge.free(500)
    assert gauge.total == sum(1_000 + number for number in range(50, 100))
    gauge.free(1_000)
    assert gauge.total == 0


def test_the_gauge_is_near_for_very_many_batches_and_stays_small() -> None:
    gauge, sizes = ByteGauge(0), [100 + (number * 7919) % 1_000 for number in range(100_000)]
    for number, size in enumerate(sizes):
        gauge.add(number + 1, size)
    assert len(gauge._positions) <= MARKS_MAX
    for first in (1, 777, 50_000, 99_999):
        gauge.free(first)
        assert gauge.total == pytest.approx(sum(sizes[first:]), abs=sum(sizes) / 1_000)
    gauge.free(100_000)
    assert gauge.total == 0


def test_what_is_on_its_way_to_the_dead_message_queue_makes_no_others_die() -> None:
    """Once: each arrival while the oldest were being buried doomed as many again."""
    world = World()
    queue = limited(world, messages_max=3, over_limit="oldest")
    producer = world.producer(queue)
    world.auto = False
    for number in range(6):
        producer.publish(b"%d" % number)
        while world.complete_write():
            pass
    world.auto = True
    world.run_disk()
    assert world.consumer(queue).bodies == [b"3", b"4", b"5"]


def test_a_full_destination_blocks_after_a_restart() -> None:
    world = World()
    queue = limited(world, messages_max=3)
    producer = world.producer(queue)
    producer.publish(b"1", b"2", b"3")
    world = world.restarted()
    assert world.describe("q")["blocked"].startswith("destination-full: ")
    producer.resume(world=world, session=world.session())
    assert signals(producer) == ["Block"]
    assert world.last(producer.session, frames.ProducerOpened).blocked, "else it would send before it hears of it"


def test_what_was_to_die_does_not_come_after_what_was_delivered_in_its_stead() -> None:
    """After a start it is nobody's until those who were there have said what they hold (crowded-trade, seed 10)."""
    world = World()
    queue = limited(world, "q", over_limit="oldest", messages_max=3)
    producer, consumer = world.producer(queue), world.consumer(queue, credit=0)
    producer.publish(*[b"%d" % n for n in range(3)])
    world.auto = False
    producer.publish(b"3", b"4")
    assert world.complete_write()  # 0 and 1 are to die, and that is not durable yet
    consumer.credit(3)
    while world.complete_read():
        pass
    assert consumer.bodies == [b"2", b"3", b"4"]
    world = world.restarted()
    world.auto = True
    world.run_disk()
    consumer.resume([(2, 5)], credit=6, next_position=5, world=world)
    assert consumer.bodies == []
    assert world.describe("_DMQ")["messages"] == 2


@pytest.mark.parametrize("policy", [{"over_limit": "oldest"}, {"slow_subscriber": "drop", "kind": "topic"}])
def test_one_message_that_is_held_does_not_cost_all_others(policy: dict[str, str]) -> None:
    """Nothing is freed while the first is held; once, one past the limit cost all that waited, and all that came."""
    world = World()
    destination = limited(world, "d", bytes_max=10_000, **policy)
    consumer = world.consumer(destination, credit=1)
    producer = world.producer(destination)
    for number in range(40):
        producer.publish(b"%d" % number + bytes(1_000))
    consumer.credit(100)
    numbers = [int(body.rstrip(b"\0")) for body in consumer.bodies]
    assert numbers == [0, *range(40 - len(numbers) + 1, 40)] and 8 <= len(numbers) <= 10


def test_what_a_publish_costs_grows_with_the_subscribers_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = Limits._excess

    def spy(limits: Limits, count: int, stored_bytes: int, stored: int) -> int:
        nonlocal looks
        looks += 1
        return look(limits, count, stored_bytes, stored)

    world = World()
    topic = limited(world, kind="topic", messages_max=5, slow_subscriber="drop")
    for _ in range(20):
        world.consumer(topic, credit=100)
    producer = world.producer(topic)
    monkeypatch.setattr(Limits, "_excess", spy)
    producer.publish(b"x")
    assert 20 <= looks <= 60, "some for each subscriber"

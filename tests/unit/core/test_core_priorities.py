"""Jakarta Messaging 3.1, 3.4.10 and 6.2.9: ten levels of priority, 4 unless said; higher ones first; within one
priority the order in which one producer sent."""
import pytest

from angarium.core.wire.frames import ConsumerOpened, DestinationKind
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns


def test_higher_priorities_are_delivered_first() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(*(b"%d" % p for p in range(10)), columns=columns(priorities=list(range(10))))
    assert world.consumer(queue).bodies == [b"%d" % p for p in reversed(range(10))]


def test_a_message_without_a_priority_has_four() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(b"three", columns=columns(priorities=[3]))
    producer.publish(b"default")
    producer.publish(b"five", columns=columns(priorities=[5]))
    assert world.consumer(queue).bodies == [b"five", b"default", b"three"]


def test_messages_of_one_priority_keep_their_order_across_batches() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    for first in range(0, 30, 3):
        bodies = [b"%d" % number for number in range(first, first + 3)]
        producer.publish(*bodies, columns=columns(priorities=[9, 4, 9]))
    got = [int(body) for body in world.consumer(queue).bodies]
    assert got == [n for n in range(30) if n % 3 != 1] + [n for n in range(30) if n % 3 == 1]


@pytest.mark.parametrize("priority", range(10))
def test_a_redelivered_message_comes_before_newer_ones_of_its_priority_and_after_more_urgent_ones(
    priority: int,
) -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(b"old", columns=columns(priorities=[priority]))
    consumer = world.consumer(queue, credit=1)
    position = consumer.positions[0]
    producer.publish(b"new", b"urgent", columns=columns(priorities=[priority, 9]))
    consumer.release((position, position + 1))
    consumer.credit(10)
    expected = [b"old", b"new", b"urgent"] if priority == 9 else [b"urgent", b"old", b"new"]
    assert consumer.bodies[-3:] == expected


def test_priorities_survive_a_restart() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"low", b"high", b"plain", columns=columns(priorities=[0, 9, 4]))
    assert world.restarted().consumer(queue).bodies == [b"high", b"plain", b"low"]


def test_every_lane_is_freed_when_its_messages_are_settled() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(*[b"m"] * 10, columns=columns(priorities=list(range(10))))
    consumer = world.consumer(queue)
    for position in consumer.positions:
        consumer.settle((position, position + 1))
    assert world.disk.batch_ends(queue) == []
    assert world.describe("q")["messages"] == 0


def test_a_priority_used_for_the_first_time_after_a_subscription_was_opened_reaches_it() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    subscriber = world.consumer(topic, subscription="s")
    world.producer(topic).publish(b"urgent", columns=columns(priorities=[9]))
    assert subscriber.bodies == [b"urgent"]
    subscriber.close()
    world.producer(topic).publish(b"lazy", columns=columns(priorities=[1]))
    assert world.restarted().consumer(topic, subscription="s").bodies[-1] == b"lazy"


def test_a_subscriber_that_resumes_after_a_restart_goes_on_in_every_priority() -> None:
    """It is not durable: only its client knows how far it was, in each of them."""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    producer = world.producer(topic)
    producer.publish(b"before", columns=columns(priorities=[7]))
    subscriber = world.consumer(topic)
    opened = world.last(subscriber.session, ConsumerOpened)
    world.end(subscriber.session, closed=False)
    producer.publish(b"seven", b"four", b"nine", columns=columns(priorities=[7, 4, 9]))
    world = world.restarted()
    subscriber.resume([], next_position=opened.position, next_positions=opened.positions, world=world)
    assert subscriber.bodies == [b"nine", b"seven", b"four"]

"""Jakarta Messaging 3.1, 3.5.11 (JMSXDeliveryCount), 6.2.10 and 6.2.11 (acknowledgement and recovery); delay and limit
of redelivery as a destination's options say."""
import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Outcome
from tests.unit.core.core_clients import Consumer
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns, dead_letters


def queue_with_options(world: World, **options: int) -> int:
    reply = world.request("destination.create", name="q", kind="queue", **options)
    assert not reply.code, reply.reason
    return world.locate("q")


def counts(consumer: Consumer) -> list[int]:
    return [count for _, _, count in consumer.deliveries]


def recover(consumer: Consumer, number: int, seen: list[tuple[int, int]]) -> None:
    consumer.world.frame(consumer.session, consumer.destination, frames.Recover(consumer.number, number, seen))


# -- the count ---------------------------------------------------------------------------------------


def test_the_count_of_redeliveries_rises_with_each_release() -> None:
    world = World()
    consumer = world.consumer(world.queue_with(1))
    for _ in range(3):
        consumer.release((0, 1))
    assert counts(consumer) == [0, 1, 2, 3]


def test_what_is_returned_counts_as_never_delivered() -> None:
    world = World()
    consumer = world.consumer(world.queue_with(2))
    consumer.settle((0, 2), outcome=Outcome.RETURN)
    assert counts(consumer) == [0, 0, 0, 0]


# Once: a restart made it redelivered, though no application had ever seen it.
@pytest.mark.parametrize("closes", [True, False])
def test_what_went_back_unseen_counts_as_never_delivered_after_a_restart_too(closes: bool) -> None:
    world = World()
    queue = world.queue_with(3)
    consumer = world.consumer(queue, credit=3)
    if closes:
        world.frame(consumer.session, queue, frames.ConsumerClose(consumer.number, seen=[(0, 1)]))
    else:
        consumer.release((0, 1))
        consumer.settle((1, 3), outcome=Outcome.RETURN)
    world.advance(0.01)  # what was delivered has been noted
    world = world.restarted()
    world.advance(10)
    assert counts(world.consumer(queue)) == [1, 0, 0]


def test_the_count_survives_a_restart() -> None:
    world = World()
    queue = world.queue_with(1)
    consumer = world.consumer(queue)
    consumer.release((0, 1))
    consumer.release((0, 1))
    consumer.close()
    world = world.restarted()
    world.advance(10)
    assert counts(world.consumer(queue)) == [3]


def test_what_was_out_when_the_broker_crashed_is_marked_as_redelivered() -> None:
    world = World()
    queue = world.queue_with(2)
    world.consumer(queue, credit=1)
    world.rest()
    world = world.restarted()
    world.advance(10)
    assert counts(world.consumer(queue)) == [1, 0]


def test_what_is_settled_at_once_is_noted_by_that() -> None:
    world = World()
    consumer = world.consumer(world.queue_with(1))
    consumer.settle((0, 1))
    world.auto = False
    world.rest()
    assert not world.disk.waiting, "nothing is left to be noted"


def test_what_is_delivered_after_that_is_noted_again() -> None:
    world = World()
    queue = world.queue_with(2)
    consumer = world.consumer(queue, credit=1)
    consumer.settle((0, 1))
    world.rest()
    consumer.credit(2)
    world.rest()
    world = world.restarted()
    world.advance(10)
    assert counts(world.consumer(queue)) == [1]


def test_what_was_delivered_while_an_earlier_delivery_was_noted_is_marked_too() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    world.producer(queue).publish(b"low", b"high", columns=columns(priorities=[1, 8]))
    assert counts(consumer) == [0, 0]
    world.rest()
    world = world.restarted()
    world.advance(10)
    assert counts(world.consumer(queue)) == [1, 1]


# -- recovery ----------------------------------------------------------------------------------------


def test_recovery_starts_again_with_the_oldest_unsettled_message() -> None:
    world = World()
    consumer = world.consumer(world.queue_with(4))
    consumer.settle((1, 2))
    recover(consumer, 1, [(0, 1), (2, 3)])
    assert consumer.bodies[4:] == [b"m0", b"m2", b"m3"]
    assert counts(consumer)[4:] == [1, 1, 0], "what its application has not seen was not delivered"
    assert world.last(consumer.session, frames.Recovered).number == 1


def test_recovery_goes_by_priority() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"low", b"high", columns=columns(priorities=[1, 8]))
    consumer = world.consumer(queue)
    recover(consumer, 1, [(p, p + 1) for p in consumer.positions])
    assert consumer.bodies == [b"high", b"low"] * 2


def test_what_another_consumer_holds_is_not_recovered() -> None:
    world = World()
    queue = world.queue_with(4)
    first, second = world.consumer(queue, credit=2), world.consumer(queue, credit=2)
    recover(first, 1, [(0, 4)])
    assert second.positions == [2, 3]
    first.credit(10)
    assert first.positions == [0, 1, 0, 1]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_recovery_that_is_asked_for_again_counts_once(restarts: bool) -> None:
    """The answer was lost with the connection, or with the broker."""
    world = World()
    consumer = world.consumer(world.queue_with(2), credit=10)
    recover(consumer, 1, [(0, 2)])
    assert counts(consumer) == [0, 0, 1, 1]
    if restarts:
        world = world.restarted()
    else:
        world.end(consumer.session, closed=False)
    consumer.resume([(0, 2)], credit=None, world=world)
    recover(consumer, 1, [(0, 2)])
    consumer.credit(10)
    assert counts(consumer)[-2:] == [1, 1], "what came since was not seen"
    recover(consumer, 2, [(0, 1)])
    assert counts(consumer)[-2:] == [2, 1]


# Once: what was on its way when a consumer closed came again as redelivered.
def test_what_goes_back_with_a_close_counts_as_far_as_it_was_seen() -> None:
    world = World()
    queue = world.queue_with(4)
    first = world.consumer(queue, credit=3)
    assert first.positions == [0, 1, 2]
    world.frame(first.session, queue, frames.ConsumerClose(first.number, seen=[(0, 1)]))
    assert counts(world.consumer(queue, credit=10)) == [1, 0, 0, 0]


# Once: what had been read by then was delivered first, the end of what was given back with it.
def test_what_is_given_back_while_something_later_is_read_comes_first() -> None:
    world = World()
    queue = world.queue_with(6)
    first, second = world.consumer(queue, credit=3), world.consumer(queue, credit=0)
    assert first.positions == [0, 1, 2]
    world.auto = False
    second.credit(10)
    assert len(world.reads) == 1, "from 3 on"
    recover(first, 1, [(0, 3)])
    world.auto = True
    world.run_disk()
    assert second.positions == [0, 1, 2, 3, 4, 5]


# Once: it was delivered to the first consumer again, while the second was still expected to come back for it.
def test_what_was_recovered_before_a_restart_stays_with_whoever_got_it_then() -> None:
    world = World()
    queue = world.queue_with(1)
    first, second = world.consumer(queue, credit=1), world.consumer(queue, credit=0)
    recover(first, 1, [(0, 1)])
    second.credit(1)
    assert second.positions == [0]
    world = world.restarted()
    first.resume([(0, 1)], credit=None, world=world)  # it has not heard that its recovery is done
    recover(first, 1, [(0, 1)])
    first.credit(5)
    assert first.deliveries == []
    second.resume([(0, 1)], credit=5, world=world)
    assert world.last(second.session, frames.ConsumerOpened).lost == []
    second.release((0, 1))
    assert counts(first) + counts(second) == [2]


@pytest.mark.parametrize("restarts", [1, 2])
def test_what_its_consumer_still_has_after_a_restart_counts_as_delivered_once(restarts: int) -> None:
    world = World()
    consumer = world.consumer(world.queue_with(2), credit=10)
    world.rest()
    for _ in range(restarts):
        world = world.restarted()
    consumer.resume([(0, 1)], credit=None, world=world)
    consumer.credit(10)
    recover(consumer, 1, [(0, 1)])
    assert counts(consumer)[-2:] == [1, 1], "the first was delivered once, of the second nobody knows"


def test_what_was_given_back_once_too_often_before_a_restart_is_not_delivered_after_it() -> None:
    world = World()
    queue = queue_with_options(world, redeliveries_max=1, redelivery_delay_ms=1_000)
    world.producer(queue).publish(b"m0")
    consumer = world.consumer(queue, credit=10)
    recover(consumer, 1, [(0, 1)])
    world.advance(1.1)
    assert counts(consumer) == [0, 1]
    recover(consumer, 2, [(0, 1)])  # dies when its delay is over
    world = world.restarted()
    consumer.resume([(0, 1)], credit=None, world=world)
    recover(consumer, 2, [(0, 1)])
    consumer.credit(10)
    assert counts(consumer) == []
    assert len(dead_letters(world)) == 1


# -- the delay ---------------------------------------------------------------------------------------


def test_a_released_message_waits_for_the_delay_and_others_overtake_it() -> None:
    world = World()
    queue = queue_with_options(world, redelivery_delay_ms=500)
    world.producer(queue).publish(b"m0")
    consumer = world.consumer(queue)
    consumer.release((0, 1))
    world.producer(queue).publish(b"m1")
    assert consumer.bodies == [b"m0", b"m1"]
    world.advance(0.499)
    assert len(consumer.bodies) == 2
    world.advance(0.001)
    assert consumer.deliveries[-1] == (0, b"m0", 1)


def test_delayed_messages_return_in_order_of_their_times() -> None:
    world = World()
    queue = queue_with_options(world, redelivery_delay_ms=500)
    world.producer(queue).publish(b"m0", b"m1", b"m2")
    consumer = world.consumer(queue)
    for position in (2, 0, 1):
        consumer.release((position, position + 1))
        world.advance(0.1)
    world.advance(1)
    assert consumer.bodies[3:] == [b"m2", b"m0", b"m1"]


def test_a_delayed_message_is_neither_lost_nor_stuck_when_the_broker_restarts() -> None:
    world = World()
    queue = queue_with_options(world, redelivery_delay_ms=60_000)
    world.producer(queue).publish(b"m0")
    consumer = world.consumer(queue)
    consumer.release((0, 1))
    consumer.close()
    world = world.restarted()
    world.advance(10)
    assert world.consumer(queue).deliveries == [(0, b"m0", 1)]


def test_many_delayed_messages_cost_little_each() -> None:
    world = World()
    queue = queue_with_options(world, redelivery_delay_ms=1_000)
    world.producer(queue).publish(*[b"m"] * 10_000)
    consumer = world.consumer(queue, credit=10_000)
    (subscription,) = world.destination(queue).subscriptions
    attached = subscription.consumers[consumer.session, consumer.number]
    for position in range(0, 10_000, 2):
        subscription.release(attached, position, position + 1, until=world.now + 1)
        assert subscription.deadline() == world.now + 1
    world.advance(1.5)
    assert subscription.returned.count == 0 or not subscription.delayed


# -- the limit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_past_the_limit_of_redeliveries_a_message_goes_to_the_dead_message_queue(limit: int) -> None:
    world = World()
    queue = queue_with_options(world, redeliveries_max=limit)
    world.producer(queue).publish(b"m0")
    consumer = world.consumer(queue)
    for _ in range(limit):
        consumer.release((0, 1))
    assert counts(consumer) == list(range(limit + 1)) and dead_letters(world) == []
    consumer.release((0, 1))
    assert len(consumer.bodies) == limit + 1
    ((body, letter),) = dead_letters(world)
    assert (body, letter["reason"], letter["deliveries"]) == (b"m0", "redelivery-limit", limit + 1)
    assert world.describe("q")["messages"] == 0


def test_a_recovery_past_the_limit_buries_what_was_seen_and_only_that() -> None:
    world = World()
    queue = queue_with_options(world, redeliveries_max=1)
    world.producer(queue).publish(b"m0", b"m1")
    consumer = world.consumer(queue)
    for number in (1, 2):
        recover(consumer, number, [(0, 1)])
    assert [body for body, _ in dead_letters(world)] == [b"m0"]
    assert counts(consumer)[-1] == 0


def test_without_a_limit_a_message_is_redelivered_for_ever() -> None:
    world = World()
    consumer = world.consumer(world.queue_with(1))
    for _ in range(200):
        consumer.release((0, 1))
    assert counts(consumer)[-1] == 200 and dead_letters(world) == []


# -- in flight ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DestinationKind.QUEUE, DestinationKind.TOPIC])
def test_nothing_new_is_delivered_past_in_flight_max(kind: DestinationKind) -> None:
    world = World(DestinationSettings(in_flight_max=10))
    destination = world.locate("d", kind)
    name = "s" if kind == DestinationKind.TOPIC else ""
    consumer = world.consumer(destination, subscription=name)
    world.producer(destination).publish(*(b"m%d" % n for n in range(30)))
    assert len(consumer.bodies) == 10
    consumer.settle((0, 1))
    assert len(consumer.bodies) == 11
    consumer.settle((1, 11))
    assert len(consumer.bodies) == 21


def test_what_was_released_is_delivered_again_although_the_most_is_in_flight() -> None:
    world = World(DestinationSettings(in_flight_max=3))
    consumer = world.consumer(world.queue_with(10))
    consumer.release((1, 2))
    assert consumer.positions == [0, 1, 2, 1]

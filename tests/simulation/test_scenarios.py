"""The situations that people ask about, each told as a story. Every promise of the ledger is checked all along.

Random runs (test_seeds.py) find what nobody thought of; these show what everybody should be able to rely on.
"""
from angarium.core.wire.frames import Outcome
from angarium.sim.network import NetworkSettings
from tests.simulation.stories import (
    GRACE_S,
    TOPIC,
    consumer_in,
    link_of,
    producer_in,
    publish,
    quiet_world,
    settle_on_arrival,
    stored,
)

# -- the broker dies ---------------------------------------------------------------------------------


def test_a_broker_killed_between_write_and_confirm_stores_once_and_confirms_later() -> None:
    world = quiet_world()
    producer = producer_in(world)
    world.disk.after_sync = world.broker.crash
    producer.publish([b"one", b"two"])
    world.run_until(lambda: world.broker.node is None)
    assert stored(world) == [1, 2]
    assert producer.unconfirmed == 2

    world.broker.start()
    world.run_until(lambda: producer.unconfirmed == 0)
    assert stored(world) == [1, 2]


def test_a_broker_killed_before_the_write_was_durable_gets_the_messages_again() -> None:
    world = quiet_world()
    producer = producer_in(world)
    world.disk.before_sync = lambda: world.broker.crash(keeps_staged=False)
    producer.publish([b"one", b"two"])
    world.run_until(lambda: world.broker.node is None)
    assert stored(world) == []

    world.broker.start()
    world.run_until(lambda: producer.unconfirmed == 0)
    assert stored(world) == [1, 2]


def test_a_settlement_whose_answer_died_with_the_broker_is_not_done_twice() -> None:
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one")
    world.run_until(lambda: consumer.received == [0])
    world.disk.after_sync = world.broker.crash
    consumer.settle(0, 1)
    world.run_until(lambda: world.broker.node is None)

    world.broker.start()
    world.drain()
    assert consumer.received == [0]
    assert consumer.lost == []


def test_what_consumers_hold_is_kept_for_them_while_the_broker_restarts() -> None:
    world = quiet_world()
    producer, first, second = producer_in(world), consumer_in(world, "first"), consumer_in(world, "second")
    publish(world, producer, b"one", b"two", b"three", b"four")
    world.run_until(lambda: len(first.received) + len(second.received) == 4)
    world.broker.crash()
    world.run_for(0.5)
    world.broker.start()
    world.run_for(2 * GRACE_S)
    for consumer in (first, second):
        consumer.settle(0, 4)
    world.drain()
    assert sorted(first.received + second.received) == [0, 1, 2, 3]


def test_what_was_published_before_a_restart_comes_before_what_was_published_after_it() -> None:
    """The broker does not know what of the backlog was delivered, so it keeps all of it for consumers that are away."""
    world = quiet_world()
    producer, away = producer_in(world), consumer_in(world, "away", prefetch=1)
    publish(world, producer, b"one", b"two", b"three")
    away.session.client.crash()
    world.broker.crash()
    world.broker.start()
    present = consumer_in(world, "present")
    publish(world, producer, b"four")
    world.run_until(lambda: len(present.received) == 4)
    assert present.received == [0, 1, 2, 3]


# -- connections break -------------------------------------------------------------------------------


def test_a_client_cut_off_between_delivery_and_settlement_settles_when_it_is_back() -> None:
    world = quiet_world()
    producer, consumer, other = producer_in(world), consumer_in(world, "consumer"), consumer_in(world, "other")
    other.set_prefetch(0)
    publish(world, producer, b"one")
    world.run_until(lambda: consumer.received == [0])
    other.set_prefetch(10)
    consumer.session.client.unplug(0.5)
    consumer.settle(0, 1)
    world.drain()
    assert consumer.received == [0]
    assert other.received == []


def test_a_session_that_resumes_within_the_grace_time_keeps_what_it_holds() -> None:
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one", b"two")
    world.run_until(lambda: len(consumer.received) == 2)
    other = consumer_in(world, "other")
    consumer.session.client.unplug(GRACE_S / 2)
    world.run_for(3 * GRACE_S)
    assert other.received == []
    assert list(consumer.in_hands) == [(0, 2)]
    consumer.settle(0, 2)
    world.drain()


def test_a_session_that_comes_back_after_the_grace_time_is_told_what_it_lost() -> None:
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one", b"two")
    world.run_until(lambda: len(consumer.received) == 2)
    other = consumer_in(world, "other")
    consumer.session.client.unplug(3 * GRACE_S)
    world.run_until(lambda: len(other.received) == 2)
    other.settle(0, 2)
    world.run_until(lambda: consumer.lost)
    assert consumer.lost == [(0, 2)]
    assert not consumer.in_hands
    world.drain()


def test_a_session_is_taken_over_by_its_client_on_a_new_connection() -> None:
    """The client notices the cut at once, the broker minutes later: for a while it sees the session twice."""
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer", prefetch=2)
    publish(world, producer, b"one", b"two", b"three")
    world.run_until(lambda: len(consumer.received) == 2)
    old_link = link_of(consumer)
    old_link.cut("half open", client_after_s=0.0, broker_after_s=120.0)
    world.run_until(lambda: consumer.session.client.is_ready and consumer.session.client.link is not old_link)
    world.run_for(1.0)
    consumer.settle(0, 2)
    world.run_until(lambda: len(consumer.received) == 3)
    consumer.settle(2, 3)
    world.drain()
    assert consumer.received == [0, 1, 2]
    assert consumer.lost == []


def test_deliveries_lost_on_the_way_are_delivered_again_and_only_those() -> None:
    world = quiet_world(network=NetworkSettings(chop_chance=0.0))
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one", b"two")
    world.run_until(lambda: consumer.received == [0, 1])
    link_of(consumer).to_client.break_after_bytes = 50  # in the middle of the next delivery
    publish(world, producer, b"three")
    world.run_until(lambda: len(consumer.received) == 3)
    assert consumer.received == [0, 1, 2]
    consumer.settle(0, 3)
    world.drain()


def test_a_client_that_crashes_leaves_each_message_at_most_once() -> None:
    world = quiet_world()
    producer = producer_in(world)
    producer.publish([b"one", b"two"])
    world.run_for(0.001)
    producer.session.client.crash()
    consumer = consumer_in(world, "consumer")
    world.run_for(3 * GRACE_S)
    consumer.settle(0, 2)
    world.drain()
    assert consumer.received in ([], [0, 1])


# -- consumers among themselves ------------------------------------------------------------------------


def test_of_two_consumers_a_stalled_one_is_passed_over() -> None:
    world = quiet_world(network=NetworkSettings(buffer_bytes_high=300, buffer_bytes_low=100))
    producer = producer_in(world)
    stalled, quick = consumer_in(world, "stalled", prefetch=100), consumer_in(world, "quick", prefetch=100)
    link_of(stalled).to_client.stall(30.0)
    for number in range(20):
        publish(world, producer, b"%d" % number + b"x" * 100)
    world.run_for(1.0)
    assert stalled.received == []
    # What was on its way to the stalled one is its own; all the rest has found somebody else.
    assert len(quick.received) >= 15
    settle_on_arrival(stalled, quick)
    world.run_for(40.0)
    world.drain()
    assert sorted(stalled.received + quick.received) == list(range(20))


def test_what_is_released_goes_to_somebody_who_is_told_that_it_was_delivered_before() -> None:
    world = quiet_world()
    producer, first = producer_in(world), consumer_in(world, "first")
    publish(world, producer, b"one")
    world.run_until(lambda: first.received == [0])
    first.set_prefetch(0)
    second = consumer_in(world, "second")
    first.settle(0, 1, Outcome.RELEASE)
    world.run_until(lambda: second.received == [0])
    second.settle(0, 1)
    world.drain()


def test_a_durable_subscriber_gets_what_was_published_while_it_was_away() -> None:
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    session = world.client("subscriber").open_session()
    durable = session.consume("news", TOPIC, subscription="archive")
    passing = session.consume("news", TOPIC)
    world.run_until(lambda: durable.is_open and passing.is_open)
    publish(world, producer, b"one")
    world.run_until(lambda: durable.received == passing.received == [0])
    durable.settle(0, 1)
    passing.settle(0, 1)
    session.close()
    world.run_until(lambda: session.is_ended)
    publish(world, producer, b"two")

    session = world.client("again").open_session()
    durable = session.consume("news", TOPIC, subscription="archive")
    passing = session.consume("news", TOPIC)
    world.run_until(lambda: durable.received == [1])
    publish(world, producer, b"three")
    world.run_until(lambda: passing.received == [2])
    durable.settle(1, 3)
    passing.settle(2, 3)
    world.drain()


# -- the disk ------------------------------------------------------------------------------------------


def test_a_full_disk_blocks_producers_lets_consumers_work_and_goes_on_when_there_is_room() -> None:
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one")
    world.run_until(lambda: consumer.received == [0])
    world.disk.fill(True)
    producer.publish([b"two"])
    world.run_until(lambda: producer.is_blocked)
    consumer.settle(0, 1)
    subscription = world.ledger.holdings.subscriptions["orders", ""]
    world.run_until(lambda: 0 in subscription.settled)
    producer.publish([b"three"])
    world.run_for(5.0)
    assert producer.unconfirmed == 2
    assert consumer.received == [0]

    world.disk.fill(False)
    world.run_until(lambda: producer.unconfirmed == 0)
    world.run_until(lambda: consumer.received == [0, 1, 2])
    consumer.settle(1, 3)
    world.drain()


def test_a_consumer_may_come_to_a_full_disk_to_empty_it() -> None:
    world = quiet_world()
    producer = producer_in(world)
    publish(world, producer, b"one", b"two")
    world.disk.fill(True)
    consumer = consumer_in(world, "consumer")
    world.run_until(lambda: consumer.received == [0, 1])
    consumer.settle(0, 2)
    world.drain()


def test_a_damaged_batch_is_reported_and_the_others_are_delivered() -> None:
    world = quiet_world()
    producer = producer_in(world)
    for body in (b"one", b"two", b"three"):
        publish(world, producer, body)
    world.spoil_batch(world.disk.sound_batches()[1])
    consumer = consumer_in(world, "consumer")
    world.run_until(lambda: len(consumer.received) == 2)
    assert consumer.received == [0, 2]
    assert world.ledger.messages.by_name["orders"].set_aside == {1}
    consumer.settle(0, 1)
    consumer.settle(2, 3)
    world.drain()


def test_what_is_confirmed_from_memory_may_go_with_a_crash_and_its_producer_goes_on() -> None:
    world = quiet_world()
    administrator = world.client("administrator")
    administrator.request("destination.create", name="orders", kind="queue", confirm="memory")
    world.run_for(0.5)
    producer = producer_in(world)
    world.disk.slowness = 100.0
    publish(world, producer, b"one")
    world.broker.crash()
    assert stored(world) == []

    world.disk.slowness = 1.0
    world.broker.start()
    publish(world, producer, b"two")
    world.run_for(1.0)
    assert stored(world) == [2]

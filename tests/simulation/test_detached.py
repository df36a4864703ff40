"""Goal: a message manager that dies alone is a delay. Nobody loses a connection, and every promise of the ledger holds.
Method: stories; and random runs in which nothing else goes wrong, or little. Replay one: pytest -k 'alone[17]'."""
from collections.abc import Callable
from dataclasses import replace

import pytest

from angarium.sim.post import PostWorld
from angarium.sim.trade import TradeWorld
from angarium.sim.world import World, draw_settings
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

TROUBLE = ("manager-crash", "manager-crash-at-a-sync")


def fail_over(world: World, *, down_s: float = 0.1) -> None:
    world.broker.crash_manager()
    world.run_for(down_s)
    world.broker.start_manager()


# -- stories -----------------------------------------------------------------------------------------------------


def test_what_was_written_and_not_confirmed_is_stored_once_and_confirmed_later() -> None:
    world = quiet_world()
    producer = producer_in(world)
    world.disk.after_sync = world.broker.crash_manager
    producer.publish([b"one", b"two"])
    world.run_until(lambda: stored(world) != [])
    assert stored(world) == [1, 2] and producer.unconfirmed == 2
    world.broker.start_manager()
    world.run_until(lambda: producer.unconfirmed == 0)
    assert stored(world) == [1, 2]


def test_what_was_not_written_is_sent_again() -> None:
    world = quiet_world()
    producer = producer_in(world)
    world.disk.before_sync = world.broker.crash_manager
    producer.publish([b"one", b"two"])
    world.run_for(0.1)
    assert stored(world) == []
    world.broker.start_manager()
    world.run_until(lambda: producer.unconfirmed == 0)
    assert stored(world) == [1, 2]


def test_consumers_keep_what_they_hold_and_nobody_is_disconnected() -> None:
    world = quiet_world()
    producer, first, second = producer_in(world), consumer_in(world, "first"), consumer_in(world, "second")
    publish(world, producer, b"one", b"two", b"three", b"four")
    world.run_until(lambda: len(first.received) + len(second.received) == 4)
    links = [link_of(consumer) for consumer in (first, second)]
    for _ in range(5):
        fail_over(world)
        world.run_for(0.5)
    world.run_for(2 * GRACE_S)
    for consumer in (first, second):
        consumer.settle(0, 4)
    world.drain()
    assert sorted(first.received + second.received) == [0, 1, 2, 3]
    assert (first.lost, second.lost) == ([], [])
    assert [link_of(consumer) for consumer in (first, second)] == links


def test_the_grace_time_begins_with_the_new_manager_however_long_there_was_none() -> None:
    world = quiet_world()
    producer, holder = producer_in(world), consumer_in(world, "holder")
    publish(world, producer, b"one")
    world.run_until(lambda: holder.received == [0])
    fail_over(world, down_s=5 * GRACE_S)
    other = consumer_in(world, "other")
    world.run_for(2 * GRACE_S)
    holder.settle(0, 1)
    world.drain()
    assert (holder.received, holder.lost, other.received) == ([0], [], [])


def test_a_manager_that_is_replaced_while_sessions_are_still_being_opened_again() -> None:
    world = quiet_world(bus_delay_s_max=0.1, answer_delay_s_max=0.1)
    producer, consumer = producer_in(world), consumer_in(world, "consumer", prefetch=2)
    settle_on_arrival(consumer)
    for number in range(60):
        producer.publish([b"%d" % number])
        world.run_for(0.03)
        fail_over(world, down_s=0.01)
        world.run_for(0.02)
    world.drain()
    assert sorted(consumer.received) == list(range(60))


def test_a_subscriber_that_is_not_durable_misses_nothing_that_is_stored_while_it_is_detached() -> None:
    world = quiet_world()
    producer, subscriber = producer_in(world, "news", TOPIC), consumer_in(world, "subscriber", "news", TOPIC)
    settle_on_arrival(subscriber)
    for number in range(20):
        producer.publish([b"%d" % number])
        if number % 3 == 0:
            fail_over(world)
    world.drain()
    world.run_for(1.0)
    assert len(subscriber.received) == 20


def test_a_client_that_closes_its_session_meanwhile_leaves_nothing() -> None:
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one")
    world.run_until(lambda: consumer.received == [0])
    world.broker.crash_manager()
    consumer.session.close(timeout_s=1.0)
    world.run_for(0.1)
    world.broker.start_manager()
    successor = consumer_in(world, "successor")
    settle_on_arrival(successor)
    world.drain()
    assert successor.received == [0]


# -- random runs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [World, TradeWorld, PostWorld], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(8))
def test_managers_that_die_alone(kind: Callable[..., World], seed: int) -> None:
    kind(seed, replace(draw_settings(seed), faults=TROUBLE)).run()


@pytest.mark.parametrize("seed", range(100, 112))
def test_managers_that_die_while_links_are_cut_and_stall(seed: int) -> None:
    World(seed, replace(draw_settings(seed), faults=(*TROUBLE, "cut", "stall", "client-crash"))).run()

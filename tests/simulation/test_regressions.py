"""What the simulator found, each as the shortest story that shows it. The seeds are those of the day it was found.

A seed is only as stable as the simulator that draws from it; the stories stay. Seeds that have failed with the present
simulator are listed at the end.
"""
import pytest

from angarium.core.storage import Table
from angarium.core.wire.frames import Outcome, Start
from angarium.sim.network import NetworkSettings
from angarium.sim.world import Failure, run_seed
from tests.simulation.stories import (
    GRACE_S,
    TOPIC,
    consumer_in,
    link_of,
    producer_in,
    publish,
    quiet_world,
    restart,
    settle_on_arrival,
)

# -- answers that come too late (seeds 13, 15, 53, 77, 91) ---------------------------------------------


def test_a_confirm_that_is_ready_while_its_session_resumes_goes_to_the_new_connection() -> None:
    world = quiet_world()
    producer = producer_in(world)
    world.disk.slowness = 300.0
    producer.publish([b"one"])
    world.run_for(0.1)
    producer.session.client.unplug(0.0)
    world.run_until(lambda: producer.unconfirmed == 0)


def test_frames_for_the_old_connection_are_not_taken_for_those_of_the_new_one() -> None:
    """The message manager learns of the cut long after the client is back: its destination is busy."""
    world = quiet_world(bus_delay_s_max=0.5, answer_delay_s_max=0.2)
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    settle_on_arrival(consumer)
    for number in range(100):
        producer.publish([b"%d" % number])
        world.run_for(0.07)
        (consumer if number % 2 else producer).session.client.unplug(0.0)
        world.run_for(0.13)
    world.drain()


def test_a_producer_closed_before_the_broker_has_opened_it_harms_nobody() -> None:
    """Seed 93: the connection was closed for it, with `not-open`."""
    world = quiet_world()
    session = world.client("hasty").open_session()
    world.run_until(lambda: session.identity)
    session.produce("orders").close()
    world.run_for(1.0)
    assert session.client.is_ready
    assert not session.is_ended


def test_a_consumer_that_settles_and_closes_is_told_if_it_settled_in_vain() -> None:
    """Seed 203: the answer was dropped with the consumer, which took the close for its answer."""
    world = quiet_world()
    producer, late = producer_in(world), consumer_in(world, "late")
    publish(world, producer, b"one")
    world.run_until(lambda: late.received == [0])
    late.session.client.unplug(2 * GRACE_S)
    world.run_for(0.1)
    late.settle(0, 1)
    late.close()
    other = consumer_in(world, "other")
    world.run_until(lambda: other.received == [0])
    world.run_until(lambda: late.is_ended)
    other.settle(0, 1, Outcome.RELEASE)  # delivered again: it must not count as settled
    world.run_until(lambda: other.received == [0, 0])


def test_a_consumer_that_resumes_without_room_gives_back_what_never_reached_it() -> None:
    """It had no credit to give, so the broker went on waiting for it to say that it had told everything."""
    world = quiet_world(network=NetworkSettings(chop_chance=0.0))
    producer, consumer = producer_in(world), consumer_in(world, "consumer", prefetch=1)
    link_of(consumer).to_client.break_after_bytes = 50  # in the middle of the delivery
    producer.publish([b"one"])
    world.run_until(lambda: not consumer.session.client.is_ready)
    consumer.set_prefetch(0)
    world.run_until(lambda: consumer.session.client.is_ready)
    other = consumer_in(world, "other")
    world.run_until(lambda: other.received == [0])


# -- after a restart -----------------------------------------------------------------------------------


def test_what_was_released_and_given_to_another_is_not_claimed_back_after_a_restart() -> None:
    """Seed 98: the release was done, its answer lost; the client claimed the message again to release it again."""
    world = quiet_world()
    producer, first = producer_in(world), consumer_in(world, "first")
    publish(world, producer, b"one")
    world.run_until(lambda: first.received == [0])
    first.set_prefetch(0)
    second = consumer_in(world, "second")
    link_of(first).to_client.stall(60.0)
    first.settle(0, 1, Outcome.RELEASE)
    world.run_until(lambda: second.received == [0])
    world.run_for(0.5)
    world.broker.crash()
    second.session.client.unplug(1.0)  # comes back after the first one
    world.broker.start()
    third = consumer_in(world, "third")
    world.run_for(2 * GRACE_S)
    assert third.received == []
    assert list(second.in_hands) == [(0, 1)]


def test_who_was_given_up_before_a_restart_claims_nothing_after_it() -> None:
    """Seed 250: it was back before the present holder, and got the message."""
    world = quiet_world()
    producer, gone = producer_in(world), consumer_in(world, "gone")
    publish(world, producer, b"one")
    world.run_until(lambda: gone.received == [0])
    gone.session.client.unplug(GRACE_S + 1.0)
    holder = consumer_in(world, "holder")
    world.run_until(lambda: holder.received == [0])
    world.run_for(0.9)
    world.broker.crash()
    holder.session.client.unplug(1.5)  # comes back after the one that was given up
    world.broker.start()
    world.run_until(lambda: gone.lost)
    world.run_for(2 * GRACE_S)
    assert list(holder.in_hands) == [(0, 1)]


def test_a_resumed_consumer_with_no_room_is_not_given_up_a_grace_time_after_the_restart() -> None:
    """Seed 476: it had no credit to give, so it counted as not back; the next restart gave its message away."""
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer", prefetch=1)
    publish(world, producer, b"one")
    world.run_until(lambda: consumer.received == [0])
    restart(world)
    world.run_for(2 * GRACE_S)
    other = consumer_in(world, "other")
    consumer.session.client.unplug(1.0)
    restart(world)
    world.run_for(2 * GRACE_S)
    assert other.received == []
    assert list(consumer.in_hands) == [(0, 1)]


def test_a_subscriber_misses_nothing_when_the_broker_restarts_before_the_first_message() -> None:
    """Seed 381: a topic without a log did not wait for its subscribers after a restart."""
    world = quiet_world()
    subscriber = consumer_in(world, "subscriber", "news", TOPIC)
    subscriber.session.client.unplug(1.0)
    restart(world)
    producer = producer_in(world, "news", TOPIC)
    publish(world, producer, b"one")
    world.run_until(lambda: subscriber.received == [0])


def test_a_subscriber_that_has_received_nothing_yet_resumes_where_it_started() -> None:
    """Seed 260: it got what was published before it came."""
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    archive = consumer_in(world, "archive", "news", TOPIC, subscription="archive")
    publish(world, producer, b"before it came")
    subscriber = consumer_in(world, "subscriber", "news", TOPIC)
    subscriber.session.client.unplug(1.0)
    restart(world)
    publish(world, producer, b"while it was away")
    world.run_until(lambda: len(archive.received) == 2 and subscriber.received)
    assert subscriber.received == [1]


def test_a_subscriber_whose_opening_was_never_answered_starts_when_it_is_back() -> None:
    """Seed 152: it got what was published before it came."""
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    consumer_in(world, "archive", "news", TOPIC, subscription="archive")
    publish(world, producer, b"before it came")
    session = world.client("subscriber").open_session()
    world.run_until(lambda: session.identity)
    assert session.client.link is not None
    session.client.link.to_client.stall(60.0)
    subscriber = session.consume("news", TOPIC)
    world.run_for(0.5)
    world.broker.crash()
    world.broker.start()
    world.run_until(lambda: subscriber.is_open)
    publish(world, producer, b"since it is back")
    world.run_until(lambda: subscriber.received)
    assert subscriber.received == [1]


def test_a_subscriber_that_began_behind_what_a_crash_then_lost_goes_on_at_the_end_of_what_is_left() -> None:
    """Seed 948: the start that it repeated lay behind the log's new end; a second crash made it skip messages."""
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    consumer_in(world, "archive", "news", TOPIC, subscription="archive")
    world.disk.slowness = 1_000.0
    producer.publish([b"one", b"two", b"three"])
    world.run_for(0.1)
    subscriber = consumer_in(world, "subscriber", "news", TOPIC, prefetch=1)
    producer.session.client.unplug(1.5)
    world.broker.crash()
    world.disk.slowness = 1.0
    world.broker.start()
    world.run_until(lambda: producer.unconfirmed == 0)
    world.run_until(lambda: subscriber.received == [0])
    world.broker.crash()
    world.broker.start()
    settle_on_arrival(subscriber)
    world.run_until(lambda: subscriber.received == [0, 1, 2])


def test_a_subscriber_that_began_behind_what_a_crash_then_lost_misses_nothing_that_took_its_place() -> None:
    """Seed 2110: it resumed where it had started, and other messages were at the positions before."""
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    consumer_in(world, "archive", "news", TOPIC, subscription="archive")
    world.disk.slowness = 1_000.0
    producer.publish([b"one", b"two", b"three"])
    world.run_for(0.1)
    subscriber = consumer_in(world, "subscriber", "news", TOPIC)
    producer.session.client.crash()
    world.broker.crash()
    subscriber.session.client.unplug(1.0)
    world.disk.slowness = 1.0
    world.broker.start()
    publish(world, producer_in(world, "news", TOPIC), b"four", b"five", b"six", b"seven")
    world.run_until(lambda: subscriber.received == [0, 1, 2, 3])


def test_a_claim_that_begins_with_what_is_settled_is_honoured_for_the_rest() -> None:
    """Seed 401: held as one range with what had been settled and trimmed, it was refused as a whole."""
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    subscriber = consumer_in(world, "subscriber", "news", TOPIC)
    publish(world, producer, b"one")
    publish(world, producer, b"two")
    world.run_until(lambda: len(subscriber.received) == 2)
    link_of(subscriber).to_client.stall(60.0)
    subscriber.settle(0, 1)
    world.run_for(0.5)
    world.broker.crash()
    world.broker.start()
    world.run_for(GRACE_S)
    assert list(subscriber.in_hands) == [(1, 2)]
    assert subscriber.lost == []


# -- on disk -------------------------------------------------------------------------------------------


def test_a_durable_subscription_that_was_ended_leaves_nobody_attached() -> None:
    """Seed 18: the record of its last consumer stayed on disk."""
    world = quiet_world()
    consumer = consumer_in(world, "consumer", "news", TOPIC, subscription="archive")
    consumer.close(unsubscribe=True)
    world.run_until(lambda: consumer.is_ended)
    assert world.disk.store.scan(Table.ATTACHED, b"", b"\xff" * 60, limit=10) == []


def test_a_settlement_that_overtook_an_opening_on_a_full_disk_is_not_undone_by_it() -> None:
    """Seed 26: the opening's older record of the subscription was written last."""
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one", b"two")
    world.run_until(lambda: len(consumer.received) == 2)
    world.disk.fill(True)
    session = world.client("newcomer").open_session()
    newcomer = session.consume("orders", start=Start.OLDEST)
    world.run_for(0.5)
    consumer.settle(0, 1)
    world.run_for(1.0)
    world.disk.fill(False)
    world.run_until(lambda: newcomer.is_open)
    world.broker.crash()
    world.broker.start()
    consumer.settle(1, 2)
    world.drain()
    assert newcomer.received == []


def test_a_subscription_saved_ahead_of_what_a_crash_then_lost_misses_nothing_after_the_next_crash() -> None:
    """Seed 1363: taken up at the log's new end, it was still stored where it had been, behind later messages."""
    world = quiet_world()
    producer = producer_in(world, "news", TOPIC)
    consumer_in(world, "archive", "news", TOPIC, subscription="archive")
    world.disk.fill(True)
    producer.publish([b"one", b"two"])
    world.run_for(0.5)
    late = consumer_in(world, "late", "news", TOPIC, subscription="late")  # starts at position 2, and is saved first
    producer.session.client.crash()
    world.broker.crash()
    world.disk.fill(False)
    late.session.client.crash()
    world.broker.start()
    publish(world, producer_in(world, "news", TOPIC), b"three")
    world.broker.crash()
    world.broker.start()
    world.run_for(2 * GRACE_S)
    late = consumer_in(world, "late again", "news", TOPIC, subscription="late")
    world.run_until(lambda: late.received == [0])


def test_producers_are_unblocked_even_if_nobody_has_anything_to_write() -> None:
    """Seed 522: the last thing to write found room in the reserve, and then nothing came that could have succeeded."""
    world = quiet_world()
    producer, consumer = producer_in(world), consumer_in(world, "consumer")
    publish(world, producer, b"one")
    world.run_until(lambda: consumer.received == [0])
    world.disk.fill(True)
    consumer.settle(0, 1)
    world.run_until(lambda: producer.is_blocked)
    world.disk.fill(False)
    world.run_until(lambda: not producer.is_blocked)


# -- seeds ---------------------------------------------------------------------------------------------

SEEDS_THAT_HAVE_FAILED: dict[str, int] = {
    "a batch below the log's start was left on disk": 21,
    "the client took a stale Settled for the answer to all its settlements": 214,
    "a release of what was lost was taken for one of its next delivery": 5002,
    "nobody drained the subscription of a client that died before its unsubscribe was answered": 1500242,
}


@pytest.mark.parametrize("seed", SEEDS_THAT_HAVE_FAILED.values(), ids=SEEDS_THAT_HAVE_FAILED.keys())
def test_a_seed_that_has_failed_before_passes(seed: int) -> None:
    result = run_seed(seed)
    assert not isinstance(result, Failure), f"{result.promise}: {result.what}"

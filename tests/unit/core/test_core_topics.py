"""Goal: a topic gives every subscription its own copy of everything published while it exists, from where it asked to
begin; a subscription that has gone costs nothing, in memory and on disk.
Method: one message manager; what is on disk is compared record by record."""
from random import Random

import pytest

from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Start
from tests.unit.core.core_clients import Consumer
from tests.unit.core.core_manager import World


def topic(world: World, name: str = "t") -> int:
    return world.locate(name, DestinationKind.TOPIC)


def stored_tables(world: World, destination: int) -> set[Table]:
    return set(world.disk.records_of(destination))


# -- who gets what -------------------------------------------------------------------------------------------


def test_every_subscription_gets_everything_and_none_gets_what_was_before() -> None:
    world = World()
    destination = topic(world)
    producer = world.producer(destination)
    producer.publish(b"before")
    durable = world.consumer(destination, subscription="durable")
    passing = world.consumer(destination)
    producer.publish(b"a", b"b")
    assert durable.bodies == passing.bodies == [b"a", b"b"]
    durable.settle((1, 3))
    assert world.disk.batch_ends(destination) == [3], "the other still needs it"
    passing.settle((1, 3))
    assert world.disk.batch_ends(destination) == []


def test_what_is_published_and_not_yet_durable_is_before_a_new_subscription() -> None:
    world = World()
    destination = topic(world)
    other = world.consumer(destination, subscription="other")
    producer = world.producer(destination)
    world.auto = False
    producer.publish(b"under way")
    consumer = world.consumer(destination, subscription="new")
    passing = world.consumer(destination)
    producer.publish(b"after")
    world.run_disk()
    assert other.bodies == [b"under way", b"after"]
    assert consumer.bodies == passing.bodies == [b"after"]


def test_start_oldest_begins_with_the_oldest_message_still_stored() -> None:
    world = World()
    destination = topic(world)
    slow = world.consumer(destination, subscription="slow")
    producer = world.producer(destination)
    for body in (b"a", b"b", b"c"):
        producer.publish(body)
    slow.settle((0, 1))
    replaying = world.consumer(destination, subscription="replay", start=Start.OLDEST)
    passing = world.consumer(destination, start=Start.OLDEST)
    assert replaying.bodies == passing.bodies == [b"b", b"c"]


def test_a_durable_subscription_goes_on_where_it_was_whatever_start_it_asks_for() -> None:
    world = World()
    destination = topic(world)
    consumer = world.consumer(destination, subscription="s")
    producer = world.producer(destination)
    producer.publish(b"a", b"b")
    consumer.settle((0, 1))
    consumer.close()
    producer.publish(b"c")
    again = world.consumer(destination, subscription="s", start=Start.NEXT)
    assert again.deliveries == [(1, b"b", 1), (2, b"c", 0)]


def test_a_durable_subscription_has_one_consumer_at_a_time() -> None:
    world = World()
    destination = topic(world)
    first = world.consumer(destination, subscription="s")
    second = world.consumer(destination, subscription="s")
    assert second.closed_codes == ["subscription-in-use"]
    world.end(first.session, closed=False)
    third = world.consumer(destination, subscription="s")
    assert third.closed_codes == ["subscription-in-use"], "it is kept for the one that was cut off"
    world.advance(5)
    assert world.consumer(destination, subscription="s").is_open


def test_consumers_that_are_not_durable_are_strangers_to_each_other() -> None:
    world = World()
    destination = topic(world)
    session = world.session()
    consumers = [Consumer(world, destination, session=session, number=number) for number in (1, 2)]
    world.producer(destination).publish(b"a")
    assert [consumer.bodies for consumer in consumers] == [[b"a"], [b"a"]]


# -- what it costs -------------------------------------------------------------------------------------------


def test_a_topic_without_subscriptions_stores_no_message() -> None:
    world = World()
    destination = topic(world)
    producer = world.producer(destination)
    for _ in range(10):
        producer.publish(b"a", b"b")
    assert producer.confirmed == 20
    assert world.disk.batches_written == 0
    assert world.describe("t")["first_position"] == world.describe("t")["next_position"] == 20


def test_a_topic_without_subscriptions_is_consistent_while_a_write_is_under_way() -> None:
    world = World()
    destination = topic(world)
    producer = world.producer(destination)
    world.auto = False
    producer.publish(b"a")  # World checks the invariants after every event
    world.run_disk()
    assert producer.confirmed == 1


@pytest.mark.parametrize("ending", ["close", "unsubscribe", "session closed", "cut and given up", "removed"])
def test_a_subscription_that_has_gone_costs_nothing(ending: str) -> None:
    world = World()
    destination = topic(world)
    durable = ending in ("unsubscribe", "removed")
    consumer = world.consumer(destination, subscription="s" if durable else "")
    producer = world.producer(destination)
    producer.publish(b"a", b"b")
    producer.close()
    match ending:
        case "close":
            consumer.close()
        case "unsubscribe":
            consumer.close(unsubscribe=True)
        case "session closed":
            world.end(consumer.session, closed=True)
        case "cut and given up":
            world.end(consumer.session, closed=False)
            assert world.disk.batch_ends(destination) == [2], "it may come back"
            world.advance(5)
        case "removed":
            consumer.close()
            assert not world.request("subscription.remove", name="t", subscription="s").code
    assert stored_tables(world, destination) == {Table.LOG}
    described = world.describe("t")
    assert described["subscriptions"] == []
    assert described["messages"] == described["in_flight"] == described["consumers"] == 0
    assert list(world.destination(destination).subscriptions) == []
    world.rest()
    assert world.manager.deadline() is None


def test_a_gone_subscription_releases_the_log_of_the_others() -> None:
    world = World()
    destination = topic(world)
    slow = world.consumer(destination, subscription="slow", credit=0)
    fast = world.consumer(destination, subscription="fast")
    producer = world.producer(destination)
    for body in (b"a", b"b", b"c"):
        producer.publish(body)
    fast.settle((0, 2))
    assert world.disk.batch_ends(destination) == [1, 2, 3]
    slow.close(unsubscribe=True)
    assert world.disk.batch_ends(destination) == [3]


def test_a_subscription_that_has_gone_while_it_was_read_for_is_not_delivered_to() -> None:
    world = World()
    destination = topic(world)
    consumer = world.consumer(destination, credit=0)
    world.producer(destination).publish(b"a")
    world.auto = False
    consumer.credit(1)
    assert len(world.reads) == 1
    consumer.close()
    world.run_disk()
    assert consumer.bodies == []
    assert world.disk.batch_ends(destination) == []


def test_a_durable_subscription_keeps_messages_while_nobody_is_there() -> None:
    world = World()
    destination = topic(world)
    world.consumer(destination, subscription="s").close()
    world.producer(destination).publish(b"a")
    world = world.restarted()
    world.advance(5)
    assert world.consumer(destination, subscription="s").bodies == [b"a"]


def test_a_subscription_in_use_cannot_be_removed() -> None:
    world = World()
    destination = topic(world)
    consumer = world.consumer(destination, subscription="s")
    passing = world.consumer(destination)
    assert world.request("subscription.remove", name="t", subscription="s").code == "subscription-in-use"
    hidden = world.describe("t")["subscriptions"][1]["name"]
    assert world.request("subscription.remove", name="t", subscription="x").code == "unknown-subscription"
    for no_name in ("", hidden):
        assert world.request("subscription.remove", name="t", subscription=no_name).code == "bad-name"
    world.producer(destination).publish(b"a")
    assert consumer.bodies == passing.bodies == [b"a"]


# -- coming back -----------------------------------------------------------------------------------------------


def test_a_passing_subscriber_that_is_cut_off_misses_nothing() -> None:
    world = World()
    destination = topic(world)
    consumer = world.consumer(destination)
    producer = world.producer(destination)
    producer.publish(b"a")
    world.end(consumer.session, closed=False)
    producer.publish(b"b")
    world.advance(1.0)
    consumer.resume([(0, 1)], next_position=1)
    assert consumer.bodies == [b"a", b"b"]


def test_a_passing_subscriber_goes_on_after_a_restart_from_what_it_knows() -> None:
    world = World()
    destination = topic(world)
    consumer, producer = world.consumer(destination), world.producer(destination)
    for body in (b"a", b"b", b"c", b"d"):
        producer.publish(body)
    consumer.settle((0, 1), (2, 3))
    world = world.restarted()
    consumer.resume([(1, 2)], next_position=3, world=world)
    assert world.last(consumer.session, frames.ConsumerOpened).lost == []
    assert consumer.deliveries == [(3, b"d", 0)], "held ones are not delivered again, settled ones neither"
    consumer.settle((1, 2), (3, 4))
    assert consumer.settled[-1].lost == []
    world.advance(5)
    assert world.disk.batch_ends(destination) == []


def test_what_came_back_from_a_cut_reaches_a_passing_subscriber_after_another_one_and_a_restart() -> None:
    """It was sent once, did not arrive, and is free: where its client is told to go on is before it."""
    world = World()
    destination = topic(world)
    consumer = world.consumer(destination)
    world.producer(destination).publish(b"a", b"b")
    for credit in (0, None):
        world.end(consumer.session, closed=False)
        consumer.resume([], next_position=0, credit=credit)
    opened = world.last(consumer.session, frames.ConsumerOpened)
    world = world.restarted()
    consumer.resume([], next_position=opened.position, world=world)
    assert consumer.bodies == [b"a", b"b"]


def test_a_restarted_topic_keeps_its_log_until_its_passing_subscribers_had_time_to_come_back() -> None:
    world = World()
    destination = topic(world)
    world.consumer(destination)
    producer = world.producer(destination)
    producer.publish(b"a")
    world = world.restarted()
    producer.resume(world=world)
    producer.publish(b"b")
    assert world.disk.batch_ends(destination) == [1, 2]
    world.advance(5)
    assert world.disk.batch_ends(destination) == []
    assert world.manager.deadline() is None


def test_claims_that_the_log_no_longer_holds_are_lost_and_the_others_are_not() -> None:
    world = World()
    destination = topic(world)
    keeper = world.consumer(destination, subscription="keeper")
    producer = world.producer(destination)
    for body in (b"a", b"b", b"c", b"d"):
        producer.publish(body)
    keeper.settle((0, 2))
    late = Consumer(world, destination, session=world.session(), credit=0)
    late.close()
    late.resume([(0, 1), (2, 3)], next_position=3)
    assert world.last(late.session, frames.ConsumerOpened).lost == [(0, 1)]
    assert late.positions == [3]
    late.settle((2, 4))
    assert late.settled[-1].lost == []


# Once: a claim that begins below the log's first position is dropped as a whole, also the part that is still there: the
# client is told that it lost it, and nobody delivers it again.
def test_a_claim_that_the_log_holds_in_part_is_honoured_in_part() -> None:
    world = World()
    destination = topic(world)
    keeper = world.consumer(destination, subscription="keeper")
    producer = world.producer(destination)
    for body in (b"a", b"b", b"c", b"d"):
        producer.publish(body)
    keeper.settle((0, 2))
    late = Consumer(world, destination, session=world.session(), credit=0)
    late.close()
    late.resume([(0, 3)], next_position=3)
    assert world.last(late.session, frames.ConsumerOpened).lost == [(0, 2)]
    late.settle((2, 3))
    assert late.settled[-1].lost == []


@pytest.mark.parametrize("next_position", [0, 1, 2, 3, 1 << 40])
def test_a_liar_about_its_next_position_harms_nobody_else(next_position: int) -> None:
    world = World()
    destination = topic(world)
    other = world.consumer(destination, subscription="other")
    producer = world.producer(destination)
    producer.publish(b"a")
    world.auto = False
    producer.publish(b"b")
    liar = Consumer(world, destination, session=world.session(), credit=0)
    liar.close()
    liar.resume([(0, 1 << 40)], next_position=next_position)  # World checks the invariants after every event
    world.run_disk()
    world.auto = True
    producer.publish(b"c")
    assert other.bodies == [b"a", b"b", b"c"]
    other.settle((0, 3))
    liar.close()
    assert world.disk.batch_ends(destination) == []


@pytest.mark.parametrize("seed", range(20))
def test_through_any_history_each_subscription_gets_each_message_once(seed: int) -> None:
    """Everybody settles what it gets, sooner or later; consumers come, go and are cut off."""
    random = Random(seed)
    world = World()
    destination = topic(world)
    names = ["s1", "s2", "s3"]
    consumers = {name: world.consumer(destination, subscription=name) for name in names}
    seen: dict[str, set[int]] = {name: set() for name in names}
    producer = world.producer(destination)
    published = 0

    def settle_all(name: str) -> None:
        consumer = consumers[name]
        fresh = [p for p in consumer.positions if p not in seen[name]]
        assert len(fresh) == len(set(fresh))
        seen[name].update(fresh)
        for position in fresh:
            consumer.settle((position, position + 1))
            assert consumer.settled[-1].lost == []

    for _ in range(60):
        name = random.choice(names)
        match random.choice(["publish", "publish", "settle", "reopen", "cut"]):
            case "publish":
                count = random.randint(1, 4)
                producer.publish(*(b"%d" % (published + at) for at in range(count)))
                published += count
            case "settle":
                settle_all(name)
            case "reopen":
                settle_all(name)
                consumers[name].close()
                consumers[name] = world.consumer(destination, subscription=name)
            case "cut":
                settle_all(name)
                world.end(consumers[name].session, closed=False)
                consumers[name].resume([])
    for name in names:
        settle_all(name)
        assert seen[name] == set(range(published))
    assert world.disk.batch_ends(destination) == []


def test_a_subscription_is_not_removed_while_its_consumer_may_come_back() -> None:
    for restarts in (False, True):
        world = World()
        topic = world.locate("t", DestinationKind.TOPIC)
        consumer = world.consumer(topic, subscription="s")
        if restarts:
            world = world.restarted()
        else:
            world.end(consumer.session, closed=False)
        reply = world.request("subscription.remove", name="t", subscription="s")
        assert reply.code == "subscription-in-use" and "for a consumer that was cut off" in reply.reason
        world.advance(world.settings.resume_grace_s + 1)
        assert not world.request("subscription.remove", name="t", subscription="s").code

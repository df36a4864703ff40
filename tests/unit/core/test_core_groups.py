"""Message groups (JMSXGroupID, Jakarta Messaging 3.1, 3.5.9): all of a group go to one consumer, in order; the group
moves when that one goes."""
import pytest

from angarium.core.destination import line
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_clients import Consumer
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns, grouped


def publish(world: World, queue: int, *bodies: bytes) -> None:
    """The group of a message is the first letter of its body; '-' is none."""
    groups = [None if body[:1] == b"-" else body[:1].decode() for body in bodies]
    world.producer(queue).publish(*bodies, columns=grouped(*groups))


def owner_of(group: bytes, *consumers: Consumer) -> Consumer:
    (owner,) = [consumer for consumer in consumers if any(body.startswith(group) for body in consumer.bodies)]
    return owner


def settle_all(consumer: Consumer) -> None:
    consumer.settle(*((p, p + 1) for p in consumer.positions))


def test_all_messages_of_a_group_go_to_one_consumer_in_order() -> None:
    world = World()
    queue = world.locate("q")
    consumers = [world.consumer(queue) for _ in range(3)]
    for number in range(5):
        publish(world, queue, *(b"%c%d" % (letter, number) for letter in b"abcdef"))
    for group in (b"a", b"b", b"c", b"d", b"e", b"f"):
        owner = owner_of(group, *consumers)
        assert [body for body in owner.bodies if body.startswith(group)] == [b"%s%d" % (group, n) for n in range(5)]
    assert all(consumer.bodies for consumer in consumers), "groups are divided"


def test_a_message_without_a_group_goes_to_anybody() -> None:
    world = World()
    queue = world.locate("q")
    first, second = world.consumer(queue), world.consumer(queue)
    publish(world, queue, b"-0", b"-1", b"-2", b"-3")
    assert first.bodies and second.bodies


def test_a_group_waits_for_its_owner_while_others_are_served() -> None:
    world = World()
    queue = world.locate("q")
    owner = world.consumer(queue, credit=1)
    publish(world, queue, b"a0")
    other = world.consumer(queue)
    publish(world, queue, b"a1", b"b0")
    assert (owner.bodies, other.bodies) == ([b"a0"], [b"b0"])
    owner.credit(5)
    assert owner.bodies == [b"a0", b"a1"]


def test_a_group_moves_when_its_owner_closes_and_what_it_held_comes_first() -> None:
    world = World()
    queue = world.locate("q")
    owner = world.consumer(queue)
    publish(world, queue, b"a0", b"a1")
    other = world.consumer(queue)
    publish(world, queue, b"a2")
    assert other.bodies == []
    owner.close()
    assert other.bodies == [b"a0", b"a1", b"a2"]


def test_a_group_stays_with_an_owner_that_is_cut_off_until_the_grace_time_is_over() -> None:
    world = World()
    queue = world.locate("q")
    owner, other = world.consumer(queue, credit=1), world.consumer(queue, credit=0)
    publish(world, queue, b"a0")
    other.credit(10)
    world.end(owner.session, closed=False)
    publish(world, queue, b"a1")
    assert other.bodies == [], "the owner may still be working on the first"
    world.advance(world.settings.resume_grace_s)
    assert other.bodies == [b"a0", b"a1"]


def test_an_owner_that_resumes_still_has_its_groups() -> None:
    world = World()
    queue = world.locate("q")
    owner, other = world.consumer(queue), world.consumer(queue, credit=0)
    publish(world, queue, b"a0")
    other.credit(10)
    world.end(owner.session, closed=False)
    publish(world, queue, b"a1")
    owner.resume([(0, 1)])
    publish(world, queue, b"a2")
    assert (owner.bodies, other.bodies) == ([b"a0", b"a1", b"a2"], [])


def test_a_session_that_ends_gives_its_groups_up_at_once() -> None:
    world = World()
    queue = world.locate("q")
    owner, other = world.consumer(queue), world.consumer(queue, credit=0)
    publish(world, queue, b"a0")
    other.credit(10)
    world.end(owner.session, closed=True)
    assert other.bodies == [b"a0"]


def test_a_released_message_of_a_group_comes_back_to_its_owner() -> None:
    world = World()
    queue = world.locate("q")
    owner, other = world.consumer(queue), world.consumer(queue)
    publish(world, queue, b"a0", b"a1")
    holder, idle = (owner, other) if owner.bodies else (other, owner)
    holder.release((0, 1))
    assert (holder.bodies, idle.bodies) == ([b"a0", b"a1", b"a0"], [])


def test_an_exclusive_consumer_takes_the_groups_of_those_it_displaces() -> None:
    world = World()
    queue = world.locate("q")
    early = world.consumer(queue)
    publish(world, queue, b"a0")
    sole = world.consumer(queue, exclusive=True)
    publish(world, queue, b"a1")
    assert (early.bodies, sole.bodies) == ([b"a0"], [b"a1"])


def test_what_the_selector_of_a_groups_owner_excludes_goes_to_one_other_consumer() -> None:
    world = World()
    queue = world.locate("q")
    small = world.consumer(queue, selector="size < 10")
    large = [world.consumer(queue, selector="size >= 10") for _ in range(2)]
    sizes = [1, 20, 2, 30, 3, 40]
    fields = columns(properties=[{"size": size} for size in sizes], groups=["a"] * 6)
    world.producer(queue).publish(*(b"%d" % size for size in sizes), columns=fields)
    assert small.bodies == [b"1", b"2", b"3"]
    assert sorted(consumer.bodies for consumer in large) == [[], [b"20", b"30", b"40"]]


def test_groups_are_kept_apart_on_a_shared_subscription_too() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    first, second = (world.consumer(topic, subscription="s", shared=True) for _ in range(2))
    publish(world, topic, b"a0", b"b0")
    publish(world, topic, b"b1", b"a1")
    for group in (b"a", b"b"):
        assert len(owner_of(group, first, second).bodies) == 2


def test_more_groups_than_buckets_share_them_and_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets, groups = 1_000, 1_500
    monkeypatch.setattr(line, "GROUP_BUCKETS", buckets)
    world = World()
    queue = world.locate("q")
    consumers = [world.consumer(queue, credit=10**6) for _ in range(2)]
    producer = world.producer(queue)
    for round_number in range(2):
        for low in range(0, groups, 500):
            names = [f"g{number}" for number in range(low, low + 500)]
            producer.publish(*(b"%s.%d" % (n.encode(), round_number) for n in names), columns=grouped(*names))
        for consumer in consumers:
            settle_all(consumer)
    (subscription,) = world.destination(queue).subscriptions
    assert groups / 2 < subscription.line.group_count <= buckets
    owners = [{body.partition(b".")[0] for body in consumer.bodies} for consumer in consumers]
    assert not owners[0] & owners[1] and len(owners[0] | owners[1]) == groups


def test_a_group_that_is_not_a_string_is_none() -> None:
    world = World()
    queue = world.locate("q")
    first, second = world.consumer(queue), world.consumer(queue)
    world.producer(queue).publish(b"m0", b"m1", columns=grouped(3, 3))  # type: ignore[arg-type]
    assert first.bodies and second.bodies

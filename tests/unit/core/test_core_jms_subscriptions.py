"""Jakarta Messaging 3.1, 8.3: unshared and shared, durable and not; changing one; no-local; and, beyond it, exclusive
consumers."""
from typing import Any

import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import colours

RED, BLUE = "colour = 'red'", "colour = 'blue'"
HERE, THERE = b"h" * 16, b"t" * 16


def topic_of(world: World) -> int:
    return world.locate("t", DestinationKind.TOPIC)


def names(world: World, topic: int) -> list[str]:
    return [subscription.name for subscription in world.destination(topic).subscriptions]


@pytest.mark.parametrize("durable", [False, True])
def test_each_message_of_a_shared_subscription_goes_to_only_one_of_its_consumers(durable: bool) -> None:
    world = World()
    topic = topic_of(world)
    first, second = (world.consumer(topic, subscription="s", shared=True, durable=durable) for _ in range(2))
    world.producer(topic).publish(*(b"m%d" % n for n in range(10)))
    assert sorted(first.bodies + second.bodies) == [b"m%d" % n for n in range(10)]
    assert first.bodies and second.bodies


def test_a_shared_subscription_that_is_not_durable_goes_with_its_last_consumer() -> None:
    world = World()
    topic = topic_of(world)
    first, second = (world.consumer(topic, subscription="s", shared=True, durable=False) for _ in range(2))
    first.close()
    world.producer(topic).publish(b"m0")
    assert second.bodies == [b"m0"]
    second.close()
    assert names(world, topic) == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_shared_subscription_that_is_not_durable_may_have_the_name_of_one_that_is(shared: bool) -> None:
    """8.3.2: such subscriptions are completely separate."""
    world = World()
    topic = topic_of(world)
    durable = world.consumer(topic, subscription="s", shared=shared)
    passing = world.consumer(topic, subscription="s", shared=True, durable=False)
    producer = world.producer(topic)
    producer.publish(b"m0")
    assert (durable.bodies, passing.bodies) == ([b"m0"], [b"m0"])
    passing.close()
    durable.close()
    producer.publish(b"m1")
    passing = world.consumer(topic, subscription="s", shared=True, durable=False)
    assert (passing.bodies, passing.closed_codes) == ([], [])
    assert world.consumer(topic, subscription="s", shared=shared).bodies == [b"m0", b"m1"]


def test_a_shared_durable_subscription_keeps_what_arrives_while_nobody_consumes() -> None:
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s", shared=True).close()
    world.producer(topic).publish(b"m0")
    assert world.restarted().consumer(topic, subscription="s", shared=True).bodies == [b"m0"]


def test_what_a_consumer_of_a_shared_subscription_held_goes_to_the_others_when_it_closes() -> None:
    world = World()
    topic = topic_of(world)
    first, second = (world.consumer(topic, subscription="s", shared=True) for _ in range(2))
    world.producer(topic).publish(b"m0", b"m1")
    first.close()
    assert sorted(second.bodies) == [b"m0", b"m1"]


def test_an_unshared_durable_subscription_has_one_active_consumer() -> None:
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s")
    assert world.consumer(topic, subscription="s").closed_codes == ["subscription-in-use"]


@pytest.mark.parametrize("first", [False, True])
def test_a_shared_and_an_unshared_durable_subscription_may_not_have_the_same_name(first: bool) -> None:
    """Also when nobody consumes: what the other kind keeps is not thrown away by a slip."""
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s", shared=first).close()
    world.producer(topic).publish(b"m0")
    assert world.consumer(topic, subscription="s", shared=not first).closed_codes == ["subscription-differs"]
    assert world.consumer(topic, subscription="s", shared=first).bodies == [b"m0"]


@pytest.mark.parametrize("shared", [False, True])
def test_changing_the_selector_of_an_inactive_durable_subscription_replaces_it(shared: bool) -> None:
    """As if it had been unsubscribed: what was kept for it is gone, and it begins anew."""
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s", selector=RED, shared=shared).close()
    producer = world.producer(topic)
    producer.publish(b"r", b"b", columns=colours("red", "blue"))
    changed = world.consumer(topic, subscription="s", selector=BLUE, shared=shared)
    assert changed.is_open and changed.bodies == []
    producer.publish(b"r", b"b", columns=colours("red", "blue"))
    assert changed.bodies == [b"b"]
    changed.close()
    world = world.restarted()
    world.producer(topic).publish(b"r", b"b2", columns=colours("red", "blue"))
    assert world.consumer(topic, subscription="s", selector=BLUE, shared=shared).bodies == [b"b", b"b2"]


@pytest.mark.parametrize("change", [{"selector": BLUE}, {"no_local": True, "client": HERE}])
def test_an_active_shared_durable_subscription_cannot_be_changed(change: dict[str, Any]) -> None:
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s", selector=RED, shared=True)
    other = world.consumer(topic, subscription="s", shared=True, **{"selector": RED, **change})
    assert other.closed_codes == ["subscription-differs"]
    told = world.last(other.session, frames.ConsumerClosed).reason
    assert ("another selector" if "selector" in change else "another no_local") in told


def test_an_active_unshared_durable_subscription_cannot_be_changed() -> None:
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s", selector=RED)
    assert world.consumer(topic, subscription="s", selector=BLUE).closed_codes == ["subscription-in-use"]


def test_unsubscribing_ends_a_durable_subscription_and_frees_what_it_kept() -> None:
    world = World()
    topic = topic_of(world)
    subscriber = world.consumer(topic, subscription="s", credit=0)
    world.producer(topic).publish(b"m0")
    subscriber.close(unsubscribe=True)
    assert names(world, topic) == [] and world.disk.batch_ends(topic) == []
    assert world.restarted().consumer(topic, subscription="s").bodies == []


def test_a_shared_subscription_is_not_unsubscribed_while_others_consume() -> None:
    world = World()
    topic = topic_of(world)
    first, second = (world.consumer(topic, subscription="s", shared=True) for _ in range(2))
    first.close(unsubscribe=True)
    assert names(world, topic) == ["s"]
    world.producer(topic).publish(b"m0")
    assert second.bodies == [b"m0"]


@pytest.mark.parametrize("kind", [{"subscription": "s"}, {"shared": True}])
def test_a_queue_has_no_subscriptions_of_its_own_making(kind: dict[str, Any]) -> None:
    world = World()
    assert world.consumer(world.locate("q"), **kind).closed_codes == ["wrong-kind"]


def test_a_shared_subscription_needs_a_name() -> None:
    world = World()
    assert world.consumer(topic_of(world), shared=True).closed_codes == ["bad-name"]


def test_one_subscription_past_the_most_is_refused_and_replacing_one_is_not() -> None:
    world = World(DestinationSettings(subscriptions_max=2))
    topic = topic_of(world)
    first = world.consumer(topic, subscription="a", selector=RED)
    world.consumer(topic)
    assert world.consumer(topic).closed_codes == ["too-many-subscriptions"]
    assert world.consumer(topic, subscription="b").closed_codes == ["too-many-subscriptions"]
    first.close()
    assert world.consumer(topic, subscription="a", selector=BLUE).is_open


# -- no-local ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "s"])
def test_no_local_leaves_out_what_the_same_connection_has_published(name: str) -> None:
    world = World()
    topic = topic_of(world)
    subscriber = world.consumer(topic, subscription=name, no_local=True, client=HERE)
    world.producer(topic, client=HERE).publish(b"own")
    world.producer(topic, client=THERE).publish(b"other")
    world.producer(topic, client=HERE).publish(b"own again")
    assert subscriber.bodies == [b"other"]


def test_no_local_and_a_selector_hold_together() -> None:
    world = World()
    topic = topic_of(world)
    subscriber = world.consumer(topic, selector=RED, no_local=True, client=HERE)
    for client in (HERE, THERE):
        world.producer(topic, client=client).publish(client + b"r", client + b"b", columns=colours("red", "blue"))
    assert subscriber.bodies == [THERE + b"r"]


def test_no_local_holds_for_what_was_published_before_a_restart() -> None:
    world = World()
    topic = topic_of(world)
    world.consumer(topic, subscription="s", no_local=True, client=HERE).close()
    world.producer(topic, client=THERE).publish(b"other")
    world.producer(topic, client=HERE).publish(b"own")
    subscriber = world.restarted().consumer(topic, subscription="s", no_local=True, client=HERE)
    assert subscriber.bodies == [b"other"]


# -- exclusive ---------------------------------------------------------------------------------------


def test_while_an_exclusive_consumer_is_there_nobody_else_is_served() -> None:
    world = World()
    queue = world.locate("q")
    common, sole = world.consumer(queue), world.consumer(queue, exclusive=True)
    waiting = world.consumer(queue, exclusive=True)
    world.producer(queue).publish(b"m0", b"m1")
    assert (common.bodies, sole.bodies, waiting.bodies) == ([], [b"m0", b"m1"], [])
    sole.settle((0, 1))
    sole.close()
    assert (common.bodies, waiting.bodies) == ([], [b"m1"])
    waiting.close()
    assert common.bodies == [b"m1"]


def test_an_exclusive_consumer_without_credit_is_waited_for() -> None:
    world = World()
    queue = world.locate("q")
    world.consumer(queue, exclusive=True, credit=0)
    other = world.consumer(queue)
    world.producer(queue).publish(b"m0")
    assert other.bodies == []

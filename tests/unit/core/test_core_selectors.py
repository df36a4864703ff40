"""Jakarta Messaging 3.1, 3.8: only messages that a consumer's selector is true of are delivered to it. On a queue the
others stay for whoever wants them; on a topic they are not of the subscription at all."""
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.destination.events import DestinationSettings, Read
from angarium.core.ids import format_id, message_id
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Start
from angarium.core.wire.layout import Columns
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import colours, columns

RED, BLUE = "colour = 'red'", "colour = 'blue'"
MIXED = colours("red", "blue", "red", "blue", "green")
BODIES = (b"r0", b"b0", b"r1", b"b1", b"g0")


def test_a_queue_keeps_what_a_selector_leaves_for_other_consumers() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(*BODIES, columns=MIXED)
    red, blue = world.consumer(queue, selector=RED), world.consumer(queue, selector=BLUE)
    assert (red.bodies, blue.bodies) == ([b"r0", b"r1"], [b"b0", b"b1"])
    assert world.consumer(queue).bodies == [b"g0"]


def test_consumers_with_selectors_get_what_arrives_while_they_wait() -> None:
    world = World()
    queue = world.locate("q")
    red, blue = world.consumer(queue, selector=RED), world.consumer(queue, selector=BLUE)
    producer = world.producer(queue)
    producer.publish(*BODIES, columns=MIXED)
    producer.publish(b"r2", columns=colours("red"))
    assert (red.bodies, blue.bodies) == ([b"r0", b"r1", b"r2"], [b"b0", b"b1"])


def test_a_message_without_the_property_is_unknown_and_not_delivered() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"m0", b"m1", columns=columns(properties=[{}, {"n": 3}]))
    world.producer(queue).publish(b"plain")
    assert world.consumer(queue, selector="n > 2").bodies == [b"m1"]
    assert world.consumer(queue, selector="n IS NULL").bodies == [b"m0", b"plain"]


@pytest.mark.parametrize(
    ("selector", "bodies"),
    [("JMSPriority > 6", [b"high"]), ("JMSType = 'order'", [b"typed"]), ("JMSCorrelationID = 'c'", [b"typed"]),
     ("JMSDeliveryMode = 'PERSISTENT' AND JMSPriority < 2", [b"low"])],
)  # fmt: skip
def test_selectors_see_header_fields(selector: str, bodies: list[bytes]) -> None:
    world = World()
    queue = world.locate("q")
    headers = [{}, {}, {"type": "order", "correlation_id": "c"}]
    fields = columns(priorities=[9, 1, 4], headers=headers)
    world.producer(queue).publish(b"high", b"low", b"typed", columns=fields)
    assert world.consumer(queue, selector=selector).bodies == bodies


def test_a_released_message_goes_to_whoever_wants_it_first() -> None:
    """The queue's other consumer has passed it over once; it does not want it now either."""
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(*BODIES, columns=MIXED)
    blue, red = world.consumer(queue, selector=BLUE), world.consumer(queue, selector=RED)
    red.release((0, 1))
    assert red.bodies == [b"r0", b"r1", b"r0"] and red.deliveries[-1][2] == 1
    assert blue.bodies == [b"b0", b"b1"]


def test_what_a_closed_consumer_held_is_shown_again_to_those_who_had_no_chance_to_take_it() -> None:
    world = World()
    queue = world.locate("q")
    first, second = world.consumer(queue, selector=RED), world.consumer(queue, selector=RED)
    world.producer(queue).publish(*BODIES, columns=MIXED)
    first.close()
    assert sorted(second.bodies) == [b"r0", b"r1"]


def test_a_consumer_without_credit_is_passed_by_and_looks_when_it_has_some() -> None:
    world = World()
    queue = world.locate("q")
    idle, busy = world.consumer(queue, selector=RED, credit=0), world.consumer(queue, selector=BLUE)
    world.producer(queue).publish(*BODIES, columns=MIXED)
    assert (idle.bodies, busy.bodies) == ([], [b"b0", b"b1"])
    idle.credit(1)
    assert idle.bodies == [b"r0"]
    idle.credit(5)
    assert idle.bodies == [b"r0", b"r1"]


@pytest.mark.parametrize("selector", ["colour = ", "1 +", "colour LIKE 3", "(a = 1", "a = 1)"])
def test_a_wrong_selector_is_refused_before_anything_changes(selector: str) -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    wrong = world.consumer(topic, subscription="s", selector=selector)
    assert wrong.closed_codes == ["bad-selector"]
    assert not list(world.destination(topic).subscriptions)


def test_a_selector_one_character_too_long_is_refused() -> None:
    world = World(DestinationSettings(selector_characters_max=20))
    queue = world.locate("q")
    assert world.consumer(queue, selector="colour = 'red'      ").is_open
    refused = world.consumer(queue, selector="colour = 'red'       ")
    assert refused.closed_codes == ["selector-too-long"]
    assert "selector_characters_max 20" in world.last(refused.session, frames.ConsumerClosed).reason


# -- topics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_a_topic_subscription_gets_everything_that_matches_and_nothing_else(durable: bool) -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    name = "s" if durable else ""
    red = world.consumer(topic, subscription=name, selector=RED)
    everything = world.consumer(topic)
    producer = world.producer(topic)
    for _ in range(3):
        producer.publish(*BODIES, columns=MIXED)
    assert red.bodies == [b"r0", b"r1"] * 3
    assert everything.bodies == list(BODIES) * 3


def test_what_no_selector_wants_is_freed_at_once() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    red = world.consumer(topic, subscription="s", selector=RED)
    world.producer(topic).publish(b"b", b"g", columns=colours("blue", "green"))
    assert world.disk.batch_ends(topic) == []
    assert world.describe("t")["messages"] == 0
    world.producer(topic).publish(b"r", columns=colours("red"))
    (position,) = red.positions
    red.settle((position, position + 1))
    assert world.disk.batch_ends(topic) == []


@pytest.mark.parametrize("is_attached", [False, True])
def test_a_durable_selector_holds_after_a_restart(is_attached: bool) -> None:
    """What it was offered and what nobody has looked at for it lie side by side in the log."""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    world.consumer(topic, subscription="all").close()
    red = world.consumer(topic, subscription="s", selector=RED, credit=1)
    world.producer(topic).publish(*BODIES, columns=MIXED)
    if not is_attached:
        red.close()
    world = world.restarted()
    world.advance(10)
    world.producer(topic).publish(*BODIES, columns=MIXED)
    assert world.consumer(topic, subscription="s", selector=RED).bodies == [b"r0", b"r1"] * 2
    assert not world.reports
    assert world.consumer(topic, subscription="all").bodies == list(BODIES) * 2


def test_a_durable_selector_that_wanted_nothing_for_long_starts_again_without_damage() -> None:
    """The log has gone on without it: what it never had to settle is no longer stored."""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    world.consumer(topic, subscription="s", selector=RED).close()
    producer = world.producer(topic)
    for _ in range(5):
        producer.publish(b"b", columns=colours("blue"))
    world = world.restarted()
    world.advance(10)
    red = world.consumer(topic, subscription="s", selector=RED)
    world.producer(topic).publish(b"r", columns=colours("red"))
    assert red.bodies == [b"r"] and not world.reports
    assert world.describe("t")["messages"] == 1


def test_a_subscription_with_a_selector_that_starts_at_the_oldest_looks_for_itself() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    world.consumer(topic, subscription="all", credit=0)
    producer = world.producer(topic)
    producer.publish(*BODIES, columns=MIXED)
    red = world.consumer(topic, subscription="s", selector=RED, start=Start.OLDEST)
    producer.publish(*BODIES, columns=MIXED)
    assert red.bodies == [b"r0", b"r1"] * 2


# -- what it costs -----------------------------------------------------------------------------------


def test_what_a_passing_subscriber_was_offered_and_not_sent_reaches_it_after_a_cut_and_a_restart() -> None:
    """It is not durable: only its client knows where it goes on, and knows that from the broker until it has something.
    (crowded-post, seed 840)"""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    subscriber = world.consumer(topic, credit=1, selector=RED)
    producer = world.producer(topic)
    producer.publish(b"4", columns=colours("red"))
    properties = [{"colour": colour} for colour in ("blue", "red", "red", "blue")]
    producer.publish(b"a", b"b", b"c", b"d", columns=columns(priorities=[9] * 4, properties=properties))
    assert subscriber.bodies == [b"4"]
    world.end(subscriber.session, closed=False)
    subscriber.resume([(0, 1)], next_position=1, credit=None)
    opened = world.last(subscriber.session, frames.ConsumerOpened)
    world = world.restarted()
    subscriber.resume([(0, 1)], next_position=1, next_positions=opened.positions, world=world)
    assert subscriber.bodies == [b"b", b"c"]


def test_memory_does_not_grow_with_what_was_passed_over_and_taken_by_others() -> None:
    world = World()
    queue = world.locate("q")
    red, blue = world.consumer(queue, selector=RED, credit=10**6), world.consumer(queue, selector=BLUE, credit=10**6)
    producer = world.producer(queue)
    for _ in range(100):
        producer.publish(*[b"m"] * 40, columns=colours(*["red", "blue"] * 20))
        for consumer in (red, blue):
            consumer.settle(*((p, p + 1) for p in consumer.positions[-20:]))
    (subscription,) = world.destination(queue).subscriptions
    assert len(subscription.settled) == 0
    for attached in subscription.consumers.values():
        assert attached.unseen is not None and len(attached.unseen) <= 2 * 64


def test_a_selective_consumer_is_not_held_up_by_the_holes_it_leaves() -> None:
    world = World(DestinationSettings(in_flight_max=10))
    queue = world.locate("q")
    red = world.consumer(queue, selector=RED, credit=1_000)
    producer = world.producer(queue)
    for _ in range(100):
        producer.publish(b"r", b"b", columns=colours("red", "blue"))
        red.settle(*((p, p + 1) for p in red.positions[-1:]))
    assert len(red.bodies) == 100
    world = world.restarted()
    world.advance(world.settings.resume_grace_s)
    late = world.consumer(queue, credit=1_000)
    assert [(body, count) for _, body, count in late.deliveries] == [(b"b", 0)] * 100, "nobody had those passed over"


def test_a_selective_consumer_leaves_a_limited_number_of_holes() -> None:
    """200,000 messages of which it takes every second one; nobody wants the others."""
    count, limit = 200_000, 1_000
    world = World(DestinationSettings(in_flight_max=limit, holes_max=limit))
    queue = world.locate("q")
    producer = world.producer(queue)
    part = colours(*["red", "blue"] * 5_000)
    for _ in range(count // 10_000):
        producer.publish(*[b"m"] * 10_000, columns=part)
    red = world.consumer(queue, selector=RED, credit=10**6)
    (subscription,) = world.destination(queue).subscriptions
    taken = 0
    while len(red.positions) > taken:
        new = red.positions[taken:]
        assert len(new) <= limit
        taken += len(new)
        red.settle(*((p, p + 1) for p in new))
    assert len(subscription.settled) == limit, "past it nothing new is delivered"
    assert taken == limit + 1  # the first one was at the cursor: it left no hole
    assert len(subscription.returned) <= limit + 1
    everybody = world.consumer(queue, credit=limit)
    assert everybody.bodies, "whoever takes the others makes room again"
    everybody.settle(*((p, p + 1) for p in everybody.positions))
    assert len(red.positions) > taken


def test_who_comes_into_line_while_something_later_is_read_gets_what_is_before_it_first() -> None:
    world = World()
    queue = world.locate("q")
    choosy, other = world.consumer(queue, selector=RED), world.consumer(queue, credit=0)
    world.producer(queue).publish(b"0", columns=colours("blue"))
    choosy.credit(0)
    world.producer(queue).publish(b"1", b"2", columns=colours("red", "blue"))
    world.auto = False
    choosy.credit(5)
    assert [read.position for read in world.reads if isinstance(read, Read)] == [1], "it has left the first"
    other.credit(5)
    world.run_disk()
    assert (choosy.bodies, other.bodies) == ([b"1"], [b"0", b"2"])


def test_selectors_see_the_message_group_and_the_id_as_the_client_shows_it() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    first, second = {"group": "a", "group_sequence": 1}, {"group": "a", "group_sequence": 2}
    headers: list[dict[str, Any]] = [first, second, {"group": "b"}, {}]
    grouped = replace(columns(headers=headers), announcements=int(Columns.GROUP))
    producer.publish(b"a1", b"a2", b"b", b"none", columns=grouped)
    assert world.consumer(queue, selector="JMSXGroupID = 'a' AND JMSXGroupSeq > 1").bodies == [b"a2"]
    assert world.consumer(queue, selector="JMSXGroupID IS NULL").bodies == [b"none"]
    identity = format_id(message_id(producer.identity, 3))
    assert world.consumer(queue, selector=f"JMSMessageID = '{identity}'").bodies == [b"b"]


@pytest.mark.parametrize("kind", [DestinationKind.QUEUE, DestinationKind.TOPIC])
def test_header_fields_are_seen_as_soon_as_somebody_asks_for_them(kind: DestinationKind) -> None:
    """Until then messages show their properties alone; a property is never taken for a header field."""
    world = World()
    destination = world.locate("d", kind)
    red = world.consumer(destination, selector="colour = 'red'")
    producer = world.producer(destination)
    false = columns(properties=[{"colour": "red", "JMSType": "order"}, {"colour": "blue", "JMSType": "order"}])
    producer.publish(b"1", b"2", columns=false)
    orders = world.consumer(destination, selector="JMSType = 'order'")
    true = columns(properties=[{"colour": "blue", "JMSType": "x"}], headers=[{"type": "order"}])
    producer.publish(b"3", b"4", columns=false)
    producer.publish(b"5", columns=true)
    assert (red.bodies, orders.bodies) == ([b"1", b"3"], [b"5"])
    red.close()
    orders.close()

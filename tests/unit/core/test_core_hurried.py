"""Goal: whoever waits for a message gets it before all else that follows from its write; once, in order, and nothing of
what follows is forgotten.
Method: one message manager, whose deliveries are asked for when the test says that its writes are durable. Random
stories, told with and without asking: everybody has got the same in the end."""
from typing import Any

import pytest

from angarium.core.destination.events import DestinationSettings, ToSession
from angarium.core.destination.log import Lane
from angarium.core.destination.pending import Arrival, PendingWrite
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Frame
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_manager import World
from tests.unit.core.core_story import Story


def pair(world: World, name: str = "q", **options: Any) -> tuple[Producer, Consumer]:
    """The disk answers no longer by itself."""
    if options:
        assert not world.request("destination.create", name=name, **options).code
    destination = world.locate(name)
    found = world.producer(destination), world.consumer(destination)
    world.auto = False
    return found


def tokens(world: World) -> list[int]:
    return [write.token for write in world.disk.waiting]


def hurry(world: World) -> list[Frame]:
    """All that waits is durable: what leaves first."""
    commands = world.manager.confirms(tokens(world)) + world.manager.deliveries(tokens(world), now=world.now)
    world._run(commands)
    world.manager.check()
    return [command.frame for command in commands if isinstance(command, ToSession)]


def bodies_of(*consumers: Consumer) -> list[list[bytes]]:
    return [consumer.bodies for consumer in consumers]


# -- once, and all else as ever --------------------------------------------------------------------------------------


def test_who_asks_for_deliveries_first_gets_each_once() -> None:
    world = World()
    producer, consumer = pair(world)
    producer.publish(b"a")
    producer.publish(b"b", b"c")
    assert world.manager.confirms(tokens(world))
    first = world.manager.deliveries(tokens(world), now=world.now)
    assert [command.frame for command in first if isinstance(command, ToSession)] == [
        frames.Deliver(1, 0), frames.Deliver(1, 1)
    ]  # fmt: skip
    assert world.manager.deliveries(tokens(world), now=world.now) == []
    world.run_disk()
    assert consumer.bodies == [], "nor does it come with the write"
    world.auto = True
    assert world.describe("q")["messages"] == 3


def test_nobody_has_to_ask() -> None:
    world = World()
    producer, consumer = pair(world)
    producer.publish(b"a")
    assert world.complete_write()
    assert consumer.bodies == [b"a"]


def test_the_producer_is_told_before_the_consumer() -> None:
    world = World()
    producer, _ = pair(world)
    producer.publish(b"a")
    assert hurry(world) == [frames.Confirm(1, 1), frames.Deliver(1, 0)]


def test_an_answer_to_a_settlement_does_not_keep_a_delivery_waiting() -> None:
    world = World()
    producer, consumer = pair(world)
    producer.publish(b"a")
    world.run_disk()
    consumer.settle((0, 1))
    producer.publish(b"b")
    hurry(world)
    assert (consumer.bodies, consumer.settled) == ([b"a", b"b"], [])
    world.run_disk()
    assert [answer.number for answer in consumer.settled] == [1]
    assert consumer.bodies == [b"a", b"b"]


def test_those_of_several_destinations_come_in_the_order_of_their_writes() -> None:
    world = World()
    one, first = pair(world)
    world.auto = True
    other, second = pair(world, name="r")
    for producer in (other, one, other):
        producer.publish(b"x")
    told = world.manager.deliveries(tokens(world), now=world.now)
    assert [command.session for command in told if isinstance(command, ToSession)] == [
        second.session, first.session, second.session
    ]  # fmt: skip


def test_a_producer_is_blocked_by_what_was_handed_out_before() -> None:
    world = World()
    producer, consumer = pair(world, messages_max=2, over_limit="block")
    producer.publish(b"a")
    producer.publish(b"b")
    hurry(world)
    assert consumer.bodies == [b"a", b"b"]
    world.run_disk()
    assert len(world.received(producer.session, frames.Block)) == 1
    consumer.settle((0, 2))
    world.run_disk()
    assert len(world.received(producer.session, frames.Unblock)) == 1


def test_the_oldest_make_room_for_what_was_handed_out_before() -> None:
    world = World()
    producer, consumer = pair(world, messages_max=2, over_limit="oldest")
    consumer.close()
    world.run_disk()
    for body in (b"a", b"b", b"c", b"d"):
        producer.publish(body)
    hurry(world)
    world.run_disk()
    world.auto = True
    assert world.consumer(producer.destination).bodies == [b"c", b"d"]


def test_the_log_is_freed_of_what_nobody_needs_any_more() -> None:
    """Whoever it was for has gone while it was being written."""
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    producer, consumer = world.producer(topic), world.consumer(topic)
    world.auto = False
    producer.publish(b"a")
    consumer.close()
    hurry(world)
    world.run_disk()
    assert world.disk.batch_ends(topic) == []
    assert Table.BATCH not in world.disk.records_of(topic)


def test_the_node_counts_what_was_handed_out_before() -> None:
    world = World(DestinationSettings(node_messages_max=2))
    producer, consumer = pair(world)
    producer.publish(b"a", b"b")
    hurry(world)
    assert consumer.bodies == [b"a", b"b"], "blocking makes no room"
    world.run_disk()
    assert world.manager.held()["messages"] == 2
    assert world.received(producer.session, frames.Block)


def test_a_destination_that_was_removed_meanwhile_delivers_nothing() -> None:
    world = World()
    producer, consumer = pair(world)
    producer.publish(b"a")
    written = tokens(world)
    world.frame(world.session(), 0, frames.Request(1, "destination.remove", {"name": "q"}))
    assert world.manager.find("q") is None
    assert world.manager.deliveries(written, now=world.now) == []
    world.run_disk()
    assert consumer.bodies == []


# -- what must not be overtaken --------------------------------------------------------------------------------------


def test_nothing_overtakes_a_refusal() -> None:
    world = World()
    producer, consumer = pair(world, messages_max=1, over_limit="refuse")
    producer.publish(b"a")
    producer.publish(b"b")
    world.frame(world.session(), 0, frames.Request(1, "destination.alter", {"name": "q", "messages_max": 2}))
    producer.publish(b"c")
    hurry(world)
    assert consumer.bodies == [b"a"]
    world.run_disk()
    assert consumer.bodies == [b"a", b"c"]


def test_nothing_overtakes_a_consumer_that_opens() -> None:
    """What is written after it opened is for both, in turn."""
    world = World()
    producer, consumer = pair(world)
    producer.publish(b"a")
    late = world.consumer(producer.destination)
    producer.publish(b"b")
    producer.publish(b"c")
    hurry(world)
    assert bodies_of(consumer, late) == [[b"a"], []]
    world.run_disk()
    assert bodies_of(consumer, late) == [[b"a", b"b"], [b"c"]]
    opened = [type(frame) for frame, _ in world.sent[late.session]]
    assert opened == [frames.ConsumerOpened, frames.Deliver]


def test_nothing_overtakes_a_transaction() -> None:
    world = World()
    producer, consumer = pair(world)
    inside = world.producer(producer.destination)
    world.run_disk()
    batch = pack(inside.identity, 1, world.wall_ms, [b"b"])
    commit = frames.TransactionCommit(1, [(inside.destination, inside.number, len(batch))], [])
    producer.publish(b"a")
    world.frame(inside.session, 0, commit, batch)
    producer.publish(b"c")
    hurry(world)
    assert consumer.bodies == [b"a"]
    assert not world.received(inside.session, frames.Committed)
    world.run_disk()
    assert consumer.bodies == [b"a", b"b", b"c"]
    assert world.received(inside.session, frames.Committed) == [frames.Committed(1)]


_LANE = Lane(0)
_FOLLOWS: dict[str, Any] = {
    "answers": [ToSession(b"s" * 16, frames.Confirm(1, 1))],
    "created": 7,
    "refused": (b"p" * 16, None),
    "sent": [(b"p" * 16, 1)],
    "opened": object(),
    "superseded": [3],
    "held_ms": 0,
    "moved": True,
    "committed": (b"s" * 16, 1),
    "traced": [(_LANE, 1)],
    "follows": lambda now: [],
    "others": [PendingWrite()],
}
_PLAIN: dict[str, Any] = {
    "destination": 7,
    "arrived": [Arrival(_LANE, 1, None)],
    "confirmed": (b"p" * 16, 1),
    "settled": (object(), 1),
    "noted": object(),
    "lost": [(0, 1)],
    "gone": [b"stream"],
    "is_handed_out": True,
}


@pytest.mark.parametrize("name", PendingWrite.__struct_fields__)
def test_whatever_else_follows_from_a_write_comes_before_later_deliveries(name: str) -> None:
    """A field that is new has to be one or the other."""
    value = (_FOLLOWS | _PLAIN)[name]
    assert PendingWrite(**{name: value}).is_plain == (name in _PLAIN)


@pytest.mark.parametrize(("policy", "count"), [("block", 1), ("refuse", 1), ("oldest", 0)])
def test_nothing_leaves_early_where_the_oldest_of_the_node_make_room(policy: str, count: int) -> None:
    """What was to die would otherwise come after what was delivered in its stead."""
    world = World(DestinationSettings(node_messages_max=10, node_over_limit=policy))
    producer, consumer = pair(world)
    producer.publish(b"a")
    assert hurry(world) == [frames.Confirm(1, 1), frames.Deliver(1, 0)][: 1 + count]
    world.run_disk()
    assert consumer.bodies == [b"a"]


# -- the same in the end ---------------------------------------------------------------------------------------------


def by_kind(story: Story) -> dict[tuple[bytes, str], list[tuple[Frame, bytes]]]:
    """What each session was sent: deliveries in order, confirms in order, and everything else in order."""
    sorts: dict[type[Frame], str] = {frames.Deliver: "deliveries", frames.Confirm: "confirms"}
    found: dict[tuple[bytes, str], list[tuple[Frame, bytes]]] = {}
    for session, frame, payload in story.sent:
        found.setdefault((session, sorts.get(type(frame), "else")), []).append((frame, payload))
    return found


@pytest.mark.parametrize("seed", range(100))
def test_whether_somebody_asks_or_not_everybody_gets_the_same(seed: int) -> None:
    calm, hurried = Story(seed), Story(seed, hurries=True)
    calm.run(60)
    hurried.run(60)
    assert by_kind(hurried) == by_kind(calm)
    assert hurried.world.disk.tables == calm.world.disk.tables


@pytest.mark.parametrize("seed", range(50))
def test_what_is_read_for_them_is_there_and_may_be_answered_at_once(seed: int) -> None:
    """Before the rest of what follows from the same writes."""
    story = Story(seed, hurries=True, reads_at_once=True)
    story.run(60)
    assert not [report for report in story.world.reports if report.code == "batch-damaged"]
    destination = story.world.destination(story.destination)
    assert not destination.counters.damaged
    for subscription in destination.subscriptions:
        ready = subscription.line.first()
        free = subscription.free_count(destination.log)
        is_left = ready is not None and free and subscription.room() > 0 and not subscription.line.choosy
        assert not is_left, "nothing is left that somebody is to have"

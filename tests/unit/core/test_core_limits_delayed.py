"""Goal: what is not yet due counts against the limits of its destination and of the node, so that no delay is a way
around them; it is accepted once, and comes in its time whatever the limit is."""
import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.wire import frames
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World
from tests.unit.core.test_core_delays import delayed


def queue_with(world: World, **options: object) -> int:
    assert not world.request("destination.create", name="q", kind="queue", **options).code
    return world.locate("q")


def signals(producer: Producer) -> list[str]:
    sent = [frame for frame, _ in producer.world.sent.get(producer.session, [])]
    return [type(frame).__name__ for frame in sent if isinstance(frame, frames.Block | frames.Unblock)]


@pytest.mark.parametrize("limit", [{"messages_max": 5}, {"bytes_max": 5_000}])
def test_producers_are_blocked_until_what_was_due_is_taken(limit: dict[str, int]) -> None:
    world = World()
    queue = queue_with(world, **limit)
    producer, consumer = world.producer(queue), world.consumer(queue)
    producer.publish(*[bytes(1_000)] * 5, columns=delayed(world, *[10.0] * 5))
    assert signals(producer) == ["Block"]
    block = world.last(producer.session, frames.Block)
    assert block.code == "destination-full" and "5 of its messages are not yet due" in block.reason
    world.advance(11.0)
    assert len(consumer.bodies) == 5, "what was accepted comes, whatever the limit"
    assert signals(producer) == ["Block"], "and counts as before"
    consumer.settle((0, 5))
    assert signals(producer) == ["Block", "Unblock"]


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 3_000}])
def test_they_are_counted_after_a_restart(limit: dict[str, int]) -> None:
    world = World()
    queue = queue_with(world, **limit)
    producer = world.producer(queue)
    producer.publish(*[bytes(1_000)] * 3, columns=delayed(world, *[60.0] * 3))
    world = world.restarted()
    producer.resume(world=world, session=world.session())
    assert signals(producer) == ["Block"]


def test_what_has_no_room_is_refused() -> None:
    world = World()
    producer = world.producer(queue_with(world, messages_max=3, over_limit="refuse"))
    producer.publish(*[b"x"] * 2, columns=delayed(world, *[60.0] * 2))
    producer.publish(*[b"x"] * 3, columns=delayed(world, *[60.0] * 3))
    refuse = world.last(producer.session, frames.Refuse)
    assert (refuse.first, refuse.last, refuse.code) == (4, 5, "destination-full")
    assert world.describe("q")["delayed"] == 3


def test_where_the_oldest_make_room_they_do_so_when_it_is_needed() -> None:
    world = World()
    queue = queue_with(world, messages_max=2, over_limit="oldest")
    producer = world.producer(queue)
    producer.publish(b"1", b"2")
    producer.publish(b"3", columns=delayed(world, 10.0))
    assert world.describe("q")["dead"] == 0, "nobody dies for what has not come"
    world.advance(11.0)
    assert world.describe("q")["dead"] == 1
    assert world.consumer(queue).bodies == [b"2", b"3"]


@pytest.mark.parametrize(
    "settings", [DestinationSettings(node_messages_max=3), DestinationSettings(node_bytes_max=3_000)]
)
def test_the_node_counts_them_too_from_their_acceptance_to_their_settlement(settings: DestinationSettings) -> None:
    world = World(settings)
    queue = world.locate("q")
    producer, other, consumer = world.producer(queue), world.producer(world.locate("other")), world.consumer(queue)
    producer.publish(*[bytes(1_000)] * 3, columns=delayed(world, *[10.0] * 3))
    assert signals(producer) == signals(other) == ["Block"]
    world.advance(11.0)
    assert signals(other) == ["Block"]
    consumer.settle((0, 3))
    assert signals(producer) == signals(other) == ["Block", "Unblock"]
    assert (world.manager.node_limits.messages, world.manager.node_limits.bytes) == (0, 0)

"""Goal: what all destinations hold together has a limit; past it every producer is blocked, or refused, well below it
none is."""
from random import Random

import pytest

from angarium.core.destination.events import DestinationSettings, DiskMeasured, SettingsChanged
from angarium.core.errors import ConfigError
from angarium.core.stream.events import StreamSettings
from angarium.core.wire import frames
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World


def signals(producer: Producer) -> list[str]:
    sent = [frame for frame, _ in producer.world.sent.get(producer.session, [])]
    return [type(frame).__name__ for frame in sent if isinstance(frame, frames.Block | frames.Unblock)]


def test_all_producers_are_blocked_and_unblocked_well_below() -> None:
    world = World(DestinationSettings(node_messages_max=10))
    a, b = world.locate("a"), world.locate("b")
    one, other, consumer = world.producer(a), world.producer(b), world.consumer(a, credit=20)
    one.publish(*[b"x"] * 6)
    other.publish(*[b"x"] * 3)
    assert signals(one) == signals(other) == []
    other.publish(b"x", b"x")
    assert signals(one) == signals(other) == ["Block"]
    block = world.last(one.session, frames.Block)
    assert block.code == "node-full" and "node_messages_max is 10" in block.reason
    assert other.confirmed == 5, "what was sent stays accepted"
    late = world.producer(world.locate("c"))
    assert signals(late) == ["Block"]
    consumer.settle((0, 2))
    assert signals(one) == ["Block"], "9 of 10 are there"
    consumer.settle((2, 3))
    assert signals(one) == signals(other) == signals(late) == ["Block", "Unblock"]
    assert [report.code for report in world.reports] == ["node-full", "node-not-full"]


def test_bytes_count_as_well() -> None:
    world = World(DestinationSettings(node_bytes_max=10_000))
    producer = world.producer(world.locate("q"))
    producer.publish(bytes(5_000))
    assert signals(producer) == []
    producer.publish(bytes(5_000))
    assert signals(producer) == ["Block"]
    assert "node_bytes_max" in world.last(producer.session, frames.Block).reason


@pytest.mark.parametrize("way", ["purge", "remove", "restart"])
def test_purging_removing_and_restarting_are_noticed(way: str) -> None:
    world = World(DestinationSettings(node_messages_max=5))
    world.queue_with(6, name="full")
    producer = world.producer(world.locate("other"))
    assert signals(producer) == ["Block"]
    if way == "restart":
        world = world.restarted()
        producer = world.producer(world.locate("other"))
        assert signals(producer) == ["Block"]
    world.request("destination.remove" if way == "remove" else "destination.purge", name="full")
    assert signals(producer) == ["Block", "Unblock"]


def test_a_purge_and_a_commit_unblock_a_destination_that_was_full() -> None:
    world = World()
    world.request("destination.create", name="q", kind="queue", messages_max=2)
    producer = world.producer(world.locate("q"))
    producer.publish(b"1", b"2", b"3")
    assert signals(producer) == ["Block"]
    world.request("destination.purge", name="q")
    assert signals(producer) == ["Block", "Unblock"]
    producer.publish(b"1", b"2", b"3")
    consumer = world.consumer(world.locate("q"))
    commit = frames.TransactionCommit(1, [], [(producer.destination, consumer.number, [(3, 6)])])
    world.frame(consumer.session, 0, commit)
    assert world.last(consumer.session, frames.Committed).number == 1
    assert signals(producer) == ["Block", "Unblock"] * 2


@pytest.mark.parametrize("seed", range(10))
def test_the_running_totals_are_the_sums(seed: int) -> None:
    random = Random(seed)
    world = World(DestinationSettings(node_messages_max=1 << 40))
    queues = [world.locate(f"q{n}") for n in range(4)]
    producers, consumers = [world.producer(q) for q in queues], [world.consumer(q, credit=10_000) for q in queues]
    settled = [0] * 4
    for _ in range(60):
        at = random.randrange(4)
        if random.random() < 0.6:
            producers[at].publish(*[b"x"] * random.randint(1, 5))
        elif settled[at] < len(consumers[at].positions):
            low, settled[at] = settled[at], random.randint(settled[at] + 1, len(consumers[at].positions))
            random.choice([consumers[at].settle, consumers[at].reject])((low, settled[at]))
    limits, destinations = world.manager.node_limits, world.manager.destinations.values()
    assert limits.messages == sum(d.publishing.limits.count() for d in destinations)
    assert limits.bytes == sum(d.log.stored_bytes for d in destinations)


def refused(producer: Producer) -> list[tuple[int, int, str]]:
    sent = [frame for frame, _ in producer.world.sent.get(producer.session, [])]
    return [(frame.first, frame.last, frame.code) for frame in sent if isinstance(frame, frames.Refuse)]


def test_what_is_new_is_refused_if_that_is_wanted_until_there_is_room() -> None:
    settings = DestinationSettings(node_messages_max=10, node_over_limit="refuse")
    world = World(settings)
    a, b = world.locate("a"), world.locate("b")
    one, other, consumer = world.producer(a), world.producer(b), world.consumer(a, credit=20)
    one.publish(*[b"x"] * 10)
    other.publish(b"x", b"x")
    late = world.producer(world.locate("later"))
    late.publish(b"x")
    assert signals(one) == signals(other) == signals(late) == [], "nobody has to wait"
    assert (refused(one), refused(other), refused(late)) == ([], [(1, 2, "node-full")], [(1, 1, "node-full")])
    batch = pack(late.identity, 2, 7, [b"x"])
    world.frame(late.session, 0, frames.TransactionCommit(1, [(late.destination, late.number, len(batch))], []), batch)
    assert world.last(late.session, frames.Aborted).code == "node-full"
    consumer.settle((0, 3))
    other.publish(b"x")
    assert (refused(other), other.confirmed) == ([(1, 2, "node-full")], 3)
    assert world.describe("b")["messages"] == 1


@pytest.mark.parametrize("first", ["block", "refuse"])
def test_another_policy_counts_at_once(first: str) -> None:
    world = World(DestinationSettings(node_messages_max=5, node_over_limit=first))
    producer = world.producer(world.locate("q"))
    producer.publish(*[b"x"] * 5)
    assert signals(producer) == (["Block"] if first == "block" else [])
    second = DestinationSettings(node_messages_max=5, node_over_limit="refuse" if first == "block" else "block")
    world.tell(SettingsChanged(second, StreamSettings()))
    assert signals(producer) == (["Block", "Unblock"] if first == "block" else ["Block"])
    producer.publish(b"x")
    assert refused(producer) == ([(6, 6, "node-full")] if first == "block" else [])


def test_a_policy_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="use 'block', 'refuse' or 'oldest'"):
        DestinationSettings(node_over_limit="newest")


@pytest.mark.parametrize("policy", ["block", "refuse", "oldest"])
def test_a_disk_with_little_room_is_a_limit_too(policy: str) -> None:
    limits = {"node_messages_max": 100} if policy == "oldest" else {}
    world = World(DestinationSettings(node_disk_free_bytes_min=1_000, node_over_limit=policy, **limits))
    producer = world.producer(world.locate("q"))
    world.tell(DiskMeasured(1_000))
    producer.publish(b"x")
    assert signals(producer) == [] and producer.confirmed == 1
    world.tell(DiskMeasured(999))
    producer.publish(b"x")
    if policy == "refuse":
        assert refused(producer) == [(2, 2, "node-full")] and signals(producer) == []
    else:
        block = world.last(producer.session, frames.Block)
        assert block.code == "node-full" and "node_disk_free_bytes_min is 1,000" in block.reason
    world.tell(DiskMeasured(1_100))
    assert signals(producer) == ([] if policy == "refuse" else ["Block"]), "not at the first byte that is free again"
    world.tell(DiskMeasured(1_250))
    producer.publish(b"x")
    assert signals(producer) == ([] if policy == "refuse" else ["Block", "Unblock"]) and producer.confirmed == 3
    assert world.describe("_DMQ")["messages"] == 0

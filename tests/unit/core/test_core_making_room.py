"""Goal: past a limit of the node the oldest make room, where that is wanted: of whoever holds most, into the dead
message queue, in one write; and there is an end to what the node holds, whatever is held by consumers."""
from typing import Any

import pytest

from angarium.core.destination import making_room
from angarium.core.destination.events import DestinationSettings, SettingsChanged
from angarium.core.destination.records import DestinationRecord
from angarium.core.storage import position_key
from angarium.core.stream.events import StreamSettings
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import dead_letters
from tests.unit.core.test_core_node_limits import refused, signals


def world_of(messages_max: int = 10, **settings: Any) -> World:
    return World(DestinationSettings(node_messages_max=messages_max, node_over_limit="oldest", **settings))


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def held(world: World, *names: str) -> list[int]:
    return [world.describe(name)["messages"] for name in names]


def dead(world: World) -> list[tuple[str, str, bytes]]:
    """Where from, why, and what."""
    return [(letter["destination"], letter["reason"], body) for body, letter in dead_letters(world)]


def test_the_oldest_of_whoever_holds_most_go_whoever_publishes() -> None:
    world = world_of(10)
    large, small = world.locate("large"), world.locate("small")
    one, other = world.producer(large), world.producer(small)
    one.publish(*numbered(0, 8))
    other.publish(*numbered(0, 2))
    assert held(world, "large", "small", "_DMQ") == [8, 2, 0]
    other.publish(b"2")
    assert held(world, "large", "small", "_DMQ") == [7, 3, 1]
    one.publish(b"8", b"9")
    assert held(world, "large", "small", "_DMQ") == [7, 3, 3]
    assert signals(one) == signals(other) == [] and other.confirmed == 3
    assert world.consumer(large, credit=20).bodies == numbered(3, 10)
    assert dead(world) == [("large", "node-limit", b"%d" % n) for n in range(3)]


def test_it_is_one_write() -> None:
    """After a crash between any two steps each message is in one place."""
    for kept in range(6):
        world = world_of(3)
        queue = world.locate("q")
        producer = world.producer(queue)
        producer.publish(*numbered(0, 3))
        world.auto = False
        producer.publish(b"3", b"4")
        for _ in range(kept):
            _ = world.complete_write() or world.complete_read()
        world = world.restarted()
        world.auto = True
        world.run_disk()
        found = [body for *_, body in dead(world)] + world.consumer(queue, credit=10).bodies
        there = 3 if kept == 0 else 5
        assert found == numbered(0, there), kept


def test_nothing_dies_for_what_is_not_durable() -> None:
    world = world_of(3)
    queue = world.locate("q")
    producer = world.producer(queue)
    world.auto = False
    producer.publish(*numbered(0, 3))
    producer.publish(b"3", b"4")
    producer.publish(b"later", columns=MessageColumns(dues_ms=[world.wall_ms + 60_000]))
    assert world.complete_write() and not world.reads
    assert world.complete_write() and len(world.reads) == 1
    assert world.complete_read() and len(world.disk.waiting) == 2
    assert world.manager.room_maker.moved == 2
    world.auto = True
    world.run_disk()
    assert world.manager.room_maker.moved == 3, "what is not yet due counts as well, once it is durable"


def test_what_somebody_holds_stays_and_when_all_is_held_producers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making_room, "AHEAD_MESSAGES", 2)
    world = world_of(5)
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(*numbered(0, 4))
    consumer = world.consumer(queue, credit=4)
    producer.publish(*numbered(4, 7))
    assert held(world, "q", "_DMQ") == [5, 2] and signals(producer) == []
    consumer.credit(100)
    producer.publish(*numbered(7, 9))
    assert signals(producer) == [] and held(world, "q") == [7]
    producer.publish(b"9")
    assert signals(producer) == ["Block"]
    block = world.last(producer.session, frames.Block)
    assert block.code == "node-full" and "node_messages_max is 5" in block.reason and "held by" in block.reason
    world.end(consumer.session, closed=True)
    assert signals(producer) == ["Block", "Unblock"], "what is free again makes room"
    assert held(world, "q", "_DMQ") == [5, 5]


@pytest.mark.parametrize("when", ["before", "while reading", "arriving"])
def test_nothing_newer_is_delivered_before_the_deaths_are_durable(when: str) -> None:
    """After a crash another destination may be the one that holds most, and the oldest would come after the newer."""
    world = world_of(3)
    queue = world.locate("q")
    producer, consumer = world.producer(queue), world.consumer(queue, credit=0)
    producer.publish(*numbered(0, 3))
    world.auto = False
    producer.publish(b"3")
    assert world.complete_write()  # the read for room is asked for
    if when == "while reading":
        consumer.credit(10)  # another one, for delivery, comes behind it
    assert world.complete_read()
    if when == "before":
        consumer.credit(10)
    if when == "arriving":
        consumer.credit(10)
        producer.publish(b"4")
        world.disk.waiting.rotate(1)
        assert world.complete_write()
    while world.complete_read():
        pass
    assert consumer.bodies == []
    world.auto = True
    world.run_disk()
    assert consumer.bodies[:3] == (numbered(1, 4) if when != "arriving" else consumer.bodies[:3])
    assert consumer.bodies == sorted(consumer.bodies) and consumer.bodies[-1:] == [b"4" if when == "arriving" else b"3"]


def test_the_dead_may_be_as_many_again_then_producers_wait() -> None:
    world = world_of(3)
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(*numbered(0, 3))
    producer.publish(*numbered(3, 6))
    assert held(world, "q", "_DMQ") == [3, 3] and signals(producer) == []
    producer.publish(b"6")
    assert held(world, "q", "_DMQ") == [4, 3] and signals(producer) == ["Block"]
    block = world.last(producer.session, frames.Block)
    assert block.code == "node-full" and "_DMQ holds 3 messages" in block.reason and "angarium dmq" in block.reason
    assert "node-full" in [report.code for report in world.reports]
    world.request("dmq.discard", count=1)
    assert held(world, "q", "_DMQ") == [3, 3] and signals(producer) == ["Block"], "there is no room for the next one"
    world.request("dmq.discard", count=1)
    assert held(world, "q", "_DMQ") == [3, 2] and signals(producer) == ["Block", "Unblock"]


@pytest.mark.parametrize("goes", ["dead", "living"])
def test_producers_do_not_go_on_and_stop_for_each_message_that_goes(goes: str) -> None:
    world = world_of(100)
    queue = world.locate("q")
    producer = world.producer(queue)
    for first in range(0, 300, 100):
        producer.publish(*numbered(first, first + 100))
    assert held(world, "q", "_DMQ") == [200, 100] and signals(producer) == ["Block"]
    consumer = world.consumer(world.locate("_DMQ", DestinationKind.ANY) if goes == "dead" else queue, credit=300)
    for position in range(200):
        if signals(producer) == ["Block"]:
            consumer.settle((100 * (goes == "living") + position, 100 * (goes == "living") + position + 1))
            gone = position + 1
    assert signals(producer) == ["Block", "Unblock"] and gone == 120
    assert held(world, "q", "_DMQ") == ([100, 80] if goes == "dead" else [80, 100])
    assert [report.code for report in world.reports if "full" in report.code] == ["node-full", "node-not-full"]


@pytest.mark.parametrize(("limits", "low"), [({"node_messages_max": 10}, 8), ({"node_bytes_max": 10_000}, 7)])
def test_nobody_waits_until_there_is_room_among_the_dead_for_what_somebody_holds(
    limits: dict[str, int], low: int
) -> None:
    """It cannot die; and its holder may have to send something before it settles, and would wait for itself."""
    world = World(DestinationSettings(**limits, node_over_limit="oldest"))
    one, other = world.locate("one"), world.locate("other")
    producer = world.producer(other)
    world.consumer(one)
    for sender in (world.producer(one), producer, producer):
        for body in [bytes(900)] * 10:
            sender.publish(body)
    assert held(world, "one", "other", "_DMQ") == [10, 10, 10] and signals(producer) == ["Block"]
    world.consumer(other)
    for dead_ones in range(9, low - 1, -1):
        assert signals(producer) == ["Block"], "less than a fifth is free among the dead"
        world.request("dmq.discard", count=1)
        assert held(world, "one", "other", "_DMQ") == [10, 10, dead_ones]
    assert signals(producer) == ["Block", "Unblock"]


def test_a_full_dead_message_queue_may_drop_its_oldest_counted_and_reported() -> None:
    world = world_of(3)
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(*numbered(0, 7))
    producer.publish(*numbered(7, 8))
    assert signals(producer) == ["Block"]
    assert not world.request("destination.alter", name="_DMQ", over_limit="oldest").code
    assert signals(producer) == ["Block", "Unblock"]
    assert held(world, "q", "_DMQ") == [3, 3]
    world.advance(60.0)
    producer.publish(*numbered(8, 20))
    assert held(world, "q", "_DMQ") == [3, 3] and signals(producer) == ["Block", "Unblock"]
    assert (world.manager.room_maker.moved, world.manager.room_maker.dropped) == (17, 14)
    assert world.describe("_DMQ")["subscriptions"][0]["dropped"] == 14
    told = [report.text for report in world.reports if report.code == "node-makes-room"]
    assert len(told) == 2 and "went to _DMQ" in told[1] and "dropped" in told[1]
    assert world.consumer(world.locate("_DMQ", DestinationKind.ANY)).bodies == numbered(14, 17)


def test_a_full_dead_message_queue_may_refuse_what_is_new() -> None:
    world = world_of(2)
    queue = world.locate("q")
    assert not world.request("destination.alter", name="_DMQ", over_limit="refuse").code
    producer = world.producer(queue)
    producer.publish(*numbered(0, 4))
    producer.publish(b"4")
    producer.publish(b"5")
    assert signals(producer) == [] and refused(producer) == [(6, 6, "node-full")]
    world.request("dmq.discard", count=2)
    producer.publish(b"6")
    assert refused(producer) == [(6, 6, "node-full")] and held(world, "q", "_DMQ") == [2, 2]


def test_bytes_are_freed_from_the_beginning_of_a_log_on() -> None:
    world = World(DestinationSettings(node_bytes_max=10_000, node_over_limit="oldest"))
    queue, other = world.locate("q"), world.locate("other")
    producer = world.producer(queue)
    for n in range(8):
        producer.publish(b"%d" % n + bytes(1_000))
    consumer = world.consumer(queue, credit=1)
    world.producer(other).publish(*[bytes(1_000)] * 2)
    assert held(world, "q", "other", "_DMQ") == [8, 1, 1], "others of q would free nothing while its first is held"
    consumer.settle((0, 1))
    producer.publish(bytes(1_000))
    messages, rest = held(world, "q", "_DMQ")
    assert (messages, rest) == (8, 1)
    producer.publish(bytes(1_000))
    assert world.manager.node_limits.bytes <= 10_000
    assert held(world, "q", "_DMQ") == [8, 2]


def test_of_a_topic_those_lose_who_still_wait() -> None:
    world = world_of(4)
    topic = world.locate("t", DestinationKind.TOPIC)
    slow = world.consumer(topic, subscription="slow", credit=0)
    fast = world.consumer(topic, subscription="fast", credit=9)
    choosy = world.consumer(topic, subscription="choosy", selector="a = 1", credit=0)
    producer = world.producer(topic)
    producer.publish(*numbered(0, 4))
    fast.settle((0, 4))
    producer.publish(*numbered(4, 6))
    letters = dead(world)
    assert letters == [("t", "node-limit", b"0"), ("t", "node-limit", b"1")]
    slow.credit(10)
    assert slow.bodies == numbered(2, 6) and fast.bodies == numbered(0, 6) and choosy.bodies == []


def test_who_does_not_select_it_has_lost_nothing_though_he_has_not_looked_yet() -> None:
    world = world_of(4)
    topic = world.locate("t", DestinationKind.TOPIC)
    world.consumer(topic, subscription="choosy", selector="a = 1", credit=0)
    plain = world.consumer(topic, subscription="plain", credit=0)
    producer = world.producer(topic)
    producer.publish(*numbered(0, 4))
    world.end(plain.session, closed=False)
    world = world.restarted()
    world.advance(5.0)
    producer = world.producer(topic)
    producer.publish(*numbered(4, 6))
    assert [body for *_, body in dead(world)] == numbered(0, 2), "of one subscription only"


@pytest.mark.parametrize("policy", ["block", "refuse"])
def test_the_policy_can_be_changed_while_it_runs(policy: str) -> None:
    world = World(DestinationSettings(node_messages_max=5, node_over_limit=policy))
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(*numbered(0, 8))
    world.tell(SettingsChanged(DestinationSettings(node_messages_max=5, node_over_limit="oldest"), StreamSettings()))
    assert held(world, "q", "_DMQ") == [5, 3]
    assert signals(producer) == (["Block", "Unblock"] if policy == "block" else [])
    producer.publish(b"8")
    assert refused(producer) == [] and held(world, "q", "_DMQ") == [5, 4]
    world.tell(SettingsChanged(DestinationSettings(node_messages_max=5, node_over_limit=policy), StreamSettings()))
    assert world.manager.node_limits.messages == 9, "all count again"
    producer.publish(b"9")
    assert bool(refused(producer)) == (policy == "refuse")
    assert (signals(producer)[-1:] == ["Block"]) == (policy == "block")


def test_who_is_far_ahead_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making_room, "AHEAD_MESSAGES", 4)
    world = world_of(5)
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(*numbered(0, 10))
    assert world.complete_write()
    assert signals(producer) == ["Block"] and "more slowly" in world.last(producer.session, frames.Block).reason
    world.auto = True
    world.run_disk()
    assert signals(producer) == ["Block", "Unblock"] and held(world, "q", "_DMQ") == [5, 5]
    assert "node-full" not in [report.code for report in world.reports]


def test_temporary_destinations_lose_nothing_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What dies there would be gone: they count, and do not give."""
    monkeypatch.setattr(making_room, "AHEAD_MESSAGES", 0)
    world = world_of(3)
    client = world.session()
    world.frame(client, 0, frames.ClientHere(client))
    record = DestinationRecord("_TEMP.1", DestinationKind.QUEUE)
    temporary, _ = world.manager.create_temporary(record, client=client, session=client)
    one, other = world.producer(temporary.identity), world.producer(world.locate("q"))
    one.publish(*numbered(0, 3))
    other.publish(b"0")
    assert held(world, "q", "_DMQ") == [0, 1]
    one.publish(b"3")
    assert signals(one)[-1] == "Block" and world.manager.room_maker.dropped == 0


def test_a_damaged_message_makes_room_as_well() -> None:
    world = world_of(3)
    queue = world.locate("q")
    producer = world.producer(queue)
    for body in numbered(0, 3):
        producer.publish(body)
    world.disk.damaged.add(position_key(queue, 1))
    producer.publish(b"3")
    assert world.describe("q")["damaged"] == 1 and held(world, "q") == [3]
    assert world.consumer(queue, credit=9).bodies == numbered(1, 4)



def test_who_has_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was being read for it is told to nobody; once no room was made ever after."""
    monkeypatch.setattr(making_room, "AHEAD_MESSAGES", 2)
    for gone in ("unsubscribed", "removed"):
        world = world_of(3)
        topic = world.locate("t", DestinationKind.TOPIC)
        producer, consumer = world.producer(topic), world.consumer(topic, subscription="s", credit=0)
        producer.publish(*numbered(0, 3))
        world.auto = False
        producer.publish(b"3")
        assert world.complete_write() and world.complete_read()
        consumer.credit(10)
        while world.complete_write():
            pass
        assert len(world.reads) == 1, "it is its turn"
        if gone == "unsubscribed":
            world.frame(consumer.session, topic, frames.ConsumerClose(consumer.number, unsubscribe=True))
        else:
            world.frame(producer.session, 0, frames.Request(1, "destination.remove", {"name": "t"}))
        world.auto = True
        world.run_disk()
        other = world.producer(world.locate("q"))
        other.publish(*numbered(0, 5))
        assert held(world, "q", "_DMQ") == [3, 3] and signals(other) == [], gone


def test_who_holds_most_is_looked_for_anew_when_other_limits_are_set() -> None:
    world = world_of(5)
    first = world.producer(world.locate("a"))
    for body in numbered(0, 10):
        first.publish(body)
    world.tell(SettingsChanged(DestinationSettings(node_messages_max=6, node_over_limit="oldest"), StreamSettings()))
    world.request("destination.purge", name="a")
    world.request("destination.purge", name="_DMQ")
    world.producer(world.locate("b")).publish(*numbered(0, 9))
    assert held(world, "a", "b", "_DMQ") == [0, 6, 3]


def test_nobody_waits_because_who_holds_most_was_looked_for_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not looked for after every change. Once all producers were blocked then, and nothing ever changed."""
    monkeypatch.setattr(making_room, "AHEAD_MESSAGES", 2)
    world = world_of(5)
    for number in range(40):
        producer = world.producer(world.locate(f"q{number}"))
        producer.publish(b"x")
        world.request("destination.purge", name=f"q{number}")
    world.producer(world.locate("a")).publish(*numbered(0, 6))
    for before, name in (("a", "b"), ("b", "c")):
        world.request("destination.purge", name=before)
        world.request("destination.purge", name="_DMQ")
        other = world.producer(world.locate(name))
        other.publish(*numbered(0, 9))
        assert held(world, before, name, "_DMQ") == [0, 5, 4] and signals(other)[-1:] in ([], ["Unblock"])

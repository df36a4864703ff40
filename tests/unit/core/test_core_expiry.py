"""Jakarta Messaging 3.1, 3.4.9: what has expired is not delivered. Here it also leaves where it was, for the dead
message queue, without anybody asking for it: within a second, in bounded portions, and at no cost to others."""
from typing import Any

import pytest

from angarium.core.destination import expiries, sweeping
from angarium.core.destination.events import Read
from angarium.core.destination.expiries import MARKS_MAX, ExpiryMarks
from angarium.core.wire.frames import DestinationKind, Start
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import WALL_MS_AT_ZERO, World
from tests.unit.core.core_messages import columns, dead_letters

WITHIN_S = sweeping.PAUSE_S + 0.002


def expiring(world: World, *after_s: float, **more: Any) -> MessageColumns:
    """Columns of messages that expire so many seconds from now; 0: never."""
    now_ms = int(WALL_MS_AT_ZERO + world.now * 1000)
    return columns(expiries_ms=[now_ms + int(s * 1000) if s else 0 for s in after_s], **more)


def stored_count(world: World, destination: int) -> int:
    return world.destination(destination).publishing.limits.count()


def test_what_expires_in_a_queue_without_consumers_goes_to_the_dead_message_queue() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"short", b"never", b"long", columns=expiring(world, 5, 0, 60))
    world.advance(4.9)
    assert dead_letters(world) == []
    world.advance(0.1 + WITHIN_S)
    assert [(body, letter["reason"]) for body, letter in dead_letters(world)] == [(b"short", "expired")]
    assert stored_count(world, queue) == 2
    world.advance(55)
    assert [body for body, _ in dead_letters(world)] == [b"short", b"long"]
    assert world.consumer(queue).bodies == [b"never"]
    assert world.destination(queue).counters.expired == 2


def test_where_the_dead_are_not_kept_it_is_gone() -> None:
    world = World()
    assert not world.request("destination.create", name="q", buries=False).code
    queue = world.locate("q")
    world.producer(queue).publish(b"m", columns=expiring(world, 5))
    world.advance(5 + WITHIN_S)
    assert (stored_count(world, queue), dead_letters(world)) == (0, [])
    assert world.destination(queue).log.stored_count == 0, "and its place is free"


def test_a_durable_subscription_without_a_consumer_loses_what_expires_and_its_selector_accepts() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    for name, selector in (("all", ""), ("red", "colour = 'red'")):
        world.consumer(topic, subscription=name, selector=selector, start=Start.OLDEST).close()
    colours = [{"colour": "red"}, {"colour": "blue"}]
    world.producer(topic).publish(b"red", b"blue", columns=expiring(world, 5, 5, properties=colours))
    world.advance(5 + WITHIN_S)
    dead = sorted((body, letter["subscription"]) for body, letter in dead_letters(world))
    assert dead == [(b"blue", "all"), (b"red", "all"), (b"red", "red")]
    assert world.destination(topic).log.stored_count == 0


def test_after_a_restart_it_is_known_that_something_expires() -> None:
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(b"m", columns=expiring(world, 5, priorities=[7]))
    world = world.restarted()
    world.advance(5 + WITHIN_S)
    assert [body for body, _ in dead_letters(world)] == [b"m"]
    world = world.restarted()
    assert world.manager.deadline() is None, "and that nothing does any more"


def test_what_somebody_holds_is_buried_when_it_was_given_back() -> None:
    world = World()
    queue = world.locate("q")
    holder = world.consumer(queue, credit=1)
    world.producer(queue).publish(b"m", columns=expiring(world, 5))
    world.advance(6)
    assert holder.bodies == [b"m"] and dead_letters(world) == []
    holder.credit(0)
    holder.release((0, 1))
    world.advance(sweeping.AGAIN_S + WITHIN_S)
    assert [body for body, _ in dead_letters(world)] == [b"m"]


def test_a_queue_in_which_nothing_expires_is_never_looked_at() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    producer.publish(b"0", b"1", columns=expiring(world, 0, 0))
    producer.publish(b"2")
    assert world.manager.deadline() is None
    assert not any(len(lane.expiries) for lane in world.destination(queue).log.order)


def test_what_is_consumed_in_time_need_not_be_looked_for() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    world.producer(queue).publish(b"m", columns=expiring(world, 5))
    consumer.settle((0, 1))
    assert not any(len(lane.expiries) for lane in world.destination(queue).log.order)


def test_a_long_backlog_is_swept_in_bounded_portions_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "READ_BYTES", 2_000)
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    for _ in range(50):
        producer.publish(b"x" * 900, b"y" * 900, columns=expiring(world, 5, 1_000))
    world.auto = False
    world.advance(5.001)
    reads = 0
    while world.reads:
        assert len(world.reads) == 1, "one at a time"
        (read,) = world.reads
        assert isinstance(read, Read) and read.bytes_max == 2_000
        reads += 1
        world.now += 0.1
        world.complete_read()
        while world.complete_write():
            pass
    assert reads > 20 and len(dead_letters(world)) == 50
    deadline = world.manager.deadline()
    assert deadline is not None and deadline > world.now + 900, "the rest expires much later"
    producer.publish(b"z", columns=expiring(world, 0.01))
    while world.complete_write():
        pass
    deadline = world.manager.deadline()
    pause_s = sweeping.PAUSE_SHARE * 0.1 * reads
    assert deadline == pytest.approx(world.now + pause_s, abs=0.01), "a tenth of the time at most"


def test_marks_do_not_grow_with_the_backlog_and_forget_nothing() -> None:
    marks = ExpiryMarks()
    for n in range(10 * MARKS_MAX):
        marks.add(2 * n, 2 * n + 2, 1_000 + (7_919 * n) % 10_007)
    assert len(marks) <= expiries.MARKS_MAX
    assert marks.earliest_ms == 1_000
    found = 0
    while (due := marks.due(20_000)) is not None:
        found += due[1] - due[0]
        marks.looked(*due, [])
    assert found == 20 * MARKS_MAX and marks.earliest_ms is None


def test_what_was_looked_at_is_replaced_and_what_is_freed_is_forgotten() -> None:
    marks = ExpiryMarks()
    marks.add(0, 10, 5)
    marks.add(10, 20, 50)
    assert marks.due(4) is None and marks.due(5) == (0, 10)
    marks.looked(0, 4, [(2, 4, 30)])
    assert marks.due(5) == (4, 10), "the rest of the stretch"
    marks.looked(4, 10, [])
    assert (marks.earliest_ms, marks.due(30)) == (30, (2, 4))
    marks.free(4)
    assert (marks.earliest_ms, len(marks)) == (50, 1)
    marks.free(20)
    assert (marks.earliest_ms, len(marks)) == (None, 0)


def test_a_removed_queue_is_not_looked_at() -> None:
    world = World()
    first, second = world.locate("a"), world.locate("b")
    for queue in (first, second):
        world.producer(queue).publish(b"m", columns=expiring(world, 5))
    world.auto = False
    world.advance(5.001)
    assert len(world.reads) == 1
    world.auto = True
    assert not world.request("destination.remove", name="a").code
    world.run_disk()
    assert [letter["destination"] for _, letter in dead_letters(world)] == ["b"]

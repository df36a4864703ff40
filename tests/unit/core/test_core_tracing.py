"""Goal: the traces of a traced destination say what became of its messages, whatever crashes.
Method: the fake disk keeps a prefix of what was to be written; what is traced is compared with what is stored."""
from typing import Any

import msgspec
import pytest

from angarium.core.destination.tracing import FLUSH_AFTER_S, RECORDS_MAX, Trace
from angarium.core.ranges import RangeSet
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, Outcome
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_manager import World


def traced(world: World, kind: str = "queue", **options: Any) -> int:
    reply = world.request("destination.create", name="q", kind=kind, traced=True, **options)
    assert not reply.code, reply.reason
    return world.locate("q", DestinationKind[kind.upper()])


def traces(world: World) -> list[list[Any]]:
    """As they are on the disk, in order."""
    log = world.manager.find("_TRACE.0")
    assert log is not None
    prefix = log.identity.to_bytes(8, "big")
    stored = [data for key, data in world.disk.tables[Table.BATCH].items() if key[:8] == prefix]
    bodies = [bytes(body) for data in stored for body in Batch.trusted(data).bodies()]
    messages = sorted((msgspec.msgpack.decode(body) for body in bodies), key=lambda message: message[1])
    assert len({number for _, number, _ in messages}) == len(messages)
    return [record for _, _, records in messages for record in records]


def of(world: World, kind: Trace) -> list[list[Any]]:
    return [record[3:] for record in traces(world) if record[0] == kind]


def settled_by_traces(world: World) -> list[tuple[int, int]]:
    found = RangeSet()
    for record in traces(world):
        if record[0] in (Trace.SETTLED, Trace.ENDED):
            for low, high in zip(record[-1][::2], record[-1][1::2], strict=True):
                assert not found.overlap(low, high), "it ends once"
                found.add(low, high)
    return list(found)


def unsettled(world: World, subscription: str = "") -> list[int]:
    told = world.request("trace.describe", name="q").result
    (found,) = [each for each in told["subscriptions"] if each["name"] == subscription]
    ranges: list[int] = found["unsettled"]
    return [position for low, high in zip(ranges[::2], ranges[1::2], strict=True) for position in range(low, high)]


def test_the_life_of_a_message_is_traced() -> None:
    world = World()
    queue = traced(world)
    producer, consumer = world.producer(queue), world.consumer(queue)
    producer.publish(b"a", b"bc")
    consumer.settle((0, 1))
    world.advance(1)
    (begun,) = of(world, Trace.BEGUN)
    assert begun == ["q", "queue", [0], True]
    ((low, count, identity, sequence, _, size_bytes, session),) = of(world, Trace.CONFIRMED)
    assert (low, count, identity, sequence, size_bytes) == (0, 2, producer.identity, 1, 3)
    assert session == producer.session
    assert of(world, Trace.DELIVERED) == [["", consumer.session, consumer.number, [0, 2], []]]
    assert of(world, Trace.SETTLED) == [["", consumer.session, consumer.number, [0, 1]]]
    assert unsettled(world) == [1]


def test_nothing_is_traced_unless_asked_for() -> None:
    world = World()
    queue = world.queue_with(3)
    world.consumer(queue).settle((0, 3))
    world.rest()
    assert world.manager.find("_TRACE.0") is None and world.manager.deadline() is None
    reply = world.request("trace.describe", name=next(iter(world.manager.destinations.values())).record.name)
    assert reply.code == "not-traced"


@pytest.mark.parametrize("kept", range(12))
def test_a_settlement_is_traced_if_and_only_if_it_is_durable(kept: int) -> None:
    world = World()
    queue = traced(world)
    world.producer(queue).publish(*[b"%d" % number for number in range(20)])
    consumer = world.consumer(queue)
    world.auto = False
    for number in range(0, 10, 2):
        consumer.settle((number, number + 1))
    consumer.settle((1, 2), outcome=Outcome.REJECT)
    for _ in range(min(kept, 3)):
        world.complete_write()
    after = world.restarted(kept=max(0, kept - 3))
    after.auto = True
    after.run_disk()
    after.advance(100)
    ended = settled_by_traces(after)
    waiting = unsettled(after)
    assert [p for p in range(20) if not any(low <= p < high for low, high in ended)] == waiting


def test_reasons_are_told() -> None:
    world = World()
    queue = traced(world, redeliveries_max=1)
    producer = world.producer(queue)
    columns = MessageColumns(expiries_ms=[world.wall_ms + 1_000, 0, 0, 0])
    producer.publish(b"expires", b"rejected", b"worn", b"purged", columns=columns)
    world.advance(3)
    consumer = world.consumer(queue, credit=2)
    consumer.settle((1, 2), outcome=Outcome.REJECT)
    consumer.settle((2, 3), outcome=Outcome.RELEASE)
    consumer.credit(3)
    consumer.settle((2, 3), outcome=Outcome.RELEASE)
    world.request("destination.purge", name="q")
    world.advance(1)
    told = {low: reason for _, reason, ranges in of(world, Trace.ENDED) for low in ranges[::2]}
    assert told == {0: "expired", 1: "rejected", 2: "redelivery-limit", 3: "purged"}
    assert unsettled(world) == []


def test_subscriptions_come_and_go() -> None:
    world = World()
    topic = traced(world, "topic")
    first = world.consumer(topic, subscription="ledger", durable=True)
    world.producer(topic).publish(b"a", b"b")
    first.settle((0, 2))
    assert unsettled(world, "ledger") == []
    first.close(unsubscribe=True)
    assert [record[:3] for record in of(world, Trace.SUBSCRIBED)] == [["ledger", True, False]]
    assert of(world, Trace.UNSUBSCRIBED) == [["ledger"]]


def test_tracing_may_begin_and_end_while_it_runs() -> None:
    world = World()
    queue = world.queue_with(3)
    name = world.manager.destinations[queue].record.name
    assert not world.request("destination.alter", name=name, traced=True).code
    world.consumer(queue).settle((0, 3))
    assert of(world, Trace.BEGUN) == [[name, "queue", [3], True]]
    assert not world.request("destination.alter", name=name, traced=False).code
    before = len(traces(world))
    world.producer(queue).publish(b"x")
    world.advance(1)
    assert len(traces(world)) == before


def test_after_a_restart_it_goes_on() -> None:
    world = World()
    queue = traced(world)
    world.producer(queue).publish(b"a")
    world.advance(1)
    after = world.restarted()
    after.producer(queue).publish(b"b")
    after.advance(100)
    assert [low for low, *_ in of(after, Trace.CONFIRMED)] == [0, 1]
    assert [begun[2:] for begun in of(after, Trace.BEGUN)] == [[[0], True], [[1], False]]


def test_on_a_full_disk_records_wait_and_that_they_do_is_noted() -> None:
    world = World()
    queue = traced(world)
    world.producer(queue).publish(*[b"x"] * 4)
    consumer = world.consumer(queue)
    world.block()
    consumer.settle((0, 4))
    assert of(world, Trace.HELD) == [[]] and settled_by_traces(world) == [] and unsettled(world) == []
    world.unblock()
    assert of(world, Trace.CAUGHT_UP) == [[]] and settled_by_traces(world) == [(0, 4)]


def test_what_is_gathered_has_a_limit() -> None:
    world = World()
    topic = traced(world, "topic")
    destination = world.manager.destinations[topic]
    trace = destination.state.trace
    assert trace is not None
    for number in range(RECORDS_MAX + 10):
        trace.add(Trace.UNSUBSCRIBED, str(number))
    world.advance(2 * FLUSH_AFTER_S)
    ((dropped,),) = of(world, Trace.DROPPED)
    assert 10 <= dropped <= 20


def test_a_commit_that_sends_and_settles_is_traced_with_it() -> None:
    """Its write may be overtaken by others on a full disk: so it goes to another lane of the log."""
    world = World()
    queue = traced(world)
    world.producer(queue).publish(b"a", b"b")
    consumer = world.consumer(queue, transacted=True)
    attachment = frames.ProducerOpen(7, "x", DestinationKind.ANY, b"p" * 16, 0, b"here")
    world.frame(consumer.session, queue, attachment)
    batch = pack(b"p" * 16, 1, world.wall_ms, [b"c"])
    commit = frames.TransactionCommit(1, [(queue, 7, len(batch))], [(queue, consumer.number, [(0, 1)])], b"here")
    world.destination(queue).consumers[consumer.session, consumer.number].attachment = b"here"
    world.frame(consumer.session, 0, commit, batch)
    world.advance(1)
    assert of(world, Trace.SETTLED) == [["", consumer.session, consumer.number, [0, 1]]]
    log = world.manager.find("_TRACE.0")
    assert log is not None and [lane.number for lane in log.log.lanes.values()] == [0, 1]
    assert unsettled(world) == [1, 2]


def test_a_removal_is_traced_in_the_same_write() -> None:
    world = World()
    queue = traced(world)
    world.producer(queue).publish(b"a")
    world.request("destination.remove", name="q")
    assert traces(world)[-1][:2] == [Trace.REMOVED, queue]

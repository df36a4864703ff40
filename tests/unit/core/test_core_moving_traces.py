"""Goal: a traced destination that is moved can be audited: what is told of it in the logs of all groups where it has
been is known by one id, and has one order; nothing is told twice, and nothing is missing. Method: two message managers,
and their logs of traces, read as an audit does."""
from itertools import groupby

import msgspec

from angarium.core.destination.tracing import Trace, trace_name
from angarium.core.groups import decisions as d
from angarium.core.storage import Table
from angarium.core.wire.batch import Batch
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_moving import SOURCE, TARGET, Pair


def bodies(pair: Pair, group: int) -> list[bytes]:
    """Of the messages in the log of traces of that group."""
    world = pair.worlds[group]
    log = world.manager.find(trace_name(group))
    if log is None:
        return []
    batches = [Batch.trusted(data) for key, data in sorted(world.disk.tables[Table.BATCH].items())
               if key[:8] == log.identity.to_bytes(8, "big")]  # fmt: skip
    return [bytes(batch.body(index)) for batch in batches for index in range(batch.count)]


def told(pair: Pair, identity: int) -> list[tuple[int, int, list[object]]]:
    """Number of the message, group, record: all that is durable of that destination, as they are ordered."""
    found: list[tuple[int, int, list[object]]] = []
    for group in pair.worlds:
        for _, number, records in map(msgspec.msgpack.decode, bodies(pair, group)):
            found += [(number, group, record) for record in records if record[1] == identity]
    return sorted(found, key=lambda each: each[0])


def traced(pair: Pair) -> tuple[int, Producer, Consumer]:
    pair.source.request("destination.create", name="q", traced=True)
    queue = pair.source.locate("q")
    producer, consumer = pair.source.producer(queue), pair.source.consumer(queue, credit=5)
    producer.publish(*(b"m%d" % number for number in range(10)))
    consumer.settle((0, 3))
    return queue, producer, consumer


def go_on(pair: Pair, number: int, producer: Producer, consumer: Consumer, held: tuple[int, int]) -> None:
    world = pair.worlds[number]
    producer.destination = consumer.destination = world.locate("q")
    producer.resume(world=world)
    consumer.resume([held], credit=1_000, world=world)


def settled(records: list[tuple[int, int, list[object]]]) -> list[int]:
    """Positions, in the order in which they were settled."""
    positions: list[int] = []
    for _, _, (kind, _, _, *facts) in records:
        if kind == Trace.SETTLED:
            ranges = facts[-1]
            assert isinstance(ranges, list)
            for low, high in zip(ranges[::2], ranges[1::2], strict=True):
                positions += range(low, high)
    return positions


def test_one_id_and_one_order_in_all_groups() -> None:
    pair = Pair()
    for _ in range(40):  # the source has told of much else before
        pair.source.request("destination.create", name="busy", traced=True)
        pair.source.request("trace.describe", name="busy")
        busy = pair.source.producer(pair.source.locate("busy"))
        busy.publish(b"x")
        pair.source.advance(1.0)
    queue, producer, consumer = traced(pair)
    pair.move()
    go_on(pair, TARGET, producer, consumer, (3, 5))
    consumer.settle((3, 10))
    producer.publish(b"m10")
    consumer.settle((10, 11))
    pair.target.advance(1.0)
    described = pair.target.request("trace.describe", name="q").result
    assert described["identity"] == queue and described["group"] == TARGET and described["moved"]
    records = told(pair, queue)
    groups = [group for _, group, _ in records]
    assert groups == sorted(groups), "all that was told at the source comes before what is told at the target"
    assert {SOURCE, TARGET} == set(groups)
    assert settled(records) == list(range(11)), "each once, and in order"
    assert records[-1][0] < described["trace_messages"]
    confirmed = [facts[0] for _, _, (kind, _, _, *facts) in records if kind == Trace.CONFIRMED]
    assert confirmed == [0, 10], "who sent what is told once"
    assert not any(kind == Trace.REMOVED for _, _, (kind, *_) in records)


def test_and_back_again_and_after_a_restart() -> None:
    pair = Pair()
    queue, producer, consumer = traced(pair)
    pair.move()
    go_on(pair, TARGET, producer, consumer, (3, 5))
    consumer.settle((3, 5))
    pair.crash(TARGET)
    before = pair.target.manager.tracer.messages
    assert before, "numbers do not begin anew"
    pair.target.advance(3.0)
    pair.move("q", SOURCE)
    other = pair.source.consumer(pair.source.locate("q"))
    other.settle((5, 10))
    pair.source.advance(1.0)
    records = told(pair, queue)
    stays = [group for group, _ in groupby(group for _, group, _ in records)]
    assert stays == [SOURCE, TARGET, SOURCE], "one after the other"
    assert settled(records) == list(range(10))
    assert pair.source.request("trace.describe", name="q").result["identity"] == queue


def test_what_was_told_last_is_not_left_in_memory() -> None:
    """Delivered and confirmed are gathered, and may wait: not for somebody who has left."""
    pair = Pair()
    queue, producer, _ = traced(pair)
    producer.publish(b"m10")
    pair.move()
    confirmed = [(group, facts[0]) for _, group, (kind, _, _, *facts) in told(pair, queue) if kind == Trace.CONFIRMED]
    assert confirmed == [(SOURCE, 0), (SOURCE, 10)]


def test_a_move_that_is_given_up_goes_on_telling_at_the_source() -> None:
    pair = Pair()
    queue, producer, consumer = traced(pair)
    pair.begin()
    pair.hear(SOURCE)
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(SOURCE)
    go_on(pair, SOURCE, producer, consumer, (3, 5))
    consumer.settle((3, 10))
    assert settled(told(pair, queue)) == list(range(10)) and trace_name(TARGET) not in pair.target.manager._by_name


def test_a_group_that_was_down_does_not_tell_that_it_was_removed() -> None:
    pair = Pair()
    queue, _, _ = traced(pair)
    pair.begin()
    for number in (SOURCE, TARGET):
        pair.hear(number)
    pair.run(lambda: not pair.placement.moves)
    pair.crash(SOURCE)
    pair.hear(TARGET)
    pair.source.advance(1.0)
    assert not pair.has(SOURCE) and pair.has(TARGET)
    assert not any(kind == Trace.REMOVED for _, _, (kind, *_) in told(pair, queue))


def test_one_that_is_traced_only_later_is_told_of_in_order_too() -> None:
    pair = Pair()
    queue, producer, consumer = traced(pair)
    pair.source.request("destination.alter", name="q", traced=False)
    pair.move()
    pair.target.request("destination.alter", name="q", traced=True)
    go_on(pair, TARGET, producer, consumer, (3, 5))
    consumer.settle((3, 10))
    groups = [group for _, group, _ in told(pair, queue)]
    assert groups == sorted(groups) and groups.count(TARGET)

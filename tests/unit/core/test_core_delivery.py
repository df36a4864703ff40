"""Goal: every message goes to one consumer at a time, in order, shared fairly among those who want it, until it is
settled; what it was given back is delivered again and says so.
Method: one message manager; consumers are what their clients would know of them."""
from random import Random

import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.wire import frames
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Consumer
from tests.unit.core.core_manager import World
from tests.unit.core.core_node import Node

# -- order and shares ----------------------------------------------------------------------------------------


def test_one_consumer_gets_everything_in_order_as_the_bytes_that_were_published() -> None:
    world = World()
    destination = world.locate("q")
    producer = world.producer(destination)
    batches = [pack(producer.identity, first, 0, [b"a", b"b"]) for first in (1, 3, 5)]
    for batch in batches:
        world.frame(producer.session, destination, frames.Publish(1), batch)
    consumer = world.consumer(destination)
    assert consumer.positions == list(range(6))
    payloads = [payload for frame, payload in world.sent[consumer.session] if isinstance(frame, frames.Deliver)]
    assert payloads == batches


# Once: each turn takes its share of what is left by the turns before, not of what was free: 50, 25, 13, 6, 3, 2, 1. Two
# equal consumers get 67 and 33, in seven slices where two would do.
def test_two_consumers_share_one_batch_in_halves() -> None:
    world = World()
    destination = world.locate("q")
    first, second = world.consumer(destination), world.consumer(destination)
    producer = world.producer(destination)
    producer.publish(*(b"m%d" % number for number in range(100)))
    assert (len(first.positions), len(second.positions)) == (50, 50)
    assert first.positions + second.positions == list(range(100))


@pytest.mark.parametrize("seed", range(15))
def test_competing_consumers_share_fairly_and_nothing_goes_twice(seed: int) -> None:
    """Equal consumers get nearly equal shares, whatever the batches and whenever they settle."""
    random = Random(seed)
    world = World(DestinationSettings(read_bytes_max=random.choice([1, 500, 1 << 20])))
    destination = world.locate("q")
    consumers = [world.consumer(destination, credit=10_000) for _ in range(random.randint(2, 4))]
    producer = world.producer(destination)
    total = 0
    for _ in range(40):
        count = random.randint(1, 6)
        producer.publish(*(b"x" for _ in range(count)))
        total += count
        if random.random() < 0.3:
            consumer = random.choice(consumers)
            for position in consumer.positions:
                consumer.settle((position, position + 1))
    shares = [len(consumer.positions) for consumer in consumers]
    assert sorted(position for consumer in consumers for position in consumer.positions) == list(range(total))
    assert min(shares) >= 0.7 * total / len(consumers), shares
    for consumer in consumers:
        assert consumer.positions == sorted(consumer.positions)


def test_a_blocked_consumer_is_passed_over_and_served_again() -> None:
    world = World()
    destination = world.locate("q")
    blocked, other = world.consumer(destination), world.consumer(destination)
    world.stall(blocked.session, True)
    producer = world.producer(destination)
    for number in range(10):
        producer.publish(b"m%d" % number)
    assert (blocked.positions, other.positions) == ([], list(range(10)))
    world.stall(blocked.session, False)
    for number in range(10):
        producer.publish(b"m%d" % number)
    assert len(blocked.positions) == 5


def test_what_waits_for_a_blocked_consumer_goes_out_when_it_is_served_again() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination, credit=0)
    world.stall(consumer.session, True)
    consumer.credit(10)
    assert consumer.positions == []
    world.stall(consumer.session, False)
    assert consumer.positions == [0, 1, 2]


def test_a_consumer_without_credit_gets_nothing_and_holds_nobody_up() -> None:
    world = World()
    destination = world.queue_with(10)
    idle = world.consumer(destination, credit=0)
    busy = world.consumer(destination, credit=100)
    assert (idle.positions, busy.positions) == ([], list(range(10)))


# -- credit --------------------------------------------------------------------------------------------------


def test_never_more_than_the_credit_counted_from_the_opening() -> None:
    world = World()
    destination = world.queue_with(4, 4, 4)
    consumer = world.consumer(destination, credit=3)
    assert consumer.positions == [0, 1, 2]
    consumer.settle((0, 3))
    assert len(consumer.positions) == 3, "settling gives no credit by itself"
    consumer.credit(5)
    assert consumer.positions == list(range(5))
    consumer.settle((3, 5), credit=12)
    assert consumer.positions == list(range(12))


def test_lowered_credit_stops_and_raised_credit_goes_on() -> None:
    world = World()
    destination = world.locate("q")
    producer = world.producer(destination)
    consumer = world.consumer(destination, credit=10)
    producer.publish(b"a", b"b", b"c")
    consumer.credit(2)
    producer.publish(b"d")
    assert consumer.positions == [0, 1, 2], "one more than the lowered limit was on its way already"
    consumer.settle((0, 3))
    assert consumer.positions == [0, 1, 2]
    consumer.credit(4)
    assert consumer.positions == [0, 1, 2, 3]


def test_negative_credit_is_none() -> None:
    world = World()
    destination = world.queue_with(1)
    consumer = world.consumer(destination, credit=-5)
    consumer.credit(-1)
    assert consumer.positions == []


def test_credit_for_a_consumer_that_is_gone_changes_nothing() -> None:
    world = World()
    destination = world.queue_with(1)
    consumer = world.consumer(destination, credit=0)
    consumer.close()
    before = len(world.sent[consumer.session])
    consumer.credit(10)
    consumer.settle((0, 1))
    assert len(world.sent[consumer.session]) == before
    assert world.describe("q")["messages"] == 1


# -- outcomes --------------------------------------------------------------------------------------------------


def test_a_settlement_is_answered_when_it_is_durable_and_not_before() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    world.auto = False
    consumer.settle((0, 2))
    assert consumer.settled == []
    world.run_disk()
    assert consumer.settled == [frames.Settled(1, 1, [])]
    world = world.restarted()
    world.auto = True
    world.run_disk()
    world.advance(5)
    assert world.consumer(destination).positions == [2]


def test_settled_messages_are_freed_once_a_whole_batch_is_settled() -> None:
    world = World()
    destination = world.queue_with(3, 3)
    consumer = world.consumer(destination)
    consumer.settle((0, 2))
    assert world.disk.batch_ends(destination) == [3, 6], "the first batch is still needed"
    consumer.settle((3, 6))
    assert world.disk.batch_ends(destination) == [3, 6], "batches go from the front only"
    consumer.settle((2, 3))
    assert world.disk.batch_ends(destination) == []


def test_what_is_released_is_delivered_again_and_says_how_often() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    consumer.release((1, 2))
    consumer.release((1, 2))
    assert consumer.deliveries == [
        (0, b"m0", 0), (1, b"m1", 0), (2, b"m2", 0), (1, b"m1", 1), (1, b"m1", 2),
    ]  # fmt: skip
    assert world.describe("q")["subscriptions"][0]["redelivered"] == 1
    consumer.settle((0, 3))
    assert world.describe("q")["messages"] == 0


def test_what_is_rejected_is_gone_and_counted() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    consumer.reject((0, 2))
    consumer.settle((2, 3))
    described = world.describe("q")
    assert (described["rejected"], described["settled"], described["messages"]) == (2, 1, 0)
    assert world.disk.batch_ends(destination) == []


def test_what_is_not_the_consumers_is_reported_as_lost() -> None:
    world = World()
    destination = world.queue_with(4)
    first = world.consumer(destination, credit=2)
    second = world.consumer(destination, credit=2)
    first.settle((0, 4))
    assert first.settled[-1].lost == [(2, 4)]
    second.settle((2, 4))
    assert second.settled[-1].lost == []
    first.settle((0, 4))
    assert first.settled[-1].lost == [], "what is settled already is no loss: a resent settlement is answered alike"


# Once: settlements are counted by what was asked for, so that resent or foreign ones count again.
def test_settlements_are_counted_once() -> None:
    world = World()
    destination = world.queue_with(4)
    consumer = world.consumer(destination, credit=2)
    consumer.settle((0, 2))
    consumer.settle((0, 2))
    consumer.reject((0, 4))
    described = world.describe("q")
    assert (described["settled"], described["rejected"]) == (2, 0)


@pytest.mark.parametrize(
    "ranges", [[(0, 4)], [(1, 1)], [(2, 1)], [(0, 1), (3, 1 << 63)], [(-1, 1)], [(-(1 << 63), 1)]], ids=str
)
def test_positions_that_do_not_exist_fail_that_connection_and_settle_nothing(ranges: list[tuple[int, int]]) -> None:
    node = Node()
    client = node.connect_with_session()
    client.open_producer("q")
    identity = client.received(frames.ProducerOpened)[0].identity
    client.send_with(frames.Publish(1), pack(identity, 1, 0, [b"a", b"b", b"c"]))
    client.open_consumer("q")
    assert client.bodies == [b"a", b"b", b"c"]
    client.send(frames.Settle(1, 1, frames.Outcome.SETTLE, ranges))
    assert client.failure == "bad-range"
    node.advance(5)
    other = node.connect_with_session()
    other.open_consumer("q")
    assert other.bodies == [b"a", b"b", b"c"]


def test_a_closed_consumer_gives_back_what_it_holds() -> None:
    world = World()
    destination = world.queue_with(4)
    first = world.consumer(destination)
    first.settle((1, 2))
    first.close()
    assert first.closed_codes == [""]
    second = world.consumer(destination)
    assert second.deliveries == [(0, b"m0", 1), (2, b"m2", 1), (3, b"m3", 1)]


def test_a_close_is_answered_when_the_settlements_before_it_are_durable() -> None:
    world = World()
    destination = world.queue_with(2)
    consumer = world.consumer(destination)
    world.auto = False
    consumer.settle((0, 1))
    consumer.close()
    assert world.complete_write()
    assert consumer.closed_codes == []
    world.run_disk()
    assert consumer.closed_codes == [""]
    world = world.restarted()
    world.auto = True
    world.run_disk()
    assert world.consumer(destination).positions == [1]


# Once: the answer to a settlement is dropped when its consumer closes meanwhile, and with it the news that some
# of it was in vain: the client takes the close for a sign that everything before it holds.
def test_a_settlement_in_vain_is_told_even_if_the_consumer_closes_right_after_it() -> None:
    world = World()
    destination = world.queue_with(2)
    consumer = world.consumer(destination, credit=1)
    world.consumer(destination, credit=1)
    world.auto = False
    consumer.settle((0, 2))
    consumer.close()
    world.run_disk()
    assert [frame.lost for frame in consumer.settled] == [[(1, 2)]]


# -- what cannot be opened ---------------------------------------------------------------------------------------


def test_a_queue_has_no_named_subscriptions() -> None:
    world = World()
    consumer = world.consumer(world.locate("q"), subscription="s")
    assert consumer.closed_codes == ["wrong-kind"]


def test_a_number_that_is_in_use_is_refused_and_the_consumer_lives_on() -> None:
    world = World()
    destination = world.queue_with(1)
    consumer = world.consumer(destination)
    Consumer(world, destination, session=consumer.session, number=1)
    assert consumer.closed_codes == ["consumer-open"]
    consumer.settle((0, 1))
    assert consumer.settled[-1].lost == []


def test_one_consumer_too_many_is_refused() -> None:
    world = World(DestinationSettings(consumers_max=2))
    destination = world.locate("q")
    consumers = [world.consumer(destination) for _ in range(3)]
    assert [consumer.closed_codes for consumer in consumers] == [[], [], ["too-many-consumers"]]
    consumers[0].close()
    assert world.consumer(destination).is_open

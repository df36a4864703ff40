"""Goal: a session that was cut off and comes back in time goes on with what it holds; what nobody comes back for is
delivered to others; nothing is stuck with somebody who is gone.
Method: one message manager, whose clients lose their connection and what was under way on it."""
from random import Random

import pytest

from angarium.core.session.events import ConnectionStalled
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Consumer
from tests.unit.core.core_manager import World
from tests.unit.core.core_node import HELLO, Node
from tests.unit.core.core_states import PRODUCER, STATES


def test_what_a_cut_off_consumer_holds_is_kept_for_it_during_the_grace_time() -> None:
    world = World()
    destination = world.queue_with(4)
    consumer = world.consumer(destination, credit=3)
    world.end(consumer.session, closed=False)
    other = world.consumer(destination)
    assert other.positions == [3], "only what nobody holds"
    world.advance(world.settings.resume_grace_s - 0.1)
    assert other.positions == [3]
    world.advance(0.2)
    assert other.deliveries == [(3, b"m3", 0), (0, b"m0", 1), (1, b"m1", 1), (2, b"m2", 1)]


def test_a_consumer_that_comes_back_in_time_goes_on_with_what_it_holds() -> None:
    world = World()
    destination = world.queue_with(4)
    consumer = world.consumer(destination, credit=4)
    world.end(consumer.session, closed=False)
    world.advance(1.0)
    consumer.resume([(0, 4)])
    assert world.last(consumer.session, frames.ConsumerOpened).lost == []
    assert len(consumer.positions) == 4, "nothing is delivered twice to a session that survived"
    consumer.settle((0, 4))
    assert consumer.settled[-1].lost == []
    assert world.disk.batch_ends(destination) == []
    world.advance(10)
    assert world.describe("q")["messages"] == 0


def test_what_did_not_reach_the_client_is_delivered_again_as_new_with_its_first_credit() -> None:
    world = World()
    destination = world.queue_with(4)
    consumer = world.consumer(destination, credit=4)
    world.end(consumer.session, closed=False)
    consumer.resume([(0, 2)], credit=None)
    assert len(consumer.positions) == 4, "not before it has said all that it holds"
    consumer.credit(10)
    assert consumer.deliveries[4:] == [(2, b"m2", 0), (3, b"m3", 0)]


def test_a_limit_granted_with_the_resuming_does_not_count_before_the_settlements_are_said() -> None:
    world = World()
    destination = world.queue_with(4)
    consumer = world.consumer(destination, credit=2)
    world.end(consumer.session, closed=False)
    resuming = frames.ConsumerOpen(1, "x", DestinationKind.ANY, credit=10, resumed=True, held=[(0, 2)])
    world.frame(consumer.session, destination, resuming)
    assert consumer.positions == [0, 1]
    consumer.credit(10)
    assert consumer.positions == [0, 1, 2, 3]


def test_a_settlement_resent_before_the_credit_is_honoured() -> None:
    """Its first copy was lost with the connection: the consumer holds none of it any more, and has not claimed it."""
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    world.end(consumer.session, closed=False)
    consumer.resume([(2, 3)], credit=None)
    consumer.settle((0, 2))
    assert consumer.settled[-1].lost == []
    consumer.credit(10)
    assert len(consumer.positions) == 3
    consumer.settle((2, 3))
    assert world.describe("q")["messages"] == 0


def test_who_comes_back_to_a_destination_that_was_made_anew_is_told_that_all_is_lost() -> None:
    """Once: what it had settled before, and sent again, cost it its connection, with all its sessions."""
    world = World()
    consumer = world.consumer(world.queue_with(5))
    consumer.settle((0, 1))
    world.end(consumer.session, closed=False)
    world.request("destination.remove", name="q")
    consumer.destination = world.queue_with(2)
    consumer.resume([(1, 5)], credit=None)
    assert world.last(consumer.session, frames.ConsumerOpened).lost == [(1, 5)]
    consumer.settle((1, 2), (3, 4))
    assert consumer.settled[-1].lost == [(3, 4), (1, 2)]
    consumer.release((4, 5))
    assert consumer.settled[-1].lost == [(4, 5)]
    world.frame(consumer.session, consumer.destination, frames.Recover(1, 1, [(0, 5)]))
    assert world.last(consumer.session, frames.Recovered).number == 1
    consumer.credit(10)
    assert consumer.deliveries[5:] == [(0, b"m0", 0), (1, b"m1", 0)]
    consumer.settle((3, 4))
    assert world.last(consumer.session, frames.Failure).code == "bad-range", "it has said by now what it had held"


def test_who_comes_back_too_late_is_told_what_it_lost() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    consumer.settle((0, 1))
    world.end(consumer.session, closed=False)
    world.advance(5)
    other = world.consumer(destination, credit=1)
    consumer.resume([(1, 3)])
    assert world.last(consumer.session, frames.ConsumerOpened).lost == [(1, 3)]
    other.settle((1, 2))
    assert other.settled[-1].lost == []
    assert consumer.deliveries[-1] == (2, b"m2", 1)


def test_a_session_closed_for_good_gives_everything_back_at_once() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    other = world.consumer(destination)
    world.end(consumer.session, closed=True)
    assert other.positions == [0, 1, 2]
    world.rest()
    assert world.manager.deadline() is None
    keys = [key[8:24] for key in world.disk.tables[Table.ATTACHED]]
    assert keys == [other.session]


def test_a_session_that_closes_after_coming_back_gives_up_what_it_did_not_take_up_again() -> None:
    world = World()
    destination = world.queue_with(2)
    first = world.consumer(destination, credit=1)
    Consumer(world, destination, session=first.session, number=2, credit=1)
    world.end(first.session, closed=False)
    first.resume([(0, 1)])  # the second consumer is not taken up
    world.end(first.session, closed=True)
    world.rest()
    assert world.manager.deadline() is None
    assert world.consumer(destination).positions == [0, 1]


def test_a_consumer_cut_off_twice_is_kept_from_the_second_time_on() -> None:
    world = World()
    destination = world.queue_with(2)
    consumer = world.consumer(destination)
    world.end(consumer.session, closed=False)
    world.advance(1.5)
    consumer.resume([(0, 2)], credit=None)
    world.end(consumer.session, closed=False)
    world.advance(1.5)
    other = world.consumer(destination)
    assert other.positions == []
    consumer.resume([(0, 2)])
    assert world.last(consumer.session, frames.ConsumerOpened).lost == []


# Once: what was parked under the same session and number is overwritten by the second parking and is then in nobody's
# hands: it is never delivered again until the node restarts.
# Once: what it held was given away when the time of those that had not come since the restart was over.
def test_a_consumer_that_came_back_after_a_restart_and_is_cut_off_again_is_kept_for_its_own_time() -> None:
    world = World()
    queue = world.queue_with(3)
    consumer, never_back = world.consumer(queue, credit=2), world.consumer(queue, credit=1)
    assert (consumer.positions, never_back.positions) == ([0, 1], [2])
    world = world.restarted()
    grace_s = world.settings.resume_grace_s
    world.advance(0.8 * grace_s)
    consumer.resume([(0, 2)], credit=None, world=world)
    world.end(consumer.session, closed=False)
    other = world.consumer(queue, credit=10)
    world.advance(0.4 * grace_s)
    assert other.positions == [2], "of those that have not come"
    consumer.resume([(0, 2)], credit=10)
    assert world.last(consumer.session, frames.ConsumerOpened).lost == []


def test_who_closes_after_a_restart_before_its_first_credit_is_awaited_no_longer() -> None:
    world = World()
    queue = world.queue_with(3)
    consumer = world.consumer(queue)
    assert consumer.positions == [0, 1, 2]
    world = world.restarted()
    other = world.consumer(queue)
    consumer.resume([(0, 1)], credit=None, world=world)
    assert other.positions == [], "it may still say that it has settled the others"
    consumer.close()
    assert sorted(other.positions) == [0, 1, 2]


def test_who_unsubscribes_after_a_restart_before_its_first_credit_ends_its_subscription() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    consumer = world.consumer(topic, subscription="s")
    world.producer(topic).publish(b"m0", b"m1")
    world = world.restarted()
    consumer.resume([(0, 1)], credit=None, world=world)
    consumer.close(unsubscribe=True)
    assert consumer.closed_codes == [""]
    assert world.describe("t")["subscriptions"] == []
    world.advance(5)  # subscribers that are not durable might still have come back for it
    assert world.disk.batch_ends(topic) == []


def test_a_consumer_opened_anew_instead_of_resumed_loses_nothing() -> None:
    world = World()
    destination = world.queue_with(4)
    consumer = world.consumer(destination, credit=2)
    world.end(consumer.session, closed=False)
    anew = Consumer(world, destination, session=consumer.session, credit=1)
    assert anew.is_open
    world.end(consumer.session, closed=False)
    world.advance(10)
    assert sorted(world.consumer(destination).positions) == [0, 1, 2, 3]


def test_an_opening_that_was_overtaken_by_a_cut_is_answered_once_for_the_new_life() -> None:
    """The write of the first opening completes after the consumer was taken up again under the same number."""
    world = World()
    destination = world.queue_with(2)
    world.auto = False
    consumer = world.consumer(destination)
    world.end(consumer.session, closed=False)
    world.sent.clear()
    consumer.resume([(7, 9)])
    world.run_disk()
    assert world.received(consumer.session, frames.ConsumerOpened) == [frames.ConsumerOpened(1, [(7, 9)])]
    assert consumer.positions == [0, 1]


def test_nothing_is_delivered_to_a_consumer_before_it_is_told_that_it_is_open() -> None:
    world = World()
    destination = world.queue_with(2)
    world.auto = False
    consumer = world.consumer(destination)
    while world.complete_read():
        pass
    assert world.sent.get(consumer.session, []) == []
    world.run_disk()
    kinds = [type(frame) for frame, _ in world.sent[consumer.session]]
    assert kinds == [frames.ConsumerOpened, frames.Deliver]


# -- through the client manager and the bus ------------------------------------------------------------------------


def publish(node: Node, bodies: list[bytes]) -> None:
    client = node.connect_with_session()
    identity = client.open_producer("q")
    client.send_with(frames.Publish(1), pack(identity, 1, 0, bodies))
    client.send(frames.SessionClose())


@pytest.mark.parametrize("seed", range(30))
def test_whoever_is_lost_in_whatever_order_leaves_nothing_behind(seed: int) -> None:
    """Frames for different destinations overtake each other on the bus; the end of a session must not be overtaken by
    its own opening, or a consumer that nobody reads from would hold messages for ever."""
    random = Random(seed)
    node = Node(random=random)
    publish(node, [b"m%d" % number for number in range(20)])
    node.auto = False
    clients = []
    for _ in range(4):
        client = node.connect(greet=False)
        client.send(frames.Hello(1, "c", "p"), session=0)
        client.send(frames.SessionOpen())
        client.send(
            frames.ConsumerOpen(1, "q", DestinationKind.QUEUE, credit=3),
            frames.ConsumerOpen(2, "t", DestinationKind.TOPIC, credit=3),
            frames.ProducerOpen(1, "q", DestinationKind.ANY, b"p" * 16),
        )
        clients.append(client)
        for _ in range(random.randint(0, 12)):
            random.choice([node.step_bus, node.world.complete_write, node.world.complete_read])()
        if random.random() < 0.7:
            client.lose()
    for client in clients:
        if not client.closed:
            client.lose()
    node.auto = True
    node.run()
    node.advance(10)
    for destination in node.world.manager.destinations.values():
        assert destination.consumers == {}
        assert destination.producers.attached() == []
    assert node.world.disk.tables[Table.ATTACHED] == {}
    last = node.connect_with_session()
    last.open_consumer("q")
    assert sorted(last.bodies) == sorted(b"m%d" % number for number in range(20))


def test_a_delivery_for_the_earlier_life_of_a_session_does_not_reach_the_new_one() -> None:
    node = Node()
    publish(node, [b"a", b"b"])
    first = node.connect_with_session()
    first.open_consumer("q", credit=0)
    node.auto = False
    first.send(frames.Credit(1, 10))
    node.run_bus()  # the read is under way
    second = node.connect(greet=False)
    second.send(frames.Hello(1, "c", "p"), session=0)
    second.send(frames.SessionOpen(first.identity))
    second.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY, resumed=True), frames.Credit(1, 10))
    assert node.world.complete_read()
    node.run()
    kinds = [type(item.frame) for item in second.frames if item.session == 1]
    assert kinds.index(frames.ConsumerOpened) < kinds.index(frames.Deliver)
    assert second.bodies == [b"a", b"b"]


def test_a_confirm_for_the_earlier_life_of_a_session_does_not_come_before_its_producer_is_open() -> None:
    node = Node()
    first = node.connect_with_session()
    identity = first.open_producer("q")
    node.auto = False
    first.send_with(frames.Publish(1), pack(identity, 1, 0, [b"a"]))
    node.run_bus()  # the write is under way
    second = node.connect(greet=False)
    second.send(frames.Hello(1, "c", "p"), session=0)
    second.send(frames.SessionOpen(first.identity))
    second.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, identity))
    assert node.world.complete_write()
    node.run()
    kinds = [type(item.frame) for item in second.frames if item.session == 1]
    assert kinds == [frames.SessionOpened, frames.ProducerOpened, frames.Confirm]


def test_an_opening_that_is_still_on_the_bus_does_not_answer_for_the_next_life() -> None:
    """The session moves while its producer and its consumer are being opened: each is told once that it is open."""
    node = Node()
    first, _ = STATES["opening"](node)
    second = node.connect(greet=False)
    second.send(HELLO, session=0)
    second.send(frames.SessionOpen(first.identity))
    second.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, PRODUCER))
    second.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY, resumed=True), frames.Credit(1, 10))
    node.auto = True
    node.run()
    assert first.received(frames.ProducerOpened) == []
    assert len(second.received(frames.ProducerOpened)) == len(second.received(frames.ConsumerOpened)) == 1
    second.send_with(frames.Publish(1), pack(PRODUCER, 1, 0, [b"a"]))
    assert second.bodies == [b"a"]


def test_a_stall_reaches_consumers_opened_while_the_connection_is_stalled() -> None:
    node = Node()
    publish(node, [b"a"])
    client = node.connect_with_session()
    node.tell(ConnectionStalled(client.connection, True))
    client.open_consumer("q")
    assert client.bodies == []
    node.tell(ConnectionStalled(client.connection, False))
    assert client.bodies == [b"a"]


def test_a_stall_that_is_over_is_over_for_consumers_opened_later() -> None:
    node = Node()
    publish(node, [b"a"])
    client = node.connect_with_session()
    client.open_consumer("other")
    node.tell(ConnectionStalled(client.connection, True))
    client.send(frames.ConsumerClose(1))
    node.tell(ConnectionStalled(client.connection, False))
    client.open_consumer("q", number=2)
    assert client.bodies == [b"a"]


def test_a_settlement_of_a_session_that_was_cut_meanwhile_changes_nothing() -> None:
    world = World()
    destination = world.queue_with(2)
    consumer = world.consumer(destination)
    world.end(consumer.session, closed=False)
    consumer.settle((0, 2))
    assert consumer.settled == []
    consumer.resume([(0, 2)])
    consumer.settle((0, 2), outcome=Outcome.SETTLE)
    assert consumer.settled[-1].lost == []


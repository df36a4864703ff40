"""Goal: a confirm means what the destination promises, and a message is stored once however often it is sent.
Method: one message manager on a disk that makes things durable when the test says so."""
from random import Random

import pytest

from angarium.core.destination.events import DestinationSettings, Level, ToSession, WritesBlocked, WritesUnblocked
from angarium.core.storage import Table, position_key
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World
from tests.unit.core.core_node import Node


def bodies_stored(world: World, destination: int) -> list[bytes]:
    """What is on disk, in the order of positions; positions must be dense."""
    stored: list[bytes] = []
    for end in world.disk.batch_ends(destination):
        batch = Batch.parse(world.disk.tables[Table.BATCH][position_key(destination, end)])
        assert end == len(stored) + batch.count
        stored += batch.bodies()
    return stored


def test_a_confirm_comes_when_the_write_is_durable_and_not_before() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(b"a", b"b")
    producer.publish(b"c")
    assert producer.confirmed == 0
    assert world.complete_write()
    assert producer.confirmed == 2
    assert world.complete_write()
    assert producer.confirmed == 3
    assert bodies_stored(world, producer.destination) == [b"a", b"b", b"c"]


def test_who_asks_for_confirms_first_gets_each_once() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(b"a")
    producer.publish(b"b")
    first, second = (write.token for write in world.disk.waiting)
    asked = [command.frame for command in world.manager.confirms([first, second]) if isinstance(command, ToSession)]
    assert asked == [frames.Confirm(1, 1), frames.Confirm(1, 2)]
    assert world.manager.confirms([first, second]) == []
    world.run_disk()
    assert not world.received(producer.session, frames.Confirm)
    assert bodies_stored(world, producer.destination) == [b"a", b"b"]


def test_a_confirm_does_not_overtake_the_refusal_of_an_earlier_message() -> None:
    """A confirm is for everything up to its number: whoever has not heard of a refusal takes it for stored."""
    world = World()
    assert not world.request("destination.create", name="q", messages_max=1, over_limit="refuse").code
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(b"a")
    producer.publish(b"b")
    world.frame(world.session(), 0, frames.Request(1, "destination.alter", {"name": "q", "messages_max": 2}))
    producer.publish(b"c")
    tokens = [write.token for write in world.disk.waiting]
    asked = [command.frame for command in world.manager.confirms(tokens) if isinstance(command, ToSession)]
    assert asked == [frames.Confirm(1, 1)]
    world.run_disk()
    told = [frame for frame, _ in world.sent[producer.session] if isinstance(frame, frames.Refuse | frames.Confirm)]
    assert [type(frame) for frame in told] == [frames.Refuse, frames.Confirm, frames.Confirm]
    assert bodies_stored(world, producer.destination) == [b"a", b"c"]


def test_the_batch_is_stored_as_the_bytes_that_were_published() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    batch = pack(producer.identity, 1, 5, [b"a", b"b"])
    world.frame(producer.session, producer.destination, frames.Publish(1), batch)
    assert world.disk.tables[Table.BATCH][position_key(producer.destination, 2)] == batch


def test_confirm_in_memory_comes_at_once_and_the_write_follows() -> None:
    world = World()
    assert not world.request("destination.create", name="m", confirm="memory").code
    producer = world.producer(world.locate("m"))
    world.auto = False
    producer.publish(b"a")
    assert producer.confirmed == 1
    assert bodies_stored(world, producer.destination) == []
    world.run_disk()
    assert bodies_stored(world, producer.destination) == [b"a"]
    assert len(world.received(producer.session, frames.Confirm)) == 1


def test_nothing_is_delivered_before_it_is_durable_even_with_confirm_in_memory() -> None:
    world = World()
    world.request("destination.create", name="m", confirm="memory")
    destination = world.locate("m")
    producer, consumer = world.producer(destination), world.consumer(destination)
    world.auto = False
    producer.publish(b"a")
    while world.complete_read():
        pass
    assert consumer.bodies == []
    world.run_disk()
    assert consumer.bodies == [b"a"]


# Once: the log knew less than the client was promised, and took its next message for a gap: the producer could never
# go on.
def test_a_producer_confirmed_in_memory_goes_on_after_a_crash_that_lost_its_messages() -> None:
    world = World()
    world.request("destination.create", name="m", confirm="memory")
    producer = world.producer(world.locate("m"))
    producer.publish(b"a")
    world.auto = False
    producer.publish(b"b", b"c")
    assert producer.confirmed == 3
    world = world.restarted(kept=0)
    world.auto = True
    successor = Producer(
        world, producer.destination, session=producer.session, identity=producer.identity, confirmed=3
    )
    successor.publish(b"d")
    world.run_disk()
    assert successor.confirmed == 4
    assert bodies_stored(world, producer.destination) == [b"a", b"d"]


# -- resending ---------------------------------------------------------------------------------------------


def test_what_is_known_is_confirmed_again_and_not_stored_again() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"a", b"b")
    producer.send(1, b"a", b"b")
    assert [f.sequence for f in world.received(producer.session, frames.Confirm)] == [2, 2]
    assert bodies_stored(world, producer.destination) == [b"a", b"b"]


def test_what_is_accepted_and_not_yet_durable_is_confirmed_once_when_it_is() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(b"a", b"b")
    producer.send(1, b"a", b"b")
    assert producer.confirmed == 0, "a resent message must not be confirmed before it is durable"
    world.run_disk()
    assert producer.confirmed == 2
    assert bodies_stored(world, producer.destination) == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_overlaps_only_the_new_messages_are_stored(seed: int) -> None:
    random = Random(seed)
    world = World()
    producer = world.producer(world.locate("q"))
    bodies = [b"m%d" % number for number in range(40)]
    accepted = 0
    while accepted < len(bodies):
        world.auto = random.random() < 0.5
        first = random.randint(max(0, accepted - 5), accepted)
        last = min(len(bodies), first + random.randint(1, 8))
        producer.send(first + 1, *bodies[first:last])
        accepted = max(accepted, last)
    world.run_disk()
    producer.send(1, bodies[0])
    assert bodies_stored(world, producer.destination) == bodies
    assert producer.confirmed == len(bodies)


# Once: RemoteProtocolError escaped MessageManager.handle; in the node that is a broken invariant, and the node stops:
# one wrong client takes everybody down.
def test_a_gap_in_the_sequence_fails_that_connection_and_nobody_elses() -> None:
    node = Node()
    wrong, right = node.connect_with_session(), node.connect_with_session()
    for client in (wrong, right):
        client.open_producer("q")
    identity = wrong.received(frames.ProducerOpened)[0].identity
    wrong.send_with(frames.Publish(1), pack(identity, 2, 0, [b"second"]))
    assert wrong.failure == "sequence-gap"
    assert wrong.closed
    identity = right.received(frames.ProducerOpened)[0].identity
    right.send_with(frames.Publish(1), pack(identity, 1, 0, [b"first"]))
    assert right.last(frames.Confirm) == frames.Confirm(1, 1)
    assert bodies_stored(node.world, 1) == [b"first"]


def test_a_publish_of_a_producer_that_is_not_open_is_answered_and_not_stored() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.close()
    producer.send(1, b"late")
    assert world.last(producer.session, frames.ProducerClosed).code == "producer-closed"
    assert bodies_stored(world, producer.destination) == []


# -- resuming ----------------------------------------------------------------------------------------------


def test_a_resumed_producer_learns_what_was_accepted_and_what_is_confirmed() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"a", b"b")
    world.auto = False
    producer.publish(b"c")
    world.end(producer.session, closed=False)
    world.sent.clear()  # the confirms were lost with the connection
    producer.resume()
    assert producer.opened == frames.ProducerOpened(1, producer.identity, 3)
    assert producer.confirmed == 2, "accepted is not confirmed"
    world.run_disk()
    assert producer.confirmed == 3


def test_a_resumed_producer_that_knows_its_confirms_is_not_told_again() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"a", b"b")
    world.end(producer.session, closed=False)
    producer.resume()
    assert len(world.received(producer.session, frames.Confirm)) == 1


# Once: the confirm that was pending goes to where the producer was when it published; where it is now it waits
# for ever, because the resent batch is known and not yet confirmed.
@pytest.mark.parametrize("elsewhere", ["session", "number"])
def test_a_pending_confirm_follows_a_producer_that_resumes_elsewhere(elsewhere: str) -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    world.auto = False
    producer.publish(b"a")
    world.end(producer.session, closed=False)
    session = world.session() if elsewhere == "session" else None
    producer.resume(session=session, number=7 if elsewhere == "number" else None)
    producer.send(1, b"a")
    world.run_disk()
    assert producer.confirmed == 1


def test_a_producer_taken_over_by_another_session_is_closed_to_the_first() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    first = producer.session
    producer.resume(session=world.session())
    old = pack(producer.identity, 1, 0, [b"old"])
    world.frame(first, producer.destination, frames.Publish(1), old)
    assert world.last(first, frames.ProducerClosed).code == "producer-closed"
    producer.publish(b"new")
    assert bodies_stored(world, producer.destination) == [b"new"]
    assert producer.confirmed == 1


def test_a_producer_that_nobody_remembers_goes_on_where_it_says_it_is() -> None:
    world = World()
    producer = world.producer(world.locate("q"), confirmed=10)
    assert producer.opened.sequence == 10
    producer.publish(b"eleventh")
    assert producer.confirmed == 11


def test_a_closed_producer_is_forgotten_in_memory_and_on_disk() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"a")
    assert len(world.disk.tables[Table.PRODUCER]) == 1
    producer.close()
    assert world.disk.tables[Table.PRODUCER] == {}
    assert len(world.destination(producer.destination).producers) == 0


# -- how many producers --------------------------------------------------------------------------------------


def test_a_producer_counts_as_used_as_long_as_it_is_connected() -> None:
    """Once: the one that had opened first was forgotten, however much it had published since."""
    world = World(DestinationSettings(producers_max=2))
    destination = world.locate("q")
    lasting, brief = (world.producer(destination) for _ in range(2))
    brief.publish(b"x")
    world.end(brief.session, closed=False)
    lasting.publish(b"x")
    world.end(lasting.session, closed=False)
    newcomer = world.producer(destination)
    newcomer.publish(b"x")
    kept = {key[8:] for key in world.disk.tables[Table.PRODUCER]}
    assert kept == {lasting.identity, newcomer.identity}


def test_the_least_recently_used_producer_is_forgotten_to_make_room() -> None:
    world = World(DestinationSettings(producers_max=3))
    destination = world.locate("q")
    producers = [world.producer(destination) for _ in range(3)]
    for producer in producers:
        producer.publish(b"x")
        world.end(producer.session, closed=False)
    producers[0].resume()  # used again, so the second is the oldest
    world.end(producers[0].session, closed=False)
    newcomer = world.producer(destination)
    newcomer.publish(b"x")
    kept = {key[8:] for key in world.disk.tables[Table.PRODUCER]}
    assert kept == {producers[0].identity, producers[2].identity, newcomer.identity}
    assert len(world.destination(destination).producers) == 3


def test_the_order_of_forgetting_survives_a_restart() -> None:
    world = World(DestinationSettings(producers_max=3))
    destination = world.locate("q")
    producers = [world.producer(destination) for _ in range(3)]
    for at in (2, 0, 1):
        world.advance(1.0)
        producers[at].publish(b"x")
    world = world.restarted()
    newcomer = world.producer(destination)
    newcomer.publish(b"x")
    kept = {key[8:] for key in world.disk.tables[Table.PRODUCER]}
    assert kept == {producers[0].identity, producers[1].identity, newcomer.identity}


def test_one_producer_too_many_is_refused_while_all_are_connected() -> None:
    world = World(DestinationSettings(producers_max=2))
    destination = world.locate("q")
    producers = [world.producer(destination) for _ in range(2)]
    session = world.producer(destination).session
    assert world.last(session, frames.ProducerClosed).code == "too-many-producers"
    for producer in producers:
        producer.publish(b"x")
        assert producer.confirmed == 1
    producers[0].close()
    assert world.producer(destination).opened.sequence == 0


# Once: those that were forgotten on the way to the refusal are gone in memory and stay on disk.
def test_a_refused_producer_makes_nobody_forgotten() -> None:
    world = World(DestinationSettings(producers_max=4))
    destination = world.locate("q")
    producers = [world.producer(destination) for _ in range(4)]
    for producer in producers:
        producer.publish(b"x")
    world = world.restarted(settings=DestinationSettings(producers_max=2))
    for producer in producers[:3]:
        producer.resume(world=world)
    session = world.producer(destination).session
    assert world.last(session, frames.ProducerClosed).code == "too-many-producers"
    producers[3].resume(world=world)
    assert producers[3].opened.sequence == 1


# -- a disk that takes no more ---------------------------------------------------------------------------------


def test_open_producers_are_told_that_writes_are_blocked_and_possible_again() -> None:
    world = World()
    destination = world.locate("q")
    producer, idle = world.producer(destination), world.producer(world.locate("other"))
    gone = world.producer(destination)
    gone.close()
    world.block("no space left")
    for told in (producer, idle):
        assert world.received(told.session, frames.Block) == [frames.Block(1, "disk-full", "no space left")]
    assert world.received(gone.session, frames.Block) == []
    producer.publish(b"a")
    assert producer.confirmed == 0
    world.unblock()
    for told in (producer, idle):
        assert world.received(told.session, frames.Unblock) == [frames.Unblock(1)]
    assert producer.confirmed == 1, "what was sent while blocked is kept and confirmed later"
    assert [(r.level, r.code) for r in world.reports] == [
        (Level.ERROR, "disk-blocked"), (Level.INFO, "disk-unblocked"),
    ]  # fmt: skip


def test_who_opens_a_producer_while_writes_are_blocked_is_told_at_once() -> None:
    world = World()
    destination = world.locate("q")
    world.block("no space left")
    producer = world.producer(destination)
    assert [type(frame) for frame, _ in world.sent[producer.session]] == [frames.ProducerOpened, frames.Block]
    assert world.last(producer.session, frames.ProducerOpened).blocked
    world.disk.full = False
    fresh = world.producer(world.locate("created-while-blocked"))
    assert len(world.received(fresh.session, frames.Block)) == 1
    world.unblock()
    late = world.producer(destination)
    assert world.received(late.session, frames.Block) == []
    assert not world.last(late.session, frames.ProducerOpened).blocked


def test_too_few_copies_are_not_called_a_full_disk() -> None:
    """And whoever is blocked for another reason than before was never unblocked."""
    world = World()
    producer = world.producer(world.locate("q"))
    world.tell(WritesBlocked("1 of 2 in sync", "too-few-copies"))
    world.tell(WritesBlocked("no space left", "disk-full"))
    world.tell(WritesUnblocked())
    assert world.received(producer.session, frames.Block) == [
        frames.Block(1, "too-few-copies", "1 of 2 in sync"), frames.Block(1, "disk-full", "no space left")
    ]  # fmt: skip
    assert world.received(producer.session, frames.Unblock) == [frames.Unblock(1)]

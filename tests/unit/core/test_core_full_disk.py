"""Goal: on a full disk consumers can still empty it, and what went first because it frees is not undone by what
follows, at any crash.
Method: a disk that takes only writes which free, then all that waited, then a restart from what it holds."""
from angarium.core.destination.events import Write
from angarium.core.destination.overtaking import overtaking
from angarium.core.destination.pages import delete_pages
from angarium.core.storage import Put, Table, delete_key, key_of
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World


def test_a_consumer_that_is_open_empties_a_full_disk() -> None:
    world = World()
    destination = world.queue_with(2, 2)
    consumer = world.consumer(destination)
    world.block()
    consumer.settle((0, 4))
    assert consumer.settled[-1].lost == []
    assert world.disk.batch_ends(destination) == []
    consumer.close()
    assert consumer.closed_codes == [""]


# Once: opening a consumer waits for a write that does not free, so a disk that became full with nobody connected can
# never be emptied.
def test_a_consumer_that_comes_when_the_disk_is_full_empties_it() -> None:
    world = World()
    destination = world.queue_with(2, 2)
    world.block()
    consumer = world.consumer(destination)
    assert consumer.is_open
    consumer.settle((0, 4))
    assert consumer.settled[-1].lost == []
    assert world.disk.batch_ends(destination) == []


# Once: the opening of the second consumer carries the subscription as it was; it is written after the settlement that
# went first, and puts the settled message back.
def test_a_settlement_that_went_first_is_not_undone_by_an_older_write() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination)
    world.block()
    world.consumer(destination)
    consumer.settle((1, 2))
    assert len(consumer.settled) == 1
    world.unblock()
    world = world.restarted()
    world.advance(5)
    assert world.consumer(destination).positions == [0, 2]


# Once: likewise a subscription that was ended first comes back with the write that opened it, and keeps the log.
def test_a_subscription_that_was_ended_first_does_not_come_back() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    world.block()
    consumer = world.consumer(topic, subscription="s")
    consumer.close(unsubscribe=True)
    world.unblock()
    assert world.disk.tables[Table.SUBSCRIPTION] == {}
    assert world.disk.tables[Table.ATTACHED] == {}
    world = world.restarted()
    assert world.describe("t")["subscriptions"] == []


# Once: the subscription stands behind messages that were lost with the crash; those that follow them are skipped.
def test_a_subscription_that_was_saved_first_misses_nothing_that_is_published_after_a_crash() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    keeper = world.consumer(topic, subscription="keeper", credit=0)
    world.block()
    producer = world.producer(topic)
    producer.publish(b"lost", b"lost", b"lost")
    consumer = world.consumer(topic, subscription="s")
    consumer.close()  # saves the subscription, and goes first
    world = world.restarted(kept=0)
    world.advance(5)
    world.consumer(topic, subscription="s", credit=0).close()
    world.producer(topic).publish(b"a", b"b", b"c")
    assert world.consumer(topic, subscription="s").bodies[-3:] == [b"a", b"b", b"c"]
    assert keeper.bodies == []


def test_records_of_a_removed_destination_that_were_written_late_are_swept() -> None:
    world = World()
    destination = world.queue_with(2)
    other = world.queue_with(1, name="other")
    producer = world.producer(destination)
    world.block()
    producer.publish(b"late")
    assert not world.request("destination.remove", name="q").code
    world.unblock()
    assert set(world.disk.records_of(destination)) == {Table.BATCH, Table.LOG, Table.PRODUCER}
    world = world.restarted()
    assert world.disk.records_of(destination) == {}
    assert world.consumer(other).bodies == [b"m0"]
    assert [d.record.name for d in world.manager.destinations.values()] == ["other"]


# Once: the removal goes first, and the record of the creation follows.
def test_a_destination_that_was_removed_before_its_creation_was_written_does_not_come_back() -> None:
    world = World()
    world.block()
    world.frame(world.session(), 0, frames.Locate("q", DestinationKind.QUEUE))
    session = world.session()
    world.frame(session, 0, frames.Request(1, "destination.remove", {"name": "q"}))
    world.unblock()
    assert world.last(session, frames.Reply).result == {"removed": "q"}
    world = world.restarted()
    assert world.manager.destinations == {}


def test_nothing_stored_nothing_swept() -> None:
    world = World()
    world.queue_with(2)
    before = {table: dict(records) for table, records in world.disk.tables.items()}
    world = world.restarted()
    assert world.disk.tables == before
    assert not world.disk.waiting


# Once: the batch is written after the deletion that should have covered it, and nothing deletes it until the
# topic has, and loses, another subscription.
def test_a_batch_written_after_its_deletion_is_deleted_with_the_next_publish_or_start() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    consumer = world.consumer(topic)
    producer = world.producer(topic)
    world.block()
    producer.publish(b"late")
    consumer.close()
    world.unblock()
    producer.publish(b"next")
    world = world.restarted()
    world.advance(5)
    assert world.disk.batch_ends(topic) == []


def test_the_end_of_a_subscription_does_not_overtake_a_transaction_that_settles_in_it() -> None:
    """It would come back with the transaction's write, and keep the log."""
    key, other = key_of(1, b"s"), key_of(1, b"t")
    commit = Write(1, [Put(Table.SUBSCRIPTION, key, b"")])
    end = Write(2, [delete_key(Table.SUBSCRIPTION, key), delete_pages(1, "s")], freeing=True)
    another = Write(3, [delete_key(Table.SUBSCRIPTION, other)], freeing=True)
    assert overtaking([commit, end, another]) == [another]
    assert overtaking([end, another]) == [end, another]


# Once: whoever sent to a new destination was told nothing at all.
def test_whoever_asks_for_what_cannot_be_created_is_told_why_and_goes_on_when_it_can() -> None:
    world = World()
    world.block("no space left")
    first, second = world.session(), world.session()
    for session in (first, second):
        world.frame(session, 0, frames.Locate("new", DestinationKind.QUEUE))
        blocked = world.last(session, frames.LocateBlocked)
        assert (blocked.name, blocked.asked_kind) == ("new", DestinationKind.QUEUE)
        assert (blocked.code, blocked.reason) == ("disk-full", "no space left")
    world.unblock()
    assert world.last(first, frames.Located) == world.last(second, frames.Located)
    assert world.last(first, frames.Located).destination


def test_whoever_asked_before_the_disk_was_full_is_told_as_well() -> None:
    world = World()
    world.disk.full = True
    session = world.session()
    world.frame(session, 0, frames.Locate("new", DestinationKind.QUEUE))
    world.block("no space left")
    assert world.last(session, frames.LocateBlocked).reason == "no space left"

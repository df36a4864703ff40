"""Goal: a restart is a pause. What was confirmed or answered holds, what was not is there or not as a whole, and a
manager built from the disk behaves as the one that wrote it would have.
Method: random histories with crashes at any point, judged by what their clients were told; and twins: the same
follow-up for the manager that lived on and for one restored from its disk. Replay one: pytest -k 'histories[17]'."""
from random import Random
from typing import Any

import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.destination.message_manager import MessageManager
from angarium.core.destination.restoring import StoredState
from angarium.core.errors import StorageCorrupt
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Outcome
from tests.unit.core.core_history import History
from tests.unit.core.core_manager import World


@pytest.mark.parametrize("seed", range(100))
def test_histories_without_faults_of_the_disk(seed: int) -> None:
    history = History(seed, full_disks=False)
    for _ in range(200):
        history.step()
    history.check_drained(history.heal())


@pytest.mark.parametrize("seed", range(250))
def test_histories_with_full_disks(seed: int) -> None:
    history = History(seed)
    for _ in range(200):
        history.step()
    history.check_drained(history.heal())


# -- twins -------------------------------------------------------------------------------------------------------


def random_past(random: Random) -> World:
    """Queues and topics with a past, everything written, nobody connected."""
    world = World()
    for name in ("q1", "q2", "t1", "t2"):
        kind = DestinationKind.TOPIC if name.startswith("t") else DestinationKind.QUEUE
        destination = world.locate(name, kind)
        subscriptions = ["s1", "s2"] if kind == DestinationKind.TOPIC else [""]
        readers = [world.consumer(destination, subscription=s, credit=10_000) for s in subscriptions]
        producer = world.producer(destination)
        for _ in range(random.randint(0, 12)):
            producer.publish(*(b"x%d" % random.randint(0, 999) for _ in range(random.randint(1, 4))))
            reader = random.choice(readers)
            if reader.positions:
                position = random.choice(reader.positions)
                outcome = random.choice([Outcome.SETTLE, Outcome.SETTLE, Outcome.RELEASE, Outcome.REJECT])
                reader.settle((position, position + 1), outcome=outcome)
        for reader in readers:
            world.end(reader.session, closed=True)
        if random.random() < 0.5:
            producer.close()
        else:
            world.end(producer.session, closed=False)
        if random.random() < 0.2:
            world.request("destination.purge", name=name)
    if random.random() < 0.3:
        world.request("destination.remove", name="q2")
    return world


def follow_up(world: World, seed: int) -> list[Any]:
    """The same requests for both twins; everything that anybody is told."""
    random = Random(seed)
    told: list[Any] = []
    for name in ("q1", "q2", "t1", "t2", "new"):
        kind = DestinationKind.TOPIC if name.startswith("t") else DestinationKind.QUEUE
        destination = world.locate(name, kind)
        known = sorted(key[8:] for key in world.disk.records_of(destination).get(Table.PRODUCER, []))
        producer = world.producer(destination, identity=known[0] if known else None)
        told.append(producer.opened)
        producer.sequence = producer.opened.sequence
        producer.publish(b"a", b"b")
        for subscription in ["s1", "s2"] if kind == DestinationKind.TOPIC else [""]:
            reader = world.consumer(destination, subscription=subscription, credit=random.choice([2, 1_000]))
            for position in reader.positions[::2]:
                reader.settle((position, position + 1))
            told += [reader.deliveries, reader.settled]
            world.end(reader.session, closed=True)
        producer.close()
        described = world.describe(name)
        counted = ("messages_in", "messages_out", "settled", "rejected", "expired", "bytes_mean", "bytes", "dead")
        for count in (*counted, "bytes_held"):  # it has `bytes` in it
            del described[count]  # counted while a node runs
        told.append(described)
        told.append(world.disk.batch_ends(destination))
    return told


@pytest.mark.parametrize("seed", range(40))
def test_a_restored_manager_behaves_as_its_twin_that_lived_on(seed: int) -> None:
    restarted = random_past(Random(seed)).restarted()
    restarted.advance(5)
    lived_on = random_past(Random(seed))
    lived_on.advance(5)
    assert follow_up(restarted, seed) == follow_up(lived_on, seed)


@pytest.mark.parametrize("seed", range(20))
def test_restarting_twice_is_restarting_once(seed: int) -> None:
    world = random_past(Random(seed)).restarted()
    once = {table: dict(records) for table, records in world.disk.tables.items()}
    world = world.restarted().restarted()
    assert world.disk.tables == once


# -- who was attached ------------------------------------------------------------------------------------------


def test_after_a_crash_unsettled_messages_wait_for_those_who_were_attached() -> None:
    world = World()
    destination = world.queue_with(4)
    first = world.consumer(destination, credit=2)
    second = world.consumer(destination, credit=1)
    world = world.restarted()
    stranger = world.consumer(destination)
    assert stranger.positions == [], "whose they are, only their holders know"
    first.resume([(0, 2)], world=world)
    assert stranger.positions == [], "the second may still come"
    second.resume([(2, 3)], world=world)
    assert stranger.positions + first.positions + second.positions == [3]
    for consumer, held in ((first, (0, 2)), (second, (2, 3))):
        consumer.settle(held)
        assert consumer.settled[-1].lost == []


def test_after_a_crash_those_who_do_not_come_back_in_time_are_not_waited_for() -> None:
    world = World()
    destination = world.queue_with(2)
    gone = world.consumer(destination)
    world = world.restarted()
    stranger = world.consumer(destination)
    deadline = world.manager.deadline()
    assert deadline == world.now + world.settings.resume_grace_s
    world.advance(world.settings.resume_grace_s)
    assert sorted(stranger.positions) == [0, 1]
    assert gone.session not in {key[8:24] for key in world.disk.tables[Table.ATTACHED]}
    gone.resume([(0, 2)], world=world)
    assert world.last(gone.session, frames.ConsumerOpened).lost == [(0, 2)]


def test_after_a_clean_end_nobody_is_waited_for() -> None:
    world = World()
    destination = world.queue_with(2)
    world.end(world.consumer(destination, credit=1).session, closed=True)
    world = world.restarted()
    assert world.manager.deadline() is None
    assert world.consumer(destination).deliveries == [(0, b"m0", 1), (1, b"m1", 0)]


def test_what_may_have_been_delivered_before_a_crash_says_so() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination, credit=3)
    consumer.settle((0, 1))  # saves how far deliveries had gone
    world = world.restarted()
    world.advance(5)
    assert world.consumer(destination).deliveries == [(1, b"m1", 1), (2, b"m2", 1)]


def test_a_settlement_repeated_after_a_crash_is_answered_and_holds() -> None:
    world = World()
    destination = world.queue_with(2)
    consumer = world.consumer(destination)
    world.auto = False
    consumer.settle((0, 1))
    world = world.restarted(kept=0)  # it never reached the disk
    world.auto = True
    consumer.resume([(0, 2)], credit=None, world=world)
    consumer.settle((0, 1))
    assert consumer.settled[-1].lost == []
    consumer.credit(100)
    assert consumer.positions == [], "nothing is delivered twice to a session that survived"
    consumer.settle((1, 2))
    assert world.disk.batch_ends(destination) == []


# -- what is on disk ---------------------------------------------------------------------------------------------


def test_an_empty_store_gives_an_empty_manager() -> None:
    world = World()
    assert world.manager.destinations == {}
    assert world.manager.deadline() is None
    assert not world.disk.waiting


@pytest.mark.parametrize("table", ["destinations", "subscriptions"])
def test_records_that_make_no_sense_are_reported_and_not_guessed_at(table: str) -> None:
    world = World()
    world.consumer(world.queue_with(1)).close()
    state = world.disk.state()
    records = getattr(state, table)
    records.update(dict.fromkeys(records, b"\xc1"))
    with pytest.raises(StorageCorrupt):
        MessageManager(DestinationSettings(), wall_ms_at_zero=0).restore(state, now=0)


def test_strays_of_every_table_are_swept() -> None:
    prefix = (9).to_bytes(8, "big")
    state = StoredState(
        logs={prefix + b"\x01\x00": bytes(16)},
        subscriptions={(8).to_bytes(8, "big"): b"\xc1"},
        producers={(7).to_bytes(8, "big") + bytes(16): bytes(16)},
        attached={(6).to_bytes(8, "big") + bytes(20): b""},
    )
    world = World()
    (write,) = MessageManager(DestinationSettings(), wall_ms_at_zero=0).restore(state, now=0)
    world.disk.tables[Table.BATCH] = {(number).to_bytes(8, "big") + bytes(8): b"x" for number in range(5, 11)}
    world.disk.apply(write.operations)  # type: ignore[union-attr]
    assert [key[7] for key in world.disk.tables[Table.BATCH]] == [5, 10]
    assert write.freeing  # type: ignore[union-attr]

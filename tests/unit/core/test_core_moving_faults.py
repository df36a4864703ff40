"""Goal: what hinders a move costs nothing of the destination: records that are damaged, a disk that is full, rows that
are too large, reads that are answered late. Method: as in `test_core_moving.py`."""
import random
from collections import deque
from itertools import pairwise

import pytest

from angarium.core.bus.events import BusSettings
from angarium.core.destination.events import Read, ReadDelayed, ReadRows, ToSession
from angarium.core.groups import decisions as d
from angarium.core.moving import departures
from angarium.core.moving.departures import AGAIN_S, AGAIN_S_MAX, PATIENCE_S, STREAMS_S, WAIT_S_MAX
from angarium.core.replication.window import operations_bytes
from angarium.core.report import Level
from angarium.core.storage import Table, key_of
from angarium.core.stream.events import StreamSettings
from angarium.core.stream.writing import Stream, WritingStreams
from angarium.core.wire import frames
from angarium.core.wire.envelope import seal
from angarium.core.wire.frames import DestinationKind, PatternSyntax
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_manager import World
from tests.unit.core.core_moving import SOURCE, TARGET, Pair

SMALL_TABLES = (Table.LOG, Table.SUBSCRIPTION, Table.PRODUCER)


def damage(world: World, table: Table, identity: int) -> None:
    """All rows of the destination in that table fail their checksum."""
    found = [key for key in world.disk.tables[table] if key[:8] == key_of(identity)]
    assert found
    world.disk.damaged_rows.update((table, key) for key in found)


def queue(pair: Pair) -> int:
    """With five messages, of a producer that is still there, after one that is settled."""
    found = pair.source.locate("q")
    producer = pair.source.producer(found)
    consumer = pair.source.consumer(found, credit=1)
    producer.publish(b"settled")
    consumer.settle((0, 1))
    consumer.close()
    for number in range(5):
        producer.publish(b"m%d" % number)
    return found


FIVE = [b"m0", b"m1", b"m2", b"m3", b"m4"]


# -- damaged records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", SMALL_TABLES)
def test_one_with_damaged_records_is_refused_while_it_still_serves(table: Table) -> None:
    pair = Pair()
    found = queue(pair)
    damage(pair.source, table, found)
    pair.move()
    assert pair.placement.moves_ended["q"].code == "damaged" and table.name in pair.placement.moves_ended["q"].reason
    assert pair.has(SOURCE) and pair.source.locate("q") == found
    assert not pair.target.disk.tables[Table.LOG]
    assert pair.source.consumer(found).bodies == FIVE


@pytest.mark.parametrize("table", SMALL_TABLES)
def test_one_whose_records_are_damaged_while_it_is_away_is_not_opened_without_them(table: Table) -> None:
    pair = Pair()
    found = queue(pair)
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    asked = pair.locate(SOURCE)
    damage(pair.source, table, found)
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(SOURCE)
    assert not pair.has(SOURCE)
    assert [report.code for report in pair.source.reports if report.level is Level.ERROR] == ["destination-damaged"]
    late = pair.locate(SOURCE)
    for session in (asked, late):
        assert pair.source.last(session, frames.Located).code == "damaged"
    assert pair.source.request("destination.describe", name="q").code == "damaged"
    assert pair.source.request("destination.create", name="q").code == "damaged"
    assert pair.rows(SOURCE, found), "nothing of it is deleted"
    pair.begin()
    pair.hear(SOURCE)
    pair.source.advance(WAIT_S_MAX + 1)
    pair.run()
    assert not pair.placement.moves, "it is not waited for without end"
    pair.source.disk.damaged_rows.clear()
    pair.crash(SOURCE)
    assert pair.source.consumer(pair.source.locate("q")).bodies == FIVE, "repaired at the start, or another copy"


def test_numbers_of_commits_go_along_though_their_rows_are_damaged() -> None:
    """They are of all sessions of the group: a row of one would keep every destination from leaving."""
    pair = Pair()
    queue(pair)
    other = pair.source.locate("other")
    producer = pair.source.producer(other)
    batch = pack(producer.identity, 1, 0, [b"x"])
    commit = frames.TransactionCommit(1, [(other, producer.number, len(batch))], [], b"")
    pair.source.frame(producer.session, 0, commit, batch)
    rows = pair.source.disk.tables[Table.TRANSACTION]
    assert rows
    pair.source.disk.damaged_rows.update((Table.TRANSACTION, key) for key in rows)
    pair.move()
    assert pair.has(TARGET) and pair.target.consumer(pair.target.locate("q")).bodies == FIVE
    assert pair.target.manager.transactions.numbers.last == {producer.session: 1}


def test_a_target_whose_copy_is_damaged_refuses_before_the_source_deletes_anything() -> None:
    pair = Pair()
    found = queue(pair)
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.target.auto = False
    for _ in range(100):
        if not pair.target.reads and not pair.step(SOURCE):
            pair.step(TARGET) or pair.target.complete_write()
    assert pair.target.reads, "it looks at what it has before it says so"
    damage(pair.target, Table.LOG, pair.target.manager.moves.arrivals.identities()["q"])
    pair.target.auto = True
    pair.target.run_disk()
    for _ in range(2):
        pair.run()
        pair.hear(SOURCE)
        pair.hear(TARGET)
    assert pair.placement.moves_ended["q"].code == "damaged"
    assert pair.source.consumer(found).bodies == FIVE
    assert not pair.target.disk.tables[Table.LOG] and not pair.target.disk.tables[Table.MOVE]


# -- a disk that takes nothing ---------------------------------------------------------------------------


def test_on_a_full_disk_nothing_is_taken_out() -> None:
    pair = Pair()
    found = queue(pair)
    pair.source.block()
    pair.source.producer(found).publish(b"late")
    pair.begin()
    pair.hear(SOURCE)
    assert pair.source.consumer(found).bodies == FIVE, "it is served while the disk is full"
    pair.source.advance(WAIT_S_MAX + 1)
    pair.run()
    assert pair.placement.moves_ended["q"].code == "disk-full" and pair.has(SOURCE)
    pair.hear(SOURCE)
    pair.source.unblock()
    pair.move()
    assert pair.has(TARGET) and pair.target.describe("q")["messages"] == 6


def test_a_disk_that_is_full_just_when_it_is_taken_out_is_waited_for_but_not_without_end() -> None:
    pair = Pair()
    found = queue(pair)
    producer = pair.source.producer(found)
    pair.begin()
    pair.source.auto = False
    producer.publish(b"late")
    pair.hear(SOURCE)
    while pair.source.complete_read():  # the check
        pass
    assert not pair.has(SOURCE)
    pair.source.block("no space left")
    pair.source.advance(PATIENCE_S + 1)
    pair.run()
    assert pair.placement.moves_ended["q"].code == "disk-full"
    pair.hear(SOURCE)
    asked = pair.locate(SOURCE)
    assert not pair.source.reads and not pair.located(SOURCE, asked), "what is not yet durable would be missing"
    pair.source.auto = True
    pair.source.unblock()
    assert pair.located(SOURCE, asked) == found
    producer.resume()
    assert producer.opened.sequence == 1
    assert pair.source.consumer(found).bodies == [*FIVE, b"late"]
    pair.move()
    assert pair.target.describe("q")["messages"] == 6


def test_a_copy_that_is_given_up_on_a_full_disk_leaves_nothing() -> None:
    pair = Pair()
    queue(pair)
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.target.block()
    pair.run()
    pair.decide(d.MoveEnded("q", 1, "no-primary", "nobody answers"))
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.target.unblock()
    left = {table: rows for table, rows in pair.target.disk.tables.items() if rows and table is not Table.NODE}
    assert not left


# -- what the bus takes ----------------------------------------------------------------------------------


def test_every_message_of_a_move_fits_the_bus() -> None:
    """A large row after one that fills a message almost: each goes alone, and so it is written at the target."""
    pair = Pair()
    found = pair.source.locate("q")
    by_chance = random.Random(1)
    pair.source.producer(found).publish(by_chance.randbytes(250 << 10))
    producer = pair.source.producer(found)
    batch = pack(producer.identity, 1, 0, [by_chance.randbytes(4_000) for _ in range(2_080)])
    commit = frames.TransactionCommit(1, [(found, producer.number, len(batch))], [], b"")
    pair.source.frame(producer.session, 0, commit, batch)
    assert pair.source.received(producer.session, frames.Committed)
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.target.auto = False
    limit, largest = BusSettings().message_bytes_max, 0
    while pair.source.moving or pair.target.moving or pair.target.disk.waiting or pair.target.reads:
        if pair.source.moving and isinstance(command := pair.source.moving[0], ToSession):
            sealed = seal(TARGET, 1, command.session, 0, command.frame, command.payload)
            largest = max(largest, 1 + sum(map(len, sealed)))
        pair.step(SOURCE) or pair.step(TARGET)
        orders = [operations_bytes(write.operations) for write in pair.target.disk.waiting]
        largest = max(largest, *orders, 0)
        pair.target.run_disk()
    assert 8_000_000 < largest < limit - (16 << 10)
    pair.target.auto = True
    pair.hear(TARGET)
    assert pair.target.describe("q")["messages"] == 2_081


def test_a_row_that_no_message_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "ROW_BYTES_MAX", 2_000)
    monkeypatch.setattr(departures, "CHUNK_BYTES", 1_000)
    pair = Pair()
    found = queue(pair)
    pair.source.producer(found).publish(b"x" * 3_000)
    pair.move()
    assert pair.placement.moves_ended["q"].code == "too-long" and "BATCH" in pair.placement.moves_ended["q"].reason
    assert pair.source.consumer(found).bodies == [*FIVE, b"x" * 3_000]
    assert not pair.target.disk.tables[Table.BATCH]


def test_keys_count_for_what_goes_with_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "CHUNK_BYTES", 500)
    pair = Pair()
    found = pair.source.locate("q")
    for _ in range(40):
        pair.source.producer(found).publish(b"x")
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    sizes = []
    pair.target.auto = False
    while pair.source.moving or pair.target.moving or pair.target.disk.waiting or pair.target.reads:
        pair.step(SOURCE) or pair.step(TARGET)
        sizes += [operations_bytes(write.operations) for write in pair.target.disk.waiting]
        pair.target.run_disk()
    assert max(sizes[1:]) < 1_000  # the rows, and how far it is; the first notes an id, too


def test_what_is_not_answered_is_said_again_less_and_less_often() -> None:
    pair = Pair()
    queue(pair)
    pair.begin()
    pair.hear(SOURCE)
    times = []
    while not pair.placement.moves_ended and pair.source.now < 1_100:
        while pair.source.moving:
            if isinstance(pair.source.moving[0], ToSession):
                times.append(pair.source.now)
            pair.step(SOURCE, is_lost=isinstance(pair.source.moving[0], ToSession))
        pair.source.advance(0.1)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[:4] == pytest.approx([AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S, AGAIN_S_MAX], abs=0.15)
    assert len(times) < PATIENCE_S / AGAIN_S / 3


# -- answers that come late ------------------------------------------------------------------------------


def held_back(world: World, kind: type[Read] | type[ReadDelayed]) -> list[Read | ReadDelayed | ReadRows]:
    """Reads that are under way and answer later than others."""
    slow: list[Read | ReadDelayed | ReadRows] = [read for read in world.reads if isinstance(read, kind)]
    world.reads = deque(read for read in world.reads if read not in slow)
    assert slow
    return slow


def answer_late(world: World, slow: list[Read | ReadDelayed | ReadRows]) -> None:
    """Before what was asked meanwhile, and before any write that follows."""
    world.reads.extendleft(slow)
    while world.complete_read():
        pass
    world.auto = True
    world.run_disk()


def given_up(pair: Pair) -> None:
    """Taken out, and opened again; of the disk's work only what belongs to that is done."""
    pair.begin()
    pair.hear(SOURCE)
    pair.source.run_disk()
    assert not pair.has(SOURCE)
    pair.decide(d.MoveEnded("q", 1, "already-exists", "refused"))
    pair.hear(SOURCE)
    while pair.source.complete_write() or (
        pair.source.reads and isinstance(pair.source.reads[0], ReadRows) and pair.source.complete_read()
    ):
        pass
    assert pair.has(SOURCE)


def test_what_was_read_for_it_before_it_was_taken_out_is_not_told_to_its_successor() -> None:
    """Of what is due: it would be moved into the log twice."""
    pair = Pair()
    found = pair.source.locate("q")
    due = pair.source.wall_ms + 5_000
    pair.source.producer(found).publish(b"later", columns=MessageColumns(dues_ms=[due]))
    pair.source.auto = False
    pair.source.advance(6)
    slow = held_back(pair.source, ReadDelayed)
    given_up(pair)
    pair.source.advance(0.1)
    answer_late(pair.source, slow)
    assert pair.source.consumer(found).bodies == [b"later"]


def test_what_is_staged_and_was_read_before_is_committed_once() -> None:
    pair = Pair()
    found = pair.source.locate("q")
    producer = pair.source.producer(found, stage=("query", 1))
    producer.publish(b"a", b"b")
    pair.source.auto = False
    arguments = {"name": "q", "query": "query", "batch": 1, "parts": [[producer.identity, 2]]}
    pair.source.frame(pair.source.session(), 0, frames.Request(1, "stage.commit", arguments))
    while pair.source.complete_write():
        pass
    slow = held_back(pair.source, ReadDelayed)
    given_up(pair)
    pair.source.advance(0.5)
    answer_late(pair.source, slow)
    pair.source.advance(3.0)
    assert pair.source.consumer(found).bodies == [b"a", b"b"]


def test_whoever_looks_into_it_is_told_that_it_moves_also_after_it_was_opened_again() -> None:
    pair = Pair()
    queue(pair)
    pair.source.auto = False
    session = pair.source.session()
    pair.source.frame(session, 0, frames.Request(1, "destination.browse", {"name": "q"}))
    slow = held_back(pair.source, Read)
    given_up(pair)
    pair.source.reads.extendleft(slow)
    pair.source.run_disk()
    assert pair.source.last(session, frames.Reply).code == "moving"


# -- what else is known of it ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_given_up", [False, True])
def test_whoever_watches_meanwhile_is_told_of_a_topic_that_exists_not_of_a_new_one(is_given_up: bool) -> None:
    pair = Pair()
    topic = pair.source.locate("t", DestinationKind.TOPIC)
    pair.source.consumer(topic, subscription="audit")
    pair.begin("t")
    pair.hear(SOURCE)
    pair.hear(TARGET)
    world = pair.source if is_given_up else pair.target
    session = world.session()
    world.frame(session, 0, frames.Watch(1, "t*", PatternSyntax.GLOB, DestinationKind.TOPIC))
    world.advance(0.1)
    if is_given_up:
        pair.decide(d.MoveEnded("t", 1, "cancelled", "the administrator"))
    for _ in range(2):
        pair.run()
        pair.hear(TARGET)
        pair.hear(SOURCE)
    world.advance(0.1)
    assert pair.has(SOURCE if is_given_up else TARGET, "t")
    found = [frame for frame in world.received(session, frames.WatchFound) if frame.names]
    assert [frame.names for frame in found] == [["t"]] and not found[0].created


def test_a_stream_that_may_be_for_any_destination_holds_up_moves_but_not_for_long() -> None:
    streams = WritingStreams(StreamSettings())
    streams._streams[b"a" * 16] = Stream(b"a" * 16, 8)
    assert streams.unknown_since() is None, "it is known for whom that is"
    pair = Pair()
    queue(pair)
    writing = pair.source.manager.streams._writing
    found = writing._streams[b"b" * 16] = Stream(b"b" * 16, 0)
    writing._cut_off(found, pair.source.now)
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.source.advance(STREAMS_S - 1)
    assert pair.has(SOURCE)
    pair.source.advance(2)
    pair.run()
    pair.hear(TARGET)
    assert pair.has(TARGET)

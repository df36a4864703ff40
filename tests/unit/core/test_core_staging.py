"""Staged messages: in no log before their commit, there once after it, whatever crashes in between."""
from collections import Counter
from random import Random
from typing import Any

import pytest

from angarium.core.destination import staging
from angarium.core.destination.events import DestinationSettings, ReadDelayed
from angarium.core.storage import Put, Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns
from angarium.store.groups import encode as encode_group
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World, identity
from tests.unit.core.core_node import Node


def staged(world: World, destination: int, *bodies: bytes, query: str = "job", batch: int = 0) -> tuple[bytes, int]:
    """A task that stages so much and ends; how a commit names it."""
    producer = world.producer(destination, stage=(query, batch))
    if bodies:
        producer.publish(*bodies)
    producer.close()
    return producer.identity, len(bodies)


def commit(world: World, *parts: tuple[bytes, int], query: str = "job", batch: int = 0, name: str = "q") -> str:
    reply = world.request("stage.commit", name=name, query=query, batch=batch, parts=[list(part) for part in parts])
    return reply.code


def ask_commit(world: World, parts: list[tuple[bytes, int]], batch: int = 0) -> bytes:
    """The session that will be answered."""
    session = world.session()
    arguments = {"name": "q", "query": "job", "batch": batch, "parts": [list(part) for part in parts]}
    world.frame(session, 0, frames.Request(1, "stage.commit", arguments))
    return session


def leftovers(world: World) -> dict[Table, int]:
    tables = (Table.STAGE_PART, Table.STAGED)
    return {table: len(world.disk.tables[table]) for table in tables if world.disk.tables[table]}


def test_what_is_staged_is_confirmed_and_delivered_when_it_is_committed() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    producer = world.producer(queue, stage=("job", 0))
    producer.publish(b"a", b"b")
    producer.publish(b"c")
    assert producer.confirmed == 3
    assert consumer.bodies == []
    assert world.describe("q")["staged"] == 3
    assert commit(world, (producer.identity, 3)) == ""
    assert consumer.bodies == [b"a", b"b", b"c"]
    assert world.describe("q")["staged"] == 0
    assert leftovers(world) == {}
    (record,) = world.disk.tables[Table.STAGE_COMMIT].values()
    assert len(record) < 16, "parts that are moved are not remembered"


def test_a_batch_that_is_repeated_in_other_parts_and_another_order_counts_once() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    first = [staged(world, queue, b"1", b"2", batch=7), staged(world, queue, b"3", batch=7)]
    assert commit(world, *first, batch=7) == ""
    again = [staged(world, queue, b"3", b"1", b"2", batch=7)]
    assert commit(world, *again, batch=7) == ""
    assert commit(world, *first, batch=7) == ""
    assert commit(world, batch=6) == ""
    assert consumer.bodies == [b"1", b"2", b"3"]
    assert leftovers(world) == {}
    assert commit(world, staged(world, queue, b"4", batch=8), batch=8) == ""
    assert consumer.bodies == [b"1", b"2", b"3", b"4"]


def test_attempts_that_lost_are_dropped_with_the_commit_and_those_of_other_queries_stay() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    staged(world, queue, b"lost")
    other = staged(world, queue, b"other", query="other", batch=3)
    assert commit(world, staged(world, queue, b"won")) == ""
    assert consumer.bodies == [b"won"]
    assert world.describe("q")["staged"] == 1
    assert commit(world, other, query="other", batch=3) == ""
    assert consumer.bodies == [b"won", b"other"]


@pytest.mark.parametrize("wrong", ["fewer", "more", "unknown", "twice", "another batch", "another query"])
def test_a_commit_that_names_what_is_not_there_changes_nothing(wrong: str) -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    part, good = staged(world, queue, b"a", b"b"), staged(world, queue, b"c")
    named: dict[str, list[tuple[bytes, int]]] = {
        "fewer": [(part[0], 1)], "more": [(part[0], 3)], "unknown": [(identity(9_999), 2)], "twice": [part, part],
        "another batch": [staged(world, queue, b"x", batch=1)],
        "another query": [staged(world, queue, b"x", query="other")],
    }  # fmt: skip
    assert commit(world, good, *named[wrong]) == "stage-incomplete"
    assert consumer.bodies == []
    assert commit(world, part, good) == ""
    assert consumer.bodies == [b"a", b"b", b"c"]


def test_what_is_not_durable_yet_cannot_be_committed() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue, stage=("job", 0))
    world.auto = False
    producer.publish(b"a")
    session = ask_commit(world, [(producer.identity, 1)])
    assert world.last(session, frames.Reply).code == "stage-incomplete"


def test_what_is_sent_again_after_a_cut_is_staged_once() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    producer = world.producer(queue, stage=("job", 0))
    producer.publish(b"a", b"b")
    world = world.restarted()
    consumer = world.consumer(queue)
    producer.resume(world=world)
    producer.send(1, b"a", b"b")
    producer.sequence = 2
    producer.publish(b"c")
    assert commit(world, (producer.identity, 3)) == ""
    assert consumer.bodies == [b"a", b"b", b"c"]


def test_an_abort_drops_what_it_names_and_nothing_that_is_committed() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    part, other = staged(world, queue, b"a"), staged(world, queue, b"b")
    asked: dict[str, Any] = {"name": "q", "query": "job", "batch": 0}
    assert world.request("stage.abort", **asked, parts=[list(part)]).code == ""
    assert world.describe("q")["staged"] == 1
    assert commit(world, part) == "stage-incomplete"
    assert commit(world, other) == ""
    assert world.request("stage.abort", **asked, parts=[list(other)]).code == ""
    assert consumer.bodies == [b"b"]
    assert leftovers(world) == {}


def test_what_nobody_commits_is_dropped_after_its_time_across_restarts_and_told() -> None:
    world = World(DestinationSettings(staged_keep_s=60.0))
    queue = world.locate("q")
    part = staged(world, queue, b"a", b"b")
    world.advance(50.0)
    late = staged(world, queue, b"c", batch=1)
    world = world.restarted()
    world.advance(11.0)
    assert [report.code for report in world.reports] == ["stage-dropped"]
    assert "2 messages" in world.reports[0].text
    assert "query 'job', batch 0" in world.reports[0].text
    assert world.describe("q")["staged_dropped"] == 2
    assert commit(world, part) == "stage-incomplete"
    assert commit(world, late, batch=1) == ""
    assert leftovers(world) == {}


def test_more_for_a_part_that_is_being_moved_is_refused() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue, stage=("job", 0))
    producer.publish(b"a")
    world.auto = False
    session = ask_commit(world, [(producer.identity, 1)])
    producer.publish(b"late")
    world.auto = True
    world.run_disk()
    assert world.last(producer.session, frames.Refuse).code == "stage-refused"
    assert world.last(session, frames.Reply).code == ""


def test_limits_of_parts_and_queries() -> None:
    world = World(DestinationSettings(staged_parts_max=2, staged_queries_max=2))
    queue = world.locate("q")
    consumer = world.consumer(queue)
    for query in ("a", "b", "c"):
        assert commit(world, staged(world, queue, query.encode(), query=query), query=query) == ""
    assert len(world.disk.tables[Table.STAGE_COMMIT]) == 2
    assert commit(world, staged(world, queue, b"again", query="c"), query="c") == ""
    assert consumer.bodies == [b"a", b"b", b"c"]
    staged(world, queue, b"1", query="d")
    staged(world, queue, b"2", query="d")
    third = world.producer(queue, stage=("d", 0))
    third.publish(b"3")
    assert world.last(third.session, frames.Refuse).code == "too-many-parts"
    assert commit(world, (identity(1), 1), (identity(2), 1), (identity(3), 1), query="d") == "bad-argument"


def test_a_full_destination_makes_the_commit_wait_and_its_parts_come_as_room_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "READ_BYTES_MAX", 1)
    world = World()
    world.request("destination.create", name="q", kind="queue", messages_max=2)
    queue = world.locate("q")
    parts = [staged(world, queue, b"%d" % number) for number in range(4)]
    session = ask_commit(world, parts)
    assert world.received(session, frames.Reply) == []
    assert world.describe("q")["messages"] == 2
    consumer = world.consumer(queue)
    consumer.settle((0, 2))
    assert world.last(session, frames.Reply).code == ""
    assert consumer.bodies == [b"0", b"1", b"2", b"3"]


def test_a_destination_that_refuses_what_is_too_much_refuses_the_commit_whole() -> None:
    world = World()
    world.request("destination.create", name="q", kind="queue", messages_max=2, over_limit="refuse")
    queue = world.locate("q")
    part = staged(world, queue, b"1", b"2", b"3")
    assert commit(world, part) == "destination-full"
    assert world.describe("q")["messages"] == 0
    world.request("destination.alter", name="q", messages_max=3)
    assert commit(world, part) == ""


def test_priorities_delays_and_topics_are_as_for_any_message() -> None:
    world = World()
    topic = world.locate("q", DestinationKind.TOPIC)
    consumer = world.consumer(topic)
    producer = world.producer(topic, stage=("job", 0))
    columns = MessageColumns(priorities=[4, 9, 4], dues_ms=[0, 0, world.wall_ms + 5_000])
    producer.publish(b"plain", b"urgent", b"later", columns=columns)
    assert commit(world, (producer.identity, 3)) == ""
    assert sorted(consumer.bodies) == [b"plain", b"urgent"]
    world.advance(6.0)
    assert consumer.bodies[2:] == [b"later"]


def test_nothing_stays_of_a_destination_that_is_removed() -> None:
    world = World()
    queue = world.locate("q")
    assert commit(world, staged(world, queue, b"a")) == ""
    staged(world, queue, b"b")
    world.request("destination.remove", name="q")
    assert world.disk.records_of(queue) == {}


def test_what_was_damaged_is_told_and_the_rest_is_moved() -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue)
    producer = world.producer(queue, stage=("job", 0))
    producer.publish(b"a")
    producer.publish(b"b")
    world.disk.damaged.add(min(world.disk.tables[Table.STAGED]))
    assert commit(world, (producer.identity, 2)) == ""
    assert consumer.bodies == [b"b"]
    assert [report.code for report in world.reports] == ["batch-damaged"]


def test_a_transacted_session_cannot_stage_and_names_of_queries_are_short() -> None:
    client = Node().connect_with_session()
    client.send(frames.SessionOpen(b"", True), session=2)
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, query="job"), session=2)
    assert client.last(frames.ProducerClosed, session=2).code == "stage-refused"
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, query="x" * 201))
    assert client.failure == "bad-frame"


class Pipeline:
    """A query that writes batch after batch while the broker crashes; it repeats each until its commit is answered."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = World(auto=False)
        self.world.auto = True
        self.queue = self.world.locate("q")
        self.world.auto = False
        self.rows = 0
        self.crashes = 0

    def step_or_crash(self) -> bool:
        """One write or read of the disk, or the end of the broker."""
        if self.chance.random() < 0.02:
            self.world = self.world.restarted(kept=self.chance.randint(0, len(self.world.disk.waiting)), after_s=0.1)
            self.crashes += 1
            return False
        if self.chance.random() < 0.5:
            self.world.complete_write() or self.world.complete_read()
        else:
            self.world.complete_read() or self.world.complete_write()
        return True

    def attempt(self, batch: int, bodies: list[bytes]) -> bool:
        """Stage all, in some order and parts, and commit; False if the broker crashed before the answer."""
        rows = list(bodies)
        self.chance.shuffle(rows)
        parts: list[Producer] = []
        while rows:
            size = self.chance.randint(1, len(rows))
            producer = self.world.producer(self.queue, stage=("job", batch))
            for body in rows[:size]:
                producer.publish(body)
            if self.chance.random() < 0.8:  # else the task is lost, and done again
                rows = rows[size:]
                parts.append(producer)
        while any(producer.confirmed < producer.sequence for producer in parts):
            if not self.step_or_crash():
                return False
        session = ask_commit(self.world, [(producer.identity, producer.sequence) for producer in parts], batch)
        while not (replies := self.world.received(session, frames.Reply)):
            if not self.step_or_crash():
                return False
        assert replies[0].code == "", replies[0].reason
        return self.chance.random() < 0.8  # else the query dies before it notes that the batch is done


def stored(world: World, queue: int) -> Counter[bytes]:
    consumer = world.consumer(queue, credit=100_000)
    world.auto = True
    world.run_disk()
    world.advance(10.0)
    return Counter(consumer.bodies)


@pytest.mark.parametrize("seed", range(60))
def test_crashes_lose_nothing_and_repeat_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "READ_BYTES_MAX", 250)
    monkeypatch.setattr(staging, "WRITE_BYTES_MAX", 100)
    monkeypatch.setattr(staging, "PARTS_READ_MAX", 3)
    pipeline = Pipeline(seed)
    expected: Counter[bytes] = Counter()
    for batch in range(6):
        bodies = [b"%d-%d" % (batch, number) for number in range(pipeline.chance.randint(0, 12))]
        expected.update(bodies)
        while not pipeline.attempt(batch, bodies):
            pass
    assert stored(pipeline.world, pipeline.queue) == expected
    assert leftovers(pipeline.world) == {}


def test_parts_are_read_many_at_a_time_and_no_more_than_so_much() -> None:
    world = World()
    queue = world.locate("q")
    parts = [staged(world, queue, b"x") for _ in range(staging.PARTS_READ_MAX + 1)]
    world.auto = False
    ask_commit(world, parts)
    (read,) = world.reads
    assert isinstance(read, ReadDelayed)
    assert len(read.parts) == staging.PARTS_READ_MAX
    assert read.bytes_max == staging.READ_BYTES_MAX


def test_what_is_read_at_once_is_written_in_portions() -> None:
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue, stage=("job", 0))
    for _ in range(16):
        producer.publish(bytes(200_000))
    world.auto = False
    ask_commit(world, [(producer.identity, 16)])
    assert world.complete_write() and world.complete_read()
    sizes = [sum(len(put.value) for put in write.operations if isinstance(put, Put)) for write in world.disk.waiting]
    assert len(sizes) > 2 and max(sizes) <= staging.WRITE_BYTES_MAX


def test_a_portion_is_measured_by_what_is_stored_of_it() -> None:
    """Once by its bytes: of short messages, each with a time of its own, a write had ten times as many, which a small
    journal does not take. That ended the node, again after each start: what is committed has to be moved."""
    world, count = World(), 254
    world.is_checked = False
    producer = world.producer(world.locate("q"), stage=("job", 0))
    for first in range(0, 100 * count, count):
        due_ms = world.wall_ms + 60_000 + first
        producer.publish(*[b"x"] * count, columns=MessageColumns(dues_ms=range(due_ms, due_ms + count)))
    world.auto = False
    ask_commit(world, [(producer.identity, 100 * count)])
    assert world.complete_write() and world.complete_read()
    assert max(encode_group(write.operations, 0).body_bytes for write in world.disk.waiting) <= staging.WRITE_BYTES_MAX
    world.run_disk()
    assert world.describe("q")["delayed"] == 100 * count

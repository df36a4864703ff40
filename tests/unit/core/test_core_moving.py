"""Goal: a destination that is moved is whole in one group at any time, whoever dies in between: what was confirmed is
there, what was settled is not, producers and deduplication ids are remembered, and who asks for it is answered where it
is. Method: two message managers and decisions, step by step; each step is one after which something may die."""
import msgspec
import pytest

from angarium.core.destination.events import DecideMove, DestinationSettings, FromSession, ToSession
from angarium.core.errors import Rejected
from angarium.core.groups import decisions as d
from angarium.core.ids import ANYBODY
from angarium.core.moving.departures import PATIENCE_S, WAIT_S_MAX
from angarium.core.replication.ranges import pack_items
from angarium.core.storage import Put, Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack
from angarium.node.cluster.log_reads import Moved, read_page
from angarium.store.memory import MemoryStore
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_moving import SOURCE, TARGET, Pair

DEDUPLICATED = MessageColumns(
    headers=[msgspec.msgpack.encode({"deduplication_id": "once"})], announcements=int(Columns.DEDUPLICATION)
)


def used() -> tuple[Pair, Producer, Consumer]:
    """A queue with ten messages: of the first five, which somebody has, three are settled."""
    pair = Pair()
    queue = pair.source.locate("q")
    consumer = pair.source.consumer(queue, credit=5)
    producer = pair.source.producer(queue)
    producer.publish(*(b"m%d" % number for number in range(10)))
    assert consumer.positions == [0, 1, 2, 3, 4]
    consumer.settle((0, 3))
    return pair, producer, consumer


def resumed(pair: Pair, number: int, producer: Producer, consumer: Consumer) -> None:
    """Both open again where the destination is now, as a client does whose session was detached."""
    world = pair.worlds[number]
    identity = world.locate("q")
    producer.destination = consumer.destination = identity
    producer.resume(world=world)
    consumer.resume([(3, 5)], credit=1_000, world=world)


def test_all_of_it_is_moved() -> None:
    pair, producer, consumer = used()
    before = consumer.destination
    pair.source.request("destination.alter", name="q", redeliveries_max=7)
    pair.move()
    assert not pair.has(SOURCE) and pair.has(TARGET)
    assert not pair.rows(SOURCE, before) and not pair.target.disk.tables[Table.MOVE].get(b"q")
    assert pair.source.received(consumer.session, frames.SessionDetached)
    assert pair.source.received(producer.session, frames.SessionDetached)
    resumed(pair, TARGET, producer, consumer)
    assert producer.opened.sequence == 10
    assert consumer.world.last(consumer.session, frames.ConsumerOpened).lost == []
    assert consumer.positions[-5:] == [5, 6, 7, 8, 9], "what it holds is not sent again, what is settled to nobody"
    producer.send(10, b"m9", b"m10")
    assert consumer.bodies[-1] == b"m10" and consumer.positions[-1] == 10, "known as sent before"
    consumer.settle((3, 11))
    assert pair.target.describe("q")["messages"] == 0 and pair.target.describe("q")["redeliveries_max"] == 7


def test_deduplication_ids_durable_subscriptions_and_delayed_messages_go_along() -> None:
    pair = Pair()
    topic = pair.source.locate("t", DestinationKind.TOPIC)
    durable = pair.source.consumer(topic, subscription="audit")
    producer = pair.source.producer(topic)
    producer.publish(b"one", columns=DEDUPLICATED)
    producer.publish(b"later", columns=MessageColumns(dues_ms=[pair.source.wall_ms + 60_000]))
    durable.close()
    producer.publish(b"two")
    pair.move("t")
    moved = pair.target.locate("t", DestinationKind.TOPIC)
    other = pair.target.producer(moved)
    other.publish(b"one again", columns=DEDUPLICATED)
    reader = pair.target.consumer(moved, subscription="audit", credit=100)
    assert reader.bodies == [b"one", b"two"]
    pair.target.advance(61)
    assert reader.bodies == [b"one", b"two", b"later"]


def test_whoever_reads_the_log_by_position_goes_on_with_the_same_identity() -> None:
    pair = Pair()
    queue = pair.source.queue_with(3, 4)
    before = pair.source.request("log.describe", name="q").result
    assert before["identity"] == queue
    pair.begin()
    pair.hear(SOURCE)
    assert pair.source.request("log.read", name="q", identity=queue, position=0).code == "moving"
    pair.hear(TARGET)
    pair.run()
    pair.hear(TARGET)
    pair.hear(SOURCE)
    assert pair.target.request("log.describe", name="q").result == before
    page = pair.target.request("log.read", name="q", identity=queue, position=2)
    assert not page.code and page.result["identity"] == queue and page.result["next"] == 7
    present = pair.target.locate("q")
    assert present != queue
    store = MemoryStore()
    store.commit([Put(table, *row) for table, rows in pair.target.disk.tables.items() for row in rows.items()])
    moved = Moved()
    asked, unknown = (
        frames.Request(1, "log.read", {"name": "q", "identity": identity, "position": 2}) for identity in (queue, 99)
    )
    for _ in range(2):
        read = read_page(store, asked, moved, 0.0)
        assert read is not None and read[0] == page.result and moved.find(store, queue, 0.0) == present
    assert read_page(store, unknown, moved, 0.0) is None
    pair.move("q", SOURCE)
    assert pair.source.request("log.describe", name="q").result == before


def test_whoever_asks_meanwhile_is_answered_where_it_is_then() -> None:
    pair, _, _ = used()
    pair.begin()
    pair.hear(SOURCE)
    asked = pair.locate(SOURCE)
    assert not pair.located(SOURCE, asked), "it waits"
    assert pair.source.request("destination.describe", name="q").code == "moving"
    assert pair.source.request("destination.create", name="q").code == "moving"
    pair.hear(TARGET)
    pair.run()
    early = pair.locate(TARGET)
    assert not pair.located(TARGET, early), "it is there, and this group has not heard that it is"
    pair.hear(TARGET)
    assert pair.located(TARGET, early) == pair.target.locate("q")
    pair.hear(SOURCE)
    assert not pair.located(SOURCE, asked), "its client manager asks again, elsewhere"
    late = pair.locate(SOURCE)
    assert not pair.source.sent.get(late), "and nothing of that name is created where it was"
    assert not pair.has(SOURCE)


def test_a_move_that_is_given_up_leaves_it_where_it_was() -> None:
    pair, producer, consumer = used()
    before = consumer.destination
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: not pair.source.moving)
    asked = pair.locate(SOURCE)
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(SOURCE)
    pair.hear(TARGET)
    assert pair.located(SOURCE, asked) == before, "it has its id again"
    assert not pair.target.disk.tables[Table.MOVE] and not pair.target.disk.tables[Table.BATCH]
    resumed(pair, SOURCE, producer, consumer)
    assert consumer.positions[-5:] == [5, 6, 7, 8, 9] and producer.opened.sequence == 10


def test_one_that_is_given_up_before_its_last_write_is_durable_is_opened_after_it() -> None:
    pair, producer, consumer = used()
    pair.source.auto = False
    producer.publish(b"m10")
    pair.begin()
    pair.hear(SOURCE)
    while pair.source.complete_read():  # its records are looked at while it still serves
        pass
    assert not pair.has(SOURCE)
    pair.decide(d.MoveEnded("q", 1, "cancelled", "the administrator"))
    pair.hear(SOURCE)
    assert not pair.source.reads, "what is being written would be missing"
    asked = pair.locate(SOURCE)
    pair.source.auto = True
    pair.source.run_disk()
    assert pair.located(SOURCE, asked) == consumer.destination
    resumed(pair, SOURCE, producer, consumer)
    assert producer.opened.sequence == 11 and consumer.bodies[-1] == b"m10"


@pytest.mark.parametrize("victim", [SOURCE, TARGET])
@pytest.mark.parametrize("at", range(0, 34, 2))
def test_whoever_dies_at_whatever_step_it_is_moved_in_the_end_and_whole(at: int, victim: int) -> None:
    pair, _, consumer = used()
    pair.crash_at(at, victim, then_s=40)
    assert pair.placement.group_of("q") == TARGET and not pair.placement.moves
    assert pair.has(TARGET) and not pair.has(SOURCE) and not pair.rows(SOURCE, consumer.destination)
    identity = pair.target.locate("q")
    strays = {key[:8] for key in pair.target.disk.tables[Table.LOG]} - {identity.to_bytes(8, "big")}
    assert not strays, "no copy of an earlier attempt is left"
    other = pair.target.consumer(identity)
    assert other.positions == [3, 4, 5, 6, 7, 8, 9], "whoever held some did not come back in time"


def test_what_was_copied_before_a_crash_of_the_source_does_not_count() -> None:
    """The new message manager has confirmed something since."""
    pair, _, _ = used()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    pair.run(lambda: any(isinstance(command, DecideMove) for command in pair.source.moving))
    epoch = pair.epoch(SOURCE)
    pair.crash(SOURCE)
    with pytest.raises(Rejected, match="epoch"):
        pair.decide(d.MoveDone("q", 1, epoch))
    assert pair.placement.group_of("q") == SOURCE


def test_a_destination_of_a_placement_that_is_out_of_date_is_not_touched() -> None:
    """It came back: whoever hears late of the time when it was elsewhere must not delete it."""
    pair, _, _ = used()
    pair.move()
    between = pair.placement
    pair.move("q", SOURCE)
    assert pair.has(SOURCE) and not pair.has(TARGET)
    pair.state = pair.state.but(placement=between)
    pair.crash(SOURCE)
    assert pair.has(SOURCE)
    pair.source.advance(3.0)
    assert pair.source.consumer(pair.source.locate("q")).positions == [3, 4, 5, 6, 7, 8, 9]


def test_one_that_goes_home_while_its_group_is_down_is_not_kept_there() -> None:
    """No exception of the placement names it any more."""
    pair, _, _ = used()
    pair.move()
    found = pair.target.locate("q")
    pair.begin("q", SOURCE)
    for number in (SOURCE, TARGET):
        pair.hear(number)
    pair.run(lambda: not pair.placement.moves)
    assert not pair.placement.exceptions
    pair.crash(TARGET)
    pair.hear(SOURCE)
    assert pair.has(SOURCE) and not pair.has(TARGET) and not pair.rows(TARGET, found)
    asked = pair.locate(TARGET)
    assert not pair.target.received(asked, frames.Located) and not pair.has(TARGET), "nor is it made there anew"


def test_one_that_is_not_there_cannot_be_moved() -> None:
    pair = Pair()
    pair.begin("nothing")
    pair.hear(SOURCE)
    pair.run()
    assert pair.placement.moves_ended["nothing"].code == "unknown-destination"


def test_it_waits_for_a_transaction_that_is_in_doubt_but_not_for_ever() -> None:
    pair = Pair(DestinationSettings(in_doubt_s=1_000.0))
    queue = pair.source.locate("q")
    producer = pair.source.producer(queue)
    batch = pack(producer.identity, 1, 0, [b"x"])
    prepare = frames.CommitPrepare(1, [(queue, producer.number, len(batch))], [], b"", 1)
    pair.source.frame(producer.session, 0, prepare, batch)
    assert pair.source.received(producer.session, frames.CommitReady)
    pair.begin()
    pair.hear(SOURCE)
    pair.source.advance(WAIT_S_MAX - 1)
    assert pair.has(SOURCE) and not pair.source.moving
    pair.source.advance(2)
    pair.run()
    assert pair.placement.moves_ended["q"].code == "in-transaction" and pair.has(SOURCE)
    pair.hear(SOURCE)
    final = frames.CommitFinal(producer.session, 1, SOURCE, 1)
    pair.source.frame(producer.session, 0, final)
    pair.move()
    assert pair.has(TARGET) and pair.target.describe("q")["messages"] == 1


def test_a_commit_whose_answer_was_lost_is_answered_where_the_destination_is_now() -> None:
    pair = Pair()
    queue = pair.source.locate("q")
    producer = pair.source.producer(queue)
    batch = pack(producer.identity, 1, 0, [b"x"])
    commit = frames.TransactionCommit(1, [(queue, producer.number, len(batch))], [], b"")
    pair.source.frame(producer.session, 0, commit, batch)
    assert pair.source.received(producer.session, frames.Committed)
    pair.move()
    producer.destination = pair.target.locate("q")
    producer.resume(world=pair.target)
    again = frames.TransactionCommit(1, [(producer.destination, producer.number, len(batch))], [], b"")
    pair.target.frame(producer.session, 0, again, batch)
    assert pair.target.received(producer.session, frames.Committed) and not pair.target.received(
        producer.session, frames.Aborted
    )
    assert pair.target.describe("q")["messages"] == 1


def test_a_target_that_does_not_answer_is_given_up() -> None:
    pair, _, _ = used()
    pair.begin()
    pair.hear(SOURCE)
    pair.source.advance(PATIENCE_S + 1)
    while pair.source.moving and pair.step(SOURCE, is_lost=isinstance(pair.source.moving[0], ToSession)):
        pass
    assert pair.placement.moves_ended["q"].code == "no-primary"
    pair.hear(SOURCE)
    assert pair.has(SOURCE)


def test_a_target_that_has_one_of_that_name_or_no_room_refuses() -> None:
    pair = Pair(DestinationSettings(destinations_max=1))
    pair.source.locate("q")
    pair.made_before(TARGET, "other")
    pair.move()
    assert pair.placement.moves_ended["q"].code == "too-many-destinations" and pair.has(SOURCE)
    pair = Pair()
    pair.source.locate("q")
    pair.made_before(TARGET, "q")
    pair.move()
    assert pair.placement.moves_ended["q"].code == "already-exists" and pair.has(SOURCE)


def test_messages_that_are_lost_repeated_or_late_change_nothing() -> None:
    pair, _, _ = used()
    pair.begin()
    pair.hear(SOURCE)
    pair.hear(TARGET)
    first = pair.source.moving[0]
    steps = 0
    while pair.placement.moves and steps < 500:
        steps += 1
        for number in (SOURCE, TARGET):
            if pair.worlds[number].moving:
                command = pair.worlds[number].moving[0]
                pair.step(number, is_lost=steps % 3 == 0)
                if isinstance(command, ToSession) and steps % 3 == 1:
                    pair.pass_on(command)
            else:
                pair.worlds[number].advance(0.3)
    assert not pair.placement.moves and pair.placement.group_of("q") == TARGET
    pair.hear(SOURCE)
    pair.hear(TARGET)
    assert isinstance(first, ToSession)
    pair.pass_on(first)
    pair.pass_on(ToSession(ANYBODY, frames.MoveTaken(SOURCE, "q", 1, 1, 0)))
    pair.target.advance(3.0)
    assert pair.target.consumer(pair.target.locate("q")).positions == [3, 4, 5, 6, 7, 8, 9]


def test_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("angarium.core.moving.departures.CHUNK_BYTES", 1_000)
    pair = Pair()
    queue = pair.source.locate("q")
    producer = pair.source.producer(queue)
    for number in range(200):
        producer.publish(b"%d" % number * 20)
    pair.move()
    moved = pair.target.consumer(pair.target.locate("q"))
    assert moved.bodies == [b"%d" % number * 20 for number in range(200)]


def test_whoever_opens_it_too_late_is_detached() -> None:
    pair, _, _ = used()
    queue = pair.source.locate("q")
    pair.begin()
    pair.hear(SOURCE)
    late = pair.source.producer(queue)
    assert [type(frame) for frame, _ in pair.source.sent[late.session]] == [frames.SessionDetached]
    late.publish(b"x")
    assert len(pair.source.sent[late.session]) == 1, "nothing that could be taken for an answer of another group"


def test_what_nobody_has_packed_is_the_peers_mistake() -> None:
    pair = Pair()
    pair.source.locate("q")
    pair.begin()
    pair.hear(TARGET)
    for table, payload in ((Table.PREPARED, pack_items([(b"k", b"v")])), (Table.LOG, b"not packed")):
        rows = frames.MoveRows(TARGET, SOURCE, "q", 1, 1, 0, int(table), b"", False)
        pair.target.tell(FromSession(ANYBODY, 0, rows, payload))
        assert pair.target.last(ANYBODY, frames.Failure).code == "bad-message"

"""Local transactions: sends and settlements of a session, on any destinations, all or nothing."""
import pytest

from angarium.core.ranges import Range
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.packing import pack
from tests.unit.core.core_clients import Consumer, Producer
from tests.unit.core.core_manager import World


class Transaction:
    """What the client manager makes of one session's Commit."""

    def __init__(self, world: World, session: bytes, number: int) -> None:
        self.world, self.session, self.number = world, session, number
        self.publishes: list[tuple[int, int, int]] = []
        self.settles: list[tuple[int, int, list[Range]]] = []
        self.payload = b""

    def publish(self, producer: Producer, *bodies: bytes) -> "Transaction":
        batch = pack(producer.identity, producer.sequence + 1, self.world.wall_ms, bodies)
        producer.sequence += len(bodies)
        self.publishes.append((producer.destination, producer.number, len(batch)))
        self.payload += batch
        return self

    def settle(self, consumer: Consumer, *ranges: Range) -> "Transaction":
        self.settles.append((consumer.destination, consumer.number, list(ranges)))
        return self

    def commit(self, world: World | None = None) -> None:
        frame = frames.TransactionCommit(self.number, self.publishes, self.settles)
        (world or self.world).frame(self.session, 0, frame, self.payload)


def answers(world: World, session: bytes) -> list[object]:
    sent = [frame for frame, _ in world.sent.get(session, [])]
    return [frame for frame in sent if isinstance(frame, frames.Committed | frames.Aborted)]


def bank(world: World) -> tuple[bytes, Consumer, Producer, Producer]:
    """A session that takes from `in` and sends to `out` and `log`."""
    source, out, log = world.queue_with(3, name="in"), world.locate("out"), world.locate("log")
    session = world.session()
    consumer = world.consumer(source, session=session, number=1)
    first, second = (world.producer(to, session=session, number=n) for n, to in enumerate((out, log), start=1))
    return session, consumer, first, second


def counts(world: World) -> dict[str, int]:
    return {name: world.describe(name)["messages"] for name in ("in", "out", "log")}


def test_sends_and_settlements_take_effect_together() -> None:
    world = World()
    session, consumer, out, log = bank(world)
    Transaction(world, session, 1).publish(out, b"a", b"b").publish(log, b"l").settle(consumer, (0, 2)).commit()
    assert answers(world, session) == [frames.Committed(1)]
    assert counts(world) == {"in": 1, "out": 2, "log": 1}
    assert world.received(session, frames.Confirm) == [], "the answer is that of the transaction"


def test_it_is_one_write_and_a_crash_leaves_all_or_nothing() -> None:
    for kept, expected in ((0, {"in": 3, "out": 0, "log": 0}), (1, {"in": 1, "out": 2, "log": 1})):
        world = World()
        session, consumer, out, log = bank(world)
        world.auto = False
        Transaction(world, session, 1).publish(out, b"a", b"b").publish(log, b"l").settle(consumer, (0, 2)).commit()
        assert len(world.disk.waiting) == 1
        assert answers(world, session) == []
        world.auto = True
        world = world.restarted(kept=kept)
        assert counts(world) == expected


def test_nothing_is_delivered_before_the_commit_is_durable() -> None:
    world = World()
    session, consumer, out, _log = bank(world)
    reader = world.consumer(out.destination)
    world.auto = False
    Transaction(world, session, 1).publish(out, b"a").settle(consumer, (0, 1)).commit()
    assert reader.bodies == []
    world.auto = True
    world.run_disk()
    assert reader.bodies == [b"a"]


def test_a_commit_that_is_sent_again_is_done_once_and_answered() -> None:
    world = World()
    session, consumer, out, _log = bank(world)
    transaction = Transaction(world, session, 1).publish(out, b"a").settle(consumer, (0, 1))
    transaction.commit()
    transaction.commit()
    assert answers(world, session) == [frames.Committed(1)] * 2
    world = world.restarted()
    transaction.commit(world)
    assert answers(world, session) == [frames.Committed(1)]
    assert counts(world) == {"in": 2, "out": 1, "log": 0}


def test_a_commit_repeated_while_it_is_written_is_answered_once() -> None:
    world = World()
    session, _consumer, out, _log = bank(world)
    world.auto = False
    transaction = Transaction(world, session, 1).publish(out, b"a")
    transaction.commit()
    transaction.commit()
    world.auto = True
    world.run_disk()
    assert answers(world, session) == [frames.Committed(1)]


@pytest.mark.parametrize("what", ["settled", "somebody else's", "unknown consumer", "unknown producer", "gone", "gap"])
def test_what_cannot_be_done_aborts_all_of_it(what: str) -> None:
    world = World()
    session, consumer, out, log = bank(world)
    transaction = Transaction(world, session, 1).publish(out, b"a")
    match what:
        case "settled":
            consumer.settle((0, 1))
            transaction.settle(consumer, (0, 2))
        case "somebody else's":
            other = world.consumer(consumer.destination, number=7)
            transaction.settle(other, (0, 1))
        case "unknown consumer":
            transaction.settles.append((consumer.destination, 99, [(0, 1)]))
        case "unknown producer":
            batch = pack(b"p" * 16, 1, 0, [b"x"])
            transaction.publishes.append((out.destination, 99, len(batch)))
            transaction.payload += batch
        case "gone":
            world.request("destination.remove", name="log")
            transaction.publish(log, b"l")
        case "gap":
            log.sequence += 5
            transaction.publish(log, b"l")
    before = counts(world) if what != "gone" else {}
    transaction.commit()
    (answer,) = answers(world, session)
    assert isinstance(answer, frames.Aborted) and answer.number == 1 and answer.reason
    if before:
        assert counts(world) == before
    out.sequence -= 1
    Transaction(world, session, 2).publish(out, b"a").settle(consumer, (1, 2)).commit()
    assert answers(world, session)[-1] == frames.Committed(2), "the next one has the sequences of the aborted one"
    assert world.describe("out")["messages"] == 1


def test_all_that_a_transaction_sends_to_a_refusing_destination_has_to_fit_together() -> None:
    world = World()
    session, _, out, log = bank(world)
    second = world.producer(log.destination, session=session, number=7)
    world.request("destination.alter", name="log", messages_max=3, over_limit="refuse")
    sends = Transaction(world, session, 1).publish(out, b"a")
    sends.publish(log, b"1", b"2").publish(second, b"3").publish(log, b"4").commit()
    (answer,) = answers(world, session)
    assert isinstance(answer, frames.Aborted) and answer.code == "destination-full"
    assert "room for 3 messages" in answer.reason and counts(world)["log"] == 0
    out.sequence = log.sequence = second.sequence = 0
    Transaction(world, session, 2).publish(log, b"1", b"2").publish(second, b"3").commit()
    assert answers(world, session)[-1] == frames.Committed(2)


def test_a_commit_past_a_limit_that_blocks_is_accepted_and_its_producers_are_told_before_the_answer() -> None:
    """So that the client holds back the next one."""
    world = World()
    session, _, out, log = bank(world)
    world.request("destination.alter", name="log", messages_max=2)
    Transaction(world, session, 1).publish(out, b"a").publish(log, b"1", b"2", b"3").commit()
    told = [frame for frame, _ in world.sent[session] if isinstance(frame, frames.Block | frames.Committed)]
    assert [type(frame) for frame in told] == [frames.Block, frames.Committed]
    assert isinstance(told[0], frames.Block) and (told[0].producer, told[0].code) == (log.number, "destination-full")
    Transaction(world, session, 2).publish(log, b"4").commit()
    assert answers(world, session)[-1] == frames.Committed(2), "what was under way is never refused for that"
    reader = world.consumer(log.destination)
    reader.settle((0, 3))
    assert [frame.producer for frame in world.received(session, frames.Unblock)] == [log.number]


def test_a_refusing_destination_aborts_the_transaction() -> None:
    world = World()
    session, consumer, out, log = bank(world)
    world.request("destination.alter", name="log", messages_max=1, over_limit="refuse")
    Transaction(world, session, 1).publish(out, b"a").publish(log, b"1", b"2").settle(consumer, (0, 1)).commit()
    (answer,) = answers(world, session)
    assert isinstance(answer, frames.Aborted) and answer.code == "destination-full"
    assert counts(world) == {"in": 3, "out": 0, "log": 0}


def test_rollback_redelivers_in_order_with_a_higher_count() -> None:
    world = World()
    queue = world.queue_with(6)
    consumer = world.consumer(queue, credit=4)
    world.frame(consumer.session, queue, frames.Recover(1, 1, [(0, 2)]))
    consumer.credit(100)
    sent = [frame for frame, _ in world.sent[consumer.session]]
    at = next(index for index, frame in enumerate(sent) if isinstance(frame, frames.Recovered))
    again = consumer.deliveries[4:]
    assert [(position, count) for position, _, count in again] == [(0, 1), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0)]
    assert any(isinstance(frame, frames.Deliver) for frame in sent[at:])


def test_on_a_full_disk_a_later_settlement_does_not_undo_the_transaction() -> None:
    """It sends, so it waits for room; a settlement of the same subscription waits behind it, or it would be undone."""
    world = World()
    session, consumer, out, _log = bank(world)
    other = world.consumer(consumer.destination, credit=0)
    world.auto = False
    world.block()
    Transaction(world, session, 1).publish(out, b"a").settle(consumer, (0, 1)).commit()
    consumer.settle((1, 2))
    world.run_disk()
    assert answers(world, session) == []
    world.unblock()
    world.disk.full = False
    world.run_disk()
    world.auto = True
    assert answers(world, session) == [frames.Committed(1)]
    world = world.restarted()
    assert counts(world) == {"in": 1, "out": 1, "log": 0}
    assert other is not None


def test_the_last_commit_is_forgotten_with_its_session() -> None:
    world = World()
    session, _consumer, out, _log = bank(world)
    Transaction(world, session, 1).publish(out, b"a").commit()
    assert len(world.disk.tables[Table.TRANSACTION]) == 1
    world.frame(session, 0, frames.SessionEnded(closed=False))
    assert len(world.disk.tables[Table.TRANSACTION]) == 1, "one that was cut off may ask again"
    world.frame(session, 0, frames.SessionEnded(closed=True))
    assert len(world.disk.tables[Table.TRANSACTION]) == 0


def test_a_producer_that_comes_back_is_not_confirmed_before_the_commit_is_durable() -> None:
    world = World()
    session, consumer, out, _ = bank(world)
    world.auto = False
    Transaction(world, session, 1).publish(out, b"a").settle(consumer, (0, 1)).commit()
    out.resume()
    assert world.received(session, frames.Confirm) == []
    world.run_disk()
    assert answers(world, session) == [frames.Committed(1)]


def test_a_commit_that_makes_room_unblocks() -> None:
    world = World()
    world.request("destination.create", name="in", kind="queue", messages_max=3)
    session, consumer, _, _ = bank(world)
    late = world.producer(consumer.destination)
    assert [type(frame) for frame, _ in world.sent[late.session]][-1] is frames.Block
    Transaction(world, session, 1).settle(consumer, (0, 3)).commit()
    assert world.received(late.session, frames.Unblock) != []


def test_an_abort_says_to_which_sending_it_answers() -> None:
    world = World()
    session = world.session()
    lost = [(99, 1, [(0, 1)])]
    world.frame(session, 0, frames.TransactionCommit(1, [], lost, b"here"))
    (aborted,) = answers(world, session)
    assert isinstance(aborted, frames.Aborted) and aborted.attachment == b"here"

"""Goal: what is stored because of one frame fits one group of the journal, however little each message has in it.
Method: batches with all that makes rows, the longest names among it, each written and measured; and batches and
transactions that would make more than that. Once such a frame ended the node, and again when it was sent anew."""
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.destination.events import DestinationSettings
from angarium.core.destination.singles import SINGLE_BYTES_MAX, singles_in
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack
from angarium.store.groups import encode as encode_group
from tests.unit.core.core_manager import World
from tests.unit.core.core_settings import THOROUGH

ANNOUNCED = int(Columns.DEDUPLICATION | Columns.KEY)
_encode = msgspec.msgpack.encode


def delayed(world: World, count: int) -> MessageColumns:
    return MessageColumns(dues_ms=[world.wall_ms + 60_000 + number for number in range(count)])


messages = st.lists(
    st.tuples(
        st.integers(0, 3),  # delay
        st.sampled_from([0, 1, 30, 400]),  # length of the deduplication id
        st.sampled_from([0, 1, 30, 400]),  # ... of the key
        st.one_of(st.just(4), st.integers(0, 9)),  # priority
    ),
    min_size=1,
    max_size=60,
)


@THOROUGH
@given(st.lists(messages, min_size=1, max_size=3))
def test_what_a_batch_makes_is_no_more_than_what_it_counts(batches: list[list[tuple[int, int, int, int]]]) -> None:
    world = World(DestinationSettings(last_value_keys_max=5, deduplication_ids_max=5))
    world.request("destination.create", name="q", kind="queue", last_value=True)
    producer, made = world.producer(world.locate("q")), 0
    for batch in batches:
        headers = []
        for _, identifier, key, _ in batch:
            made += 1
            named = {"deduplication_id": f"{made}".ljust(identifier, "i")} if identifier else {}
            named |= {"last_value_key": f"{made}".ljust(key, "k")} if key else {}
            headers.append(_encode(named) if named else b"")
        columns = MessageColumns(
            dues_ms=[world.wall_ms + 60_000 * delay if delay else 0 for delay, *_ in batch],
            priorities=[p for *_, p in batch] if any(p != 4 for *_, p in batch) else None,
            headers=headers, announcements=ANNOUNCED,
        )  # fmt: skip
        data = pack(producer.identity, producer.sequence + 1, world.wall_ms, [b"x"] * len(batch), columns)
        world.auto = False
        producer.publish(*[b"x"] * len(batch), columns=columns)
        (write,) = world.disk.waiting
        singles = singles_in(Batch.parse(data))
        assert singles == sum(bool(delay or identifier or key) for delay, identifier, key, _ in batch)
        stored = encode_group(write.operations, 0).body_bytes
        besides = 2_000 if any(priority != 4 for *_, priority in batch) else 300
        assert stored <= len(data) + singles * SINGLE_BYTES_MAX + besides
        world.run_disk()


def test_more_than_can_be_written_at_once_is_refused_and_the_next_goes_on() -> None:
    world = World(DestinationSettings(write_bytes_max=1 << 20))
    producer = world.producer(world.locate("q"))
    count = 1_000
    producer.publish(*[b"x"] * count, columns=delayed(world, count))
    refused = world.last(producer.session, frames.Refuse)
    assert (refused.code, refused.first, refused.last) == ("too-many-singles", 1, count)
    assert "1,000 messages that have a time of delivery" in refused.reason
    assert producer.confirmed == count and world.describe("q")["delayed"] == 0
    producer.publish(*[b"x"] * 500, columns=delayed(world, 500))
    assert world.describe("q")["delayed"] == 500
    producer.publish(*[b"x"] * 100_000)
    assert world.describe("q")["messages"] == 100_000, "plain ones are one row"


def test_a_few_among_many_are_counted_one_by_one() -> None:
    world = World(DestinationSettings(write_bytes_max=1 << 20))
    producer = world.producer(world.locate("q"))
    producer.publish(*[b"x"] * 10_000, columns=MessageColumns(dues_ms=[0] * 9_999 + [world.wall_ms + 60_000]))
    assert world.received(producer.session, frames.Refuse) == []
    assert world.describe("q")["delayed"] == 1


@pytest.mark.parametrize("count", [1, 1_000])
def test_a_transaction_that_makes_more_is_aborted_and_nothing_changes(count: int) -> None:
    """One batch of many, and many batches of one."""
    world = World(DestinationSettings(write_bytes_max=1 << 20))
    queue = world.locate("q")
    producer = world.producer(queue)
    columns = delayed(world, count) if count > 1 else MessageColumns()
    parts = [
        pack(producer.identity, 1 + number * count, world.wall_ms, [b"x"] * count, columns)
        for number in range(5_000 // count)
    ]
    commit = frames.TransactionCommit(1, [(queue, producer.number, len(part)) for part in parts], [])
    world.frame(producer.session, 0, commit, b"".join(parts))
    aborted = world.last(producer.session, frames.Aborted)
    assert (aborted.number, aborted.code) == (1, "too-many-singles")
    assert world.describe("q")["messages"] == world.describe("q")["delayed"] == 0
    small = pack(producer.identity, 1, world.wall_ms, [b"x"] * 9, delayed(world, 9))
    world.frame(producer.session, 0, frames.TransactionCommit(1, [(queue, producer.number, len(small))], []), small)
    assert world.last(producer.session, frames.Committed).number == 1
    assert world.describe("q")["delayed"] == 9

"""The parts of replication: history, window, payloads, ranges, messages, and what a store knows of itself."""
import pytest

from angarium.core.errors import RemoteProtocolError, StorageCorrupt
from angarium.core.groups.configuration import EMPTY, Position, Replica
from angarium.core.replication import messages as m
from angarium.core.replication.events import ReadRange
from angarium.core.replication.history import NOWHERE, History, StoredReplica, stored_replica
from angarium.core.replication.local import LocalStore
from angarium.core.replication.payloads import Payloads
from angarium.core.replication.ranges import clip, digest_of, pack_items, replicated_ranges, unpack_items
from angarium.core.replication.window import Ordered, Window
from angarium.core.storage import DeleteRange, Operation, Put, Table
from angarium.store.memory import MemoryStore
from angarium.store.replicas import load_replica, read_range, replica_hash


def ordered(number: int, epoch: int = 1, value: bytes = b"v") -> Ordered:
    return Ordered(Position(epoch, number), [Put(Table.BATCH, b"k%d" % number, value)], 20)


# -- history -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "is_part"),
    [
        (EMPTY, True), (Position(1, 1), True), (Position(1, 3), True), (Position(1, 4), False),
        (Position(2, 4), True), (Position(2, 6), True), (Position(2, 7), False), (Position(3, 7), False),
        (Position(4, 7), True), (Position(4, 8), True), (Position(4, 9), False), (Position(2, 3), False),
        (NOWHERE, False), (Position(5, 8), False),
    ],
)  # fmt: skip
def test_what_is_part_of_a_history(position: Position, is_part: bool) -> None:
    history = History([(1, 1), (2, 4), (4, 7)], epochs_max=10)
    assert history.holds(position, 8) is is_part


def test_a_history_remembers_only_so_many_epochs() -> None:
    history = History([], epochs_max=2)
    for epoch, number in ((1, 1), (1, 2), (2, 3), (3, 4)):
        history.note(Position(epoch, number))
    assert history.epochs == [(2, 3), (3, 4)]
    assert not history.holds(Position(1, 2), 4)


def test_a_store_that_knows_nonsense_of_itself_is_corrupt() -> None:
    with pytest.raises(StorageCorrupt, match="what this replica knows of itself"):
        stored_replica({b"position": b"\xc1"})


# -- window --------------------------------------------------------------------------------------------


def test_a_window_keeps_what_is_not_committed_whatever_its_limits() -> None:
    window = Window(EMPTY, bytes_max=40, orders_max=100)
    window.append(ordered(number) for number in range(1, 6))
    window.trim(0)
    assert len(window) == 5
    window.trim(4)
    assert (window.base, len(window), window.size_bytes) == (Position(1, 3), 2, 40)
    assert window.reaches(3) and not window.reaches(2) and not window.reaches(6)
    assert [order.position.number for order in window.after(3)] == [4, 5]
    assert [order.position.number for order in window.after(3, 4)] == [4]


def test_orders_in_a_window_follow_one_another() -> None:
    window = Window(EMPTY, bytes_max=40, orders_max=100)
    with pytest.raises(AssertionError):
        window.append([ordered(2)])


# -- payloads and messages -------------------------------------------------------------------------------


def test_a_value_that_was_heard_is_referred_to_and_found_again() -> None:
    ours, theirs = (Payloads(bytes_max=1_000, reference_bytes_min=4) for _ in range(2))
    payload = bytes(range(100))
    ours.add(b"cm", 7, payload)
    theirs.add(b"cm", 7, bytes(bytearray(payload)))
    operations: list[Operation] = [
        Put(Table.BATCH, b"k", payload), Put(Table.LOG, b"l", b"inline"), DeleteRange(Table.BATCH, b"a", b"b"),
    ]  # fmt: skip
    values: list[bytes] = []
    packed = m.pack_operations(operations, ours.references, values)
    assert values == [b"inline"]
    [unpacked] = m.unpack_writes([m.OrderedWrite(1, packed)], b"".join(values))
    assert theirs.resolve(unpacked) == operations
    assert Payloads(bytes_max=1_000, reference_bytes_min=4).resolve(unpacked) is None


def test_the_oldest_payloads_are_forgotten() -> None:
    payloads = Payloads(bytes_max=250, reference_bytes_min=4)
    kept = [bytes([number]) * 100 for number in range(4)]
    for number, payload in enumerate(kept):
        payloads.add(b"cm", number, payload)
    assert payloads.size_bytes == 200
    assert payloads.find(m.Reference(b"cm", 1, 0, 100)) is None
    assert payloads.find(m.Reference(b"cm", 3, 10, 5)) == bytes([3]) * 5
    assert payloads.find(m.Reference(b"cm", 3, 90, 20)) is None
    assert len(payloads.references) == 2


def test_messages_survive_the_way() -> None:
    order = m.Order("g", 3, Position(2, 5), 4, 7, [m.OrderedWrite(2, [m.PutHere(Table.LOG, b"k", 3)])])
    copy = m.MustCopy("g", 3, Replica("b", b"s"), Position(3, 9), [(1, 1), (3, 7)], "too old")
    for message in (order, copy, m.Hello("g", 3, NOWHERE, True), m.Stale("g", 9)):
        assert m.decode(m.encode(message)) == message


def test_a_message_that_nobody_sent_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="a message between replicas"):
        m.decode(b"\x91\xa3abc")
    with pytest.raises(RemoteProtocolError, match="its payload at 2"):
        m.unpack_writes([m.OrderedWrite(1, [m.PutHere(Table.LOG, b"k", 3)])], b"ab")


# -- ranges --------------------------------------------------------------------------------------------


def test_a_range_is_packed_and_unpacked() -> None:
    items = [(b"a", b"1" * 1_000), (b"b", b"")]
    packed = pack_items(items)
    assert len(packed) < 100
    assert unpack_items(packed) == items
    with pytest.raises(RemoteProtocolError, match="a range of a table"):
        unpack_items(b"nonsense")


def test_a_digest_tells_keys_from_values() -> None:
    assert digest_of([(b"ab", b"c")]) != digest_of([(b"a", b"bc")])
    assert digest_of([]) != digest_of([(b"", b"")])


def test_of_an_order_only_what_concerns_the_range_is_taken() -> None:
    operations: list[Operation] = [
        Put(Table.BATCH, b"c", b""), Put(Table.BATCH, b"x", b""), Put(Table.LOG, b"c", b""),
        DeleteRange(Table.BATCH, b"a", b"z"), DeleteRange(Table.BATCH, b"x", b"z"),
    ]  # fmt: skip
    kept = list(clip(operations, Table.BATCH, b"b", b"d"))
    assert kept == [Put(Table.BATCH, b"c", b""), DeleteRange(Table.BATCH, b"b", b"d")]


def test_what_a_node_knows_of_itself_is_not_replicated() -> None:
    tables = {table for table, _, _ in replicated_ranges()}
    assert tables == set(Table) - {Table.REPLICA, Table.GROUPS}
    assert [(low, high) for table, low, high in replicated_ranges() if table == Table.NODE] == [
        (b"next-destination", b"next-destination\0")
    ]


# -- the local store -------------------------------------------------------------------------------------


def test_a_store_is_where_its_durable_writes_say() -> None:
    local, store = LocalStore(StoredReplica(), epochs_max=10), MemoryStore()
    first = local.write_orders([ordered(1), ordered(2)])
    fence = local.write_fence(4)
    assert (local.handed, local.written) == (Position(1, 2), EMPTY)
    store.commit(first.operations)
    store.commit(fence.operations)
    assert [landed.position for landed in local.landed(fence.token)] == [Position(1, 2), None]
    assert local.written == Position(1, 2)
    stored = load_replica(store)
    assert (stored.position, stored.epochs, stored.fence) == (Position(1, 2), [(1, 1)], 4)


def test_a_copy_claims_nothing_until_its_end_is_durable() -> None:
    local, store = LocalStore(StoredReplica(Position(1, 9), [(1, 1)]), epochs_max=10), MemoryStore()
    begun = local.begin_copy(Position(2, 20), [(2, 15)], 1)
    live = local.write_orders([ordered(21, 2)])
    ended = local.end_copy(2)
    for command in (begun, live):
        store.commit(command.operations)
        assert load_replica(store).position == NOWHERE
        assert load_replica(store).is_copying
    local.landed(live.token)
    assert local.written == NOWHERE
    store.commit(ended.operations)
    local.landed(ended.token)
    assert local.written == Position(2, 21) == load_replica(store).position


def test_a_range_is_read_in_parts_and_not_sent_if_it_is_the_same() -> None:
    store = MemoryStore()
    store.commit([Put(Table.BATCH, b"%03d" % number, b"x" * 50) for number in range(10)])
    part = read_range(store, ReadRange(1, Table.BATCH, b"", b"\xff", 120, b"", True))
    assert part.high == b"002\0" and part.data is not None
    assert [key for key, _ in unpack_items(part.data)] == [b"000", b"001", b"002"]
    whole = read_range(store, ReadRange(2, Table.BATCH, b"", b"\xff", 10_000, b"", False))
    assert (whole.high, whole.data) == (b"\xff", None)
    same = read_range(store, ReadRange(3, Table.BATCH, b"", b"\xff", 10_000, whole.digest, True))
    assert same.data is None
    assert [(read.rows, read.whole) for read in (part, whole, same)] == [(3, 10), (10, 10), (10, 10)]
    # A part with the digest of the whole is not the whole.
    assert read_range(store, ReadRange(4, Table.BATCH, b"", b"\xff", 120, part.digest, True)).data is not None


def test_replicas_are_compared_by_what_is_replicated() -> None:
    one, other = MemoryStore(), MemoryStore(checkpoint_groups=1)
    for store, own in ((one, b"1"), (other, b"2")):
        store.commit([Put(Table.REPLICA, b"fence", own), Put(Table.NODE, b"node-number", own)])
        store.commit([Put(Table.BATCH, b"k", b"same"), Put(Table.NODE, b"next-destination", b"7")])
    assert replica_hash(one) == replica_hash(other)
    other.commit([Put(Table.BATCH, b"k", b"else")])
    assert replica_hash(one) != replica_hash(other)
    assert replica_hash(one, thorough=False) == replica_hash(other, thorough=False)
    other.commit([Put(Table.LOG, b"k", b"else")])
    assert replica_hash(one, thorough=False) != replica_hash(other, thorough=False)

"""Goal: a batch gives back what was packed, whole or sliced; a batch that was tampered with is refused by `parse`, and
one that passes is safe to look at in every way.
Method: random messages with every mix of columns; then each bit flipped, with the checksum left alone (always refused)
or made right again (refused or harmless)."""
import struct
import tracemalloc
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.errors import RemoteProtocolError
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import ANNOUNCEMENTS, COUNT_MAX, HEADER, MAGIC, PRIORITY_MAX, Columns
from angarium.core.wire.packing import NO_COLUMNS, MessageColumns, pack
from tests.unit.core.core_frames import BATCH_CODES, Messages, messages
from tests.unit.core.core_settings import QUICK, THOROUGH

PRODUCER = bytes(range(16))
_SAMPLE = pack(
    PRODUCER, 5, 1_700_000_000_000, [b"one", b"", b"three"],
    MessageColumns(
        [4, 0, 9], [0, 1, 1 << 40], [b"\x80", b"", b"\x81\xa1a\x01"], [b"", b"\x80", b""], [1, 0, 2], Columns.GROUP
    ),
)  # fmt: skip
_PICKED = Batch.parse(
    pack(PRODUCER, 5, 0, [b"%d" % n for n in range(6)], MessageColumns([4] * 6, dues_ms=list(range(6))))
).select([0, 2, 5]).data  # has sequences of its own
_AT = {"crc": 4, "length": 8, "count": 12, "sequence": 32, "columns": 48, "bodies_at": 52, "zero": 56}


def refused(data: bytes) -> bool:
    """Whether `parse` refuses; any exception but RemoteProtocolError fails the test."""
    try:
        Batch.parse(data)
    except RemoteProtocolError as error:
        assert error.code in BATCH_CODES
        return True
    return False


def resealed(data: bytes | bytearray) -> bytes:
    """The same bytes with a checksum that is right: what a peer sends that lies on purpose."""
    return bytes(data[:4]) + zlib.crc32(data[8:]).to_bytes(4, "little") + bytes(data[8:])


def with_field(data: bytes, field: str, value: int) -> bytes:
    size = 8 if field in ("sequence", "zero") else 4
    at = _AT[field]
    return resealed(data[:at] + value.to_bytes(size, "little") + data[at + size :])


def look_everywhere(batch: Batch) -> None:
    """Everything that any later reader does with a checked batch."""
    assert len(batch.bodies()) == batch.count
    assert b"".join(batch.bodies()) == batch.data[len(batch.data) - batch.body_bytes :]
    assert [batch.body(index) for index in range(batch.count)] == batch.bodies()
    columns = (batch.priorities(), batch.expiries_ms(), batch.headers(), batch.properties(), batch.dues_ms())
    for column in columns:
        assert column is None or len(column) == batch.count
    assert [batch.headers_of(index) for index in range(batch.count)] == (batch.headers() or [b""] * batch.count)
    assert [batch.properties_of(index) for index in range(batch.count)] == (batch.properties() or [b""] * batch.count)
    sequences = list(batch.sequences())
    assert [batch.sequence(index) for index in range(batch.count)] == sequences == sorted(set(sequences))
    assert (sequences[0], sequences[-1]) == (batch.first_sequence, batch.last_sequence)
    assert max(batch.priorities() or [0]) <= PRIORITY_MAX
    for low in range(min(batch.count, 4)):
        part = Batch.parse(batch.slice(low, batch.count).data)
        assert part.bodies() == batch.bodies()[low:]
    picked = list(range(0, batch.count, 2))
    part = Batch.parse(batch.select(picked).data)
    assert part.bodies() == batch.bodies()[::2]
    assert list(part.sequences()) == sequences[::2]


def picked_from(given_messages: Messages, indices: Sequence[int]) -> Messages:
    """Those of the messages."""
    columns = given_messages.columns
    picked: dict[str, Any] = {
        name: [column[i] for i in indices] if (column := getattr(columns, name)) is not None else None
        for name in ("priorities", "expiries_ms", "headers", "properties", "dues_ms")
    }
    return given_messages._replace(
        sequence=given_messages.sequence + indices[0],
        bodies=[given_messages.bodies[i] for i in indices],
        columns=MessageColumns(**picked, announcements=columns.announcements),
    )


def check_equal(batch: Batch, expected: Messages, sequences: Sequence[int] | None = None) -> None:
    columns, expiries, dues = expected.columns, batch.expiries_ms(), batch.dues_ms()
    assert (batch.producer, batch.first_sequence) == (expected.producer, expected.sequence)
    assert batch.timestamp_ms == expected.timestamp_ms
    assert batch.count == len(expected.bodies)
    dense = range(expected.sequence, expected.sequence + len(expected.bodies))
    assert list(batch.sequences()) == list(sequences or dense)
    assert batch.last_sequence == (sequences or dense)[-1]
    assert batch.bodies() == expected.bodies
    assert batch.body_bytes == sum(map(len, expected.bodies))
    assert batch.priorities() == (bytes(columns.priorities) if columns.priorities is not None else None)
    assert (expiries.tolist() if expiries is not None else None) == columns.expiries_ms
    assert (dues.tolist() if dues is not None else None) == columns.dues_ms
    assert batch.columns & ANNOUNCEMENTS == columns.announcements
    assert batch.headers() == columns.headers
    assert batch.properties() == columns.properties


@THOROUGH
@given(messages())
def test_a_batch_gives_back_what_was_packed(given_messages: Messages) -> None:
    batch = Batch.parse(given_messages.packed())
    check_equal(batch, given_messages)
    look_everywhere(batch)
    check_equal(Batch.trusted(batch.data), given_messages)


@THOROUGH
@given(messages(), st.data())
def test_a_slice_is_the_batch_of_its_messages(given_messages: Messages, data: st.DataObject) -> None:
    count = len(given_messages.bodies)
    low = data.draw(st.integers(0, count - 1))
    high = data.draw(st.integers(low + 1, count))
    part = Batch.parse(given_messages.packed()).slice(low, high)
    expected = picked_from(given_messages, range(low, high))
    check_equal(part, expected)
    check_equal(Batch.parse(part.data), expected)
    assert part.data == expected.packed(), "as if it had been packed so"


@THOROUGH
@given(messages(), st.data())
def test_selected_messages_are_a_batch_of_their_own(given_messages: Messages, data: st.DataObject) -> None:
    """Selecting again from what was selected gives what selecting at once gives."""
    indices = sorted(data.draw(st.sets(st.integers(0, len(given_messages.bodies) - 1), min_size=1)))
    again = sorted(data.draw(st.sets(st.integers(0, len(indices) - 1), min_size=1)))
    batch = Batch.parse(given_messages.packed())
    chosen, last = batch.select(indices), [indices[i] for i in again]
    for part, numbers in ((chosen, indices), (chosen.select(again), last)):
        expected = picked_from(given_messages, numbers)
        for seen in (part, Batch.parse(part.data)):
            check_equal(seen, expected, [given_messages.sequence + number for number in numbers])
        consecutive = numbers[-1] - numbers[0] == len(numbers) - 1
        assert bool(part.columns & Columns.SEQUENCE) == (not consecutive)
    assert chosen.select(again).data == batch.select(last).data
    assert chosen.slice(0, len(again)).data == chosen.select(range(len(again))).data


def test_all_of_a_batch_is_the_batch_itself() -> None:
    batch = Batch.parse(_SAMPLE)
    assert batch.slice(0, batch.count) is batch, "a whole batch is passed on as the bytes that were published"
    assert batch.select(range(batch.count)) is batch
    picked = Batch.parse(_PICKED)
    assert picked.select([0, 1, 2]) is picked


def test_columns_start_at_multiples_of_eight() -> None:
    for bodies in ([b"a"], [b"a", b"b"], [b""] * 3):
        batch = Batch.parse(pack(PRODUCER, 1, 0, bodies, MessageColumns([1] * len(bodies), [2] * len(bodies))))
        spans = batch._column_spans()
        assert set(spans) == {Columns.PRIORITY, Columns.EXPIRY}
        assert all(low % 8 == 0 for low, _ in spans.values())


def test_a_plain_batch_carries_no_columns() -> None:
    data = pack(PRODUCER, 1, 0, [b"a"])
    assert data == pack(PRODUCER, 1, 0, [b"a"], NO_COLUMNS) == pack(PRODUCER, 1, 0, [b"a"], MessageColumns())
    assert len(data) == HEADER.size + 2 * 4 + 1


def test_every_flipped_bit_is_noticed() -> None:
    for sample in (_SAMPLE, _PICKED):
        for at in range(len(sample)):
            for bit in range(8):
                flipped = bytearray(sample)
                flipped[at] ^= 1 << bit
                assert refused(bytes(flipped)), f"bit {bit} of byte {at}"


def test_every_truncation_and_extension_is_noticed() -> None:
    for cut in range(len(_SAMPLE)):
        assert refused(_SAMPLE[:cut])
        if cut >= 8:
            assert refused(resealed(_SAMPLE[:cut]))
    assert refused(resealed(_SAMPLE + b"\0"))


@pytest.mark.parametrize("sample", [_SAMPLE, _PICKED], ids=["columns", "sequences"])
def test_a_liar_with_a_right_checksum_is_refused_or_harmless(sample: bytes) -> None:
    taken = 0
    for at in range(8, len(sample)):
        for bit in range(8):
            flipped = bytearray(sample)
            flipped[at] ^= 1 << bit
            data = resealed(flipped)
            if not refused(data):
                look_everywhere(Batch.parse(data))
                taken += 1
    assert 0 < taken < 8 * len(sample), "some flips only change content, some must be refused"


@pytest.mark.parametrize("offsets", [(1, 3), (0, 2), (0, 4), (-1, 3), (3, 3), (3, 0)])
def test_a_lone_body_lies_where_its_offsets_say_or_is_refused(offsets: tuple[int, int]) -> None:
    data = bytearray(pack(b"p" * 16, 1, 0, [b"abc"]))
    assert Batch.parse(bytes(data)).bodies() == [b"abc"]
    data[HEADER.size : HEADER.size + 8] = struct.pack("<ii", *offsets)
    assert refused(resealed(data))


@THOROUGH
@given(messages(), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_random_lies_are_refused_or_harmless(given_messages: Messages, lies: list[tuple[int, int]]) -> None:
    data = bytearray(given_messages.packed())
    for at, value in lies:
        data[8 + at % (len(data) - 8)] = value
    sealed = resealed(data)
    if not refused(sealed):
        look_everywhere(Batch.parse(sealed))


@QUICK
@given(st.binary(max_size=200))
def test_random_bytes_are_no_batch(data: bytes) -> None:
    assert refused(data)
    assert refused(resealed(MAGIC + b"\0" * 4 + data))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("length", 0), ("length", len(_SAMPLE) + 1), ("length", (1 << 32) - 1),
        ("count", 0), ("count", 2), ("count", 4), ("count", (1 << 32) - 1), ("count", (1 << 30) - 1),
        ("sequence", 0),
        ("columns", 64), ("columns", 1 << 20), ("columns", 1 << 31), ("columns", 31),
        ("bodies_at", 0), ("bodies_at", 64), ("bodies_at", len(_SAMPLE) + 1), ("bodies_at", (1 << 32) - 1),
        ("zero", 1),
    ],
)  # fmt: skip
def test_a_wrong_header_is_refused_in_little_memory(field: str, value: int) -> None:
    data = with_field(_SAMPLE, field, value)
    tracemalloc.start()
    was_refused = refused(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert was_refused
    assert peak_bytes < 100_000


# Once: nothing bounds the sequence, and the last one of such a batch does not fit the producer's record:
# struct.error in the message manager, which stops the node.
def test_sequences_that_run_off_the_end_of_their_64_bits_are_refused() -> None:
    assert refused(with_field(pack(PRODUCER, 1, 0, [b"a", b"b"]), "sequence", (1 << 64) - 1))


@pytest.mark.parametrize(
    "offsets", [(1, 1, 2), (0, 3, 2), (0, -1, 2), (0, 1, 3), (0, 1, 1), (0, 2, 2)], ids=str
)
def test_body_offsets_must_ascend_from_zero_to_the_end(offsets: tuple[int, int, int]) -> None:
    data = bytearray(pack(PRODUCER, 1, 0, [b"a", b"b"]))
    struct.pack_into("<3i", data, HEADER.size, *offsets)
    assert refused(resealed(data)) == (offsets != (0, 2, 2))


@pytest.mark.parametrize("flag", [Columns.HEADERS, Columns.PROPERTIES])
@pytest.mark.parametrize("offsets", [(1, 1, 2), (0, 3, 2), (0, -4, -4), (0, 1, 1 << 30), (0, 1, 9)], ids=str)
def test_column_offsets_must_stay_before_the_bodies(flag: Columns, offsets: tuple[int, int, int]) -> None:
    values = [b"h", b"i"]
    columns = MessageColumns(headers=values) if flag == Columns.HEADERS else MessageColumns(properties=values)
    data = bytearray(pack(PRODUCER, 1, 0, [b"a", b"b"], columns))
    low, _ = Batch.parse(bytes(data))._column_spans()[flag]
    struct.pack_into("<3i", data, low, *offsets)
    assert refused(resealed(data))


def test_a_priority_above_nine_is_refused() -> None:
    columns = MessageColumns(priorities=[PRIORITY_MAX, 0])
    data = pack(PRODUCER, 1, 0, [b"a", b"b"], columns)
    assert not refused(data)
    assert refused(pack(PRODUCER, 1, 0, [b"a", b"b"], replace(columns, priorities=[PRIORITY_MAX + 1, 0])))


def test_announced_columns_that_do_not_fit_are_refused() -> None:
    plain = pack(PRODUCER, 1, 0, [b""])
    for columns in range(1, 64):
        assert refused(with_field(plain, "columns", columns)), f"columns {columns:06b} in a batch without any"


@pytest.mark.parametrize("sequences", [(6, 7, 10), (5, 5, 10), (5, 10, 7), (5, 7, 1 << 62), (-1, 7, 10)], ids=str)
def test_sequences_must_ascend_from_the_first(sequences: tuple[int, int, int]) -> None:
    data = bytearray(_PICKED)
    low, _ = Batch.parse(_PICKED)._column_spans()[Columns.SEQUENCE]
    assert struct.unpack_from("<3q", data, low) == (5, 7, 10)
    struct.pack_into("<3q", data, low, *sequences)
    assert refused(resealed(data))


def test_one_message_of_many_is_cut_out_without_looking_at_the_others() -> None:
    """By counting what is allocated: time would tell the same, less reliably."""
    count, properties = 20_000, b"\x81\xa1a\x01"
    columns = MessageColumns([4] * count, [0] * count, [properties] * count, [properties] * count, [0] * count)
    batch = Batch.parse(pack(PRODUCER, 1, 0, [b"x"] * count, columns))
    tracemalloc.start()
    batch.slice(7_000, 7_001)
    batch.select([9_000])
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 10_000


def test_a_batch_of_too_many_messages_is_refused() -> None:
    assert not refused(pack(PRODUCER, 1, 0, [b""] * COUNT_MAX))
    with pytest.raises(RemoteProtocolError, match="65,537 messages exceeds 65,536"):
        Batch.parse(pack(PRODUCER, 1, 0, [b""] * (COUNT_MAX + 1)))


def test_few_of_many_messages_are_selected_as_most_of_them_are() -> None:
    headers = [b"\x81\xa1a" + bytes([number]) for number in range(40)]
    columns = MessageColumns([4] * 40, headers=headers, properties=headers, dues_ms=list(range(40)))
    batch = Batch.parse(pack(PRODUCER, 5, 0, [b"%d" % number for number in range(40)], columns))
    few, most = [3, 7, 30], [number for number in range(40) if number != 8]
    assert Batch.parse(batch.select(most).select([3, 7, 29]).data).bodies() == [b"3", b"7", b"30"]
    part = Batch.parse(batch.select(few).data)
    assert part.headers() == part.properties() == [headers[number] for number in few]
    assert list(part.sequences()) == [8, 12, 35]

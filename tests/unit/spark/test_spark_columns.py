"""Goal: the columns that Spark sees say what the messages say."""
import subprocess
import sys

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.client.log import LogPiece
from angarium.core.ids import format_id, message_id
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import SEQUENCE_MAX, Columns
from angarium.core.wire.packing import MessageColumns, pack
from angarium.spark.columns import ALL_COLUMNS, RecordBatches, omitted_by

TIME = pa.timestamp("us", tz="UTC")
TEXT = pa.string()
MAP = pa.map_(TEXT, TEXT)
SCHEMA = pa.schema([
    pa.field("destination", TEXT, False), pa.field("position", pa.int64(), False), pa.field("message_id", TEXT, False),
    pa.field("timestamp", TIME, False), pa.field("priority", pa.int32(), False), pa.field("expiration", TIME),
    pa.field("correlation_id", TEXT), pa.field("reply_to", TEXT), pa.field("type", TEXT), pa.field("group_id", TEXT),
    pa.field("content", TEXT), pa.field("properties", MAP, False), pa.field("body", pa.binary()),
    pa.field("headers", MAP, False), pa.field("headers_packed", pa.binary()),
    pa.field("properties_packed", pa.binary()),
])  # fmt: skip
PRODUCER = bytes(range(16))
encode = msgspec.msgpack.encode


def piece(position: int, *bodies: bytes, first: int = 1, ms: int = 1_000, **columns: object) -> LogPiece:
    packed = pack(PRODUCER, first, ms, bodies, MessageColumns(**columns))  # type: ignore[arg-type]
    return LogPiece(range(position, position + len(bodies)), Batch.parse(packed))


def rows(*pieces: LogPiece) -> list[dict[str, object]]:
    batch = RecordBatches("orders", SCHEMA).of(pieces)
    batch.validate(full=True)
    assert batch.schema.names == list(ALL_COLUMNS)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def test_plain_messages_of_several_batches() -> None:
    found = rows(piece(5, b"a", b"", b"ccc"), piece(8, b"dd", first=4, ms=2_500))
    assert [row["body"] for row in found] == [b"a", b"", b"ccc", b"dd"]
    assert [row["position"] for row in found] == [5, 6, 7, 8]
    assert [row["message_id"] for row in found] == [format_id(message_id(PRODUCER, n)) for n in (1, 2, 3, 4)]
    assert [row["timestamp"].timestamp() for row in found] == [1, 1, 1, 2.5]  # type: ignore[attr-defined]
    for row in found:
        assert (row["destination"], row["priority"], row["properties"], row["headers"]) == ("orders", 4, [], [])
        assert all(row[name] is None for name in ("expiration", "correlation_id", "reply_to", "type", "content"))


@pytest.mark.parametrize("sequence", [1, 31, 32, 1 << 31, (1 << 40) + 12_345, (1 << 62) - 1])
def test_message_ids_are_those_that_people_see(sequence: int) -> None:
    producer = bytes([255 - sequence % 97] * 16)
    batch = Batch.parse(pack(producer, sequence, 0, [b""]))
    (found,) = RecordBatches("q", SCHEMA).of([LogPiece([0], batch)]).to_pylist()
    assert found["message_id"] == format_id(message_id(producer, sequence))


@given(st.sets(st.integers(1, SEQUENCE_MAX), min_size=1, max_size=40), st.binary(min_size=16, max_size=16))
def test_message_ids_of_sequences_with_gaps(found_sequences: set[int], producer: bytes) -> None:
    sequences = sorted(found_sequences)
    batch = Batch.parse(pack(producer, sequences[0], 0, [b""] * len(sequences), MessageColumns(sequences=sequences)))
    found = RecordBatches("q", SCHEMA).of([LogPiece(range(len(sequences)), batch)]).to_pylist()
    assert [row["message_id"] for row in found] == [format_id(message_id(producer, each)) for each in sequences]


@given(st.integers(1, SEQUENCE_MAX - 5_000), st.integers(1, 5_000))
def test_message_ids_of_many_in_a_row(first: int, count: int) -> None:
    batch = Batch.parse(pack(PRODUCER, first, 0, [b""] * count))
    found = RecordBatches("q", SCHEMA).of([LogPiece(range(count), batch)]).column("message_id").to_pylist()
    assert found == [format_id(message_id(PRODUCER, first + place)) for place in range(count)]


def test_what_is_alike_for_all_messages_is_cut_to_each_batch() -> None:
    batches, later = RecordBatches("orders", SCHEMA), 0
    for count in (2, 5_000, 1, 300):
        told = piece(later, *[b"x"] * count, first=later + 1)
        found = batches.of([told])
        found.validate(full=True)
        assert found.to_pylist() == rows(told)
        later += count
    special = piece(0, b"x", priorities=bytes([9]), properties=[encode({"n": 1})])
    assert batches.of([special]).to_pylist() == rows(special)
    assert batches.of([piece(0, b"x")]).to_pylist() == rows(piece(0, b"x"))


PLAIN_BATCH_MADE = """
import sys
from tests.unit.spark.test_spark_columns import SCHEMA, RecordBatches, piece
RecordBatches("orders", SCHEMA).of([piece(0, b"x")])
print("pandas" in sys.modules)
"""


def test_plain_messages_do_not_make_a_process_import_pandas() -> None:
    """Arrow does that by itself in some of its calls, and it takes longer than reading a hundred thousand messages."""
    done = subprocess.run([sys.executable, "-c", PLAIN_BATCH_MADE], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_was_packed_keeps_its_types() -> None:
    properties = [encode({"n": 1, "t": True}), b""]
    found = rows(piece(0, b"a", b"b", properties=properties), piece(2, b"c"))
    assert [row["properties_packed"] for row in found] == [properties[0], None, None]
    assert [row["headers_packed"] for row in found] == [None] * 3


def test_messages_that_are_not_neighbours_keep_their_ids_and_positions() -> None:
    whole = piece(10, *[b"%d" % n for n in range(8)])
    chosen = LogPiece([11, 12, 17], whole.batch.select([1, 2, 7]))
    found = rows(chosen)
    assert [(row["position"], row["body"]) for row in found] == [(11, b"1"), (12, b"2"), (17, b"7")]
    assert [row["message_id"] for row in found] == [format_id(message_id(PRODUCER, n)) for n in (2, 3, 8)]


def test_headers_and_properties_where_there_are_any() -> None:
    headers = {"correlation_id": "c1", "reply_to": "answers", "type": "order", "group": "g", "content": "text"}
    properties = {"s": "x", "n": 5, "f": 1.5, "b": True, "raw": b"\x01\xff", "none": None}
    decorated = piece(
        2, b"1", b"2", headers=[encode(headers), b""], properties=[b"", encode(properties)],
        priorities=[9, 0], expiries_ms=[0, 5_000],
    )  # fmt: skip
    plain, first, second = rows(piece(0, b"0", first=9), decorated)
    assert first["correlation_id"] == "c1" and first["reply_to"] == "answers" and first["type"] == "order"
    assert first["group_id"] == "g" and first["content"] == "text" and second["correlation_id"] is None
    assert dict(first["headers"])["group"] == "g"  # type: ignore[call-overload]
    assert second["properties"] == [
        ("s", "x"), ("n", "5"), ("f", "1.5"), ("b", "true"), ("raw", "01ff"), ("none", None),
    ]  # fmt: skip
    assert (plain["priority"], first["priority"], second["priority"]) == (4, 9, 0)
    assert first["expiration"] is None and second["expiration"].timestamp() == 5  # type: ignore[attr-defined]
    assert plain["properties"] == [] and first["properties"] == []


def test_a_body_in_a_stream_is_null() -> None:
    held = piece(
        0, b"", b"here", headers=[encode({"stream": {"identity": b"x", "bytes": 5}}), b""],
        announcements=int(Columns.STREAM),
    )  # fmt: skip
    assert [row["body"] for row in rows(held, piece(2, b"z", first=3))] == [None, b"here", b"z"]


def test_what_is_no_map_is_a_message_without() -> None:
    (found,) = rows(piece(0, b"x", properties=[b"\xc1"], headers=[b"\x01"]))
    assert found["properties"] == [] and found["correlation_id"] is None


def test_what_is_not_wanted_does_not_cross_the_network() -> None:
    assert omitted_by(["position", "timestamp"]) == ["body", "headers", "properties"]
    assert omitted_by(["type"]) == ["body", "properties"]
    assert omitted_by(["body", "properties"]) == [], "a header tells whether a body lies in a stream"

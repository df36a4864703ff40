"""Goal: rows become the messages that they say, in batches that a broker takes; others are named, or buried."""
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from angarium.client.buffer import Limits
from angarium.core.client.gathered import BATCH_COST_MAX
from angarium.core.errors import ConfigError, Rejected
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns
from angarium.spark.rows import Addressed, RowReader, check_columns
from angarium.spark.sink_options import SinkOptions, parse_sink_options


def reader(body_bytes_max: int = 1_000_000, **options: Any) -> RowReader:
    limits = Limits()
    limits.body_bytes_max, limits.frame_bytes_max = body_bytes_max, 16 << 20
    return RowReader(SinkOptions(address=(), **options), limits, partition=3)


def record(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def batches(addressed: Addressed) -> list[Batch]:
    return [Batch.parse(gathered.pack(bytes(16), 1)) for gathered in addressed.messages]


def test_bodies_alone_go_in_batches_as_full_as_they_may_be() -> None:
    bodies = [b"%d" % number * 50 for number in range(10_000)]
    (addressed,) = reader(destination="q").messages(record(body=bodies))
    packed = batches(addressed)
    assert addressed.destination == "q"
    assert [body for batch in packed for body in batch.bodies()] == bodies
    assert all(gathered.cost <= BATCH_COST_MAX for gathered in addressed.messages)
    assert len(packed) == -(-sum(len(body) + 16 for body in bodies) // BATCH_COST_MAX)
    assert not any(batch.columns for batch in packed)


def test_a_body_that_fills_more_than_a_batch_goes_alone() -> None:
    long = b"x" * (BATCH_COST_MAX + 1)
    bodies = [b"a", long, b"b"]
    (addressed,) = reader(destination="q").messages(record(body=bodies))
    assert [batch.bodies() for batch in batches(addressed)] == [[b"a"], [long], [b"b"]]
    (with_options,) = reader(destination="q").messages(record(body=bodies, priority=[1, 2, 3]))
    assert [batch.bodies() for batch in batches(with_options)] == [[b"a"], [long], [b"b"]]


def test_rows_are_divided_by_destination_in_their_order() -> None:
    rows = record(body=[b"1", b"2", b"3", b"4"], destination=["b", "a", "b", "a"], priority=[1, 2, 3, 4])
    found = {one.destination: batches(one)[0] for one in reader().messages(rows)}
    assert found["a"].bodies() == [b"2", b"4"] and list(found["a"].priorities() or b"") == [2, 4]
    assert found["b"].bodies() == [b"1", b"3"] and list(found["b"].priorities() or b"") == [1, 3]


def test_everything_that_a_message_may_have() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    rows = record(
        body=pa.array(["text"]), priority=pa.array([9], pa.int32()),
        expiration=pa.array([at], pa.timestamp("us", "UTC")),
        deliver_at=pa.array([at], pa.timestamp("us", "UTC")), correlation_id=["c"], reply_to=["answers"], type=["t"],
        group_id=["g"], group_sequence=[2], deduplication_id=["d"], last_value_key=["k"],
        properties=pa.array([[("n", 1)]], pa.map_(pa.string(), pa.int64())),
        position=[7], message_id=["ID:X"],
    )  # fmt: skip
    (addressed,) = reader(destination="q").messages(rows)
    (batch,) = batches(addressed)
    at_ms = int(at.timestamp() * 1000)
    assert list(batch.expiries_ms() or ()) == [at_ms] and list(batch.dues_ms() or ()) == [at_ms]
    assert msgspec.msgpack.decode((batch.headers() or [b""])[0]) == {
        "content": "text", "correlation_id": "c", "reply_to": "answers", "type": "t", "group": "g",
        "group_sequence": 2, "deduplication_id": "d", "last_value_key": "k",
    }  # fmt: skip
    assert msgspec.msgpack.decode((batch.properties() or [b""])[0]) == {"n": 1}
    assert batch.columns & Columns.GROUP and batch.columns & Columns.DEDUPLICATION and batch.columns & Columns.KEY


def test_rows_are_counted_over_record_batches() -> None:
    rows = reader(destination="q", body_bytes_max=5)
    list(rows.messages(record(body=[b"1", b"2"])))
    with pytest.raises(Rejected, match=r"row 4 of partition 3: .*body_bytes_max 5"):
        list(rows.messages(record(body=[b"3", b"too long"])))


def test_bad_rows_are_buried_if_that_is_wanted_and_all_others_sent() -> None:
    bodies = [b"%d" % number for number in range(100)]
    bad = {7, 8, 55, 99}
    rows = record(body=bodies, priority=[12 if number in bad else 4 for number in range(100)])
    found: dict[str, list[bytes]] = {}
    letters: list[dict[str, Any]] = []
    for addressed in reader(destination="q", buries=True).messages(rows):
        for batch in batches(addressed):
            found.setdefault(addressed.destination, []).extend(batch.bodies())
            if addressed.destination == "_DMQ":
                letters += [msgspec.msgpack.decode(header)["dead_letter"] for header in batch.headers() or ()]
    assert found["q"] == [body for number, body in enumerate(bodies) if number not in bad]
    assert found["_DMQ"] == [bodies[number] for number in sorted(bad)]
    assert {letter["reason"] for letter in letters} == {"bad-row"}
    assert [letter["detail"].split(" of ")[0] for letter in letters] == [f"row {number + 1}" for number in sorted(bad)]
    assert all(letter["destination"] == "q" and "priority 12" in letter["detail"] for letter in letters)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"body": pa.array([None], pa.binary()), "destination": ["q"]}, "body is NULL"),
        ({"body": [b"x"], "destination": pa.array([None], pa.string())}, "destination is NULL"),
        ({"body": [b"x"], "destination": ["a b"]}, "'a b'"),
        ({"body": [b"x"], "destination": ["_LOG"]}, "_LOG"),
        ({"body": [b"x"], "destination": ["q"], "ttl_s": [-1.0]}, "ttl_s -1.0"),
        ({"body": [b"x"], "destination": ["q"], "content": ["json"]}, "content 'json'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_can_be_buried(row: dict[str, Any], told: str) -> None:
    with pytest.raises(Rejected, match=rf"row 1 of partition 3: .*{told}"):
        list(reader().messages(record(**row)))
    (buried,) = reader(buries=True).messages(record(**row))
    assert buried.destination == "_DMQ"
    (header,) = [msgspec.msgpack.decode(bytes(one)) for batch in batches(buried) for one in batch.headers() or ()]
    said = pa.array(row["destination"]).to_pylist()[0]
    assert header["dead_letter"]["destination"] == (said or "")


def test_columns_are_checked_before_anything_is_sent() -> None:
    options = parse_sink_options({"address": "x"})
    check_columns([("body", "binary"), ("destination", "string"), ("properties", "map<string,int>")], options)
    with pytest.raises(ConfigError, match="column 'bodi' is none that a message has; there are body, destination"):
        check_columns([("bodi", "binary")], options)
    with pytest.raises(ConfigError, match="no column 'body'"):
        check_columns([("destination", "string")], options)
    with pytest.raises(ConfigError, match="'priority' is of string; use tinyint or"):
        check_columns([("body", "binary"), ("priority", "string")], options)
    with pytest.raises(ConfigError, match="where to"):
        check_columns([("body", "binary")], options)


def test_options_have_no_case_and_are_refused_with_what_is_valid() -> None:
    options = parse_sink_options({"DESTINATION": "q", "jobid": "j", "badrows": "dmq", "checkpointLocation": "/x"})
    assert (options.destination, options.job, options.buries) == ("q", "j", True)
    with pytest.raises(ConfigError, match="valid for writing are address, badRows, destination, jobId"):
        parse_sink_options({"topic": "x"})
    with pytest.raises(ConfigError, match="'badRows': 'drop'"):
        parse_sink_options({"badRows": "drop"})
    with pytest.raises(ConfigError, match="'jobId' has 500 bytes: the most is 190"):
        parse_sink_options({"jobId": "x" * 500})
    with pytest.raises(ConfigError, match="a path is given, and messages have none"):
        parse_sink_options({"path": "orders"})
    for option in ("jobId", "producerId"):  # of a variable that was not set: it would be another one each time
        with pytest.raises(ConfigError, match=f"'{option}' is empty"):
            parse_sink_options({option: " "})

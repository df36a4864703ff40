"""Goal: a log gives out each position once, in the lane of its priority, frees only what is written, and comes back
from what it has stored."""
import pytest

from angarium.core.destination.log import (
    LANE_BITS,
    LANE_COUNT,
    Lane,
    Log,
    LogField,
    lane_for,
    lane_of,
    parse_log_record,
    split_by_lane,
)
from angarium.core.storage import DeleteRange, Operation, Put, Table, position_key
from angarium.core.wire.batch import Batch
from angarium.core.wire.packing import NO_COLUMNS, MessageColumns, pack

PRODUCER = b"producer 16 byte"


def batch(count: int, columns: MessageColumns = NO_COLUMNS) -> Batch:
    return Batch.parse(pack(PRODUCER, 1, 0, [b"x"] * count, columns))


def figures(*writes: list[Operation]) -> dict[tuple[int, int], tuple[int, int]]:
    """What a restart finds of the LOG table."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for operation in (operation for write in writes for operation in write):
        if isinstance(operation, Put) and operation.table == Table.LOG:
            _, field, value = parse_log_record(operation.key, operation.value)
            found[field] = value
    return found


def test_every_priority_has_a_lane_of_its_own_and_the_usual_one_the_first() -> None:
    lanes = [lane_for(priority) for priority in range(10)]
    assert sorted(lanes) == list(range(LANE_COUNT)) and lane_for(4) == 0
    assert [Lane(lane_for(priority)).urgency for priority in range(10)] == list(range(9, -1, -1))


def test_positions_follow_each_other_in_a_lane_and_those_of_lanes_never_meet() -> None:
    log = Log(7)
    usual, urgent = log.lane(0), log.lane(lane_for(9))
    log.append(usual, batch(3))
    log.append(urgent, batch(2))
    log.append(usual, batch(1))
    assert (usual.next, urgent.next - urgent.base) == (4, 2)
    assert [lane_of(position) for position in (0, 3, urgent.base, urgent.next - 1)] == [0, 0, 5, 5]
    assert log.order == [urgent, usual], "the most urgent first"
    assert log.stored_count == 6
    assert 3 in log and 4 not in log and urgent.base in log and urgent.base - 1 not in log
    assert log.has_range(0, 4) and not log.has_range(0, 5) and not log.has_range(-1, 2)
    assert not log.has_range(3, urgent.base + 1), "a range lies in one lane"
    assert not log.has_range(9 << LANE_BITS, (9 << LANE_BITS) + 1)


def test_a_batch_is_filed_by_where_it_ends() -> None:
    log = Log(7)
    data = batch(3)
    assert log.append(log.lane(0), data)[0] == Put(Table.BATCH, position_key(7, 3), data.data)


def test_only_what_is_written_is_deleted() -> None:
    log = Log(7)
    lane = log.lane(0)
    log.append(lane, batch(5))
    assert log.trim(lane, 5) == [], "nothing is readable yet: the deletion could come before the batch"
    lane.readable = 5
    noted, deletion = log.trim(lane, 3)
    assert isinstance(noted, Put) and isinstance(deletion, DeleteRange)
    assert (lane.first, deletion.low, deletion.high) == (3, position_key(7, 0), position_key(7, 4))
    assert log.trim(lane, 3) == [], "once"
    assert log.stored_count == 2


def test_positions_that_nobody_wants_pass() -> None:
    log = Log(7)
    lane = log.lane(0)
    written = log.skip(lane, 4)
    assert (lane.first, lane.next, log.stored_count) == (4, 4, 0)
    assert all(isinstance(operation, Put) and operation.table == Table.LOG for operation in written)


def test_a_log_comes_back_as_it_was() -> None:
    log = Log(7)
    usual, urgent = log.lane(0), log.lane(lane_for(9))
    first = log.append(usual, batch(5))
    second = log.append(urgent, batch(2, MessageColumns(expiries_ms=[0, 5_000])))
    usual.readable = 5
    third = log.trim(usual, 2)
    again = Log(7)
    again.restore(figures(first, second, third))
    assert [(lane.number, lane.first, lane.readable, lane.next) for lane in again.order] == [
        (5, urgent.base, urgent.next, urgent.next), (0, 2, 5, 5),
    ]  # fmt: skip
    assert again.stored_bytes == log.stored_bytes
    assert (again.lane(5).expires, again.lane(0).expires) == (True, False)
    assert again.lane(5).expiries.due(0) == (urgent.base, urgent.next), "somewhere, some time"


def test_a_lane_that_ends_before_it_begins_is_empty() -> None:
    """A settlement was written ahead of the publish that was then lost."""
    log = Log(7)
    log.restore({(LogField.FIRST, 0): (9, 0), (LogField.NEXT, 0): (6, 0)})
    assert (log.lane(0).first, log.lane(0).next, log.stored_count) == (6, 6, 0)


def test_that_something_may_expire_is_noted_once() -> None:
    log = Log(7)
    lane = log.lane(0)
    noted = [log.append(lane, batch(1, MessageColumns(expiries_ms=[ms]))) for ms in (0, 900, 800)]
    fields = [figures(write).get((LogField.EXPIRES, 0)) for write in noted]
    assert fields == [None, (1, 0), None]
    assert lane.expiries.earliest_ms == 800


@pytest.mark.parametrize(
    ("priorities", "lanes"),
    [(None, [(0, 3)]), ([4, 4, 4], [(0, 3)]), ([9, 9, 9], [(5, 3)]), ([4, 9, 4], [(5, 1), (0, 2)])],
)
def test_a_batch_is_divided_by_priority(priorities: list[int] | None, lanes: list[tuple[int, int]]) -> None:
    whole = batch(3, MessageColumns(priorities=priorities))
    assert [(lane, part.count) for lane, part in split_by_lane(whole)] == lanes

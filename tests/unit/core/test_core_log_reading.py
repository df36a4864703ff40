"""Goal: anybody reads what a log holds, by position, and nobody else notices."""
from typing import Any

import msgspec
import pytest

from angarium.core.destination import selecting
from angarium.core.destination.events import BatchesRead, DamagedBatch, StoredBatch
from angarium.core.destination.log import LANE_POSITIONS, lane_for
from angarium.core.destination.log_pages import READ_BYTES_MAX, SELECTED_BYTES_MAX
from angarium.core.destination.log_readers import READERS_MAX
from angarium.core.destination.log_reading import narrowed
from angarium.core.destination.pending import PendingSeek
from angarium.core.storage import Table, position_key
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_manager import World


def read(world: World, name: str = "q", **arguments: Any) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
    """The answer, and each message with its position."""
    reply, payload = world.request_with_payload("log.read", name=name, **arguments)
    assert not reply.code, reply.reason
    found: list[tuple[int, bytes]] = []
    at = 0
    for position, count, size_bytes, *runs in reply.result["parts"]:
        batch = Batch.parse(payload[at : at + size_bytes])
        at += size_bytes
        assert batch.count == count
        pairs = runs[0] if runs else [0, count]
        positions = [position + i for low, high in zip(pairs[::2], pairs[1::2], strict=True) for i in range(low, high)]
        found += zip(positions, batch.bodies(), strict=True)
    assert at == len(payload)
    return reply.result, found


def whole(world: World, name: str = "q", position: int = 0, **arguments: Any) -> list[tuple[int, bytes]]:
    """Page by page to the end."""
    found: list[tuple[int, bytes]] = []
    while True:
        answer, page = read(world, name, position=position, **arguments)
        found += page
        if answer["next"] >= min(answer["end"], arguments.get("end", answer["end"])):
            return found
        assert answer["next"] > position, "no progress"
        position = answer["next"]


def properties(*values: int) -> MessageColumns:
    return MessageColumns(properties=[msgspec.msgpack.encode({"n": value}) for value in values])


def test_what_was_published_is_read_as_it_was() -> None:
    world = World()
    world.queue_with(3, 4, 1)
    assert whole(world) == [(n, b"m%d" % n) for n in range(8)]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 3), (2, 5), (3, 7), (7, 8), (4, 4), (0, 8), (5, 100)])
def test_a_range_is_cut_out_of_batches(low: int, high: int) -> None:
    world = World()
    world.queue_with(3, 4, 1)
    assert [position for position, _ in whole(world, position=low, end=high)] == list(range(low, min(high, 8)))


def test_reading_takes_nothing_and_is_not_disturbed_by_consumers() -> None:
    world = World()
    queue = world.queue_with(4, 4)
    consumer = world.consumer(queue, credit=6)
    before = world.describe("q")
    assert len(whole(world)) == 8, "what a consumer holds is there as well"
    assert world.describe("q") == before
    consumer.settle((0, 2), (4, 5))
    # What everybody has settled is gone, up to the first message that somebody has not.
    answer, found = read(world)
    assert answer["first"] == 2 and [position for position, _ in found] == [2, 3, 4, 5, 6, 7]


def test_one_past_the_end_there_is_nothing_and_that_is_no_mistake() -> None:
    world = World()
    world.queue_with(2)
    answer, found = read(world, position=2)
    assert not found and (answer["next"], answer["end"]) == (2, 2)
    answer, found = read(world, position=10)
    assert not found and answer["next"] == 10
    answer, found = read(world, position=3 * LANE_POSITIONS + 5)
    assert not found, "a lane that was never used"


def test_what_is_not_yet_durable_is_not_read() -> None:
    world = World()
    queue = world.queue_with(2)
    world.auto = False
    world.producer(queue).publish(b"later")
    assert world.request("log.describe", name="q").result["lanes"][0][:2] == [0, 2]
    answer, found = read(world, position=2)
    assert not found and answer["end"] == 2


def test_a_page_is_bounded_and_says_where_to_go_on() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    for _ in range(4):
        producer.publish(bytes(READ_BYTES_MAX // 2))
    answer, found = read(world)
    assert [position for position, _ in found] == [0, 1] and answer["next"] == 2
    answer, found = read(world, bytes_max=1)
    assert len(found) == 1, "a page has one batch at least"
    assert [position for position, _ in whole(world)] == [0, 1, 2, 3]


def test_pages_with_a_selector_look_at_less_and_may_be_empty() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    for number in range(8):
        producer.publish(bytes(SELECTED_BYTES_MAX // 2), columns=properties(number))
    answer, found = read(world, selector="n = 7")
    assert not found and answer["next"] == 2
    assert [position for position, _ in whole(world, selector="n = 7")] == [7]


def test_pages_with_a_large_selector_look_at_few_messages_and_miss_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "AT_ONCE", 300)
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    for first in range(0, 60, 20):
        numbers = range(first, first + 20)
        producer.publish(*[b"%d" % number for number in numbers], columns=properties(*numbers))
    world.disk.tables[Table.BATCH].pop(position_key(queue, 40))  # what is missing farther on is told when it is read
    selector = " OR ".join(["n = 7", "n = 45", *(f"m{number} = 1" for number in range(98))])
    answer, found = read(world, selector=selector)
    assert not found and answer["next"] == 3 and "missing" not in answer
    assert [position for position, _ in whole(world, selector=selector)] == [7, 45]


def test_a_selector_is_evaluated_in_the_broker_and_positions_stay_right() -> None:
    world = World()
    world.producer(world.locate("q")).publish(*[b"%d" % n for n in range(10)], columns=properties(*range(10)))
    found = whole(world, selector="n = 1 OR n = 2 OR n = 5 OR n = 9")
    assert found == [(1, b"1"), (2, b"2"), (5, b"5"), (9, b"9")]
    assert whole(world, selector="n > 6", position=8) == [(8, b"8"), (9, b"9")]
    assert world.request("log.read", name="q", selector="n >").code == "bad-selector"


def test_parts_of_messages_can_be_left_out() -> None:
    world = World()
    world.producer(world.locate("q")).publish(b"abc", b"de", columns=properties(1, 2))
    reply, payload = world.request_with_payload("log.read", name="q", omit=["body"])
    batch = Batch.parse(payload)
    assert batch.bodies() == [b"", b""] and batch.properties() and reply.result["parts"][0][:2] == [0, 2]
    _, payload = world.request_with_payload("log.read", name="q", omit=["properties", "headers"])
    batch = Batch.parse(payload)
    assert batch.bodies() == [b"abc", b"de"] and not batch.columns & Columns.PROPERTIES
    refused = world.request("log.read", name="q", omit=["colour"])
    assert refused.code == "bad-argument" and "'body'" in refused.reason


def test_each_priority_has_its_own_stretch() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"low", b"high", b"usual", columns=MessageColumns(priorities=[0, 9, 4]))
    described = world.request("log.describe", name="q").result
    starts = {lane[0]: lane[1] for lane in described["lanes"]}
    base = lane_for(9) * LANE_POSITIONS
    assert starts[0] == 1 and starts[base] == base + 1 and len(starts) == 3
    assert whole(world, position=base) == [(base, b"high")]
    assert whole(world) == [(0, b"usual")], "a read stays in its lane"


def test_a_destination_made_anew_is_another_one() -> None:
    world = World()
    world.queue_with(2)
    identity = world.request("log.describe", name="q").result["identity"]
    assert read(world, identity=identity)[1]
    world.request("destination.remove", name="q")
    assert world.request("log.read", name="q", identity=identity).code == "unknown-destination"
    world.queue_with(2)
    assert world.request("log.read", name="q", identity=identity).code == "destination-removed"
    assert world.request("log.describe", name="q").result["identity"] != identity


def test_one_that_is_removed_while_it_is_read_is_told_as_such() -> None:
    world = World()
    world.queue_with(2)
    world.auto = False
    session = world.session()
    world.frame(session, 0, frames.Request(1, "log.read", {"name": "q"}))
    world.frame(world.session(), 0, frames.Request(1, "destination.remove", {"name": "q"}))
    world.run_disk()
    assert world.last(session, frames.Reply).code == "unknown-destination"


@pytest.mark.parametrize("is_set_aside", [False, True])
@pytest.mark.parametrize(
    ("damaged", "left", "missing"),
    [([4], [0, 1, 4, 5], [2, 4]), ([2], [2, 3, 4, 5], [0, 2]), ([6], [0, 1, 2, 3], [4, 6]), ([2, 4, 6], [], [0, 6])],
)
def test_damaged_batches_are_told_as_missing_and_reading_goes_on(
    damaged: list[int], left: list[int], missing: list[int], is_set_aside: bool
) -> None:
    """Before somebody was to get them, and after."""
    world = World()
    queue = world.queue_with(2, 2, 2)
    keys = [queue.to_bytes(8, "big") + end.to_bytes(8, "big") for end in damaged]
    world.disk.damaged.update(keys)
    if is_set_aside:
        for key in keys:
            del world.disk.tables[Table.BATCH][key]
    assert [position for position, _ in whole(world)] == left
    for low, high in ((0, 6), (1, 5), (3, 4)):
        told: list[int] = []
        at = low
        while at < high:
            answer, _ = read(world, position=at, end=high)
            told += answer.get("missing", [])
            at = answer["next"]
        expected = [max(low, missing[0]), min(high, missing[1])]
        assert told == (expected if expected[0] < expected[1] else [])


@pytest.mark.parametrize(
    "arguments", [{"position": -1}, {"position": 5, "end": 4}, {"end": 1 << 63}, {"position": "0"}]
)
def test_positions_that_are_none_are_refused(arguments: dict[str, Any]) -> None:
    world = World()
    world.queue_with(2)
    assert world.request("log.read", name="q", **arguments).code == "bad-argument"


def test_time_is_found_in_the_log() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    times: list[int] = []
    for number in range(50):
        world.advance(10)
        times.append(world.wall_ms)
        producer.publish(b"a", b"b", columns=MessageColumns(priorities=[4, 4 if number < 25 else 9]))
    base = lane_for(9) * LANE_POSITIONS

    def positions(timestamp_ms: int) -> dict[int, int]:
        reply = world.request("log.seek", name="q", timestamp_ms=timestamp_ms)
        assert not reply.code, reply.reason
        return {position // LANE_POSITIONS: position for position in reply.result["positions"]}

    assert positions(0) == {0: 0, lane_for(9): base}
    assert positions(times[0]) == {0: 0, lane_for(9): base}
    assert positions(times[3]) == {0: 6, lane_for(9): base}
    assert positions(times[3] - 1) == {0: 6, lane_for(9): base}
    assert positions(times[30] + 1) == {0: 56, lane_for(9): base + 6}
    assert positions(times[-1] + 1) == {0: 75, lane_for(9): base + 25}


def test_lists_come_in_pages_by_name() -> None:
    world = World()
    for name in ("a", "b.1", "b.2", "c"):
        world.queue_with(1, name=name)
    page = world.request("log.list", prefix="b.").result
    assert [described["name"] for described in page] == ["b.1", "b.2"]
    assert [described["name"] for described in world.request("log.list", after="b.1", count=2).result] == ["b.2", "c"]
    assert world.request("log.list", after="c").result == []


def test_a_topic_without_subscribers_has_positions_and_no_messages() -> None:
    world = World()
    world.producer(world.locate("t", DestinationKind.TOPIC)).publish(b"gone")
    world.advance(60)
    world.producer(world.locate("t", DestinationKind.TOPIC)).publish(b"gone")
    answer, found = read(world, "t")
    assert not found and answer["first"] == answer["end"] == 2


def test_readers_are_shown_with_what_they_have_not_read() -> None:
    world = World()
    queue = world.queue_with(10)
    assert "readers" not in world.describe("q"), "nobody has told"
    assert not world.request("log.note", name="q", reader="daily", positions=[4]).code
    assert not world.request("log.note", name="q", reader="idle", positions=[10]).code
    told = {reader["name"]: reader["lag"] for reader in world.describe("q")["readers"]}
    assert told == {"daily": 6, "idle": 0}
    producer = world.producer(queue)
    producer.publish(b"a", b"b", columns=MessageColumns(priorities=[4, 9]))
    told = {reader["name"]: reader["lag"] for reader in world.describe("q")["readers"]}
    assert told == {"daily": 8, "idle": 2}, "also those of a priority that was not used then"
    world.request("log.note", name="q", reader="daily", positions=[])
    assert [reader["name"] for reader in world.describe("q")["readers"]] == ["idle"]


def test_a_search_passes_what_is_damaged_and_ends_before_it() -> None:
    """What stays stored under a damaged key may be found in the middle of the next batch, which is whole."""
    ten = StoredBatch(30, pack(b"p" * 16, 1, 5_000, [b"x"] * 10))
    for timestamp_ms, stretch in ((5_001, (30, 30)), (5_000, (20, 20))):
        asked = PendingSeek(1, b"session", 1, timestamp_ms, [(20, 30)])
        assert narrowed(asked, BatchesRead(1, [DamagedBatch(20, b"raw"), ten])).stretches == [stretch]


def test_readers_are_bounded_and_the_most_silent_is_forgotten() -> None:
    world = World()
    world.queue_with(1)
    for number in range(READERS_MAX + 5):
        assert not world.request("log.note", name="q", reader=f"r{number:03}", positions=[1]).code
        world.request("log.note", name="q", reader="r000", positions=[1])
    names = [reader["name"] for reader in world.describe("q")["readers"]]
    assert len(names) == READERS_MAX and "r000" in names and "r001" not in names


@pytest.mark.parametrize(
    "arguments",
    [{"reader": ""}, {"reader": "x" * 201}, {"positions": [-1]}, {"positions": "1"}, {"positions": list(range(11))}],
)
def test_notes_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    world = World()
    world.queue_with(1)
    refused = world.request("log.note", **{"name": "q", "reader": "r", "positions": [1], **arguments})
    assert refused.code == "bad-argument"
    assert world.request("log.note", name="q", reader="r", positions=[1], identity=99).code == "destination-removed"

"""Goal: every message is in exactly one batch and one task, whatever becomes of the logs between two batches."""
import itertools
import random

import pytest

from angarium.client.log import LogDescription, LogLane
from angarium.core.errors import ConfigError
from angarium.spark import offsets, planning
from angarium.spark.offsets import Place
from angarium.spark.options import Where
from angarium.spark.planning import MESSAGES_PER_TASK, Range

LANE = 1 << 56


def log(name: str, *lanes: tuple[int, int], identity: int = 1) -> LogDescription:
    return LogDescription(name, "queue", identity, [LogLane(first, end) for first, end in lanes])


def no_seek(name: str, timestamp_ms: int) -> list[int]:
    raise AssertionError("nobody asked for a time")


def test_offsets_are_written_as_they_are_read_and_priorities_are_shown() -> None:
    told = offsets.to_json({"b": Place(7, {5: 5 * LANE + 3, 0: 12}), "a": Place(2, {})})
    assert list(told.items()) == [("a", {"identity": 2}), ("b", {"identity": 7, "4": 12, "9": 5 * LANE + 3})]
    assert offsets.to_json(offsets.from_json(told)) == told
    with pytest.raises(ConfigError, match="of priority 4, not 9"):
        offsets.from_json({"a": {"9": 12}})


def test_places_that_a_user_names() -> None:
    logs = [log("a", (5, 20), (5 * LANE + 1, 5 * LANE + 9)), log("b", (0, 3))]

    def at(where: Where, unnamed: str = "earliest") -> dict[str, dict[int, int]]:
        found = planning.resolve(where, logs, lambda name, ms: [ms, 5 * LANE + ms], unnamed=unnamed)
        return {name: dict(place.positions) for name, place in found.items()}

    assert at(Where(everywhere="earliest")) == {"a": {0: 5, 5: 5 * LANE + 1}, "b": {0: 0}}
    assert at(Where(everywhere="latest"))["a"] == {0: 20, 5: 5 * LANE + 9}
    assert at(Where(positions={"a": 8})) == {"a": {0: 8, 5: 5 * LANE + 1}, "b": {0: 0}}
    assert at(Where(positions={"a": 8}), "latest") == {"a": {0: 8, 5: 5 * LANE + 9}, "b": {0: 3}}
    assert at(Where(positions={"a": {"4": -1, "9": 5 * LANE + 4}}))["a"] == {0: 20, 5: 5 * LANE + 4}
    assert at(Where(positions={"b": -1}))["b"] == {0: 3}
    assert at(Where(timestamp_ms=7))["b"] == {0: 7, 5: 5 * LANE + 7}
    assert at(Where(timestamps_ms={"a": 6})) == {"a": {0: 6, 5: 5 * LANE + 6}, "b": {0: 0}}
    with pytest.raises(ConfigError, match="'c', which does not exist"):
        at(Where(positions={"c": 1}))
    with pytest.raises(ConfigError, match="which was removed"):
        at(Where(positions={"a": {"identity": 9, "4": 1}}))


def test_an_end_before_the_beginning_is_refused() -> None:
    logs = [log("a", (5, 20), (5 * LANE, 5 * LANE + 9))]
    same = Place(1, {0: 10, 5: 5 * LANE})
    planning.check_order({"a": same}, {"a": same}, logs)
    with pytest.raises(ConfigError, match="'a' is to be read from position 10, and up to 9"):
        planning.check_order({"a": same}, {"a": Place(1, {0: 9, 5: 5 * LANE + 9})}, logs)
    planning.check_order({"a": Place(1, {0: 5})}, {"a": Place(1, {0: 3})}, logs)  # all that was asked for is gone


def test_an_end_that_is_not_there_yet_is_refused() -> None:
    logs = [log("a", (5, 20))]
    planning.check_end({"a": Place(1, {0: 20})}, logs)
    for beyond in (Place(1, {0: 21}), Place(1, {0: 20, 5: 5 * LANE + 1})):
        with pytest.raises(ConfigError, match="is to be read up to"):
            planning.check_end({"a": beyond}, logs)


def test_new_destinations_are_taken_up_and_read_from_the_next_batch_on() -> None:
    start = {"a": Place(1, {0: 10})}
    logs = [log("a", (0, 12)), log("b", (4, 9), identity=2)]
    first = planning.advance(start, logs)
    assert planning.ranges(start, first) == [Range("a", 1, 10, 12)]
    second = planning.advance(first, logs)
    assert planning.ranges(first, second) == [Range("b", 2, 4, 9)]
    assert planning.advance(second, logs) == second


def test_a_priority_that_is_used_for_the_first_time_is_read_from_its_beginning() -> None:
    start = {"a": Place(1, {0: 10})}
    end = planning.advance(start, [log("a", (0, 12), (5 * LANE, 5 * LANE + 2))])
    assert planning.ranges(start, end) == [Range("a", 1, 10, 12), Range("a", 1, 5 * LANE, 5 * LANE + 2)]


def test_what_is_gone_is_told() -> None:
    start = {"a": Place(1, {0: 10}), "b": Place(1, {0: 10}), "c": Place(1, {0: 10}), "d": Place(1, {0: 10})}
    logs = [log("a", (10, 12)), log("b", (11, 12)), log("c", (0, 5), identity=2)]
    told = planning.losses(start, logs)
    assert told == ["'b': positions 10 to 10 are gone", "'c' was removed and made anew", "'d' was removed"]
    assert "ends at 8" in planning.losses({"a": Place(1, {0: 10})}, [log("a", (0, 9))])[0]


def test_without_what_is_gone_a_stream_goes_on() -> None:
    start = {"b": Place(1, {0: 10}), "c": Place(1, {0: 10}), "d": Place(1, {0: 10})}
    logs = [log("b", (15, 20)), log("c", (3, 5), identity=2)]
    end = planning.advance(start, logs)
    assert end == {"b": Place(1, {0: 20}), "c": Place(2, {0: 3})}
    assert planning.ranges(end, planning.advance(end, logs)) == [Range("c", 2, 3, 5)]


@pytest.mark.parametrize("limit", [None, 4])
def test_a_log_that_ends_before_where_it_was_read_is_read_from_its_beginning(limit: int | None) -> None:
    at, logs, read = {"a": Place(1, {0: 100})}, [log("a", (2, 9))], list[Range]()
    while (end := planning.advance(at, logs, limit=limit)) != at:
        read += planning.ranges(at, end)
        at = end
    assert [position for part in read for position in range(part.low, part.high)] == list(range(2, 9))


def test_available_now_stops_where_it_began_and_always_ends() -> None:
    logs = [log("a", (0, 10)), log("b", (2, 4), identity=2)]
    cap = {found.name: offsets.end(found) for found in logs}
    grown = [log("a", (0, 100)), log("b", (2, 50), identity=2), log("new", (0, 5), identity=3)]
    at = {"a": Place(1, {0: 0})}
    read: list[Range] = []
    for _ in range(20):
        end = planning.advance(at, grown, limit=3, cap=cap)
        if end == at:
            break
        read += planning.ranges(at, end)
        at = end
    else:
        raise AssertionError("it goes on for ever")
    assert sum(high - low for name, _, low, high in read if name == "a") == 10
    assert sum(high - low for name, _, low, high in read if name == "b") == 2
    assert {name for name, *_ in read} == {"a", "b"}


def test_a_rate_limit_is_shared_in_proportion_to_lag() -> None:
    assert planning.shared({"a": 900, "b": 90, "c": 10}, 100) == {"a": 90, "b": 9, "c": 1}
    assert planning.shared({"a": 1, "b": 1, "c": 1}, 2) == {"a": 1, "b": 1, "c": 0}
    assert planning.shared({"a": 5}, 10) == {"a": 5}


@pytest.mark.parametrize("seed", range(30))
def test_limits_hold_and_everything_is_read_once(seed: int) -> None:
    chance = random.Random(seed)
    ends = {name: chance.choice((0, 1, 10, 1_000)) for name in "abcd"}
    at = {name: Place(1, {0: 0}) for name in ends}
    limit = chance.choice((1, 7, 100))
    read: dict[str, list[tuple[int, int]]] = {name: [] for name in ends}
    for _ in range(10_000):
        if chance.random() < 0.2:
            ends[chance.choice("abcd")] += chance.randrange(5)
        logs = [log(name, (0, end)) for name, end in ends.items()]
        following = planning.advance(at, logs, limit=limit)
        wanted = planning.ranges(at, following)
        assert sum(high - low for *_, low, high in wanted) == min(limit, sum(
            end - at[name].positions[0] for name, end in ends.items()
        ))  # fmt: skip
        for name, _, low, high in wanted:
            read[name].append((low, high))
        at = following
        if chance.random() < 0.9 and not wanted:
            break
    for parts in read.values():
        assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))


@pytest.mark.parametrize("seed", range(50))
def test_tasks_cover_all_of_it_once_and_evenly(seed: int) -> None:
    chance = random.Random(seed)
    wanted = []
    for number in range(chance.randrange(1, 20)):
        low = chance.randrange(1_000)
        wanted.append(Range(f"d{number}", 1, low, low + chance.choice((1, 2, 50, 100_000, 3_000_000))))
    tasks_min = chance.choice((1, 2, 5, 64))
    tasks = planning.split(wanted, tasks_min=tasks_min)
    total = sum(high - low for *_, low, high in wanted)
    sizes = [sum(high - low for *_, low, high in task) for task in tasks]
    assert sum(sizes) == total and max(sizes) - min(sizes) <= 1
    assert len(tasks) == min(total, max(tasks_min, -(-total // MESSAGES_PER_TASK)))
    pieces = [part for task in tasks for part in task]
    for part in wanted:
        own = [(low, high) for name, _, low, high in pieces if name == part.destination]
        assert own[0][0] == part.low and own[-1][1] == part.high
        assert all(a[1] == b[0] for a, b in itertools.pairwise(own))


def test_nothing_to_read_is_no_task() -> None:
    assert planning.split([], tasks_min=8) == []

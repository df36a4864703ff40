"""Which positions a query reads, batch by batch, and how they are shared out to tasks. Decides, and asks nobody.

    resolve   what `startingOffsets` and the like mean, given what the logs hold
    losses    what of an earlier place is gone
    advance   from where a query is to where its next batch ends: all there is, or so many, shared in proportion to lag
    split     the ranges of a batch as tasks of about the same number of messages
"""
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from angarium.client.log import LogDescription
from angarium.core.errors import ConfigError
from angarium.core.wire.frames import LANE_BITS
from angarium.spark.offsets import Offsets, Place, beginning, end, from_json, lane_of, place
from angarium.spark.options import EARLIEST, LATEST, Where

MESSAGES_PER_TASK = 250_000  # some tenths of a second; a task more costs 30 ms
TASKS_MAX = 10_000
_EARLIEST_NUMBER, _LATEST_NUMBER = -2, -1  # as Kafka has them

Seek = Callable[[str, int], Sequence[int]]  # where in the lanes of a destination the messages of a time begin


class Range(NamedTuple):
    """Positions of one lane of a destination."""

    destination: str
    identity: int
    low: int
    high: int


def resolve(where: Where, described: Sequence[LogDescription], seek: Seek, *, unnamed: str) -> Offsets:
    """`unnamed` is where destinations are that the user did not speak of: "earliest" or "latest"."""
    known = {found.name for found in described}
    for spoken in (where.positions, where.timestamps_ms):
        strange = sorted(set(spoken or ()) - known)
        if strange:
            raise ConfigError(f"offsets are given for {strange[0]!r}, which does not exist, or is not to be read")
    return {found.name: _resolved(where, found, seek, unnamed) for found in described}


def _resolved(where: Where, found: LogDescription, seek: Seek, unnamed: str) -> Place:
    if where.timestamp_ms is not None:
        return place(found.identity, seek(found.name, where.timestamp_ms))
    if where.timestamps_ms is not None and found.name in where.timestamps_ms:
        return place(found.identity, seek(found.name, where.timestamps_ms[found.name]))
    value: Any = (where.positions or {}).get(found.name, where.everywhere or unnamed)
    if value in (EARLIEST, _EARLIEST_NUMBER):
        return beginning(found)
    if value in (LATEST, _LATEST_NUMBER):
        return end(found)
    given = _named(found, value)
    if given.identity not in (0, found.identity):
        raise ConfigError(
            f"offsets of {found.name!r} are of the destination with the id {given.identity}, which was removed; "
            f"the one of that name now has {found.identity}"
        )
    default = beginning(found) if unnamed == EARLIEST else end(found)
    return Place(found.identity, {**default.positions, **given.positions})


def _named(found: LogDescription, value: int | Mapping[str, int]) -> Place:
    if isinstance(value, int):
        return place(0, [value])
    ends = {EARLIEST: beginning(found), LATEST: end(found)}
    numbered = {_EARLIEST_NUMBER: ends[EARLIEST], _LATEST_NUMBER: ends[LATEST]}
    told: dict[str, int] = {}
    for key, position in value.items():
        lane = 0 if key == "identity" else (int(key) - 4) % 10
        told[key] = numbered[position].positions.get(lane, lane << LANE_BITS) if position in numbered else position
    return from_json({found.name: told})[found.name]


def losses(start: Offsets, described: Sequence[LogDescription]) -> list[str]:
    """What a query that is at `start` can no longer read, told for people."""
    now = {found.name: found for found in described}
    told: list[str] = []
    for name, was in start.items():
        found = now.get(name)
        if found is None:
            told.append(f"{name!r} was removed")
        elif found.identity != was.identity:
            told.append(f"{name!r} was removed and made anew")
        else:
            for lane in found.lanes:
                at = was.in_lane(lane)
                if at < lane.first:
                    told.append(f"{name!r}: positions {at} to {lane.first - 1} are gone")
                elif at > lane.end:
                    told.append(f"{name!r}: it was read up to position {at - 1}, and now ends at {lane.end - 1}")
    return told


def advance(
    start: Offsets, described: Sequence[LogDescription], *, limit: int | None = None, cap: Offsets | None = None
) -> Offsets:
    """Where the next batch ends. `cap`: what there was when an available-now query began.

    A destination that is new, or was made anew, or ends before where it was read, is taken up at its beginning, and
    read from the next batch on: so every batch has both its ends in Spark's own log, and is the same when it is
    repeated, whatever happened meanwhile.
    """
    lags: dict[tuple[str, int], int] = {}  # by name and lane
    lows: dict[str, dict[int, int]] = {}
    taken_up: Offsets = {}
    for found in described:
        capped = None if cap is None else cap.get(found.name)
        if cap is not None and (capped is None or capped.identity != found.identity):
            continue
        was = start.get(found.name)
        if was is None or was.identity != found.identity:
            taken_up[found.name] = beginning(found)
            continue
        lows[found.name] = {}
        for lane in found.lanes:
            at, number = was.in_lane(lane), lane_of(lane)
            has_shrunk = at > lane.end
            low = lane.first if has_shrunk else max(at, lane.first)
            high = lane.end if capped is None else min(lane.end, capped.in_lane(lane))
            lows[found.name][number] = low
            lags[found.name, number] = 0 if has_shrunk else max(0, high - low)
    taken = lags if limit is None else shared(lags, limit)
    advanced = {
        name: Place(start[name].identity, {number: low + taken[name, number] for number, low in lanes.items()})
        for name, lanes in lows.items()
    }
    kept = {} if cap is None else {name: was for name, was in start.items() if name not in advanced}
    return kept | advanced | taken_up


def shared(lags: Mapping[Any, int], limit: int) -> dict[Any, int]:
    """`limit` divided among them in proportion to what each has; all of it is used, if there is as much."""
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    taken = {key: lag * limit // total for key, lag in lags.items()}
    rest = limit - sum(taken.values())
    for key in sorted(lags, key=lambda key: lags[key] * limit % total, reverse=True)[:rest]:
        taken[key] += 1
    return taken


def ranges(start: Offsets, ended: Offsets) -> list[Range]:
    """What lies between. What begins only with the end is not yet read."""
    found: list[Range] = []
    for name, until in sorted(ended.items()):
        was = start.get(name)
        if was is None or was.identity != until.identity:
            continue
        for number, high in sorted(until.positions.items()):
            low = was.positions.get(number, number << LANE_BITS)
            if low < high:
                found.append(Range(name, until.identity, low, high))
    return found


def check_end(ended: Offsets, described: Sequence[LogDescription]) -> None:
    """Raises ConfigError if something that a user asked for has not been sent yet."""
    for found in described:
        reached = end(found)
        for number, high in ended[found.name].positions.items():
            if high > reached.positions.get(number, number << LANE_BITS):
                last = reached.positions.get(number, number << LANE_BITS)
                raise ConfigError(f"{found.name!r} is to be read up to position {high}, and ends at {last}")


def check_order(start: Offsets, ended: Offsets, described: Sequence[LogDescription]) -> None:
    """Raises ConfigError if a user asked for what ends before it begins. Where it begins with the oldest that is kept,
    the rest is gone, and nobody was mistaken."""
    for found in described:
        low, high = start[found.name], ended[found.name]
        for lane in found.lanes:
            if high.in_lane(lane) < low.in_lane(lane) and low.in_lane(lane) > lane.first:
                raise ConfigError(
                    f"{found.name!r} is to be read from position {low.in_lane(lane)}, and up to {high.in_lane(lane)}: "
                    "it would end before it begins"
                )


def split(wanted: Iterable[Range], *, tasks_min: int) -> list[list[Range]]:
    """As tasks of about the same number of messages: a long range is cut, short ones are put together."""
    wanted = list(wanted)
    total = sum(high - low for _, _, low, high in wanted)
    if not total:
        return []
    tasks = min(max(tasks_min, -(-total // MESSAGES_PER_TASK)), TASKS_MAX, total)
    found: list[list[Range]] = [[] for _ in range(tasks)]
    done = 0
    for destination, identity, low, high in wanted:
        while low < high:
            task = done * tasks // total
            task_end = -(-(task + 1) * total // tasks)  # where the next task begins
            cut = min(high, low + task_end - done)
            found[task].append(Range(destination, identity, low, cut))
            done += cut - low
            low = cut
    return [task for task in found if task]

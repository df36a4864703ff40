"""What a user may say with `.option(...)`, by the names that Kafka's source has where there is the same thing.

Spark hands options over with their names in lower case: case does not matter, and errors name them as they are
documented.
"""
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from angarium.core.errors import ConfigError, Rejected
from angarium.core.names import check_name
from angarium.core.patterns import NamePattern
from angarium.core.wire.frames import LANE_BITS, PatternSyntax
from angarium.core.wire.layout import PRIORITY_MAX
from angarium.spark.columns import ALL_COLUMNS, DEFAULT_COLUMNS

ADDRESS_DEFAULT = "angarium://localhost"
EARLIEST, LATEST = "earliest", "latest"
_KNOWN = {
    name.lower(): name
    for name in (
        "address", "subscribe", "subscribePattern", "subscribeRegex", "startingOffsets", "startingTimestamp",
        "startingOffsetsByTimestamp", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
        "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "selector", "includeHeaders", "columns",
        "pollIntervalMs", "readerName", "pushFilters",
    )
}  # fmt: skip
_SUBSCRIBING = ("subscribe", "subscribePattern", "subscribeRegex")
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "pollIntervalMs", "readerName")
_READER_CHARACTERS_MAX = 200
_PRIORITIES = tuple(map(str, range(PRIORITY_MAX + 1)))  # each has a lane of positions


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the logs: the same for all, or for some of them by name."""

    everywhere: str = ""  # "earliest" or "latest"
    timestamp_ms: int | None = None
    positions: Mapping[str, Any] | None = None  # by name: "earliest", "latest", a position, or positions by priority
    timestamps_ms: Mapping[str, int] | None = None  # by name

    @property
    def is_time(self) -> bool:
        return self.timestamp_ms is not None or self.timestamps_ms is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    address: tuple[str, ...]
    names: tuple[str, ...]  # none: those that match
    pattern: str = ""
    pattern_syntax: PatternSyntax = PatternSyntax.GLOB
    starting: Where | None = None  # None: the default of batch or stream
    ending: Where | None = None
    offsets_per_trigger_max: int | None = None
    partitions_min: int = 1
    fail_on_data_loss: bool = True
    selector: str = ""
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    poll_interval_s: float = 0.1
    pushes_filters: bool = False
    reader: str = ""  # under which brokers show how far the stream is

    def refuse_of_stream(self, given: Mapping[str, str]) -> None:
        _refuse(given, _ENDING, "a stream has no end: use it with spark.read, or stop the stream by a trigger")
        _refuse(given, ("pushFilters",), "it is for spark.read: Spark pushes no filters into a stream")

    def refuse_of_batch(self, given: Mapping[str, str]) -> None:
        _refuse(given, _STREAM_ONLY, "it is for spark.readStream")


def _refuse(given: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name.lower() in {key.lower() for key in given}:
            raise ConfigError(f"option {name!r}: {why}")


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises `ConfigError` that names the option, what is wrong with it, and what is valid."""
    options: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() not in _KNOWN:
            raise ConfigError(f"unknown option {key!r}; valid are {', '.join(sorted(_KNOWN.values()))}")
        options[_KNOWN[key.lower()]] = str(value)
    names, pattern, syntax = _subscribed(options)
    address = options.get("address", os.environ.get("ANGARIUM_ADDRESS", ADDRESS_DEFAULT))
    limit = options.get("maxOffsetsPerTrigger")
    starting, ending = _where(options, _STARTING), _where(options, _ENDING)
    _check_times(starting, ending)
    return SourceOptions(
        address=tuple(part.strip() for part in address.split(",") if part.strip()),
        names=names,
        pattern=pattern,
        pattern_syntax=syntax,
        starting=starting,
        ending=ending,
        offsets_per_trigger_max=None if limit is None else _number("maxOffsetsPerTrigger", limit, at_least=1),
        partitions_min=_number("minPartitions", options.get("minPartitions", "1"), at_least=1),
        fail_on_data_loss=_flag("failOnDataLoss", options.get("failOnDataLoss", "true")),
        selector=_selector(options.get("selector", "")),
        columns=_columns(options),
        poll_interval_s=_number("pollIntervalMs", options.get("pollIntervalMs", "100"), at_least=1) / 1_000,
        pushes_filters=_flag("pushFilters", options.get("pushFilters", "false")),
        reader=_reader(options.get("readerName", "")),
    )


def _subscribed(options: Mapping[str, str]) -> tuple[tuple[str, ...], str, PatternSyntax]:
    given = [name for name in _SUBSCRIBING if name in options]
    if len(given) != 1:
        said = f"{' and '.join(map(repr, given))} are given" if given else "none is given"
        raise ConfigError(f"exactly one of {', '.join(map(repr, _SUBSCRIBING))} says what to read; {said}")
    text = options[given[0]]
    if given[0] != "subscribe":
        syntax = PatternSyntax.GLOB if given[0] == "subscribePattern" else PatternSyntax.REGEX
        try:
            NamePattern(text, syntax)
        except Rejected as refused:
            raise ConfigError(f"option {given[0]!r}: {refused.reason}") from None
        return (), text, syntax
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ConfigError("option 'subscribe' is empty: give names of destinations, separated by commas")
    for name in names:
        try:
            check_name(name.removeprefix("_"))
        except Rejected as refused:
            raise ConfigError(f"option 'subscribe': {refused.reason}") from None
    return names, "", PatternSyntax.GLOB


def _where(options: Mapping[str, str], names: tuple[str, str, str]) -> Where | None:
    given = [name for name in names if name in options]
    if not given:
        return None
    if len(given) > 1:
        raise ConfigError(f"options {' and '.join(map(repr, given))}: give one of them")
    name, text = given[0], options[given[0]].strip()
    if name == names[1]:
        return Where(timestamp_ms=_number(name, text, at_least=0))
    if name == names[0] and text.lower() in (EARLIEST, LATEST):
        if text.lower() == EARLIEST and name == "endingOffsets":
            raise ConfigError("option 'endingOffsets': 'latest', or positions; nothing ends at 'earliest'")
        return Where(everywhere=text.lower())
    valid = "'earliest', 'latest', or JSON" if name == names[0] else "JSON"
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"option {name!r}: {text[:100]!r} is not {valid}: {error}") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f'option {name!r}: {text[:100]!r} is no JSON object; write {{"orders": 1200}}')
    if name == names[2]:
        return Where(timestamps_ms={key: _number(name, str(value), at_least=0) for key, value in parsed.items()})
    for key, value in parsed.items():
        _check_place(name, key, value)
    return Where(positions=parsed)


def _check_times(starting: Where | None, ending: Where | None) -> None:
    if starting is None or ending is None:
        return
    for name in {**(starting.timestamps_ms or {}), **(ending.timestamps_ms or {}), "": 0}:
        low = (starting.timestamps_ms or {}).get(name, starting.timestamp_ms)
        high = (ending.timestamps_ms or {}).get(name, ending.timestamp_ms)
        if low is not None and high is not None and high < low:
            of = f" of {name!r}" if name else ""
            raise ConfigError(f"the ending time{of}, {high} ms, lies before the starting time, {low} ms")


def _check_place(option: str, destination: str, value: object) -> None:
    """A position, "earliest", "latest", or an object as checkpoints have it."""
    if value in (EARLIEST, LATEST) or _is_position(value):
        return
    if isinstance(value, dict) and all(
        _is_identity(each) if key == "identity" else key in _PRIORITIES and _is_position(each)
        for key, each in value.items()
    ):
        return
    raise ConfigError(
        f"option {option!r}: {destination!r} is {value!r}; use a position, 'earliest' (or -2), 'latest' (or -1), "
        'or positions by priority: {"4": 1200}'
    )


def _is_position(value: object) -> bool:
    """Beyond the last lane there is none: it would be taken for one of a priority that nobody uses, and passed over."""
    return isinstance(value, int) and not isinstance(value, bool) and -2 <= value < len(_PRIORITIES) << LANE_BITS


def _is_identity(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _selector(text: str) -> str:
    from angarium.core.selector.parser import parse  # not in every process of every query

    try:
        parse(text)
    except Rejected as refused:
        raise ConfigError(f"option 'selector': {refused.reason}") from None
    return text


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = _flag("includeHeaders", options.get("includeHeaders", "false"))
    if "columns" not in options:
        return (*DEFAULT_COLUMNS, "headers") if with_headers else DEFAULT_COLUMNS
    wanted = [name.strip() for name in options["columns"].split(",") if name.strip()]
    unknown = next((name for name in wanted if name not in ALL_COLUMNS), None)
    if unknown is not None or not wanted:
        what = f"{unknown!r} is unknown" if unknown is not None else "it is empty"
        raise ConfigError(f"option 'columns': {what}; there are {', '.join(ALL_COLUMNS)}")
    if with_headers:
        wanted.append("headers")
    return tuple(dict.fromkeys(wanted))


def _reader(text: str) -> str:
    if len(text) > _READER_CHARACTERS_MAX:
        raise ConfigError(f"option 'readerName' has {len(text):,} characters: the most is {_READER_CHARACTERS_MAX}")
    return text


def _number(option: str, text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if not at_least <= value < 1 << 63:
        raise ConfigError(f"option {option!r}: {text!r} is no whole number from {at_least}")
    return value


def _flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {option!r}: {text!r} is neither 'true' nor 'false'")
    return text.lower() == "true"

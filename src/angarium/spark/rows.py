"""Rows of a data frame as messages: from Arrow record batches to batches for a broker.

Bodies are taken column by column. Only where a frame has columns for headers, properties, priorities or times is each
row looked at by itself. A row that no broker takes is named, with what is wrong with it.
"""
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from angarium.client.buffer import Limits
from angarium.client.fields import TEXT, make_options
from angarium.core.client.gathered import BATCH_COST_MAX, MESSAGE_COST, Gathered, Options, options_cost
from angarium.core.destination import bad_rows
from angarium.core.errors import ConfigError, Rejected
from angarium.core.names import DEAD_MESSAGE_QUEUE, NAME_CHARACTERS_MAX, check_name
from angarium.spark.columns import ALL_COLUMNS
from angarium.spark.sink_options import SinkOptions

Array = Any  # pyarrow has no types for mypy

# Column -> the types that it may have, as Spark calls them.
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBER = (*_WHOLE, "float", "double")
_TYPES: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "destination": ("string",),
    "priority": _WHOLE,
    "expiration": ("timestamp",),
    "ttl_s": _NUMBER,
    "deliver_at": ("timestamp",),
    "delay_s": _NUMBER,
    "correlation_id": ("string", "binary"),
    "reply_to": ("string",),
    "type": ("string",),
    "group_id": ("string",),
    "group_sequence": _WHOLE,
    "deduplication_id": ("string",),
    "last_value_key": ("string",),
    "content": ("string",),
    "properties": ("map",),
}
_IGNORED = tuple(name for name in ALL_COLUMNS if name not in _TYPES)  # a broker gives each message its own
_FIELDS = {name: name for name in _TYPES if name not in ("body", "destination", "expiration", "content")}
_FIELDS["group_id"] = "group"
_CONTENTS = ("text", "map", "stream", "plain")


def check_columns(columns: Sequence[tuple[str, str]], options: SinkOptions) -> None:
    """Names and types as Spark writes them; raises `ConfigError`."""
    found = dict(columns)
    for name, kind in columns:
        if name in _IGNORED:
            continue
        if name not in _TYPES:
            there_are = ", ".join((*_TYPES, *_IGNORED))
            raise ConfigError(f"column {name!r} is none that a message has; there are {there_are}")
        if kind.split("<")[0] not in _TYPES[name]:
            raise ConfigError(f"column {name!r} is of {kind}; use {' or '.join(_TYPES[name])}")
    if "body" not in found:
        raise ConfigError("there is no column 'body': what is to be sent?")
    if not options.destination and "destination" not in found:
        raise ConfigError("where to? Give the option 'destination', or a column of that name")
    if options.destination and "destination" in found and found["destination"] != "string":
        raise ConfigError(f"column 'destination' is of {found['destination']}; use string")


class Addressed(NamedTuple):
    destination: str
    messages: list[Gathered]


class RowReader:
    """Of one task: knows the limits of the broker, and how many rows it has seen."""

    def __init__(self, options: SinkOptions, limits: Limits, partition: int) -> None:
        self._options = options
        self._limits = limits
        self._partition = partition
        self._seen = 0  # rows before those that are looked at

    def messages(self, rows: Array) -> Iterator[Addressed]:
        """By destination, the rows of each in their order."""
        try:
            addressed = list(self._addressed(rows))
        except Rejected as bad:
            if not self._options.buries:
                raise
            if rows.num_rows > 1:  # which ones it is, is found by halving
                middle = rows.num_rows // 2
                yield from self.messages(rows.slice(0, middle))
                yield from self.messages(rows.slice(middle))
                return
            addressed = [Addressed(DEAD_MESSAGE_QUEUE, [self._dead(rows, bad)])]
        self._seen += rows.num_rows
        yield from addressed

    def _addressed(self, rows: Array) -> Iterator[Addressed]:
        bodies = rows.column(rows.schema.get_field_index("body"))
        is_text = pa.types.is_string(bodies.type) or pa.types.is_large_string(bodies.type)
        if bodies.null_count:
            row = int(np.argmax(bodies.is_null().to_numpy(zero_copy_only=False)))
            raise self._bad(row, "the body is NULL; leave such rows out, or give them an empty one")
        sizes = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
        listed: list[bytes] = (bodies.cast(pa.binary()) if is_text else bodies).to_pylist()
        options = self._row_options(rows, TEXT if is_text else None)
        for name, places in self._places(rows):
            some = listed if places is None else [listed[place] for place in places]
            of_some = sizes if places is None else sizes[places]
            if options is None:
                self._check_sizes(name, of_some, places)
                yield Addressed(name, list(_plain(some, of_some)))
            else:
                chosen = options if places is None else [options[place] for place in places]
                yield Addressed(name, self._with_options(name, some, chosen, places))

    def _dead(self, rows: Array, bad: Rejected) -> Gathered:
        """A row that is no message, for people to look at: what fits of its body, where it was to go, and why not."""
        (row,) = rows.to_pylist()
        body = row["body"] or b""
        now_ms = int(time.time() * 1000)
        letter = bad_rows.RowLetter(
            destination=self._options.destination or (row.get("destination") or "")[:NAME_CHARACTERS_MAX],
            died_ms=now_ms,
            detail=bad.reason[:bad_rows.DETAIL_CHARACTERS_MAX],
        )
        gathered = Gathered(now_ms)
        fitting = (body.encode() if isinstance(body, str) else body)[: self._limits.body_bytes_max]
        gathered.append(fitting, Options(headers=bad_rows.encoded(letter)))
        return gathered

    # -- destinations ------------------------------------------------------------------------------

    def _places(self, rows: Array) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
        """Each destination with its rows; None: all."""
        if self._options.destination:
            yield self._options.destination, None
            return
        names = rows.column(rows.schema.get_field_index("destination"))
        if names.null_count:
            row = int(np.argmax(names.is_null().to_numpy(zero_copy_only=False)))
            raise self._bad(row, "the destination is NULL")
        encoded = names.dictionary_encode()
        distinct, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(distinct)))
        for code, name in enumerate(distinct):
            places = order[ends[code - 1] if code else 0 : ends[code]]
            try:
                check_name(name)
            except Rejected as refused:
                raise self._bad(int(places[0]), refused.reason) from None
            yield name, places

    # -- what a message has beside its body --------------------------------------------------------

    def _row_options(self, rows: Array, content: str | None) -> list[Options | None] | None:
        """Of each row; None if no row can have any."""
        columns = {name: rows.column(index) for index, name in enumerate(rows.schema.names)}
        given = {name: column for name, column in columns.items() if name in _TYPES and column.null_count < len(column)}
        fields = {_FIELDS[name]: _values(name, column) for name, column in given.items() if name in _FIELDS}
        expirations = _values("expiration", given["expiration"]) if "expiration" in given else None
        contents = given["content"].to_pylist() if "content" in given else None
        if not fields and expirations is None and contents is None and content is None:
            return None
        now_ms = int(time.time() * 1000)
        made: list[Options | None] = []
        for row in range(rows.num_rows):
            said = {name: values[row] for name, values in fields.items() if values[row] is not None}
            kind = (contents[row] if contents is not None else None) or content
            try:
                if kind is not None and kind not in _CONTENTS:
                    raise Rejected("bad-header", f"content {kind!r} is none of {', '.join(_CONTENTS)}")
                options = make_options(kind, now_ms=now_ms, **said)
                if expirations is not None and expirations[row] is not None:
                    options = _expiring(options or Options(), expirations[row])
            except Rejected as refused:
                raise self._bad(row, refused.reason) from None
            made.append(options)
        return made

    def _with_options(
        self, name: str, bodies: list[bytes], options: list[Options | None], places: NDArray[np.int64] | None
    ) -> list[Gathered]:
        batches = [Gathered(int(time.time() * 1000))]
        for index, (body, chosen) in enumerate(zip(bodies, options, strict=True)):
            extra = len(chosen.headers) + len(chosen.properties) if chosen is not None else 0
            if len(body) + extra > self._limits.body_bytes_max:
                self._check(name, len(body), extra, index if places is None else int(places[index]))
            cost = len(body) + MESSAGE_COST + (options_cost(chosen) if chosen is not None else 0)
            if batches[-1].bodies and batches[-1].cost + cost > BATCH_COST_MAX:
                batches.append(Gathered(batches[0].timestamp_ms))
            batches[-1].append(body, chosen)
        return batches

    # -- limits ------------------------------------------------------------------------------------

    def _check_sizes(self, name: str, sizes: NDArray[np.int64], places: NDArray[np.int64] | None) -> None:
        longest = int(np.argmax(sizes)) if len(sizes) else 0
        if len(sizes) and sizes[longest] > self._limits.body_bytes_max:
            self._check(name, int(sizes[longest]), 0, longest if places is None else int(places[longest]))

    def _check(self, name: str, body_bytes: int, extra_bytes: int, row: int) -> None:
        try:
            self._limits.check(name, body_bytes, extra_bytes)
        except Rejected as refused:
            raise self._bad(row, refused.reason) from None

    def _bad(self, row: int, reason: str) -> Rejected:
        return Rejected("bad-row", f"row {self._seen + row + 1} of partition {self._partition}: {reason}")


def _plain(bodies: list[bytes], sizes: NDArray[np.int64]) -> Iterator[Gathered]:
    """Batches as full as they may be."""
    costs = np.cumsum(sizes + MESSAGE_COST)
    at, now_ms = 0, int(time.time() * 1000)
    while at < len(bodies):
        before = int(costs[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(costs, before + BATCH_COST_MAX, side="right")))
        gathered = Gathered(now_ms)
        gathered.bodies = bodies[at:end]
        gathered.cost = int(costs[end - 1]) - before
        yield gathered
        at = end


def _values(name: str, column: Array) -> list[Any]:
    """As the client takes them; times in milliseconds, but for `deliver_at`, in seconds."""
    if name in ("expiration", "deliver_at"):
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        per = 1_000 if name == "expiration" else 1e6
        return [None if at is None else at // per if name == "expiration" else at / per for at in micros]
    if name == "properties":
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _expiring(options: Options, expiry_ms: int) -> Options:
    if options.expiry_ms:
        raise Rejected("bad-ttl", "ttl_s and expiration both say when it expires; give one of them")
    if expiry_ms <= 0:
        raise Rejected("bad-ttl", f"expiration {expiry_ms} ms lies before 1970")
    return options._replace(expiry_ms=int(expiry_ms))



"""Batches of a log as the columns of a data frame, by Arrow.

A batch is columnar already: positions, times, priorities and bodies are made for all its messages at once, from the
bytes that were published. Only headers and properties, where a batch has any and they are wanted, are decoded message
by message.
"""
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from angarium.client.log import LogPiece
from angarium.core.ids import format_id, message_id
from angarium.core.malformed import MALFORMED
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import PRIORITY_DEFAULT, Columns

# Name -> type as Spark writes it, and whether it is ever NULL.
_TYPES = {
    "destination": ("string", False),
    "position": ("bigint", False),
    "message_id": ("string", False),
    "timestamp": ("timestamp", False),
    "priority": ("int", False),
    "expiration": ("timestamp", True),
    "correlation_id": ("string", True),
    "reply_to": ("string", True),
    "type": ("string", True),
    "group_id": ("string", True),
    "content": ("string", True),
    "properties": ("map<string,string>", False),
    "body": ("binary", True),
    "headers": ("map<string,string>", False),
    "headers_packed": ("binary", True),
    "properties_packed": ("binary", True),
}
ALL_COLUMNS = tuple(_TYPES)
DEFAULT_COLUMNS = ALL_COLUMNS[: ALL_COLUMNS.index("headers")]
_HEADERS = {
    "correlation_id": "correlation_id", "reply_to": "reply_to", "type": "type", "group_id": "group",
    "content": "content",
}  # fmt: skip
_DIGITS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", np.uint8)  # of base 32
_PAIRS = np.stack([_DIGITS.repeat(32), np.tile(_DIGITS, 32)], axis=1).view(np.uint16).ravel()  # two of them, ten bits
_ID_CHARACTERS = len(format_id(bytes(24)))
_ID_PADDING_BITS = 3  # of the last character
_ID_PAIRS_MAX = 6  # that are the sequence's and nothing else's
_PRIORITY, _SEQUENCE, _STREAM = map(int, (Columns.PRIORITY, Columns.SEQUENCE, Columns.STREAM))  # quicker so
_EXPIRY, _HEADERS_BIT, _PROPERTIES = map(int, (Columns.EXPIRY, Columns.HEADERS, Columns.PROPERTIES))
_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode

Array = Any  # pyarrow has no types for mypy
Counts = NDArray[np.int64]


def type_of(column: str) -> str:
    """As Spark writes it."""
    return _TYPES[column][0]


def schema_of(columns: Sequence[str]) -> str:
    """As Spark reads it."""
    parts = (f"{name} {_TYPES[name][0]}{'' if _TYPES[name][1] else ' not null'}" for name in columns)
    return ", ".join(parts)


def omitted_by(columns: Sequence[str]) -> list[str]:
    """What of each message need not cross the network."""
    omitted = ["body"] if "body" not in columns else []
    if not {"headers", "headers_packed", "body", *_HEADERS} & set(columns):
        omitted.append("headers")  # with a body, a header tells whether it lies in a stream
    if not {"properties", "properties_packed"} & set(columns):
        omitted.append("properties")
    return omitted


class RecordBatches:
    """Makes record batches of the columns of an Arrow schema, in that order. What is the same for all messages is made
    once for all batches, and cut to their lengths."""

    def __init__(self, destination: str, schema: Any) -> None:
        self._destination = destination
        self._schema = schema
        self._fields = [(field.name, field.type) for field in schema]
        self._shows_headers = any(name == "headers" or name in _HEADERS for name, _ in self._fields)
        self._alike: dict[str, Array] = {}

    def of(self, pieces: Sequence[LogPiece]) -> Any:
        """All messages of the pieces as one."""
        batches = [piece.batch for piece in pieces]
        counts = np.array([batch.count for batch in batches], np.int64)
        count, columns = int(counts.sum()), 0
        for batch in batches:
            columns |= batch.columns
        asked = columns & _STREAM or (columns & _HEADERS_BIT and self._shows_headers)
        headers = _maps(pieces, lambda batch: batch.headers()) if asked else []
        arrays: list[Array] = []
        for name, kind in self._fields:
            match name:
                case "destination":
                    arrays.append(self._repeated(name, count, partial(_texts, self._destination)))
                case "position":
                    arrays.append(_integers(_positions(pieces, counts), kind))
                case "message_id":
                    arrays.append(_message_ids(batches, counts))
                case "timestamp":
                    times_ms = np.array([batch.timestamp_ms for batch in batches], np.int64)
                    arrays.append(_integers(times_ms.repeat(counts) * 1_000, kind))
                case "priority" if columns & _PRIORITY:
                    arrays.append(_integers(_priorities(batches), kind))
                case "priority":
                    arrays.append(self._repeated(name, count, partial(_usual_priorities, kind)))
                case "expiration" if columns & _EXPIRY:
                    arrays.append(_expirations(batches, kind))
                case "body":
                    arrays.append(_bodies(batches, counts, headers if columns & _STREAM else None))
                case "properties" if columns & _PROPERTIES:
                    arrays.append(_map_array(_maps(pieces, lambda batch: batch.properties()), kind))
                case "headers" if columns & _HEADERS_BIT:
                    arrays.append(_map_array(headers, kind))
                case "properties" | "headers":
                    arrays.append(self._repeated(name, count, partial(_empty_maps, kind)))
                case "headers_packed" if columns & _HEADERS_BIT:
                    arrays.append(_packed(pieces, lambda batch: batch.headers()))
                case "properties_packed" if columns & _PROPERTIES:
                    arrays.append(_packed(pieces, lambda batch: batch.properties()))
                case _ if name in _HEADERS and columns & _HEADERS_BIT:
                    arrays.append(pa.array([_text(found.get(_HEADERS[name])) for found in headers], pa.string()))
                case _:
                    arrays.append(self._repeated(name, count, partial(pa.nulls, type=kind)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeated(self, name: str, count: int, made: Callable[[int], Array]) -> Array:
        array = self._alike.get(name)
        if array is None or len(array) < count:
            array = self._alike[name] = made(2 * count)
        return array.slice(0, count)


def _integers(values: NDArray[Any], kind: Any) -> Array:
    """Also times, which are microseconds."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _texts(text: str, count: int) -> Array:
    """Not by `pa.scalar`, which imports Pandas if it is there: half a second of every new process of Spark."""
    encoded = text.encode()
    offsets = np.arange(0, (count + 1) * len(encoded), len(encoded), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(encoded * count)])


def _usual_priorities(kind: Any, count: int) -> Array:
    return _integers(np.full(count, PRIORITY_DEFAULT, np.int32), kind)


def _empty_maps(kind: Any, count: int) -> Array:
    nothing = pa.nulls(0, pa.string())
    return pa.MapArray.from_arrays(_integers(np.zeros(count + 1, np.int32), pa.int32()), nothing, nothing, type=kind)


def _ascending(starts: Iterable[int], counts: Counts) -> Counts:
    """From each start on, so many."""
    begins = np.cumsum(counts) - counts
    return (np.fromiter(starts, np.int64, len(counts)) - begins).repeat(counts) + np.arange(counts.sum())


def _positions(pieces: Sequence[LogPiece], counts: Counts) -> Counts:
    if all(isinstance(piece.positions, range) for piece in pieces):
        return _ascending((piece.positions[0] for piece in pieces), counts)
    return np.concatenate([np.array(piece.positions, np.int64) for piece in pieces])


def _priorities(batches: Sequence[Batch]) -> NDArray[np.int32]:
    usual = bytes([PRIORITY_DEFAULT])
    joined = b"".join([batch.priorities() or usual * batch.count for batch in batches])
    return np.frombuffer(joined, np.uint8).astype(np.int32)


def _expirations(batches: Sequence[Batch], kind: Any) -> Array:
    times: list[Counts] = []
    for batch in batches:
        expiries = batch.expiries_ms()
        times.append(np.zeros(batch.count, np.int64) if expiries is None else np.array(expiries, np.int64))
    times_ms = np.concatenate(times)
    validity = pa.py_buffer(np.packbits(times_ms != 0, bitorder="little"))
    return pa.Array.from_buffers(kind, len(times_ms), [validity, pa.py_buffer(times_ms * 1_000)])


def _message_ids(batches: Sequence[Batch], counts: Counts) -> Array:
    """As `format_id` writes them. All of a producer's begin alike, and sequences that are near to each other go on
    alike: only the last characters are made of every message, two at a time."""
    count, sequences = int(counts.sum()), _sequences(batches, counts)
    letters = np.empty((count, _ID_CHARACTERS), np.uint8)
    producers = [batch.producer for batch in batches]
    lowest, highest = int(sequences.min()), int(sequences.max())
    beginnings = {producer: _characters([message_id(producer, lowest)]) for producer in set(producers)}
    if len(beginnings) == 1:
        letters[:] = beginnings[producers[0]]
    else:
        letters[:] = np.concatenate([beginnings[producer] for producer in producers]).repeat(counts, axis=0)
    pairs = -(-((lowest ^ highest).bit_length() + _ID_PADDING_BITS) // 10)
    if pairs <= _ID_PAIRS_MAX:
        padded = sequences << _ID_PADDING_BITS
        ends = np.empty((count, pairs), np.uint16)
        for pair in range(pairs):
            ends[:, pairs - 1 - pair] = _PAIRS[padded >> 10 * pair & 1023]
        letters[:, _ID_CHARACTERS - 2 * pairs :] = ends.view(np.uint8)
    else:
        places = zip(np.arange(len(batches)).repeat(counts).tolist(), sequences.tolist(), strict=True)
        letters[:] = _characters([message_id(producers[batch], sequence) for batch, sequence in places])
    offsets = np.arange(0, (count + 1) * _ID_CHARACTERS, _ID_CHARACTERS, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])


def _characters(identities: list[bytes]) -> NDArray[np.uint8]:
    text = "".join([format_id(identity) for identity in identities])
    return np.frombuffer(text.encode(), np.uint8).reshape(-1, _ID_CHARACTERS)


def _sequences(batches: Sequence[Batch], counts: Counts) -> Counts:
    if not any(batch.columns & _SEQUENCE for batch in batches):
        return _ascending((batch.first_sequence for batch in batches), counts)
    found = [
        batch.sequences() if batch.columns & _SEQUENCE
        else range(batch.first_sequence, batch.first_sequence + batch.count)
        for batch in batches
    ]  # fmt: skip
    return np.concatenate([np.array(each, np.int64) for each in found])


def _bodies(batches: Sequence[Batch], counts: Counts, headers: list[dict[str, Any]] | None) -> Array:
    """As they lie in the batches; NULL where a body lies in a stream, if headers are given that tell."""
    sizes = np.array([batch.body_bytes for batch in batches], np.int64)
    offsets = np.zeros(counts.sum() + 1, np.int32)
    offsets[1:] = np.frombuffer(b"".join([batch.offsets[1:] for batch in batches]), np.int32)
    offsets[1:] += (np.cumsum(sizes) - sizes).astype(np.int32).repeat(counts)
    joined = b"".join([memoryview(batch.data)[-batch.body_bytes :] for batch in batches if batch.body_bytes])
    validity = None
    if headers is not None:
        held = ["stream" not in found for found in headers]
        validity = pa.py_buffer(np.packbits(held, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [validity, pa.py_buffer(offsets), pa.py_buffer(joined)])


def _maps(pieces: Sequence[LogPiece], of: Callable[[Batch], list[bytes] | None]) -> list[dict[str, Any]]:
    """One for each message."""
    maps: list[dict[str, Any]] = []
    for piece in pieces:
        values = of(piece.batch)
        maps += [{}] * piece.batch.count if values is None else [_map(value) for value in values]
    return maps


def _packed(pieces: Sequence[LogPiece], of: Callable[[Batch], list[bytes] | None]) -> Array:
    """As they were sent, in MessagePack: with their types. NULL where there are none."""
    values = [value for piece in pieces for value in of(piece.batch) or [b""] * piece.batch.count]
    return pa.array([bytes(value) or None for value in values], pa.binary())


def _map(encoded: bytes) -> dict[str, Any]:
    """What is not a map is taken for none, as brokers and selectors take it."""
    try:
        return _decode_map(encoded) if encoded else {}
    except MALFORMED:
        return {}


def _map_array(maps: list[dict[str, Any]], kind: Any) -> Array:
    offsets = np.zeros(len(maps) + 1, np.int32)
    np.cumsum([len(found) for found in maps], out=offsets[1:])
    keys = pa.array([key for found in maps for key in found], pa.string())
    values = pa.array([_text(value) for found in maps for value in found.values()], pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=kind)


def _text(value: object) -> str | None:
    """As JMS converts properties to strings; bytes in hexadecimal."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)

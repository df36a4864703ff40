"""The headers and properties of a message, as far as a broker has to read them."""
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from operator import sub
from typing import Any, TypedDict

import msgspec

from angarium.core.malformed import MALFORMED
from angarium.core.wire.batch import Values

MapReader = Callable[[Values], list[dict[str, Any]]]
ValueReader = Callable[[Values, object], list[object]]
Names = frozenset[str] | None  # of properties and header fields that somebody asks for; None: any

_MISSING = object()
_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode
_ARRAY = struct.Struct(">BI")  # how MessagePack begins an array
_NAMES_MAX = 64  # with more than that, all are read
_READERS_MAX = 1_024  # of different names, kept for the next batch: to make one takes as long as reading thirty maps


def read_map(encoded: bytes) -> dict[str, Any]:
    """What is not a map is a message without headers: it is delivered as it is."""
    try:
        return _decode_map(encoded) if encoded else {}
    except MALFORMED:
        return {}


def map_reader(names: Names) -> MapReader:
    """As `read_map` for each, but of these names alone: to pass over the others takes a third of the time. What is
    wrong with them nobody sees. All are read in one go, which halves the time once more; so a map that a strange
    client has torn, and put into two messages, may be seen in the first of them."""
    return _reader_of(None if names is None or len(names) > _NAMES_MAX else names)


def joined(names: Names, more: Names) -> Names:
    if names is None or more is None or len(names | more) > _NAMES_MAX:
        return None
    return names | more


@lru_cache(maxsize=_READERS_MAX)
def _reader_of(names: Names) -> MapReader:
    if names is not None and not names:
        return lambda values: [{} for _ in values.offsets[1:]]
    shape: Any = dict[str, Any]
    if names is not None:
        shape = TypedDict("Wanted", dict.fromkeys(names, Any), total=False)  # type: ignore
    return _reader(shape, dict)


@lru_cache(maxsize=_READERS_MAX)
def value_reader(name: str) -> ValueReader:
    """What each map has under one name, or what is given for those that have not: a third of what it takes to make a
    map of each and ask that."""
    shape: Any = msgspec.defstruct("Wanted", [("value", Any, _MISSING)], rename={"value": name}, gc=False)
    read = _reader(shape, shape)
    return lambda values, absent: [absent if (v := found.value) is _MISSING else v for found in read(values)]


def _reader(shape: Any, empty: Callable[[], Any]) -> Callable[[Values], list[Any]]:
    decode = msgspec.msgpack.Decoder(shape).decode
    decode_all = msgspec.msgpack.Decoder(list[shape]).decode

    def one(encoded: bytes) -> Any:
        try:
            return decode(encoded) if encoded else empty()
        except MALFORMED:
            return empty()

    def read(values: Values) -> list[Any]:
        data, offsets = values
        count = len(offsets) - 1
        if 0 not in map(sub, offsets[1:], offsets):  # each has something
            try:
                found: list[Any] = decode_all(_ARRAY.pack(0xDD, count) + data)
            except MALFORMED:
                pass  # one of them is no map
            else:
                return found
        first = offsets[0]
        return [one(data[low - first : high - first]) for low, high in pairwise(offsets)]

    return read

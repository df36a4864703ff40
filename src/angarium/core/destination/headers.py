"""The headers and properties of a message, as far as a broker has to read them."""
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypedDict

import msgspec

from angarium.core.malformed import MALFORMED

MapReader = Callable[[Sequence[bytes]], list[dict[str, Any]]]
Names = frozenset[str] | None  # of properties and header fields that somebody asks for; None: any

_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode
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
    wrong with them nobody sees."""
    return _reader_of(None if names is None or len(names) > _NAMES_MAX else names)


def joined(names: Names, more: Names) -> Names:
    if names is None or more is None or len(names | more) > _NAMES_MAX:
        return None
    return names | more


@lru_cache(maxsize=_READERS_MAX)
def _reader_of(names: Names) -> MapReader:
    if names is not None and not names:
        return lambda encoded: [{} for _ in encoded]
    shape: Any = dict[str, Any]
    if names is not None:
        shape = TypedDict("Wanted", dict.fromkeys(names, Any), total=False)  # type: ignore
    decode = msgspec.msgpack.Decoder(shape).decode

    def read(encoded: Sequence[bytes]) -> list[dict[str, Any]]:
        try:
            return [decode(each) if each else {} for each in encoded]
        except MALFORMED:
            return [found for each in encoded for found in read([each])] if len(encoded) > 1 else [{}]

    return read

"""The headers and properties of a message, as far as a broker has to read them."""
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypedDict

import msgspec

MapReader = Callable[[Sequence[bytes]], list[dict[str, Any]]]
Names = frozenset[str] | None  # of properties and header fields that somebody asks for; None: any

_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode
_NAMES_MAX = 64  # with more than that, all are read
_COUNT_MIN = 16  # of fewer, all names are read: to make a reader takes as long as reading some fifty maps
_READERS_MAX = 256  # of different names, kept for the next batch


def read_map(encoded: bytes) -> dict[str, Any]:
    """What is not a map is a message without headers: it is delivered as it is."""
    try:
        return _decode_map(encoded) if encoded else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def map_reader(names: Names, count: int) -> MapReader:
    """As `read_map` for each of so many, but of these names alone, if that is worth making a reader for them: to pass
    over the others takes a third of the time."""
    if names is None or len(names) > _NAMES_MAX or (names and count < _COUNT_MIN):
        return _reader_of(None)
    return _reader_of(names)


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
        except (msgspec.DecodeError, RecursionError):
            return [found for each in encoded for found in read([each])] if len(encoded) > 1 else [{}]

    return read

"""The headers and properties of a message, as far as a broker has to read them."""
from typing import Any

import msgspec

_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode


def read_map(encoded: bytes) -> dict[str, Any]:
    """What is not a map is a message without headers: it is delivered as it is."""
    try:
        return _decode_map(encoded) if encoded else {}
    except (msgspec.DecodeError, RecursionError):
        return {}

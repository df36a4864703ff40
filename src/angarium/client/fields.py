"""What a message carries beside its body, to and from MessagePack.

The headers are a map with the keys `correlation_id`, `reply_to`, `type` and `content` (only those that are set);
the properties are the application's own map of names to plain values.
"""
from collections.abc import Mapping
from typing import Any

import msgspec

from angarium.core.client.gathered import Options
from angarium.core.errors import Rejected
from angarium.core.wire.batch import PRIORITY_DEFAULT, PRIORITY_MAX

Property = bool | int | float | str | bytes | None
Properties = Mapping[str, Property]
Body = bytes | bytearray | memoryview | str

CONTENT_TEXT = "text"
_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})
_encode = msgspec.msgpack.Encoder().encode
_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode


def body_bytes(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise Rejected("bad-body", f"a body is bytes, bytearray, memoryview or str, not {type(body).__name__}")


def make_options(
    body: Body,
    *,
    now_ms: int,
    properties: Properties | None,
    priority: int,
    ttl_s: float | None,
    correlation_id: str | bytes | None,
    reply_to: str | None,
    type: str | None,
) -> Options | None:
    """None if there is nothing to say beside the body."""
    headers: dict[str, str | bytes] = {}
    if correlation_id is not None:
        headers["correlation_id"] = correlation_id
    if reply_to is not None:
        headers["reply_to"] = reply_to
    if type is not None:
        headers["type"] = type
    if isinstance(body, str):
        headers["content"] = CONTENT_TEXT
    if not headers and not properties and priority == PRIORITY_DEFAULT and ttl_s is None:
        return None
    if not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
        raise Rejected("bad-priority", f"priority {priority!r} is not a whole number from 0 to {PRIORITY_MAX}")
    return Options(
        priority,
        0 if ttl_s is None else _expiry_ms(ttl_s, now_ms),
        _encode(headers) if headers else b"",
        encode_properties(properties) if properties else b"",
    )


def encode_properties(properties: Properties) -> bytes:
    for name, value in properties.items():
        if name.__class__ is not str or value.__class__ not in _PLAIN:
            raise Rejected(
                "bad-property",
                f"property {name!r} is of {type(value).__name__}: use str and bool, int, float, str, bytes or None",
            )
    try:
        return _encode(properties)
    except OverflowError:
        raise Rejected("bad-property", f"properties {list(properties)}: an int exceeds 64 bits") from None


def decode_map(encoded: bytes) -> dict[str, Any]:
    return _decode_map(encoded) if encoded else {}


def _expiry_ms(ttl_s: float, now_ms: int) -> int:
    if not 0 < ttl_s < 1e10:
        raise Rejected("bad-ttl", f"ttl_s {ttl_s!r} is not a positive number of seconds; leave it out for never")
    return now_ms + max(1, int(ttl_s * 1000))

"""What a message carries beside its body, and bodies that are more than bytes, to and from MessagePack.

The headers are a map (docs/protocol/wire.md has its keys; only those that are set are there), the properties are the
application's own map of names to plain values. The header `content` says what a body is; without it, bytes.
"""
from collections.abc import Mapping, Sequence
from datetime import datetime
from numbers import Real
from typing import Any, Literal, TypedDict

import msgspec

from angarium.client.destination import Destination, Queue, Topic, checked_text, plain_text, resolve
from angarium.client.property_names import check_property_name
from angarium.client.values import PLAIN, TypedMap, TypedStream, Value
from angarium.core.client.gathered import Options
from angarium.core.errors import Rejected
from angarium.core.malformed import MALFORMED
from angarium.core.wire.layout import PRIORITY_DEFAULT, PRIORITY_MAX, Columns

Property = Value
Properties = Mapping[str, Property]
Body = bytes | bytearray | memoryview | str | Mapping[str, Value] | Sequence[Value] | None

PERSISTENT: Literal["persistent"] = "persistent"
NON_PERSISTENT = "NON_PERSISTENT"  # on the wire: as selectors have it
TEXT, MAP, STREAM, PLAIN_MESSAGE = "text", "map", "stream", "plain"
TIME_S_MAX = 1e10  # some 300 years
ID_BYTES_MAX = 400  # of deduplication ids and last value keys, in UTF-8: what a broker remembers of them
_KINDS: dict[type, int] = {Queue: 1, Topic: 2}
_GROUP, _DEDUPLICATION, _KEY = int(Columns.GROUP), int(Columns.DEDUPLICATION), int(Columns.KEY)
_encode = msgspec.msgpack.Encoder().encode
_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode
_decode_list = msgspec.msgpack.Decoder(list[Any]).decode


class MessageFields(TypedDict, total=False):
    """What may be said with a message that is sent; all of it may be left out."""

    properties: Properties | None  # names that a selector can refer to; bool, int (64 bits), float, str, bytes, None
    priority: int  # 0 to 9; 4 is the usual
    ttl_s: float | None  # expires so long after it was sent
    delay_s: float | None  # is not delivered before so long after it was sent
    deliver_at: datetime | float | None  # ... before this moment: with a time zone, or seconds since 1970
    delivery_mode: Literal["persistent", "non-persistent"]
    correlation_id: str | bytes | None
    reply_to: Destination | None
    type: str | None
    group: str | None  # all of a group go to one consumer
    group_sequence: int | None  # of the message within its group
    deduplication_id: str | None  # a second one with the same id is dropped, for some time
    last_value_key: str | None  # replaces the one with the same key, on a destination that keeps last values


def make_options(
    content: str | None,
    *,
    now_ms: int,
    properties: Properties | None = None,
    priority: int = PRIORITY_DEFAULT,
    ttl_s: float | None = None,
    delay_s: float | None = None,
    deliver_at: datetime | float | None = None,
    delivery_mode: str = PERSISTENT,
    correlation_id: str | bytes | None = None,
    reply_to: Destination | None = None,
    type: str | None = None,
    group: str | None = None,
    group_sequence: int | None = None,
    deduplication_id: str | None = None,
    last_value_key: str | None = None,
) -> Options | None:
    """None if there is nothing to say beside the body."""
    headers: dict[str, str | bytes | int] = {}
    announcements = 0
    if content is not None:
        headers["content"] = content
    if correlation_id is not None:
        headers["correlation_id"] = _typed("correlation_id", correlation_id, str | bytes)
    if reply_to is not None:
        headers |= _reply_to(reply_to)
    if type is not None:
        headers["type"] = _typed("type", type, str)
    if delivery_mode != PERSISTENT:
        if delivery_mode != "non-persistent":
            reason = f"delivery_mode {delivery_mode!r}: use 'persistent' or 'non-persistent'"
            raise Rejected("bad-delivery-mode", reason)
        headers["delivery_mode"] = NON_PERSISTENT
    if group is not None:
        headers["group"] = _typed("group", group, str)
        announcements |= _GROUP
    if deduplication_id is not None:
        headers["deduplication_id"] = _id("deduplication_id", deduplication_id)
        announcements |= _DEDUPLICATION
    if last_value_key is not None:
        headers["last_value_key"] = _id("last_value_key", last_value_key)
        announcements |= _KEY
    if group_sequence is not None:
        headers["group_sequence"] = _group_sequence(group, group_sequence)
    due_ms = 0 if delay_s is None and deliver_at is None else _due_ms(delay_s, deliver_at, now_ms)
    if not headers and not properties and priority == PRIORITY_DEFAULT and ttl_s is None and not due_ms:
        return None
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= PRIORITY_MAX:
        raise Rejected("bad-priority", f"priority {priority!r} is not a whole number from 0 to {PRIORITY_MAX}")
    return Options(
        priority,
        0 if ttl_s is None else _expiry_ms(ttl_s, now_ms),
        _packed(headers, "bad-header", "headers") if headers else b"",
        encode_properties(properties) if properties else b"",
        due_ms,
        announcements,
    )


make_options.__qualname__ = "send"  # whose fields these are: a TypeError names what the application has called


def _typed(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or not value:
        raise Rejected("bad-header", f"{name} {value!r}: use {'a str' if kind is str else 'str or bytes'}, not empty")
    return plain_text(value, name) if isinstance(value, str) else value


def _id(name: str, value: Any) -> Any:
    value = checked_text(_typed(name, value, str), "bad-header", name)
    if len(value) > ID_BYTES_MAX // 4 and (size := len(value.encode())) > ID_BYTES_MAX:
        reason = f"{name} of {size:,} bytes exceeds {ID_BYTES_MAX}; give a shorter one, for instance a digest of it"
        raise Rejected("bad-header", reason)
    return value


def _group_sequence(group: str | None, sequence: int) -> int:
    if group is None or sequence.__class__ is not int or not -1 << 31 <= sequence < 1 << 31:
        raise Rejected("bad-header", f"group_sequence {sequence!r}: an int of 32 bits, together with group")
    return sequence


def _reply_to(destination: Destination) -> dict[str, str | bytes | int]:
    name, kind = resolve(destination)
    return {"reply_to": name, "reply_to_kind": int(kind)} if kind else {"reply_to": name}


def _expiry_ms(ttl_s: float, now_ms: int) -> int:
    if not _is_number(ttl_s) or not 0 < ttl_s < TIME_S_MAX:
        raise Rejected(
            "bad-ttl",
            f"ttl_s {ttl_s!r} is not a number of seconds above 0 and below {TIME_S_MAX:.0e}; leave it out for never",
        )
    return now_ms + max(1, int(ttl_s * 1000))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _due_ms(delay_s: float | None, deliver_at: datetime | float | None, now_ms: int) -> int:
    if delay_s is not None and deliver_at is not None:
        raise Rejected("bad-delay", "delay_s and deliver_at both say when to deliver; give one of them")
    if delay_s is not None:
        if not _is_number(delay_s) or not 0 <= delay_s < TIME_S_MAX:
            raise Rejected("bad-delay", f"delay_s {delay_s!r} is not a number of seconds from 0 to {TIME_S_MAX:.0e}")
        return now_ms + int(delay_s * 1000) if delay_s > 0 else 0
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise Rejected("bad-delay", f"deliver_at {deliver_at} has no time zone; give one, such as UTC")
        deliver_at = deliver_at.timestamp()
    if not isinstance(deliver_at, int | float):
        raise Rejected("bad-delay", f"deliver_at {deliver_at!r} is neither a datetime nor seconds since 1970")
    if not 0 <= deliver_at < TIME_S_MAX:
        raise Rejected("bad-delay", f"deliver_at is {deliver_at:.12g} s since 1970, not from 0 to {TIME_S_MAX:.0e}")
    return int(deliver_at * 1000)


# -- properties ----------------------------------------------------------------------------------


def encode_properties(properties: Properties) -> bytes:
    if not isinstance(properties, Mapping):
        raise Rejected("bad-property", f"properties are a mapping of names to values, not {type(properties).__name__}")
    for name, value in properties.items():
        check_property_name(name)
        if value.__class__ not in PLAIN:
            raise Rejected(
                "bad-property",
                f"property {name!r} is of {type(value).__name__}: use bool, int, float, str, bytes or None",
            )
    return _packed(properties, "bad-property", "properties")


def decode_map(encoded: bytes, what: str = "headers") -> dict[str, Any]:
    """Brokers do not look into them: another client may have sent anything."""
    try:
        return _decode_map(encoded) if encoded else {}
    except MALFORMED as error:
        raise Rejected("bad-property", f"the {what} of a message are no map: {error}; its body can be read") from None


def decode_properties(encoded: bytes) -> TypedMap:
    return TypedMap(decode_map(encoded, "properties"))


def decode_reply_to(headers: dict[str, Any]) -> Destination | None:
    name = headers.get("reply_to")
    match headers.get("reply_to_kind"):
        case 1:
            return Queue(name or "")
        case 2:
            return Topic(name or "")
    return name


# -- bodies --------------------------------------------------------------------------------------


def encode_body(body: Body) -> tuple[bytes, str | None]:
    """The bytes, and what they are: None for bytes."""
    if isinstance(body, bytes):
        return body, None
    match body:
        case str():
            try:
                return body.encode(), TEXT
            except UnicodeEncodeError:
                checked_text(body, "bad-body", "text body")
                raise
        case bytearray() | memoryview():
            return bytes(body), None
        case None:
            return b"", PLAIN_MESSAGE
        case Mapping():
            for name, value in body.items():
                if name.__class__ is not str or not name:
                    raise Rejected("bad-body", f"map body: name {name!r} is not a str, or empty")
                _check_value(value, f"map body: {name!r}")
            return _packed(body if isinstance(body, dict) else dict(body), "bad-body", "map body"), MAP
        case list() | tuple() | TypedStream():
            for index, value in enumerate(body):
                _check_value(value, f"stream body: value {index}")
            return _packed(list(body), "bad-body", "stream body"), STREAM
    raise Rejected(
        "bad-body", f"a body is bytes, str, a dict (map), a list (stream) or None (plain), not {type(body).__name__}"
    )


def _check_value(value: object, what: str) -> None:
    if value.__class__ not in PLAIN:
        raise Rejected("bad-body", f"{what} is of {type(value).__name__}: use bool, int, float, str, bytes or None")


def _packed(values: Any, code: str, what: str) -> bytes:
    try:
        return _encode(values)
    except OverflowError:
        raise Rejected(code, f"{what}: an int exceeds 64 bits") from None
    except UnicodeEncodeError:
        raise Rejected(code, f"{what}: a str has half of a surrogate pair, which UTF-8 cannot hold") from None


def decode_body(body: bytes, content: str | None) -> Any:
    """What `encode_body` was given; an unknown content is bytes."""
    try:
        match content:
            case "text":
                return body.decode()
            case "map":
                return TypedMap(_decode_map(body))
            case "stream":
                return TypedStream(_decode_list(body))
            case "plain":
                return None
    except MALFORMED as error:
        reason = f"a body of content {content!r} cannot be read: {error}; its bytes are in .body"
        raise Rejected("bad-body", reason) from None
    return body

"""How a message that was received is printed: its body as it is, or all of it as one JSON object."""
import base64
import os
from pathlib import Path
from typing import Any

import angarium
from angarium.cli import output
from angarium.client.fields import NON_PERSISTENT, PERSISTENT, decode_body
from angarium.core.ids import format_id

HEADER_FIELDS = (
    "correlation_id", "reply_to", "reply_to_kind", "type", "delivery_mode", "group", "group_sequence",
    "deduplication_id", "last_value_key", "content",
)  # fmt: skip


def stream_bytes(message: angarium.Message) -> int | None:
    try:
        return message.stream_bytes
    except angarium.Rejected:
        return None


def as_text(message: angarium.Message) -> bytes:
    try:
        return printed_body(message.body, message.content)
    except angarium.Rejected:  # its headers cannot be read
        return message.body


def as_json(message: angarium.Message) -> bytes:
    facts = {
        "id": format_id(message.id),
        "destination": message.destination,
        "position": message.position,
        "timestamp_ms": message.timestamp_ms,
        "priority": message.priority,
        "expires_ms": message.expires_ms,
        "due_ms": message.due_ms,
        "redelivery_count": message.redelivery_count,
    }
    try:
        headers = message.delivery.headers(message.index)
        fields = {**header_fields(headers), "properties": message.properties, **_death(message)}
    except angarium.Rejected as refusal:  # one that nobody can read must not keep the others from coming
        fields = {"unreadable": str(refusal)}
    content = None if "unreadable" in fields else message.content
    return output.json_line(facts | fields | body_as_json(message.body, content))


def as_saved(message: angarium.Message, path: Path, *, as_json: bool) -> bytes:
    """Where its body is now."""
    if not as_json:
        return os.fsencode(path) + b"\n"
    facts = {"id": format_id(message.id), "path": str(path), "bytes": path.stat().st_size, "type": message.type,
             "properties": message.properties, **_death(message)}  # fmt: skip
    return output.json_line(facts) + b"\n"


def _death(message: angarium.Message) -> dict[str, Any]:
    """Of a dead message, where and why it died; of another one nothing."""
    return {} if (letter := message.dead_letter) is None else {"dead_letter": letter}


def header_fields(headers: dict[str, Any]) -> dict[str, Any]:
    """What its sender has said with a message, by the names that the client has for it; None is what was not said."""
    found = {name: headers.get(name) for name in HEADER_FIELDS}
    found["delivery_mode"] = "non-persistent" if headers.get("delivery_mode") == NON_PERSISTENT else PERSISTENT
    found["reply_to_kind"] = kind_in_words(headers.get("reply_to_kind"))
    return found


def kind_in_words(kind: object) -> str | None:
    """Of a destination, which on the wire is a number; None if its sender did not say."""
    return {1: "queue", 2: "topic"}.get(kind) if isinstance(kind, int) else None


def _values(body: bytes, content: object) -> Any:
    """Of a map or a stream body; None of any other, and of one that cannot be read."""
    if content not in ("map", "stream"):
        return None
    try:
        found = decode_body(body, str(content))
    except angarium.Rejected:
        return None
    return dict(found) if content == "map" else list(found)


def printed_body(body: bytes, content: object) -> bytes:
    """The bytes as they are; the values of a map or a stream body as JSON."""
    values = _values(body, content)
    return body if values is None else output.json_line(values)


def body_as_json(body: bytes, content: object = None) -> dict[str, Any]:
    """`body` if it is text, or values of a map or a stream body, else `body_base64`: exactly one of them."""
    if (values := _values(body, content)) is not None:
        return {"body": values}
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}

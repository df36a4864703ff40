"""Frames of administration: requests and their replies."""
from typing import Any

from angarium.core.wire.frames.vocabulary import Frame


class Request(Frame, frozen=True):
    kind = 40
    number: int
    command: str
    arguments: dict[str, Any]
    client: bytes = b""  # on the bus: the identity of the connection


class Reply(Frame, frozen=True):
    """Answers the request of that number. Payload: the batches that `result` describes, if any."""

    kind = 41
    number: int
    code: str  # empty: done
    reason: str
    result: Any = None

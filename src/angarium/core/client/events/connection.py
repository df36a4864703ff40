"""The connection itself, and administrative requests."""
from dataclasses import dataclass, field
from typing import Any

from angarium.core.errors import AngariumError


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """The first event. Ends in `ConnectionReady` or `ConnectionFailed`."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Says Goodbye and ends everything now: close sessions first to lose nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Request:
    """Ends in `RequestAnswered` or `RequestLost`."""

    number: int
    command: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConnectionReady:
    """After each handshake; sessions resume by themselves."""

    node: str
    frame_bytes_max: int
    body_bytes_max: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The machine tries again by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """For good: every session, producer, consumer and request has ended with this error."""

    error: AngariumError


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """As asked by `CloseConnection`; whatever was still open has ended."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """Empty code: done."""

    number: int
    code: str
    reason: str
    result: Any = None
    payload: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RequestLost:
    """The connection, or the way behind it, went before the reply came: it may have been done or not."""

    number: int
    reason: str

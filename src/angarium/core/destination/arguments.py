"""The arguments of an administrative request, checked, and its answer."""
from typing import Any

from angarium.core.destination.events import ToSession
from angarium.core.errors import Rejected
from angarium.core.wire.frames import Reply, Request


def text(request: Request, key: str, default: str | None = None) -> str:
    value = request.arguments.get(key, default)
    if not isinstance(value, str):
        raise Rejected("bad-argument", f"{request.command} needs {key!r} as a string")
    return value


def number(request: Request, key: str, default: int) -> int:
    value = request.arguments.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Rejected("bad-argument", f"{request.command} needs {key!r} as a whole number")
    return value


def numbers(request: Request, key: str, *, count_max: int) -> list[int]:
    value = request.arguments.get(key, [])
    if not isinstance(value, list) or len(value) > count_max or not all(type(item) is int for item in value):
        reason = f"{request.command} needs {key!r} as a list of at most {count_max:,} whole numbers"
        raise Rejected("bad-argument", reason)
    return value


def texts(request: Request, key: str, *, count_max: int) -> list[str]:
    value = request.arguments.get(key, [])
    if not isinstance(value, list) or len(value) > count_max or not all(isinstance(item, str) for item in value):
        raise Rejected("bad-argument", f"{request.command} needs {key!r} as a list of at most {count_max:,} strings")
    return value


def done(session: bytes, request: Request, result: Any) -> ToSession:
    return ToSession(session, Reply(request.number, "", "", result))

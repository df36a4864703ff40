"""Writes docs/protocol/fields.md from the types of the frames: `python -m tests.unit.docs.wire_fields`."""
import types
import typing
from enum import IntEnum
from pathlib import Path

import msgspec

from angarium.core.wire.frames import FRAMES

PAGE = Path(__file__).parents[3] / "docs/protocol/fields.md"
_HEAD = """# Fields of the frames

The type and default of each field, in the order of the array; what they mean is in [wire.md](wire.md). Types are those
of MessagePack: *integer*, *float*, *boolean*, *string* (UTF-8), *binary*, *array of …*, *map*, *any*. Numbers of a list
are written with what they stand for. Fields without a default must be there.

| kind | frame | field | type | default |
|---|---|---|---|---|
"""
_PLAIN = {int: "integer", float: "float", bool: "boolean", str: "string", bytes: "binary", typing.Any: "any"}


def page() -> str:
    rows: list[str] = []
    for kind, frame in sorted(FRAMES.items()):
        hints = typing.get_type_hints(frame)
        for field in msgspec.structs.fields(frame):
            row = (str(kind), frame.__name__, f"`{field.name}`", _type(hints[field.name]), _default(field))
            rows.append("| " + " | ".join(row) + " |\n")
    return _HEAD + "".join(rows)


def _type(hint: typing.Any) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments)
    if origin is dict or hint is dict:
        return "map"
    if origin is tuple and arguments[-1] is not Ellipsis:
        return "array of " + ", ".join(_type(each) for each in arguments)
    if origin in (list, tuple):
        return f"array of ({_type(arguments[0])})"
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return "integer: " + ", ".join(f"{each.value} {each.name.lower()}" for each in hint)
    if hint is type(None):
        return "nil"
    raise TypeError(f"{hint!r} has no name in the protocol")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return _value(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return _value(field.default_factory())
    return ""


def _value(value: object) -> str:
    if isinstance(value, IntEnum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes | str | list | tuple | dict):
        assert not value, "a default that is not empty needs a way to be written"
        return "empty"
    return "nil" if value is None else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

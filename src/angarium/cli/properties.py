"""Message properties as they are written on a command line.

    region=EU      a string
    weight=1.5     a number, as do 12 and -3: what looks like one is one
    urgent=true    a boolean: exactly `true` or `false`
    code:='"12"'   any of these as JSON, for what would be guessed wrongly
"""
import json
import re

from angarium.cli.failure import EXIT_USAGE, Failure

PropertyValue = str | int | float | bool

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGER_MIN, _INTEGER_MAX = -(1 << 63), (1 << 63) - 1


def parse_properties(texts: list[str]) -> dict[str, PropertyValue]:
    """The last of several values for one key counts."""
    return dict(map(_parse, texts))


def _parse(text: str) -> tuple[str, PropertyValue]:
    key, equals, value = text.partition("=")
    explicit = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise Failure(f"property {text!r} is not understood: write KEY=VALUE, or KEY:=JSON", EXIT_USAGE)
    return key, _from_json(key, value) if explicit else _guess(value)


def _guess(value: str) -> PropertyValue:
    if value in ("true", "false"):
        return value == "true"
    if _INTEGER.fullmatch(value) and _INTEGER_MIN <= int(value) <= _INTEGER_MAX:
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    return value


def _from_json(key: str, value: str) -> PropertyValue:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise Failure(f"property {key!r}: {value!r} is not JSON: {error}", EXIT_USAGE) from None
    if not isinstance(parsed, str | int | float | bool):
        raise Failure(f"property {key!r}: use a string, number or boolean, not {value}", EXIT_USAGE)
    return parsed

"""Message properties as they are written on a command line.

    region=EU      a string
    weight=1.5     a number, as do 12 and -3: what is printed back just as it was written
    zip=01234      a string, as do +49170123 and 1.10: as numbers they would lose something
    urgent=true    a boolean: exactly `true` or `false`
    code:='"12"'   any of these, or null, as JSON, for what would be guessed wrongly
"""
import json
import math

from angarium.cli.failure import EXIT_USAGE, Failure

PropertyValue = str | int | float | bool | None

_DIGITS_MAX = 40  # no number of 64 bits is longer
_INTEGER_MIN, _INTEGER_MAX = -(1 << 63), (1 << 63) - 1


def parse_properties(texts: list[str]) -> dict[str, PropertyValue]:
    """One value for each key: of two, nobody knows which was meant."""
    found: dict[str, PropertyValue] = {}
    for key, value in map(_parse, texts):
        if key in found:
            raise Failure(f"property {key!r} is given twice: say which value it has", EXIT_USAGE)
        found[key] = value
    return found


def _parse(text: str) -> tuple[str, PropertyValue]:
    key, equals, value = text.partition("=")
    explicit = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise Failure(f"property {text!r} is not understood: write KEY=VALUE, or KEY:=JSON", EXIT_USAGE)
    return key, _from_json(key, value) if explicit else guess(value)


def guess(value: str) -> PropertyValue:
    if value in ("true", "false"):
        return value == "true"
    if len(value) > _DIGITS_MAX:
        return value
    for number in (int, float):
        try:
            parsed = number(value)
        except ValueError:
            continue
        if str(parsed) == value and _is_number(parsed):
            return parsed
    return value


def _is_number(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _INTEGER_MIN <= value <= _INTEGER_MAX


def _from_json(key: str, value: str) -> PropertyValue:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise Failure(f"property {key!r}: {value!r} is not JSON: {error}", EXIT_USAGE) from None
    if parsed is not None and not isinstance(parsed, str | int | float | bool):
        raise Failure(f"property {key!r}: use a string, number, boolean or null, not {value}", EXIT_USAGE)
    if isinstance(parsed, int | float) and not _is_number(parsed):
        raise Failure(f"property {key!r}: {value} is no number of 64 bits", EXIT_USAGE)
    return parsed

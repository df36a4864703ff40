"""The oracle: a selector evaluated by walking its tree, rule by rule. Nothing here is fast, and nothing is shared
with the compiled form but the tree, so that the two can contradict each other.

A condition is True, False or None for unknown. A value is None for NULL, or a pair of its type and itself.
"""
from math import copysign, inf, nan
from typing import assert_never

from angarium.core.selector.fields import Fields
from angarium.core.selector.syntax import (
    And,
    Approximate,
    Arithmetic,
    Between,
    Boolean,
    Comparison,
    Condition,
    Exact,
    In,
    IsNull,
    Like,
    Name,
    Not,
    Or,
    Selector,
    Sign,
    Text,
    Value,
)  # fmt: skip

Typed = tuple[str, object] | None


def matches(selector: Selector, fields: Fields) -> bool:
    return truth(selector.condition, fields) is True


def truth(condition: Condition, fields: Fields) -> bool | None:
    match condition:
        case Boolean(value):
            return value
        case Name():
            return _compare("=", value_of(condition, fields), ("boolean", True))
        case Not(operand):
            inner = truth(operand, fields)
            return None if inner is None else not inner
        case And(items):
            found = [truth(item, fields) for item in items]
            return False if False in found else None if None in found else True
        case Or(items):
            found = [truth(item, fields) for item in items]
            return True if True in found else None if None in found else False
        case Comparison(operator, left, right):
            return _compare(operator, value_of(left, fields), value_of(right, fields))
        case Between(operand, low, high, negated):
            same: Condition = And((Comparison(">=", operand, low), Comparison("<=", operand, high)))
            if negated:
                same = Or((Comparison("<", operand, low), Comparison(">", operand, high)))
            return truth(same, fields)
        case In(name, texts, negated):
            subject = value_of(Name(name), fields)
            return None if subject is None else (subject[0] == "string" and subject[1] in texts) != negated
        case Like(name, pattern, escape, negated):
            subject = value_of(Name(name), fields)
            if subject is None:
                return None
            return (subject[0] == "string" and _like(pattern, escape, str(subject[1]))) != negated
        case IsNull(name, negated):
            return (value_of(Name(name), fields) is None) != negated
    assert_never(condition)


def value_of(value: Value, fields: Fields) -> Typed:
    match value:
        case Name(name):
            return _typed(fields.get(name))
        case Exact(literal) | Approximate(literal) | Text(literal) | Boolean(literal):
            return _typed(literal)
        case Sign(negative, operand):
            # 0 - x would lose the sign of zero.
            return _calculate("*", ("exact", -1 if negative else 1), value_of(operand, fields))
        case Arithmetic(first, rest):
            result = value_of(first, fields)
            for operator, operand in rest:
                result = _calculate(operator, result, value_of(operand, fields))
            return result
    assert_never(value)


def _typed(value: object) -> Typed:
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, str):
        return "string", value
    if isinstance(value, float):
        return "approximate", value
    if isinstance(value, int):
        return ("exact", value) if -(2**63) <= value < 2**63 else ("approximate", _double(value))
    return None


def _double(value: object) -> float:
    assert isinstance(value, int | float)
    try:
        return float(value)
    except OverflowError:
        return copysign(inf, value > 0 or -1)


def _compare(operator: str, left: Typed, right: Typed) -> bool | None:
    if left is None or right is None:
        return None
    numeric = ("exact", "approximate")
    if left[0] in numeric and right[0] in numeric:
        a, b = left[1], right[1]
        if left[0] != right[0]:
            a, b = _double(a), _double(b)
        assert isinstance(a, int | float) and isinstance(b, int | float)
        return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
    if left[0] != right[0] or left[0] == "invalid":
        return False
    return {"=": left[1] == right[1], "<>": left[1] != right[1]}.get(operator, False)


def _calculate(operator: str, left: Typed, right: Typed) -> Typed:
    if left is None or right is None:
        return None
    if left[0] not in ("exact", "approximate") or right[0] not in ("exact", "approximate"):
        return "invalid", None
    if left[0] == right[0] == "exact":
        a, b = left[1], right[1]
        assert isinstance(a, int) and isinstance(b, int)
        if operator == "/":
            if b == 0:
                return None
            whole = abs(a) // abs(b)
            result = whole if (a < 0) == (b < 0) else -whole
        else:
            result = {"+": a + b, "-": a - b, "*": a * b}[operator]
        return "exact", (result + 2**63) % 2**64 - 2**63
    x, y = _double(left[1]), _double(right[1])
    if operator != "/":
        return "approximate", {"+": x + y, "-": x - y, "*": x * y}[operator]
    if y != 0:
        return "approximate", x / y
    return "approximate", nan if x == 0 or x != x else copysign(inf, x) * copysign(1, y)


def _like(pattern: str, escape: str | None, text: str) -> bool:
    """Which prefixes of the text the pattern read so far can match; quadratic, and plain."""
    reached = [True] + [False] * len(text)
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            reached = [False] + [reached[i] and text[i] == pattern[at] for i in range(len(text))]
        elif character == "%":
            first = reached.index(True) if True in reached else len(reached)
            reached = [i >= first for i in range(len(reached))]
        else:
            reached = [False] + [reached[i] and character in ("_", text[i]) for i in range(len(text))]
        at += 1
    return reached[-1]

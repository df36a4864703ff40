"""What operators do to values, as the compiled form does it.

    NULL     None, and whatever a selector cannot see: bytes, a missing property, a type of its own
    INVALID  the result of arithmetic on a string or boolean: of no type, so unlike everything (3.8.1.1)
    number   int or float; an int beyond Java's long is the double nearest to it
    str, bool

A comparison is True, False or None for unknown. NULL makes it unknown, unlike types make it false, whatever the
operator.

Arithmetic is Java's on longs and doubles: two longs give a long, which wraps around at 64 bits and is divided
towards zero; otherwise both are doubles. A long divided by zero, an exception in Java, is NULL here: neither the
condition nor its opposite selects the message.
"""
from collections.abc import Callable
from typing import Final

from angarium.core.selector.syntax import LONG_MAX, LONG_MIN

SELECTABLE: Final = frozenset({str, bool, int, float})
NUMERIC: Final = frozenset({int, float})
SAFE_MAX: Final = 1 << 53  # below it Python's exact comparison of int and float agrees with Java's promotion to double
_SMALL: Final = 1 << 31  # below it no operation but division needs any of Java's care
_WRAP: Final = (1 << 64) - 1
_SIGN_BIT: Final = 1 << 63


class Invalid:
    """The class of INVALID alone: no value of a message has it."""


INVALID: Final = Invalid()
VALUES: Final = SELECTABLE | {Invalid}


def to_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def wrap(value: int) -> int:
    """The long that is left of a whole number."""
    if LONG_MIN <= value <= LONG_MAX:
        return value
    value &= _WRAP
    return value - (1 << 64) if value & _SIGN_BIT else value


def _promoted(left: object, right: object) -> tuple[int, int] | tuple[float, float] | bool | None:
    """Two numbers of one type; None if either is NULL; otherwise whether both are of the same other type."""
    kind, other = left.__class__, right.__class__
    if kind not in VALUES or other not in VALUES:
        return None
    if kind not in NUMERIC or other not in NUMERIC:
        return kind is other and kind is not Invalid
    assert isinstance(left, int | float) and isinstance(right, int | float)
    left, right = _long_or_double(left), _long_or_double(right)
    return (left, right) if isinstance(left, int) and isinstance(right, int) else (float(left), float(right))


def _long_or_double(value: int | float) -> int | float:
    return value if isinstance(value, float) or LONG_MIN <= value <= LONG_MAX else to_double(value)


def equal(left: object, right: object) -> bool | None:
    both = _promoted(left, right)
    if isinstance(both, tuple):
        return both[0] == both[1]
    return both and left == right


def unequal(left: object, right: object) -> bool | None:
    both = _promoted(left, right)
    if isinstance(both, tuple):
        return both[0] != both[1]
    return both and left != right


def less(left: object, right: object) -> bool | None:
    both = _promoted(left, right)
    return both[0] < both[1] if isinstance(both, tuple) else None if both is None else False


def less_or_equal(left: object, right: object) -> bool | None:
    both = _promoted(left, right)
    return both[0] <= both[1] if isinstance(both, tuple) else None if both is None else False


def greater(left: object, right: object) -> bool | None:
    return less(right, left)


def greater_or_equal(left: object, right: object) -> bool | None:
    return less_or_equal(right, left)


COMPARE: Final[dict[str, Callable[[object, object], bool | None]]] = {
    "=": equal, "<>": unequal, "<": less, "<=": less_or_equal, ">": greater, ">=": greater_or_equal,
}  # fmt: skip


def sign(negative: bool, value: object) -> object:
    kind = value.__class__
    if kind is int:
        assert isinstance(value, int)
        if LONG_MIN <= value <= LONG_MAX:
            return wrap(-value) if negative else value
        value = to_double(value)
    elif kind is not float:
        return INVALID if kind in SELECTABLE or kind is Invalid else None
    assert isinstance(value, float)
    return -value if negative else value


def _small(value: object) -> bool:
    return value.__class__ in NUMERIC and -_SMALL < value < _SMALL  # type: ignore[operator]


def add(left: object, right: object) -> object:
    if _small(left) and _small(right):
        return left + right  # type: ignore[operator]
    return _promote_and("+", left, right)


def subtract(left: object, right: object) -> object:
    if _small(left) and _small(right):
        return left - right  # type: ignore[operator]
    return _promote_and("-", left, right)


def multiply(left: object, right: object) -> object:
    if _small(left) and _small(right):
        return left * right  # type: ignore[operator]
    return _promote_and("*", left, right)


def divide(left: object, right: object) -> object:
    return _promote_and("/", left, right)


CALCULATE: Final[dict[str, Callable[[object, object], object]]] = {
    "+": add, "-": subtract, "*": multiply, "/": divide,
}  # fmt: skip


def calculate(operators: tuple[str, ...], values: tuple[object, ...]) -> object:
    """From left to right: one operator before each value but the first."""
    result = values[0]
    for operator, value in zip(operators, values[1:], strict=True):
        result = CALCULATE[operator](result, value)
    return result


def _promote_and(operator: str, left: object, right: object) -> object:
    both = _promoted(left, right)
    if not isinstance(both, tuple):
        return None if both is None else INVALID
    first, second = both
    if operator == "/":
        if isinstance(first, int) and isinstance(second, int):
            return _divide_longs(first, second)
        return _divide_doubles(first, second)
    result = first + second if operator == "+" else first - second if operator == "-" else first * second
    return wrap(result) if isinstance(result, int) else result


def _divide_longs(left: int, right: int) -> int | None:
    if right == 0:
        return None
    quotient, remainder = divmod(left, right)
    return wrap(quotient + 1 if remainder and quotient < 0 else quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if left != left or left == 0:
        return float("nan")
    return float("inf") if (left > 0) == (str(right)[0] != "-") else float("-inf")

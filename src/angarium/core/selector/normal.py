"""A condition as the fast evaluators want it: no NOT, no unknown, no constant part.

A selector matches when its condition is TRUE. NOT asks of its operand to be FALSE; AND is TRUE when all items are,
FALSE when one is; OR the other way round. So each part is asked for one of the two, downwards from the root, and
UNKNOWN is what answers neither: three-valued logic costs nothing at run time. A `Test` is a leaf, with the truth
that is `wanted` of it.
"""
from typing import assert_never

import msgspec

from angarium.core.selector.like import Pattern
from angarium.core.selector.pace import Pace, Portions, finished
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
    Sign,
    Text,
    Value,
)  # fmt: skip
from angarium.core.selector.values import COMPARE, calculate, sign

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Constant(msgspec.Struct, frozen=True, gc=False):
    value: object  # None where constants alone give no value: 1 / 0


Term = Constant | Name | Sign | Arithmetic


class Compare(msgspec.Struct, frozen=True, gc=False):
    operator: str
    left: Term  # never a constant
    right: Term
    wanted: bool


class OneOf(msgspec.Struct, frozen=True, gc=False):
    name: str
    texts: frozenset[str]
    wanted: bool


class Resembles(msgspec.Struct, frozen=True, gc=False):
    name: str
    pattern: Pattern
    wanted: bool


class Absent(msgspec.Struct, frozen=True, gc=False):
    name: str
    wanted: bool


class All(msgspec.Struct, frozen=True, gc=False):
    items: tuple["Goal", ...]  # none: always


class Any(msgspec.Struct, frozen=True, gc=False):
    items: tuple["Goal", ...]  # none: never


Test = Compare | OneOf | Resembles | Absent
Goal = Test | All | Any
ALWAYS, NEVER = All(()), Any(())


def normal(condition: Condition) -> Goal:
    return finished(normalising(condition, Pace()))


def normalising(condition: Condition, pace: Pace, *, wanted: bool = True) -> Portions[Goal]:
    match condition:
        case Not(operand):
            return (yield from normalising(operand, pace, wanted=not wanted))
        case And(items) | Or(items):
            goals: list[Goal] = []
            for item in items:
                is_leaf = not isinstance(item, Not | And | Or)
                goals.append(
                    _leaf(item, wanted=wanted) if is_leaf else (yield from normalising(item, pace, wanted=wanted))
                )
                if pace.is_due():
                    yield
            return _joined(goals, every=wanted == isinstance(condition, And))
    return _leaf(condition, wanted=wanted)


def _leaf(condition: Condition, *, wanted: bool) -> Goal:
    match condition:
        case Boolean(value):
            return ALWAYS if value == wanted else NEVER
        case Name():
            return Compare("=", condition, Constant(True), wanted)
        case Comparison(operator, left, right):
            return _compared(operator, _term(left), _term(right), wanted)
        case Between(operand, low, high, negated):
            # Spelled out in 3.8.1.1; NOT BETWEEN is no NOT: it is false, too, where types are unlike.
            lower, upper = ("<", ">") if negated else (">=", "<=")
            term = _term(operand)
            bounds = [_compared(lower, term, _term(low), wanted), _compared(upper, term, _term(high), wanted)]
            return _joined(bounds, every=wanted != negated)
        case In(name, texts, negated):
            return OneOf(name, texts, wanted != negated)
        case Like(name, pattern, escape, negated):
            return Resembles(name, Pattern(pattern, escape), wanted != negated)
        case IsNull(name, negated):
            return Absent(name, wanted != negated)
        case Not() | And() | Or():
            raise AssertionError("what joins others is no leaf")
    assert_never(condition)


def _joined(goals: list[Goal], *, every: bool) -> Goal:
    """All or any of the goals, flat, without what is always or never so."""
    decided, neutral = (NEVER, ALWAYS) if every else (ALWAYS, NEVER)
    kind = All if every else Any
    items: list[Goal] = []
    for goal in goals:
        if goal == decided:
            return decided
        if isinstance(goal, kind):
            items.extend(goal.items)
        else:
            items.append(goal)
    if not items:
        return neutral
    return items[0] if len(items) == 1 else kind(tuple(items))


def _compared(operator: str, left: Term, right: Term, wanted: bool) -> Goal:
    if isinstance(left, Constant):
        if isinstance(right, Constant):
            return ALWAYS if COMPARE[operator](left.value, right.value) is wanted else NEVER
        operator, left, right = _MIRRORED[operator], right, left
    if isinstance(right, Constant) and right.value is None:
        return NEVER  # unknown, whatever the message
    return Compare(operator, left, right, wanted)


def _term(value: Value) -> Term:
    match value:
        case Exact(literal) | Approximate(literal) | Text(literal) | Boolean(literal):
            return Constant(literal)
        case Name():
            return value
        case Sign(negative, operand):
            below = _term(operand)
            return Constant(sign(negative, below.value)) if isinstance(below, Constant) else value
        case Arithmetic(first, rest):
            terms = [_term(first), *(_term(operand) for _, operand in rest)]
            constants = [term.value for term in terms if isinstance(term, Constant)]
            if len(constants) < len(terms):
                return value
            return Constant(calculate(tuple(operator for operator, _ in rest), tuple(constants)))
    assert_never(value)

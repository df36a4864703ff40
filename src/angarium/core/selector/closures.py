"""A large selector as functions that call each other: made in a thirtieth of the time that compiling it would take.

Whoever sends a selector of thousands of terms must not keep everybody else waiting while Python compiles it. Evaluated
term by term it is about as fast: most of the time goes into looking up names. Where a chain asks whether one name is
equal to any of many literals, or to none of them, that is one look into a set.
"""
from collections.abc import Callable
from typing import Final, assert_never

from angarium.core.selector.fields import Fields
from angarium.core.selector.normal import Absent, All, Any, Compare, Constant, Goal, OneOf, Resembles, Term
from angarium.core.selector.pace import Pace, Portions
from angarium.core.selector.syntax import Approximate, Arithmetic, Boolean, Exact, Name, Sign, Text, Value
from angarium.core.selector.values import COMPARE, NUMERIC, SAFE_MAX, SELECTABLE, VALUES, calculate, sign

COMPILED_TESTS_MAX = 500  # of one selector: 20 ms. Compiling a larger one would keep everybody else waiting
Match = Callable[[Fields], bool]
_TEXT: Final = frozenset({str})


def tests_in(goal: Goal) -> int:
    return sum(map(tests_in, goal.items)) if isinstance(goal, All | Any) else 1


def is_large(goal: Goal) -> bool:
    """More than `COMPILED_TESTS_MAX` tests, operations and, counted in fours, texts of IN; what is beyond is not looked
    at."""
    left, goals = COMPILED_TESTS_MAX, [goal]
    while goals and left >= 0:
        match goals.pop():
            case All(items) | Any(items):
                goals += items[: left + 1]
            case OneOf(_, texts, _):
                left -= 1 + len(texts) // 4
            case Compare(_, first, second, _):
                left -= 1 + _operations(first) + _operations(second)
            case _:
                left -= 1
    return left < 0


def weighing(goal: Goal, pace: Pace) -> Portions[int]:
    """How many comparisons and operations an evaluation takes at most; what one look into a set answers is one."""
    match goal:
        case All(items) | Any(items):
            operator = "<>" if isinstance(goal, All) else "="
            together: set[tuple[str, frozenset[type]]] = set()
            weight = 0
            for item in items:
                if isinstance(item, All | Any):
                    weight += yield from weighing(item, pace)
                elif (found := _member(item, operator)) is not None:
                    together.add(found[:2])
                else:
                    weight += _weight(item)
                if pace.is_due():
                    yield
            return len(together) + weight
    return _weight(goal)


def _weight(goal: Goal) -> int:
    return 1 + _operations(goal.left) + _operations(goal.right) if isinstance(goal, Compare) else 1


def _operations(term: Term | Value) -> int:
    match term:
        case Arithmetic(first, rest):
            return len(rest) + _operations(first) + sum(_operations(operand) for _, operand in rest)
        case Sign(_, operand):
            return 1 + _operations(operand)
    return 0


def _member(goal: Goal, operator: str) -> tuple[str, frozenset[type], object] | None:
    """Of a chain: the name, the types and the literal of what compares a name with a literal by `operator`, = of an OR
    and <> of an AND; None for all else."""
    if not (isinstance(goal, Compare) and goal.operator == operator and goal.wanted and isinstance(goal.left, Name)):
        return None
    literal = goal.right.value if isinstance(goal.right, Constant) else None
    if isinstance(literal, str):
        return goal.left.name, _TEXT, literal
    if isinstance(literal, int | float) and not isinstance(literal, bool) and -SAFE_MAX < literal < SAFE_MAX:
        return goal.left.name, NUMERIC, literal
    return None


def making_function(goal: Goal, pace: Pace) -> Portions[Match]:
    match goal:
        case All(items):
            return _every((yield from _parts(items, "<>", pace)))
        case Any(items):
            return _some((yield from _parts(items, "=", pace)))
    return _test(goal)


def _test(goal: Goal) -> Match:
    match goal:
        case Absent(name, wanted):
            return lambda fields: (fields.get(name).__class__ not in SELECTABLE) is wanted
        case OneOf(name, texts, wanted):
            return _of_text(name, texts.__contains__, wanted)
        case Resembles(name, pattern, wanted):
            return _of_text(name, pattern.matches, wanted)
        case Compare(operator, left, right, wanted):
            return _compared(COMPARE[operator], left, right, wanted)
        case All() | Any():
            raise AssertionError("what joins others is no test")
    assert_never(goal)


def _every(parts: list[Match]) -> Match:
    def match(fields: Fields) -> bool:
        for part in parts:  # noqa: SIM110 - half as fast with all()
            if not part(fields):
                return False
        return True

    return match


def _some(parts: list[Match]) -> Match:
    def match(fields: Fields) -> bool:
        for part in parts:  # noqa: SIM110 - the same with any()
            if part(fields):
                return True
        return False

    return match


def _parts(items: tuple[Goal, ...], operator: str, pace: Pace) -> Portions[list[Match]]:
    """What asks for one of many literals of a name together, all else one by one."""
    sets: dict[tuple[str, frozenset[type]], set[object]] = {}
    parts: list[Match] = []
    for item in items:
        if isinstance(item, All | Any):
            parts.append((yield from making_function(item, pace)))
        elif (found := _member(item, operator)) is None:
            parts.append(_test(item))
        else:
            name, kinds, literal = found
            sets.setdefault((name, kinds), set()).add(literal)
        if pace.is_due():
            yield
    among = operator == "="
    return parts + [_among(name, kinds, frozenset(values), among) for (name, kinds), values in sets.items()]


def _among(name: str, kinds: frozenset[type], values: frozenset[object], among: bool) -> Match:
    def match(fields: Fields) -> bool:
        value = fields.get(name)
        return value.__class__ in kinds and (value in values) is among

    return match


def _of_text(name: str, test: Callable[[str], bool], wanted: bool) -> Match:
    """The test, for texts; or that it fails, for all values but NULL."""

    def match(fields: Fields) -> bool:
        value = fields.get(name)
        if wanted:
            return value.__class__ is str and test(value)
        return value.__class__ in VALUES and not (value.__class__ is str and test(value))

    return match


def _compared(compare: Callable[[object, object], bool | None], left: Term, right: Term, wanted: bool) -> Match:
    if isinstance(left, Name) and isinstance(right, Constant):
        name, literal = left.name, right.value
        return lambda fields: compare(fields.get(name), literal) is wanted
    first, second = _term(left), _term(right)
    return lambda fields: compare(first(fields), second(fields)) is wanted


def _term(term: Term | Value) -> Callable[[Fields], object]:
    match term:
        case Constant(value) | Exact(value) | Approximate(value) | Text(value) | Boolean(value):
            return lambda fields: value
        case Name(name):
            return lambda fields: fields.get(name)
        case Sign(negative, operand):
            below = _term(operand)
            return lambda fields: sign(negative, below(fields))
        case Arithmetic(first, rest):
            terms = [_term(first), *(_term(operand) for _, operand in rest)]
            operators = tuple(operator for operator, _ in rest)
            return lambda fields: calculate(operators, tuple([each(fields) for each in terms]))
    assert_never(term)

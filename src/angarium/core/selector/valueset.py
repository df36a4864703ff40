"""The values of one property that let a condition hold: what the index stores of a selector.

A set of numbers or strings is a set of points on a line, written as the edges where inside and outside change; an
edge belongs to what begins there. All intervals are half open, which loses nothing: behind every double, and behind
every string, there is a next one.

    x > 5                 numbers from nextafter(5)                  s = 'ab'       strings from 'ab' to 'ab\\0'
    x BETWEEN 1 AND 2     numbers from 1 to nextafter(2)             s LIKE 'ab%'   strings from 'ab' to 'ac'

Whole numbers lie on the line of doubles, which agrees with the comparison of longs as long as the literal is below
2**53; larger ones are not indexed. A set may also be a superset of the truth (`exact` is False then), as for s LIKE
'ab%c': whoever passes is asked again.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, nextafter
from typing import Generic, TypeVar

from angarium.core.selector.like import Pattern
from angarium.core.selector.normal import Absent, All, Any, Compare, Constant, Goal, OneOf, Resembles, Test
from angarium.core.selector.syntax import Name
from angarium.core.selector.values import SAFE_MAX

Point = TypeVar("Point", float, str)
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Spans(Generic[Point]):
    inside: bool  # before the first edge
    edges: tuple[Point, ...]  # ascending


@dataclass(frozen=True, slots=True)
class ValueSet:
    null: bool
    true: bool
    false: bool
    nan: bool
    numbers: Spans[float]
    texts: Spans[str]

    @property
    def edges(self) -> int:
        return len(self.numbers.edges) + len(self.texts.edges)


def _values(
    *,
    null: bool = False,
    true: bool = False,
    false: bool = False,
    nan: bool = False,
    numbers: Spans[float] | None = None,
    texts: Spans[str] | None = None,
) -> ValueSet:
    return ValueSet(null, true, false, nan, numbers or Spans(False, ()), texts or Spans(False, ()))


NOTHING = _values()
EVERYTHING = ValueSet(True, True, True, True, Spans(True, ()), Spans(True, ()))
PRESENT = ValueSet(False, True, True, True, Spans(True, ()), Spans(True, ()))


@dataclass(frozen=True, slots=True)
class Indexed:
    name: str
    values: ValueSet
    exact: bool


def indexed(goal: Goal) -> Indexed | None:
    """What a goal asks of one property; None if it speaks of several, or of something else than its value."""
    if not isinstance(goal, All | Any):
        return _of_test(goal)
    parts: list[Indexed] = []
    for item in goal.items:
        part = indexed(item)
        if part is None or (parts and part.name != parts[0].name):
            return None
        parts.append(part)
    if not parts:
        return None
    values = combined([part.values for part in parts], len(parts) if isinstance(goal, All) else 1)
    return Indexed(parts[0].name, values, all(part.exact for part in parts))


def combined(sets: Sequence[ValueSet], least: int) -> ValueSet:
    """What lies in at least so many of the sets: all of them for AND, one for OR."""
    return ValueSet(
        sum(s.null for s in sets) >= least,
        sum(s.true for s in sets) >= least,
        sum(s.false for s in sets) >= least,
        sum(s.nan for s in sets) >= least,
        _combined_spans([s.numbers for s in sets], least),
        _combined_spans([s.texts for s in sets], least),
    )


def _combined_spans(spans: Sequence[Spans[Point]], least: int) -> Spans[Point]:
    depth = sum(span.inside for span in spans)
    changes: dict[Point, int] = {}
    for span in spans:
        step = -1 if span.inside else 1
        for edge in span.edges:
            changes[edge] = changes.get(edge, 0) + step
            step = -step
    inside = first = depth >= least
    edges: list[Point] = []
    for edge in sorted(changes):
        depth += changes[edge]
        if (depth >= least) != inside:
            inside = not inside
            edges.append(edge)
    return Spans(first, tuple(edges))


def _unless(values: ValueSet) -> ValueSet:
    """Where the condition is FALSE: every value but NULL that does not make it TRUE."""
    return ValueSet(
        False,
        not values.true,
        not values.false,
        not values.nan,
        Spans(not values.numbers.inside, values.numbers.edges),
        Spans(not values.texts.inside, values.texts.edges),
    )


def _of_test(test: Test) -> Indexed | None:
    match test:
        case Absent(name, wanted):
            return Indexed(name, _values(null=True) if wanted else PRESENT, True)
        case OneOf(name, texts, wanted):
            values = combined([_values(texts=_text(text)) for text in texts], 1)
            return Indexed(name, values if wanted else _unless(values), True)
        case Resembles(name, pattern, wanted):
            return _of_pattern(name, pattern, wanted)
        case Compare(operator, Name(name), Constant(literal), wanted):
            found = _of_literal(operator, literal)
            return None if found is None else Indexed(name, found if wanted else _unless(found), True)
    return None


def _of_pattern(name: str, pattern: Pattern, wanted: bool) -> Indexed:
    exact = pattern.whole or pattern.only_prefix
    if not exact and not wanted:
        return Indexed(name, PRESENT, False)
    values = _values(texts=_text(pattern.prefix) if pattern.whole else _prefixed(pattern.prefix))
    return Indexed(name, values if wanted else _unless(values), exact)


def _of_literal(operator: str, literal: object) -> ValueSet | None:
    if isinstance(literal, bool):
        true = literal == (operator == "=")
        return _values(true=true, false=not true)
    if isinstance(literal, str):
        spans = _text(literal)
        return _values(texts=spans if operator == "=" else Spans(True, spans.edges))
    if isinstance(literal, int) and not -SAFE_MAX < literal < SAFE_MAX:
        return None
    if not isinstance(literal, int | float) or not isfinite(literal):
        return None
    at = float(literal)
    after = nextafter(at, inf)
    spans_of: dict[str, Spans[float]] = {
        "=": Spans(False, (at, after)),
        "<>": Spans(True, (at, after)),
        "<": Spans(True, (at,)),
        "<=": Spans(True, (after,)),
        ">": Spans(False, (after,)),
        ">=": Spans(False, (at,)),
    }
    return _values(nan=operator == "<>", numbers=spans_of[operator])


def _text(text: str) -> Spans[str]:
    return Spans(False, (text, text + "\0"))


def _prefixed(prefix: str) -> Spans[str]:
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:  # nothing comes behind all strings that begin so
        return Spans(False, (prefix,)) if prefix else Spans(True, ())
    return Spans(False, (prefix, stem[:-1] + chr(ord(stem[-1]) + 1)))

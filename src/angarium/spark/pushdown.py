"""What Spark's own filters allow a batch to leave out: destinations, priorities, positions, and by a selector messages.

Every filter goes back to Spark, which applies it to what is read: so all that matters here is that nothing is left out
which a filter would keep. In Spark 4.3 a source that looks at filters fails unless the session allows it
(`spark.sql.python.filterPushdown.enabled`); so it does only where the option `pushFilters` asks for it.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from angarium.client.log import priority_of
from angarium.core.wire.layout import PRIORITY_MAX
from angarium.spark.planning import Range

_POSITION_MAX = (1 << 63) - 1
_COMPARISONS = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<=", EqualTo: "="}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is left of what a query asks for."""

    destinations: frozenset[str] | None = None  # None: all
    priorities: frozenset[int] = frozenset(range(PRIORITY_MAX + 1))
    low: int = 0  # positions
    high: int = _POSITION_MAX
    selectors: tuple[str, ...] = ()  # all of them hold

    def narrowed(self, wanted: Iterable[Range]) -> list[Range]:
        found: list[Range] = []
        for part in wanted:
            low, high = max(part.low, self.low), min(part.high, self.high)
            is_named = self.destinations is None or part.destination in self.destinations
            if low < high and is_named and priority_of(part.low) in self.priorities:
                found.append(part._replace(low=low, high=high))
        return found

    def selector(self, given: str) -> str:
        return " AND ".join(f"({selector})" for selector in (given, *self.selectors) if selector)


def pushed(filters: Iterable[Filter]) -> Pushed:
    """Filters hold all together. Those that tell nothing are passed over."""
    result = Pushed()
    for each in filters:
        if isinstance(each, In):
            result = _among(result, each.attribute, tuple(each.value))
        elif type(each) in _COMPARISONS:
            result = _compared(result, each.attribute, _COMPARISONS[type(each)], each.value)  # type: ignore[attr-defined]
    return result


def _among(result: Pushed, attribute: tuple[str, ...], values: tuple[Any, ...]) -> Pushed:
    match attribute:
        case ("destination",):
            return replace(result, destinations=_both(result.destinations, frozenset(values)))
        case ("priority",):
            return replace(result, priorities=result.priorities & frozenset(values))
        case ("position",) if values and all(isinstance(value, int) for value in values):
            return replace(result, low=max(result.low, min(values)), high=min(result.high, max(values) + 1))
        case ("type",) if values and all(isinstance(value, str) for value in values):
            return _selected(result, f"JMSType IN ({', '.join(map(_quoted, values))})")
    return result


def _compared(result: Pushed, attribute: tuple[str, ...], sign: str, value: Any) -> Pushed:
    match attribute:
        case ("destination" | "type",) if sign == "=":
            return _among(result, attribute, (value,))
        case ("priority",) if isinstance(value, int):
            kept = frozenset(priority for priority in result.priorities if _holds(priority, sign, value))
            return replace(result, priorities=kept)
        case ("position",) if isinstance(value, int):
            low, high = _bounds(sign, value)
            return replace(result, low=max(result.low, low), high=min(result.high, high))
        case ("timestamp",) if isinstance(value, datetime) and value.tzinfo is not None and sign != "=":
            return _selected(result, _timed(sign, value))
    return result


def _both(first: frozenset[str] | None, second: frozenset[str]) -> frozenset[str]:
    return second if first is None else first & second


def _selected(result: Pushed, selector: str) -> Pushed:
    return replace(result, selectors=(*result.selectors, selector))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _holds(left: int, sign: str, right: int) -> bool:
    return {">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right, "=": left == right}[sign]


def _bounds(sign: str, value: int) -> tuple[int, int]:
    """From where to where, the second one excluded."""
    low = {">": value + 1, ">=": value, "=": value}.get(sign, 0)
    high = {"<": value, "<=": value + 1, "=": value + 1}.get(sign, _POSITION_MAX)
    return low, high


def _timed(sign: str, value: datetime) -> str:
    """In milliseconds; one more on either side, for those that were cut off."""
    value_ms = int(value.timestamp() * 1_000)
    return f"JMSTimestamp >= {value_ms - 1}" if ">" in sign else f"JMSTimestamp <= {value_ms + 1}"

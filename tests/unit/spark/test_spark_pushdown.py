"""Goal: filters leave out what they can, and never what they would keep."""
import operator
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from angarium.client.log import priority_of
from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.parser import parse
from angarium.spark.planning import Range
from angarium.spark.pushdown import Pushed, pushed

_SIGNS: dict[type[Filter], Any] = {
    EqualTo: operator.eq, GreaterThan: operator.gt, GreaterThanOrEqual: operator.ge, LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}  # fmt: skip
LANES = [(lane << 56, (lane << 56) + 20) for lane in (0, 5, 6)]


def test_what_tells_nothing_changes_nothing() -> None:
    told: list[Filter] = [IsNotNull(("body",)), Not(EqualTo(("position",), 1)), EqualTo(("properties", "a"), "b")]
    assert pushed(told) == Pushed()
    assert Pushed().selector("a = 1") == "(a = 1)" and Pushed().selector("") == ""


def test_selectors_hold_together_and_quotes_are_quoted() -> None:
    found = pushed([EqualTo(("type",), "o'brien"), In(("type",), ("a", "b"))])
    text = found.selector("n > 1")
    assert text == "(n > 1) AND (JMSType IN ('o''brien')) AND (JMSType IN ('a', 'b'))"
    parse(text)


@pytest.mark.parametrize("sign", [GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
def test_times_are_never_cut_too_short(sign: type[Filter]) -> None:
    at = datetime(2026, 1, 1, 12, 0, 0, 123_456, UTC)
    text = pushed([sign(("timestamp",), at)]).selector("")  # type: ignore[call-arg]
    selector = parse(text)
    assert selector is not None
    match = compile_selector(selector).match
    for ms in range(int(at.timestamp() * 1_000) - 5, int(at.timestamp() * 1_000) + 6):
        would_keep = _SIGNS[sign](datetime.fromtimestamp(ms / 1_000, UTC), at)
        assert match({"JMSTimestamp": ms}) or not would_keep
    assert not pushed([sign(("timestamp",), datetime(2026, 1, 1))]).selectors, "of which place?"  # type: ignore[call-arg]


@pytest.mark.parametrize("seed", range(100))
def test_positions_that_filters_keep_are_read(seed: int) -> None:
    chance = random.Random(seed)
    wanted = [Range(name, 1, low, high) for name in "ab" for low, high in LANES]
    filters: list[Filter] = []
    for _ in range(chance.randrange(1, 4)):
        column = chance.choice(("position", "priority", "destination"))
        position = chance.choice(LANES)[0] + chance.randrange(-2, 24)
        value: Any = {"position": position, "priority": chance.randrange(-1, 11), "destination": chance.choice("abc")}
        kind = chance.choice(list(_SIGNS)) if column != "destination" else EqualTo
        chosen = value[column]
        filters.append(
            In((column,), (chosen, chosen)) if chance.random() < 0.2
            else kind((column,), chosen)  # type: ignore[call-arg]
        )  # fmt: skip
    read = {(part.destination, at) for part in pushed(filters).narrowed(wanted) for at in range(part.low, part.high)}
    for name, _, low, high in wanted:
        for at in range(low, high):
            row = {"position": at, "priority": priority_of(at), "destination": name}
            keeps = all(
                row[f.attribute[0]] in f.value if isinstance(f, In)
                else _SIGNS[type(f)](row[f.attribute[0]], f.value)  # type: ignore[attr-defined]
                for f in filters
            )  # fmt: skip
            assert (name, at) in read or not keeps
            assert keeps or len(filters) > 1 or (name, at) not in read, "one such filter is exact"

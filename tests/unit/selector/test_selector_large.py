"""Goal: selectors of thousands of terms mean what the oracle says, and cost what they say.
Method: the form that large ones take is made of random small ones as well, of every rule; and chains of thousands of
random predicates, alone and in an index."""
from random import Random

import pytest

from angarium.core.selector import closures
from angarium.core.selector.closures import COMPILED_TESTS_MAX, weighing
from angarium.core.selector.closures import tests_in as count_of_tests
from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.index import SelectorIndex
from angarium.core.selector.naive import matches
from angarium.core.selector.normal import normal
from angarium.core.selector.pace import Pace, finished
from angarium.core.selector.parser import parse
from angarium.core.selector.syntax import TOKENS_MAX, Selector, SelectorError
from tests.unit.selector.selector_random import random_message, random_selector

TERMS = 10_000


def parsed(text: str) -> Selector:
    selector = parse(text)
    assert selector is not None
    return selector


def weight(text: str) -> int:
    return finished(weighing(normal(parsed(text).condition), Pace()))


@pytest.mark.parametrize("first", range(0, 4_000, 500))
def test_functions_and_oracle_agree(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closures, "COMPILED_TESTS_MAX", -1)
    for seed in range(first, first + 500):
        random = Random(seed)
        text = random_selector(random)
        selector = parsed(text)
        messages = [random_message(random) for _ in range(20)]
        assert compile_selector(selector).match_batch(messages) == [matches(selector, m) for m in messages], text


@pytest.mark.parametrize("seed", range(12))
def test_chains_of_thousands_agree(seed: int) -> None:
    random = Random(seed)
    operator = random.choice((" OR ", " AND "))
    # Those that are nearly always so, or never, leave the others something to decide.
    parts = [f"x <> {n}" if operator == " AND " else f"x = {n}" for n in range(2_000)]
    others = [random_selector(random, 1) for _ in range(20)]
    parts += [f"({text})" for text in others if count_of_tests(normal(parsed(text).condition))]  # no constants
    random.shuffle(parts)
    selector = parsed(operator.join(parts))
    assert count_of_tests(normal(selector.condition)) > COMPILED_TESTS_MAX
    large, index = compile_selector(selector), SelectorIndex[str]()
    index.add("large", selector)
    messages = [{**random_message(random), "x": random.choice((5, 5.0, -1, "5", True, None))} for _ in range(40)]
    wanted = [matches(selector, message) for message in messages]
    assert large.match_batch(messages) == [large.match(message) for message in messages] == wanted
    assert [keys == ["large"] for keys in index.match_batch(messages)] == wanted


@pytest.mark.parametrize(
    ("literal", "value", "is_equal"),
    [("1", 1.0, True), ("1.0", 1, True), ("1", True, False), ("'1'", 1, False), ("9007199254740993", 2**53, False),
     ("9007199254740993", 9007199254740992.0, True), ("0", -0.0, True), ("1", float("nan"), False)],
)  # fmt: skip
def test_a_look_into_a_set_is_a_comparison(literal: str, value: object, is_equal: bool) -> None:
    others = " OR ".join(f"x = {-n - 5}" for n in range(1_000))
    selector = parsed(f"x = {literal} OR {others}")
    message = {"x": value}
    assert compile_selector(selector).match(message) is matches(selector, message) is is_equal


def test_what_an_evaluation_costs_is_known() -> None:
    assert weight(" OR ".join(f"a = {n}" for n in range(TERMS))) == 1
    assert weight(" AND ".join(f"a <> {n}" for n in range(TERMS))) == 1
    assert weight(" OR ".join(f"a = 'v{n}'" for n in range(TERMS))) == 1
    assert weight(" OR ".join(f"p{n} = 1" for n in range(TERMS))) == TERMS
    assert weight(" AND ".join(f"a = {n}" for n in range(TERMS))) == TERMS
    assert weight("a = " + " + ".join(["b"] * TERMS)) == TERMS
    assert weight("(" * TERMS + "a = 1" + ")" * TERMS) == 1


def test_too_many_words_and_signs_are_refused_with_the_limit() -> None:
    fits = " OR ".join(f"a BETWEEN {n} AND {n}" for n in range(TERMS))
    assert matches(parsed(fits), {"a": 9_999}) and compile_selector(parsed(fits)).match({"a": 9_999})
    with pytest.raises(SelectorError, match=f"more than {TOKENS_MAX:,} names, literals and signs"):
        parse("(" * TOKENS_MAX + "a = 1" + ")" * TOKENS_MAX)

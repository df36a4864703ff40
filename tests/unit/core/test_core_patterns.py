"""Goal: a pattern matches what the glossary says, and no pattern takes long, whatever it is.
Method: tables; a naive matcher as the oracle of globs; expressions that ruin engines which backtrack."""
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.errors import Rejected
from angarium.core.names import NAME_CHARACTERS_MAX
from angarium.core.patterns import PATTERN_CHARACTERS_MAX, NamePattern, is_glob
from angarium.core.wire.frames import PatternSyntax

_segments = st.sampled_from(["a", "b", "ab", "abc"])
_wild = st.sampled_from(["a", "b", "*", "**", "?", "a*", "*b", "a?c"])


def glob(text: str) -> NamePattern:
    return NamePattern(text, PatternSyntax.GLOB)


def regex(text: str) -> NamePattern:
    return NamePattern(text, PatternSyntax.REGEX)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders.*", ["orders.eu", "orders.a-b"], ["orders", "orders.eu.west", "order.eu", "xorders.eu"]),
        ("orders.**", ["orders", "orders.eu", "orders.eu.west"], ["ordersx", "x.orders"]),
        ("**.eu", ["eu", "a.eu", "a.b.eu"], ["xeu", "eu.a"]),
        ("a.**.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "b", "a.bb", "ab"]),
        ("**", ["a", "a.b", "a.b.c"], ["_DMQ", "_TEMP.x"]),
        ("*", ["a", "abc"], ["a.b", "_DMQ"]),
        ("_*", ["_DMQ"], ["a"]),
        ("log-?", ["log-1"], ["log-", "log-12", "log-."]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_globs(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = glob(pattern)
    assert [name for name in matching + other if compiled.matches(name)] == matching


def test_a_regular_expression_matches_whole_names() -> None:
    assert regex(r"orders\.(eu|us)").matches("orders.eu")
    assert not regex("orders").matches("orders.eu")
    assert not regex(".*").matches("_DMQ")


def naive(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(naive(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and naive_segment(pattern[0], name[0]) and naive(pattern[1:], name[1:])


def naive_segment(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(naive_segment(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and naive_segment(pattern[1:], text[1:])


@given(st.lists(_wild, min_size=1, max_size=4), st.lists(_segments, min_size=1, max_size=5))
def test_a_glob_agrees_with_a_naive_matcher(pattern: list[str], name: list[str]) -> None:
    assert glob(".".join(pattern)).matches(".".join(name)) == naive(pattern, name)


@pytest.mark.parametrize("text", ["", "a..b", ".a", "a b", "a.**b", "a[bc]", "x" * (PATTERN_CHARACTERS_MAX + 1)])
def test_bad_globs_are_refused(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        glob(text)
    assert refused.value.code == "bad-pattern"


@pytest.mark.parametrize("text", ["(", "a{2,1}", "(?=a)", r"(a)\1", "x{1000}" * 100, "(.{0,30}a){30}"])
def test_bad_and_excessive_expressions_are_refused(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        regex(text)
    assert refused.value.code == "bad-pattern"


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a?" * 200 + "a" * 200, "(.*.*.*.*)*b", "(x+x+)+y"])
def test_expressions_that_ruin_others_are_quick(text: str) -> None:
    pattern = regex(text)
    began = time.thread_time()
    for _ in range(10):
        pattern.matches("a" * NAME_CHARACTERS_MAX)
    assert time.thread_time() - began < 1.0


def test_a_name_is_no_glob() -> None:
    assert not is_glob("orders.eu-1") and is_glob("orders.*") and is_glob("a?")

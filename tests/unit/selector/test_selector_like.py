"""Goal: LIKE is right for every pattern, and quick for the worst."""
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.selector.like import _WINDOW_CHARACTERS, HARD_CHARACTERS_MAX, Pattern, _segment, check_pattern
from angarium.core.selector.naive import _like
from angarium.core.selector.parser import parse
from angarium.core.selector.syntax import SelectorError
from tests.unit.core.core_settings import THOROUGH
from tests.unit.selector.selector_cases import selects


def test_hard_patterns_of_one_selector_have_a_limit_together_and_simple_ones_none() -> None:
    half = "%" + "a_" * (HARD_CHARACTERS_MAX // 4) + "%"
    assert parse(f"x LIKE '{half}'") is not None
    assert parse(f"x LIKE '%{'a' * 20_000}%' OR x LIKE '{'_' * 20_000}'") is not None
    with pytest.raises(SelectorError, match="patterns with % and _ of more than 4,096 characters in one selector"):
        parse(f"x LIKE '{half}' OR y LIKE '{half}'")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("%", ["", "a", "%"], []),
        ("_", ["a", "_", "\U0001f600", "\n"], ["", "ab"]),
        ("a", ["a"], ["", "A", "aa"]),
        ("a%", ["a", "ab", "a\n"], ["", "ba"]),
        ("%a", ["a", "ba"], ["ab", ""]),
        ("%a%", ["a", "bab"], ["b", ""]),
        ("a%a", ["aa", "aba"], ["a"]),
        ("_%_", ["aa", "aba"], ["a", ""]),
        ("%%a__%%", ["abc", "xxabcx"], ["ab", "xa"]),
        ("%ab%ba%", ["abba", "xabxbax"], ["aba", "xxabaxx"]),
        ("%a_%_b%", ["axxb", "zaxzxbz"], ["zzaxbzz"]),
        ("a%_b%c", ["axbc", "abbc", "axxbxxc"], ["abc", "axb"]),
        (".*[a-z]+\\d", [".*[a-z]+\\d"], ["xa1"]),
        ("ab%", ["ab", "ab\U0010ffff", "ab\U0010ffff\U0010ffff"], ["a", "aa", "ac"]),
        ("a\U0010ffff%", ["a\U0010ffff", "a\U0010ffffz"], ["a", "b"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    for text in matching:
        assert selects(f"x LIKE '{pattern}'", {"x": text}), text
    for text in others:
        assert not selects(f"x LIKE '{pattern}'", {"x": text}), text


@pytest.mark.parametrize("escape", ["!", "\\", "%", "_", "a", ".", "\U0001f600"])
def test_any_character_escapes_the_special_ones_and_itself(escape: str) -> None:
    text = f"x LIKE '{escape}%{escape}_{escape}{escape}' ESCAPE '{escape}'"
    assert selects(text, {"x": f"%_{escape}"}) and not selects(text, {"x": f"xx{escape}"})


def test_an_escaped_prefix_is_a_prefix() -> None:
    text = "x LIKE 'a!%b%' ESCAPE '!'"
    assert selects(text, {"x": "a%bc"}) and not selects(text, {"x": "axbc"})


def test_an_escape_that_escapes_nothing_is_refused() -> None:
    assert check_pattern("a!", "!") == ("the escape character ends the pattern and escapes nothing", 1)
    assert check_pattern("a!!!", "!") is not None and check_pattern("a!!", "!") is None
    assert check_pattern("!a", "!") is not None and check_pattern("!a", None) is None


@THOROUGH
@given(st.text("ab_%", max_size=10), st.text("ab_", max_size=14))
def test_the_matcher_agrees_with_the_table_of_reachable_prefixes(pattern: str, text: str) -> None:
    assert Pattern(pattern, None).matches(text) == _like(pattern, None, text)


@THOROUGH
@given(st.text("ab_", min_size=1, max_size=8), st.text("ab", max_size=40), st.integers(0, 9))
def test_trying_all_places_at_once_finds_the_first(symbols: str, text: str, low: int) -> None:
    segment = _segment([None if symbol == "_" else symbol for symbol in symbols])
    places = [at for at in range(low, len(text) - len(symbols) + 1) if segment.fits(text, at)]
    assert segment._find_by_bits(text, low, len(text)) == (places[0] if places else -1)
    assert segment.find(text, low, len(text)) == (places[0] if places else -1)


def test_a_place_in_a_later_window_or_between_two_is_found() -> None:
    for before in range(_WINDOW_CHARACTERS - 4, _WINDOW_CHARACTERS + 4):
        text = "x" * before + "azb" + "x" * 5
        assert _segment(["a", None, "b"])._find_by_bits(text, 0, len(text)) == before
    assert selects("x LIKE '%a_b%'", {"x": "aa" * 5_000 + "a" * 3 + "b"})
    assert selects("x LIKE '%a_b_a%'", {"x": "axba" * 4_000 + "axbxa"})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%a" * 500 + "%b", "a" * 100_000),
        ("%a%a%a%a%a%a%a%a%b", "a" * 100_000),
        ("%" + "a" * 100 + "_" + "a" * 100 + "b%", "a" * 100_000),
        ("%" + "a_" * 200 + "b%", "a" * 100_000),
        ("%a_" * 300 + "%b", "a" * 100_000),
        ("%" + "a_b" * 100 + "c%", "aab" * 30_000),
        ("%" + "_" * 1_000 + "b", "a" * 100_000),
        ("%" * 10_000 + "b", "a" * 100_000),
    ],
)
def test_a_hostile_pattern_does_not_blow_up(pattern: str, text: str) -> None:
    began = thread_time()
    assert not Pattern(pattern, None).matches(text)
    assert thread_time() - began < 2, "backtracking would take longer than the universe has"

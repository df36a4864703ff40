"""Goal: what the index promises beside being right: sharing, limits, and keys that come and go."""
import pytest

from angarium.core.errors import LocalProtocolError
from angarium.core.selector import index as index_module
from angarium.core.selector import page
from angarium.core.selector.index import SelectorIndex
from angarium.core.selector.normal import normal
from angarium.core.selector.page import BRANCHES_MAX, EDGES_MAX, branches
from angarium.core.selector.parser import parse


def plan(text: str) -> list[tuple[list[str], bool]]:
    """The properties that each branch asks for, and whether that is all there is to know."""
    selector = parse(text)
    assert selector is not None
    return [(sorted(branch.asked), branch.exact) for branch in branches(normal(selector.condition))]


def test_simple_predicates_are_wholly_indexed() -> None:
    for text in (
        "a = 1", "a <> 'x'", "a", "NOT a", "a IS NULL", "a IN ('x', 'y')", "a NOT IN ('x')", "a BETWEEN 1 AND 2",
        "7 > a",
        "a NOT BETWEEN 1 AND 2", "a LIKE 'x%'", "a LIKE 'x'", "a NOT LIKE 'x%'", "NOT (a > 1 OR a = 'x')",
        "a = 2 * 3600",
    ):  # fmt: skip
        assert plan(text) == [(["a"], True)], text


def test_what_cannot_be_indexed_is_evaluated_behind_what_can() -> None:
    assert plan("a = 1 AND b + c > 2") == [(["a"], False)]
    assert plan("a LIKE 'x%y' AND b = 1") == [(["a", "b"], False)]
    assert plan("a > 9007199254740993") == [([], False)]
    assert plan("a = b") == [([], False)]


def test_an_or_at_the_top_becomes_branches() -> None:
    assert plan("a = 1 OR b = 2 AND c = 3") == [(["a"], True), (["b", "c"], True)]
    assert plan(" OR ".join(f"p{i} = 1" for i in range(BRANCHES_MAX + 1))) == [([], False)]


def test_what_never_matches_takes_no_place() -> None:
    contradictions = ("a = 1 AND a = 2", "a > 2 AND a < 1", "a IS NULL AND a = 1", "1 = 2 OR a = 1 AND FALSE")
    for text in ("FALSE", "a = 1 / 0", *contradictions):
        assert plan(text) == [], text
    assert plan("TRUE OR a = 1") == [([], True)]


def test_a_long_list_is_evaluated() -> None:
    texts = ", ".join(f"'{i}'" for i in range(EDGES_MAX))
    assert plan(f"a IN ({texts}) AND b = 1") == [(["b"], False)]
    index = SelectorIndex[str]()
    index.add("long", parse(f"a IN ({texts}) AND b = 1"))
    assert index.match({"a": "7", "b": 1}) == ["long"] and index.match({"a": "x", "b": 1}) == []


def test_very_many_long_lists_are_evaluated_past_a_limit_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once 400 subscriptions with 500 strings each took 14 seconds and 50 MB."""
    monkeypatch.setattr(page, "COLUMN_EDGES_MAX", 1_000)
    index = SelectorIndex[int]()
    for key in range(20):
        texts = ", ".join(f"'{key}-{number}'" for number in range(100))
        index.add(key, parse(f"a IN ({texts}) AND b = 1"))
    column = index._shelves[0].page._columns["a"]
    assert 800 <= column.edges <= 1_000
    for key in range(20):
        assert index.match({"a": f"{key}-77", "b": 1}) == [key]
        assert index.match({"a": f"{key}-77", "b": 2}) == []
    for key in range(20):
        index.remove(key)
    assert len(index) == 0 and not index._shelves[0].page._columns


def test_keys_of_one_selector_share_it() -> None:
    index = SelectorIndex[str]()
    for key in ("one", "two", "three"):
        index.add(key, parse("a = 1" if key != "two" else " ( a=1 ) "))
    assert index.match({"a": 1}) == ["one", "two", "three"]
    index.remove("one")
    index.remove("three")
    assert index.match({"a": 1}) == ["two"] and "one" not in index and len(index) == 1
    index.add("one", parse("a = 1"))
    assert sorted(index.match({"a": 1})) == ["one", "two"]
    index.remove("one")
    index.remove("two")
    assert index.match({"a": 1}) == [] and index.names == frozenset()


def test_a_key_that_meets_several_branches_comes_once() -> None:
    index = SelectorIndex[str]()
    index.add("key", parse("a = 1 OR b = 1 OR a + b = 2"))
    assert index.match({"a": 1, "b": 1}) == ["key"]


def test_a_key_without_a_selector_matches_always() -> None:
    index = SelectorIndex[str]()
    index.add("all", None)
    assert index.match({}) == ["all"] and index.match_batch([]) == []
    index.remove("all")
    assert index.match({}) == []


def test_a_key_is_added_once_and_removed_once() -> None:
    index = SelectorIndex[str]()
    index.add("key", parse("a = 1"))
    with pytest.raises(LocalProtocolError, match="'key' has a selector already"):
        index.add("key", parse("a = 2"))
    assert index.match({"a": 1}) == ["key"] and index.match({"a": 2}) == []
    index.remove("key")
    with pytest.raises(LocalProtocolError, match="'key' is not in the index"):
        index.remove("key")


def test_a_full_page_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BITS_MAX", 4)
    index = SelectorIndex[int]()
    for key in range(11):
        index.add(key, parse(f"a >= {key} OR b = {key}"))
    assert sorted(index.match({"a": 6, "b": 9})) == [0, 1, 2, 3, 4, 5, 6, 9]
    for key in range(0, 11, 2):
        index.remove(key)
    assert sorted(index.match({"a": 6, "b": 9})) == [1, 3, 5, 9]
    index.add(2, parse("a = 6"))
    assert sorted(index.match({"a": 6})) == [1, 2, 3, 5]

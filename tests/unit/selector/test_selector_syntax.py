"""Goal: what is no selector is refused when it is presented, at the character that is to blame; limits hold."""
import pytest

from angarium.core.errors import Rejected
from angarium.core.selector.parser import parse
from angarium.core.selector.syntax import DEPTH_MAX, TEXT_CHARACTERS_MAX, SelectorError
from tests.unit.selector.selector_cases import selects

# The offending character stands where ^ stands in the line below.
REFUSED = """
a = 'x' AND AND b
            ^
a = 'open
    ^
(a = 1
^
a = 1)
     ^
a = 1 b
      ^
a = 1 AMD  b = 2
      ^
=TEST 'test'
^
3+5
^
TRUE AND 3+5
         ^
a AND 'text'
      ^
NOT 5
    ^
a = (b > 3)
    ^
a = b = c
^
a = NOT b
    ^
a IS NULL = TRUE
^
'a' > b
^
a < TRUE
    ^
a + 'x' = b
    ^
-'x' = b
 ^
a BETWEEN 'a' AND 3
          ^
a BETWEEN 1 OR 2
            ^
a BETWEEN 1
           ^
(a BETWEEN 1) AND 2
            ^
a IN ()
      ^
a IN ('x' 'y')
          ^
a IN ('x',)
          ^
a IN (1)
      ^
a IN 'x'
     ^
'a' IN ('a')
^
a + 1 IN ('a')
^
a LIKE b
       ^
a LIKE 'x' ESCAPE 'ab'
                  ^
a LIKE 'x' ESCAPE ''
                  ^
a LIKE 'ab!' ESCAPE '!'
          ^
a LIKE 'a''!x' ESCAPE '!'
           ^
a ESCAPE 'x'
  ^
a IS TRUE
     ^
a IS NOT 5
         ^
a NOT b
      ^
a NOT
     ^
a = NULL
    ^
NULL
^
NOT
   ^
a =
   ^
a = 12abc
      ^
a = 1.2.3
       ^
a = 08
     ^
a = 0x
     ^
a = 9223372036854775808
    ^
a = -9223372036854775809
     ^
a = -(9223372036854775808)
      ^
a = 0x1FFFFFFFFFFFFFFFF
    ^
a = 1e309
    ^
a = 1e-400
    ^
a = 1e39F
    ^
a != 1
  ^
a = "x"
    ^
a = 1;
     ^
a = {x}
    ^
JMSReplyTo = 'x'
^
JMSRedelivered
^
a = 1 // comment
       ^
a = 5 /* no */
       ^
"""
_LINES = REFUSED.strip("\n").split("\n")


@pytest.mark.parametrize(("text", "mark"), [*zip(_LINES[::2], _LINES[1::2], strict=True)])
def test_an_error_points_at_the_offending_character(text: str, mark: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse(text)
    assert caught.value.position == mark.index("^"), caught.value
    head, line, caret = str(caught.value).split("\n")
    assert head.startswith(f"selector, column {mark.index('^') + 1}: {caught.value.problem}")
    assert line.strip() == text.strip() and caret.index("^") - 4 == mark.index("^")


def test_an_error_is_refused_for_good_and_shows_part_of_a_long_text() -> None:
    text = "a = 1 AND\n" * 1_000 + "?" + " AND a = 1" * 1_000
    with pytest.raises(Rejected) as caught:
        parse(text)
    assert caught.value.code == "bad-selector" and "column 10,001" in str(caught.value)
    assert len(str(caught.value)) < 300 and str(caught.value).count("\n") == 2
    with pytest.raises(SelectorError) as caught_token:
        parse("a = 1 '" + "x" * 100_000 + "'")
    assert len(str(caught_token.value)) < 300


def test_selectors_are_equal_whatever_their_white_space_case_and_brackets() -> None:
    assert parse("a = 1 AND b LIKE 'x'") == parse(" (a=1) and ((b like 'x')) ")
    assert parse("a = 1") != parse("a = 1.0") != parse("a = TRUE") and parse("a = 1") != parse("A = 1")
    assert parse("x / 0.0 > 1") != parse("x / -0.0 > 1")


@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_ten_thousand_terms(operator: str) -> None:
    text = f" {operator} ".join(f"p{i} = {i}" for i in range(10_000))
    message = {f"p{i}": i for i in range(10_000)}
    assert selects(text, message)
    assert selects(text, {**message, "p9999": 0}) == (operator == "OR")


def test_ten_thousand_summands() -> None:
    assert selects(" + ".join(["x"] * 10_000) + " = 10000", {"x": 1})
    assert selects(" * ".join(["x"] * 10_000) + " - 1 = 0", {"x": 1})


@pytest.mark.parametrize("opening", ["(", "NOT (", "NOT ", "- ", "-(", "+("])
def test_ten_thousand_prefixes(opening: str) -> None:
    number = opening[0] in "+-"
    text = opening * 10_000 + ("x" if number else "x = 1") + ")" * (10_000 * opening.count("("))
    assert selects(text + (" = 1" if number else ""), {"x": 1})


@pytest.mark.parametrize("step", ["NOT (b = 1 AND ({}))", "(b = 2 OR ({}))", "(b = 1 AND (b = 2 OR ({})))"])
def test_nesting_goes_to_its_limit_and_not_beyond(step: str) -> None:
    text, deepest = "x = 1", ""
    with pytest.raises(SelectorError, match=f"more than {DEPTH_MAX} operations are nested"):
        for _ in range(DEPTH_MAX):
            parse(text)
            deepest, text = text, step.format(text)
    selects(deepest, {"b": 1, "x": 1})
    for levels, problem in ((4_000, "nested"), (10_000, "nested|names, literals and signs")):
        with pytest.raises(SelectorError, match=problem):
            parse(step.split("{")[0] * levels + "x = 1" + step.split("}")[1] * levels)


def test_nested_arithmetic_goes_to_its_limit() -> None:
    levels = (DEPTH_MAX - 3) // 2
    text = "-(b + (" * levels + "b" + "))" * levels
    assert selects(f"{text} <> 7", {"b": 1})
    with pytest.raises(SelectorError, match="nested"):
        parse("-(b + (" * 9_000 + "b" + "))" * 9_000 + " = 1")


def test_a_text_beyond_the_limit_is_refused() -> None:
    fits = "a = '" + "x" * (TEXT_CHARACTERS_MAX - 6) + "'"
    assert parse(fits) is not None
    with pytest.raises(SelectorError, match=f"exceed the maximum of {TEXT_CHARACTERS_MAX:,}"):
        parse(fits + " ")


def test_nothing_of_the_text_reaches_the_generated_source() -> None:
    hostile = """__import__('os').system('x')""".replace("'", "''")
    assert selects(f"a = '{hostile}'", {"a": hostile.replace("''", "'")})
    assert selects("__import__ = 1 AND k0 = 2 AND n0 = 3 AND get = 4 AND fields = 5",
                   {"__import__": 1, "k0": 2, "n0": 3, "get": 4, "fields": 5})  # fmt: skip
    assert selects("a = '{0}{x}%s\\'", {"a": "{0}{x}%s\\"})

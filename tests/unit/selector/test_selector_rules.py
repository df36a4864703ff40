"""Goal: each rule of Jakarta Messaging 3.1, 3.8.1, in the order of the text. Every question goes to all evaluators."""
from operator import eq, ge, gt, le, lt, ne

import pytest

from angarium.core.selector.fields import WithHeaders
from angarium.core.selector.parser import parse
from tests.unit.selector.selector_cases import selects, truth

# 3.8.1.1 Message selector syntax


@pytest.mark.parametrize("text", [None, "", " ", " \t\f\r\n"])
def test_an_empty_string_is_no_selector(text: str | None) -> None:
    assert parse(text) is None


def test_order_of_evaluation_is_from_left_to_right_within_precedence() -> None:
    assert selects("7 - 4 - 2 = 1")
    assert selects("16 / 4 / 2 = 2")
    assert selects("7 / 2 * 2 = 6")
    assert selects("7 - (4 - 2) = 5")


def test_keywords_are_case_insensitive() -> None:
    assert selects("a bEtWeEn 1 and 2 Or nOt b Is Null", {"a": 1})
    assert selects("s like 'x!%' escape '!' and t not In ('a') AND tRUE", {"s": "x%", "t": "b"})


def test_a_string_literal_is_in_single_quotes_and_doubles_those_inside() -> None:
    assert selects("s = 'literal''s'", {"s": "literal's"})
    assert selects("s = ''''", {"s": "'"})
    assert selects("s = ''", {"s": ""})
    assert selects("s = 'größe\n\"\\'", {"s": 'größe\n"\\'})


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57), ("-957", -957), ("+62", 62), ("57L", 57), ("57l", 57), ("0", 0), ("0x1F", 31), ("0XfL", 15),
        ("017", 15), ("0b101", 5), ("1_000", 1000), ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0xFFFFFFFFFFFFFFFF", -1), ("0x7fffffff", 2**31 - 1), ("0xFFFFFFFF", 2**32 - 1),
    ],
)  # fmt: skip
def test_an_exact_numeric_literal_is_a_java_long(literal: str, value: int) -> None:
    assert selects(f"x = {literal}", {"x": value})
    assert not selects(f"x = {literal}", {"x": value - 1 if value > 0 else value + 1})
    assert selects(f"{literal} / 2 * 2 = x", {"x": int(value / 2) * 2 if abs(value) < 2**52 else value - value % 2})


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("7E3", 7e3), ("-57.9E2", -5790.0), ("7.", 7.0), ("-95.7", -95.7), ("+6.2", 6.2), (".5", 0.5), ("57D", 57.0),
        ("12F", 12.0), ("0.1f", 0.10000000149011612), ("1e-3d", 0.001), ("7.e2", 700.0), ("0x1.8p1", 3.0),
        ("09.5", 9.5), ("1_0.0_1", 10.01), ("1.7976931348623157e308", 1.7976931348623157e308), ("4.9e-324", 5e-324),
        ("0e9", 0.0),
    ],
)  # fmt: skip
def test_an_approximate_numeric_literal_is_a_java_double(literal: str, value: float) -> None:
    assert selects(f"x = {literal}", {"x": value})
    assert selects(f"x / 2 = {literal} / 2", {"x": value}), "a double, not a long: nothing is cut off"


def test_the_boolean_literals() -> None:
    assert selects("TRUE") and not selects("FALSE")
    assert selects("b = TRUE AND c = FALSE AND b <> c", {"b": True, "c": False})


@pytest.mark.parametrize("name", ["_", "$", "$a_1", "größe", "a€", "变量", "x\u0301", "nullable", "NOTE", "İN", "andy"])
def test_an_identifier_is_a_java_identifier(name: str) -> None:
    assert selects(f"{name} = 1", {name: 1})


def test_the_type_of_a_value_is_the_type_used_to_set_the_property() -> None:
    assert not selects("NumberOfOrders > 1", {"NumberOfOrders": "2"}), "the example of the text"
    assert truth("NumberOfOrders > 1", {"NumberOfOrders": "2"}) == "F"
    assert truth("x = '1'", {"x": 1}) == "F" == truth("x = TRUE", {"x": 1}) == truth("x = 1", {"x": True})


def test_a_property_that_does_not_exist_is_null() -> None:
    assert truth("missing = 1") == "U"
    assert selects("missing IS NULL") and not selects("missing IS NOT NULL")


def test_bytes_and_none_are_not_selectable() -> None:
    for value in (b"a", b"", None, [1], {"a": 1}):
        assert truth("x = 'a'", {"x": value}) == "U"
        assert selects("x IS NULL", {"x": value})
        assert truth("x IN ('a')", {"x": value}) == "U" == truth("x LIKE '%'", {"x": value}) == truth("x", {"x": value})


def test_identifiers_are_case_sensitive() -> None:
    assert selects("a = 1 AND A = 2", {"a": 1, "A": 2})


def test_header_fields_come_from_the_header_and_from_nowhere_else() -> None:
    header = {
        "JMSDeliveryMode": "PERSISTENT", "JMSPriority": 4, "JMSMessageID": "ID:1", "JMSTimestamp": 1_700_000_000_000,
        "JMSCorrelationID": None, "JMSType": "car", "JMSXGroupID": "a", "JMSXGroupSeq": 3,
    }  # fmt: skip
    properties = {"JMSPriority": 9, "JMSXUserID": "g", "JMS_vendor": 1, "JMSXGroupID": "forged", "color": "blue"}
    message = WithHeaders(properties, header.get)
    assert selects("JMSDeliveryMode = 'PERSISTENT' AND JMSPriority = 4 AND JMSMessageID = 'ID:1'", message)
    assert selects("JMSTimestamp > 1699999999999 AND JMSType = 'car' AND JMSCorrelationID IS NULL", message)
    assert selects("JMSXGroupID = 'a' AND JMSXGroupSeq = 3", message)
    assert selects("JMSXUserID = 'g' AND JMS_vendor = 1 AND color = 'blue'", message)


def test_header_fields_cost_nothing_unless_named() -> None:
    def never(name: str) -> object:
        raise AssertionError(f"{name} was read")

    assert selects("color = 'blue' AND JMSXUserID IS NULL", WithHeaders({"color": "blue"}, never))
    named = parse("JMSType = 'car' AND x > 1")
    assert named is not None and named.names == {"JMSType", "x"}


def test_white_space_is_javas() -> None:
    assert selects("\n\ta\f=\r1 ", {"a": 1})


def test_an_identifier_with_a_boolean_value_is_a_condition() -> None:
    assert truth("b", {"b": True}) == "T"
    assert truth("b", {"b": False}) == "F"
    assert truth("b", {}) == "U"
    assert truth("b", {"b": "true"}) == "F" == truth("b", {"b": 1})


def test_brackets_order_the_evaluation() -> None:
    assert selects("(2 + 3) * 4 = 20 AND 2 + 3 * 4 = 14")
    assert not selects("(TRUE OR TRUE) AND FALSE") and selects("TRUE OR (TRUE AND FALSE)")


def test_logical_operators_in_precedence_order_not_and_or() -> None:
    assert selects("TRUE OR TRUE AND FALSE")
    assert selects("NOT FALSE OR TRUE") and not selects("NOT (FALSE OR TRUE)")
    assert not selects("NOT TRUE AND FALSE") and selects("NOT (TRUE AND FALSE)")
    assert selects("NOT a = 1", {"a": 2}), "NOT binds less than a comparison"


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", [1, 2, 3, 1.5, 2.0])
def test_comparison_operators(operator: str, value: float) -> None:
    python = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
    wanted = python[operator](value, 2)
    assert selects(f"x {operator} 2", {"x": value}) == wanted
    assert selects(f"x {operator} 2.0", {"x": value}) == wanted
    assert selects(f"x {operator} y", {"x": value, "y": 2}) == wanted
    mirrored = operator.translate(str.maketrans("<>", "><")) if operator != "<>" else operator
    assert selects(f"2 {mirrored} x", {"x": value}) == wanted


def test_exact_and_approximate_values_are_compared_by_numeric_promotion() -> None:
    assert selects("x = 9007199254740992.0", {"x": 2**53 + 1}), "as a double the long is 2**53"
    assert selects("x = 9007199254740993", {"x": float(2**53)})
    assert not selects("x = 9007199254740993", {"x": 2**53}), "two longs are compared as longs"
    assert selects("x < y", {"x": 2**53, "y": 2**53 + 1}) and not selects("x < y", {"x": float(2**53), "y": 2**53 + 1})


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(("left", "right"), [("a", 1), (True, 1), (True, "TRUE"), (1.0, "1.0"), (False, 0)])
def test_comparing_unlike_types_is_false(operator: str, left: object, right: object) -> None:
    assert truth(f"x {operator} y", {"x": left, "y": right}) == "F"
    assert truth(f"x {operator} y", {"x": right, "y": left}) == "F"


def test_unlike_types_are_false_beside_literals_too() -> None:
    assert truth("x <> 1", {"x": "a"}) == "F" == truth("x <> 'a'", {"x": 1}) == truth("x <> TRUE", {"x": "a"})
    assert truth("x <> 1", {"x": True}) == "F" == truth("1 = 'a'") == truth("1 <> 'a'") == truth("TRUE <> 1")


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_a_comparison_with_null_is_unknown(operator: str) -> None:
    assert truth(f"x {operator} 1") == "U" == truth(f"x {operator} y", {"y": "a"}) == truth(f"x + 1 {operator} 1")


def test_string_and_boolean_comparison_is_restricted_to_equal_and_unequal() -> None:
    for operator in ("<", "<=", ">", ">="):
        assert truth(f"x {operator} y", {"x": "a", "y": "b"}) == "F" == truth(f"x {operator} y", {"x": "b", "y": "b"})
        assert truth(f"x {operator} y", {"x": False, "y": True}) == "F"
    assert selects("x <> y", {"x": "a", "y": "A"}) and selects("x = y", {"x": True, "y": True})


def test_arithmetic_operators_in_precedence_order() -> None:
    assert selects("-x * 2 + 3 = -7 AND 3 + x * -2 = -7 AND - - x = 5 AND -(x) = -5", {"x": 5})


def test_arithmetic_uses_java_numeric_promotion() -> None:
    assert selects("7 / 2 = 3 AND -7 / 2 = -3 AND 7 / -2 = -3 AND 7 / 2.0 = 3.5 AND x / 2 = 3", {"x": 7})
    assert selects("x + 1 = -9223372036854775808", {"x": 2**63 - 1}), "a long wraps around"
    assert selects("-x = x AND x / -1 = x AND x * -1 = x", {"x": -(2**63)})
    assert selects("x + 1 > 9e18", {"x": float(2**63)}), "a double does not"


def test_arithmetic_on_a_string_or_boolean_compares_false() -> None:
    for value in ("2", True):
        assert truth("x + 1 > 1", {"x": value}) == "F" == truth("x + 1 <> 1", {"x": value})
        assert truth("-x = -2", {"x": value}) == "F"
        assert truth("+x = x", {"x": value}) == "F" == truth("x * 1 = x * 1", {"x": value})
        assert truth("x + missing > 1", {"x": value}) == "U"


def test_division_by_zero_never_raises() -> None:
    assert truth("1 / 0 = 1") == "U" == truth("x / 0 > 1", {"x": 5}) == truth("x / y <> 1", {"x": 5, "y": 0})
    assert selects("1.0 / 0 > 1e308 AND -1 / 0.0 < -1e308 AND x / -0.0 < 0", {"x": 1.0})
    assert truth("0.0 / 0 = 0.0 / 0") == "F" and truth("0.0 / 0 <> 1") == "T"


def test_numbers_beyond_long_are_doubles() -> None:
    assert selects("x = 18446744073709551616.0 AND x + 1 = x AND x > 9223372036854775807", {"x": 2**64})
    assert selects("x > 1e308 AND -x < -1e308 AND x - x <> 0", {"x": 10**400})


def test_not_a_number_is_unequal_to_everything() -> None:
    nan = {"x": float("nan")}
    assert selects("x <> 1 AND x <> x AND NOT x = x AND NOT x > 1 AND NOT x <= 1", nan)
    assert not selects("x BETWEEN 0 AND 1", nan) and not selects("x NOT BETWEEN 0 AND 1", nan)


def test_between() -> None:
    for age in (14, 15, 17, 19, 20, 15.0, 19.5, "15", None, True):
        message = {"age": age}
        assert truth("age BETWEEN 15 AND 19", message) == truth("age >= 15 AND age <= 19", message)
        assert truth("age NOT BETWEEN 15 AND 19", message) == truth("age < 15 OR age > 19", message)
    assert selects("2 * x BETWEEN y - 1 AND y + 1 AND z", {"x": 2, "y": 4, "z": True})


def test_not_between_of_unlike_types_is_false() -> None:
    assert truth("age BETWEEN 15 AND 19", {"age": "17"}) == "F" == truth("age NOT BETWEEN 15 AND 19", {"age": "17"})


def test_in() -> None:
    text = "Country IN ('UK', 'US', 'France')"
    assert truth(text, {"Country": "UK"}) == "T" and truth(text, {"Country": "Peru"}) == "F"
    text = "Country NOT IN ('UK', 'US', 'France')"
    assert truth(text, {"Country": "UK"}) == "F" and truth(text, {"Country": "Peru"}) == "T"
    for value in ("UK", "Peru", 1, True, None):
        spelled = "(Country = 'UK') OR (Country = 'US') OR (Country = 'France')"
        assert truth(text, {"Country": value}) == truth(f"NOT ({spelled})", {"Country": value})


def test_in_and_like_of_null_are_unknown() -> None:
    for text in ("x IN ('a')", "x NOT IN ('a')", "x LIKE 'a'", "x NOT LIKE 'a'", "x LIKE '%'"):
        assert truth(text) == "U"


def test_like() -> None:
    assert selects("phone LIKE '12%3'", {"phone": "123"}) and selects("phone LIKE '12%3'", {"phone": "12993"})
    assert not selects("phone LIKE '12%3'", {"phone": "1234"})
    assert selects("word LIKE 'l_se'", {"word": "lose"}) and not selects("word LIKE 'l_se'", {"word": "loose"})
    escaped = r"underscored LIKE '\_%' ESCAPE '\'"
    assert selects(escaped, {"underscored": "_foo"}) and not selects(escaped, {"underscored": "bar"})
    assert selects("phone NOT LIKE '12%3'", {"phone": "1234"})
    assert not selects("phone NOT LIKE '12%3'", {"phone": "123"})
    assert not selects("phone NOT LIKE '12%3'", {"phone": "12993"})


def test_like_of_something_else_than_a_string_is_false() -> None:
    assert truth("x LIKE '%'", {"x": 1}) == "F" and truth("x NOT LIKE '%'", {"x": 1}) == "T"


def test_is_null_and_is_not_null() -> None:
    assert truth("prop_name IS NULL", {}) == "T" and truth("prop_name IS NULL", {"prop_name": ""}) == "F"
    assert truth("prop_name IS NOT NULL", {}) == "F" and truth("prop_name IS NOT NULL", {"prop_name": False}) == "T"


def test_the_example_of_cars() -> None:
    text = "JMSType = 'car' AND color = 'blue' AND weight > 2500"
    assert selects(text, {"JMSType": "car", "color": "blue", "weight": 2501})
    assert not selects(text, {"JMSType": "car", "color": "blue", "weight": 2500})
    assert not selects(text, {"JMSType": "car", "color": "red", "weight": 2501})


# 3.8.1.2 Null values: tables 3-4, 3-5 and 3-6

_OPERANDS = {"T": "t", "F": "f", "U": "u"}
_MESSAGE = {"t": True, "f": False}


@pytest.mark.parametrize("row", ["T TTFFUU", "F TFFFUF", "U TUFFUU"])
def test_table_3_4_and(row: str) -> None:
    left, cells = row.split()
    for right, wanted in zip(cells[::2], cells[1::2], strict=True):
        assert truth(f"{_OPERANDS[left]} AND {_OPERANDS[right]}", _MESSAGE) == wanted


@pytest.mark.parametrize("row", ["T TTFTUT", "F TTFFUU", "U TTFUUU"])
def test_table_3_5_or(row: str) -> None:
    left, cells = row.split()
    for right, wanted in zip(cells[::2], cells[1::2], strict=True):
        assert truth(f"{_OPERANDS[left]} OR {_OPERANDS[right]}", _MESSAGE) == wanted


@pytest.mark.parametrize(("operand", "wanted"), ["TF", "FT", "UU"])
def test_table_3_6_not(operand: str, wanted: str) -> None:
    assert truth(f"NOT {_OPERANDS[operand]}", _MESSAGE) == wanted


# 3.8.1.3 Special notes


def test_delivery_mode_is_compared_with_its_name() -> None:
    assert selects("JMSDeliveryMode = 'NON_PERSISTENT'", {"JMSDeliveryMode": "NON_PERSISTENT"})


def test_comments_are_not_supported() -> None:
    assert selects("x = 1 --1 + 1", {"x": 3}), "two minus signs are two minus signs"

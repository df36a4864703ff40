"""Goal: properties, map and stream values are read as the specification's table of conversions says, and not otherwise.
Method: the table itself, cell by cell, against one value of each type (Jakarta Messaging 3.1, 3.5.4 and 3.11.3)."""
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium import LocalProtocolError, Rejected, TypedMap, TypedStream
from angarium.client.property_names import NAME_CHARACTERS_MAX, RESERVED, check_property_name

_KINDS = ("boolean", "byte", "short", "int", "long", "float", "double", "string", "bytes")
_VALUES: dict[str, Any] = {
    "boolean": True, "byte": -128, "short": 128, "int": 1 << 16, "long": 1 << 40, "float": 1.5, "double": 0.1,
    "string": "7", "bytes": b"7",
}  # fmt: skip
_TABLE = {  # what a value of this type may be read as
    "boolean": {"boolean", "string"},
    "byte": {"byte", "short", "int", "long", "string"},
    "short": {"short", "int", "long", "string"},
    "int": {"int", "long", "string"},
    "long": {"long", "string"},
    "float": {"float", "double", "string"},
    "double": {"double", "string"},
    "string": set(_KINDS) - {"bytes"},
    "bytes": {"bytes"},
}


def reader(source: TypedMap | TypedStream, kind: str) -> Callable[[], Any]:
    if isinstance(source, TypedMap):
        return lambda: getattr(source, f"get_{kind}")("x")
    return getattr(source, f"read_{kind}")  # type: ignore[no-any-return]


def refusal(read: Callable[[], Any]) -> str:
    """The code that it is refused with; empty if it is not."""
    try:
        read()
    except Rejected as error:
        return error.code
    return ""


@pytest.mark.parametrize("written", _KINDS)
@pytest.mark.parametrize("read_as", _KINDS)
def test_the_table_of_conversions(written: str, read_as: str) -> None:
    value = _VALUES[written]
    expected = "" if read_as in _TABLE[written] else "bad-conversion"
    assert refusal(reader(TypedMap(x=value), read_as)) == expected
    assert refusal(reader(TypedStream([value]), read_as)) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, "string", "true"), (False, "string", "false"), (-5, "string", "-5"), (1.5, "string", "1.5"),
        ("TRUE", "boolean", True), ("yes", "boolean", False), ("", "boolean", False),
        ("-128", "byte", -128), ("+7", "short", 7), ("2147483647", "int", (1 << 31) - 1),
        ("9223372036854775807", "long", (1 << 63) - 1), ("1e3", "double", 1000.0), ("0.1", "double", 0.1),
        ("0.1", "float", 0.10000000149011612), ("1e300", "float", math.inf), ("-1e300", "float", -math.inf),
        (math.inf, "float", math.inf), (b"\0", "bytes", b"\0"),
    ],
)  # fmt: skip
def test_what_a_value_is_read_as(value: Any, kind: str, expected: Any) -> None:
    result = reader(TypedMap(x=value), kind)()
    assert (result, type(result)) == (expected, type(expected))


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(TypedMap(x=math.nan).get_float("x"))


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_0", " 1", "0x10", "٣", "9" * 5_000])
@pytest.mark.parametrize("kind", ["byte", "short", "int", "long"])
def test_a_string_that_is_no_number_is_told_apart(text: str, kind: str) -> None:
    assert refusal(reader(TypedMap(x=text), kind)) == "bad-number"


@pytest.mark.parametrize(("kind", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
def test_numbers_fit_or_are_refused(kind: str, bits: int) -> None:
    most = (1 << (bits - 1)) - 1
    assert reader(TypedMap(x=most), kind)() == most
    assert reader(TypedMap(x=-most - 1), kind)() == -most - 1
    assert refusal(reader(TypedMap(x=most + 1), kind)) == "bad-conversion"
    assert refusal(reader(TypedMap(x=str(most + 1)), kind)) == "bad-number"


@pytest.mark.parametrize("values", [TypedMap(), TypedMap(x=None)], ids=["missing", "nothing"])
def test_nothing_is_read_as_the_specification_reads_null(values: TypedMap) -> None:
    assert values.get_boolean("x") is False
    assert values.get_string("x") is None
    assert values.get_bytes("x") is None
    for kind in ("byte", "short", "int", "long", "float", "double"):
        assert refusal(reader(values, kind)) == "bad-number"


def test_a_default_is_for_names_that_are_missing() -> None:
    values = TypedMap(x=None, y=5)
    assert (values.get_int("z", 7), values.get_string("z", "d"), values.get_boolean("z", True)) == (7, "d", True)
    assert (values.get_double("z", 2.5), values.get_float("z", 2.5), values.get_bytes("z", b"")) == (2.5, 2.5, b"")
    assert values.get_int("y", 7) == 5
    assert refusal(lambda: values.get_int("x", 7)) == "bad-number"


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(["byte", "short", "int", "long"]))
def test_whatever_is_read_is_what_was_written(number: int, kind: str) -> None:
    values = TypedMap(x=number, text=str(number))
    code = refusal(lambda: values._integer("x", (), kind))
    if not code:
        assert values._integer("x", (), kind) == values._integer("text", (), kind) == number
    else:
        assert refusal(lambda: values._integer("text", (), kind)) == "bad-number"


def test_a_received_map_cannot_be_changed() -> None:
    values = TypedMap(x=1)
    changes: list[Callable[[], Any]] = [
        lambda: values.__setitem__("x", 2), lambda: values.__delitem__("x"), lambda: values.update(x=2),
        lambda: values.pop("x"), values.popitem, values.clear, lambda: values.setdefault("y", 1),
        lambda: values.__ior__({"y": 1}),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(LocalProtocolError, match="cannot be changed"):
            change()
    assert values == {"x": 1}
    assert dict(values) | {"x": 2} == {"x": 2}


def test_a_failed_read_leaves_the_stream_where_it_was() -> None:
    stream = TypedStream(["seven", 8])
    assert refusal(stream.read_int) == "bad-number"
    assert stream.read_string() == "seven"
    assert refusal(stream.read_boolean) == "bad-conversion"
    assert stream.read_byte() == 8
    assert refusal(stream.read_int) == "end-of-stream"
    stream.reset()
    assert (stream.read(), stream.read()) == ("seven", 8)
    assert (len(stream), stream[1], list(stream)) == (2, 8, ["seven", 8])
    assert stream == TypedStream(["seven", 8])


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "_", "$", "a1", "Größe", "nullable", "JM", "jmsX", "x" * NAME_CHARACTERS_MAX])
def test_identifiers_are_names(name: str) -> None:
    for _ in range(2):  # the second time from memory
        check_property_name(name)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a-b", "a.b", "é!", "x" * (NAME_CHARACTERS_MAX + 1), 5, None, b"a"])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(Rejected, match="property") as caught:
        check_property_name(name)
    assert caught.value.code == "bad-property"


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_words_of_the_selector_language_are_no_names_in_any_case(name: str) -> None:
    for spelled in (name, name.lower(), name.capitalize()):
        with pytest.raises(Rejected, match="selector"):
            check_property_name(spelled)


@pytest.mark.parametrize("name", [
    "JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount", "JMSXany", "JMS_vendor", "JMSPriority", "JMSFoo", "JMS",
])  # fmt: skip
def test_reserved_prefixes_are_refused_with_what_to_do(name: str) -> None:
    """Whatever begins with JMS in a selector is a header field: no selector would see such a property."""
    with pytest.raises(Rejected, match=r"send with group|use another name"):
        check_property_name(name)

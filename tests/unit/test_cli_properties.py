"""Goal: what a user writes after --property is what the message carries, or a sentence that says why not."""
import pytest

from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.properties import PropertyValue, parse_properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("region=EU", "region", "EU"),
        ("count=12", "count", 12),
        ("count=-3", "count", -3),
        ("weight=1.5", "weight", 1.5),
        ("weight=0.1", "weight", 0.1),
        ("weight=1e3", "weight", "1e3"),  # what a number would not give back as it was written stays text
        ("weight=.5", "weight", ".5"),
        ("zip=01234", "zip", "01234"),
        ("phone=+49170123", "phone", "+49170123"),
        ("price=1.10", "price", "1.10"),
        ("zero=-0", "zero", "-0"),
        ("thousand=1_000", "thousand", "1_000"),
        ("digits=" + "9" * 5_000, "digits", "9" * 5_000),
        ("urgent=true", "urgent", True),
        ("urgent=false", "urgent", False),
        ("urgent=True", "urgent", "True"),
        ("empty=", "empty", ""),
        ("formula=a=b", "formula", "a=b"),
        ("version=1.2.3", "version", "1.2.3"),
        ("word=nan", "word", "nan"),
        ("word=inf", "word", "inf"),
        ("big=9223372036854775807", "big", 9223372036854775807),
        ("bigger=9223372036854775808", "bigger", "9223372036854775808"),
        ('code:="12"', "code", "12"),
        ("code:=12", "code", 12),
        ("code:=true", "code", True),
        ("code:=null", "code", None),
        ("code:=1e3", "code", 1000.0),
    ],
)
def test_values_are_typed_by_how_they_look(text: str, key: str, value: PropertyValue) -> None:
    found = parse_properties([text])
    assert found == {key: value}
    assert type(found[key]) is type(value)


def test_a_key_has_one_value() -> None:
    with pytest.raises(Failure, match="'a' is given twice"):
        parse_properties(["a=1", "b=2", "a:=3"])


@pytest.mark.parametrize(
    "text",
    [
        "novalue", "=1", ":=1", "list:=[1]", "map:={}", "huge:=1e400", "huge:=9223372036854775808", "bad:={", "bad:=EU",
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_a_sentence_that_quotes_it(text: str) -> None:
    with pytest.raises(Failure) as refused:
        parse_properties([text])
    assert refused.value.exit_code == EXIT_USAGE
    assert text.split(":=")[0] in str(refused.value)

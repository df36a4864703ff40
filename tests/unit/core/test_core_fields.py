"""Goal: what is decoded of a message for a selector is what the selector asks for, and never makes a difference.
Method: random selectors and messages; everything decoded is the oracle."""
from itertools import accumulate
from random import Random

import msgspec
import pytest

from angarium.core.destination.fields import BatchFields
from angarium.core.destination.headers import joined, map_reader, read_map, value_reader
from angarium.core.destination.selecting import Keep, kept
from angarium.core.ranges import Range
from angarium.core.selector.compiled import compile_selector
from angarium.core.selector.parser import parse
from angarium.core.wire.batch import Batch, Values
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.selector.selector_random import random_message, random_selector

encode = msgspec.msgpack.encode
MALFORMED = (b"", b"\xc1", encode([1]), encode("text"), b"\x81\xa1a", b"\x81\xa1a\xd9\xff", b"\x91" * 5_000,
             b"\x81\xa1a\xa1\xff", b"\x81\xa1\xff\x01")  # fmt: skip


def _is_too_large(value: object) -> bool:
    """To be sent."""
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def batch_of(random: Random, count: int) -> Batch:
    rows = [
        {name: value for name, value in random_message(random).items() if not _is_too_large(value)}
        for _ in range(count)
    ]
    headers = [encode({"type": random.choice(("a", "b")), "correlation_id": "c"}) for _ in rows]
    # A property that is called like a header field is not one.
    properties = [encode({**row, "JMSType": "a", "JMSPriority": 4}) for row in rows]
    return Batch.trusted(pack(bytes(16), 1, 7, [b""] * count, MessageColumns(headers=headers, properties=properties)))


@pytest.mark.parametrize("count", [1, 15, 16, 200])
def test_a_selector_sees_the_same_whatever_else_is_decoded(count: int) -> None:
    random = Random(count)
    for _ in range(60):
        text = random_selector(random)
        if random.random() < 0.5:
            text = f"({text}) OR " + random.choice(("JMSType = 'a'", "JMSPriority > 3", "JMSTimestamp = 7"))
        selector = parse(text)
        assert selector is not None
        match, batch = compile_selector(selector).match, batch_of(random, count)
        everything, asked = BatchFields(batch), BatchFields(batch, names=selector.names)
        wanted = [match(everything[index]) for index in range(count)]
        assert [match(asked[index]) for index in range(count)] == wanted
        assert [match(fields) for fields in asked.all()] == wanted
        for index in random.sample(range(count), min(count, 20)):  # in any order, and one of them twice
            assert match(asked[index]) == match(asked[index]) == wanted[index]


def values_of(encoded: list[bytes], *, before: int = 0) -> Values:
    return Values(b"".join(encoded), list(accumulate(map(len, encoded), initial=before)))


@pytest.mark.parametrize("spoilt", [*MALFORMED, encode({"a": 1}) * 2])
def test_what_is_not_a_map_has_nothing_and_spoils_no_other(spoilt: bytes) -> None:
    sound = encode({"a": 1, "b": 2})
    read = map_reader(frozenset({"a"}))
    for before in (0, 7):  # they may lie behind others
        assert read(values_of([sound, spoilt, sound], before=before)) == [{"a": 1}, {}, {"a": 1}]
        assert read(values_of([sound, spoilt, b"", sound], before=before)) == [{"a": 1}, {}, {}, {"a": 1}]
    assert read_map(spoilt) == {}
    values = values_of([sound, spoilt, encode({"a": None}), encode({"b": 3}), b""])
    assert value_reader("a")(values, "none") == [1, "none", None, "none", "none"]


@pytest.mark.parametrize("seed", range(20))
def test_who_looks_at_many_together_finds_what_he_would_one_by_one(seed: int) -> None:
    random, base = Random(seed), 1_000
    batch = batch_of(random, random.choice((1, 64, 300, 600)))
    ranges: list[Range] = []
    at = base
    while at < base + batch.count:
        low = at + random.choice((0, 0, 1, 30))
        at = min(base + batch.count, low + random.choice((1, 5, 64, 500)))
        ranges += [(low, at)] if low < at else []
        at += 1
    text = f"({random_selector(random)}) OR JMSType = 'a'"
    selector = parse(text)
    assert selector is not None
    compiled = compile_selector(selector)
    one_by_one = Keep(lambda fields, index: compiled.match(fields[index]), selector.names)
    together = Keep(one_by_one.wants, selector.names, compiled.match_batch)
    assert kept(batch, base, ranges, together) == kept(batch, base, ranges, one_by_one)


@pytest.mark.parametrize("field", ["properties", "headers"])
def test_of_some_messages_the_same_is_read_as_of_each(field: str) -> None:
    rows = [encode({"a": number, "type": f"t{number}"}) if number % 5 else b"" for number in range(40)]
    columns = MessageColumns(properties=rows) if field == "properties" else MessageColumns(headers=rows)
    batch = Batch.trusted(pack(bytes(16), 1, 7, [b"x"] * 40, columns))
    read, part = map_reader(None), batch.properties_in if field == "properties" else batch.headers_in
    for low, high in ((0, 40), (3, 4), (5, 6), (11, 14), (7, 33)):
        values = part(low, high)
        assert values is not None and read(values) == [read_map(each) for each in rows[low:high]]
    assert Batch.trusted(pack(bytes(16), 1, 7, [b"x"])).headers_in(0, 1) is None


def test_only_what_is_asked_for_is_read() -> None:
    encoded = values_of([encode({"a": 1, "b": 2, "c": 3})] * 20)
    assert map_reader(frozenset({"b", "x"}))(encoded) == [{"b": 2}] * 20
    assert map_reader(frozenset())(encoded) == [{}] * 20
    assert map_reader(None)(encoded) == [{"a": 1, "b": 2, "c": 3}] * 20


def test_of_very_many_names_all_are_read() -> None:
    many = frozenset(f"p{number}" for number in range(60))
    assert joined(many, frozenset({"a"})) == many | {"a"}
    assert joined(many, frozenset("abcde")) is None
    assert joined(None, many) is joined(many, None) is None

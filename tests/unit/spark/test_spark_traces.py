"""Goal: trace records become the rows that the audit counts."""
from typing import Any

import msgspec
import pytest

from angarium.core.destination.tracing import VERSION, Trace
from angarium.core.errors import ConfigError
from angarium.spark.pipelines.traces import ANEW, DURABLE, PLACE_BITS, rows_of, state_of

SESSION = bytes(range(16))


def rows(*records: list[Any], number: int = 3) -> list[dict[str, Any]]:
    return list(rows_of(msgspec.msgpack.encode([VERSION, number, list(records)])))


def test_each_kind_has_its_rows() -> None:
    begun, confirmed, delivered, settled = rows(
        [Trace.BEGUN, 7, 1_000, "q", "queue", [5], True],
        [Trace.CONFIRMED, 7, 1_001, 5, 10, b"p" * 16, 100, 990, 500, SESSION],
        [Trace.DELIVERED, 7, 1_002, "", SESSION, 2, [5, 15], []],
        [Trace.SETTLED, 7, 1_003, "", SESSION, 2, [5, 15]],
    )
    assert begun["low"] == 5 and begun["flags"] == ANEW
    assert (confirmed["low"], confirmed["high"], confirmed["sequence"], confirmed["bytes"]) == (5, 15, 100, 500)
    assert confirmed["node"] == delivered["node"] == SESSION[6:11].hex()
    assert delivered["consumer"] == settled["consumer"] and delivered["consumer"].endswith("/2")
    assert [row["place"] for row in (begun, confirmed)] == [3 << PLACE_BITS, 3 << PLACE_BITS | 1]


def test_redeliveries_and_scattered_sequences_are_told_one_by_one() -> None:
    found = rows([Trace.DELIVERED, 7, 1, "", SESSION, 1, [5, 7, 9, 10], [0, 2, 0]])
    assert [(row["low"], row["high"], row["redelivered"]) for row in found] == [
        (5, 6, False), (6, 7, True), (9, 10, False),
    ]  # fmt: skip
    found = rows([Trace.CONFIRMED, 7, 1, 5, 3, b"p" * 16, [1, 4, 9], 0, 10, None])
    assert [(row["low"], row["sequence"], row["bytes"]) for row in found] == [(5, 1, 4), (6, 4, 3), (7, 9, 3)]


def test_subscriptions_and_reasons() -> None:
    came, went, ended, dropped = rows(
        [Trace.SUBSCRIBED, 7, 1, "s", True, False, []],
        [Trace.UNSUBSCRIBED, 7, 2, "s"],
        [Trace.ENDED, 7, 3, "s", "expired", [1, 2]],
        [Trace.DROPPED, 0, 4, 12],
    )
    assert came["flags"] == DURABLE and came["low"] == 0 and went["subscription"] == "s"
    assert ended["reason"] == "expired" and dropped["bytes"] == 12


def test_what_is_newer_is_refused() -> None:
    with pytest.raises(ConfigError, match="traces of version 9"):
        list(rows_of(msgspec.msgpack.encode([9, 0, []])))


def test_states_are_understood() -> None:
    subscription = {"name": "s", "durable": True, "unsettled": [1, 3, 5, 6], "until": [9]}
    told = {"name": "q", "identity": 7, "kind": "topic", "lanes": [[0, 10]], "subscriptions": [subscription]}
    state = state_of(told)
    assert state.subscriptions[0].unsettled == ((1, 3), (5, 6)) and state.lanes == ((0, 10),)

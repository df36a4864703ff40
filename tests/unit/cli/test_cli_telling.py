"""Goal: what a person is told of what he has sent is true. Method: a broker that explains as the test says."""
import asyncio
from typing import Any, cast

import pytest

import angarium
from angarium.admin.requests import Answer
from angarium.cli import sending


class Explaining:
    def __init__(self, kind: str, code: str) -> None:
        self._explained: dict[str, Any] = {
            "name": "orders", "kind": kind, "code": code, "sentence": "so it is", "figures": {}, "blocked": None,
            "subscriptions": [], "subscription_count": 0,
        }  # fmt: skip

    async def request(self, command: str, arguments: dict[str, Any] | None = None) -> Answer:
        assert command == "destination.explain"
        return angarium.Answer(self._explained, b"")


@pytest.mark.parametrize(
    ("kind", "code", "is_new", "told"),
    [
        ("queue", "no-consumer", True, "queue 'orders' was not there; it has been created"),
        ("queue", "no-consumer", False, ""),
        ("topic", "delivering", True, "topic 'orders' was not there; it has been created"),  # somebody follows 'ord*'
        ("topic", "no-subscription", True, "topic 'orders': so it is"),
        ("topic", "no-subscription", False, "topic 'orders': so it is"),
    ],
)
def test_what_became_of_it(kind: str, code: str, is_new: bool, told: str) -> None:
    connection = cast(angarium.Connection, Explaining(kind, code))
    assert asyncio.run(sending._noteworthy(connection, "orders", is_new)) == told

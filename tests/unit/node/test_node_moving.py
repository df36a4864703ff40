"""Goal: a move is cancelled only by whoever means that move."""
import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from angarium.core.errors import Rejected
from angarium.core.groups.decisions import MoveEnded
from angarium.core.groups.records import Move, Placement
from angarium.node.cluster.moving import Moving


class _Moving(Moving):
    """Group services decide whatever is asked for."""

    def __init__(self) -> None:
        groups = {name: SimpleNamespace(number=number, group=name) for number, name in enumerate("abc", start=1)}
        placement = Placement(1, (1,), moves={"orders": Move(4, 1, 2)})
        super().__init__(cast(Any, SimpleNamespace(configurations=groups, placement=placement)))
        self.decided: list[Any] = []

    async def _decided(self, decision: Any) -> str:
        self.decided.append(decision)
        return ""


def test_a_move_to_another_group_than_is_said_is_not_cancelled() -> None:
    moving = _Moving()
    with pytest.raises(Rejected, match="is being moved to group 'b', not to 'c'") as refused:
        asyncio.run(moving.cancel({"name": "orders", "group": "c"}))
    assert refused.value.code == "not-moving" and not moving.decided
    with pytest.raises(Rejected, match="'others' is not being moved"):
        asyncio.run(moving.cancel({"name": "others", "group": "b"}))


@pytest.mark.parametrize("arguments", [{"name": "orders", "group": "b"}, {"name": "orders"}])
def test_the_move_that_is_meant_is_cancelled(arguments: dict[str, str]) -> None:
    moving = _Moving()
    assert asyncio.run(moving.cancel(arguments)) == {"name": "orders", "number": 4}
    assert isinstance(moving.decided[0], MoveEnded) and moving.decided[0].number == 4

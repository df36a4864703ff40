"""Goal: in a cluster `_DMQ` means the dead message queues of all replica groups, whatever is asked of it."""
import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from angarium.admin.administration import Administration
from angarium.admin.dead_messages import DeadMessages
from angarium.core.errors import Rejected


class Cluster:
    """Two groups: in the first three messages have died, in the second five; `empty` has no such queue yet."""

    def __init__(self, empty: int = 0) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._counts = {1: 3, 2: 5}
        self._empty = empty

    async def request(self, command: str, arguments: dict[str, Any]) -> Any:
        if command == "node.groups":
            return _answer({"a": 1, "b": 2})
        if command == "cluster.where":
            return _answer({"name": arguments["name"], "group": "b", "number": 2, "is_served": True})
        group = int(arguments["name"].removeprefix("_DMQ.")) if "name" in arguments else arguments["group"]
        self.asked.append((command, group))
        if group == self._empty:
            raise Rejected("unknown-destination", "there is no destination '_DMQ'")
        return _answer(self._result(command, self._counts[group], arguments))

    def _result(self, command: str, count: int, arguments: dict[str, Any]) -> dict[str, Any]:
        match command:
            case "destination.describe" | "destination.alter":
                return {"name": "_DMQ", "kind": "queue", "messages": count, "bytes": 100 * count}
            case "destination.purge":
                return {"purged": count}
            case "destination.browse":
                return {"parts": [], "next": 9, "end": 9}
            case "dmq.summary":
                return {"next": 9, "end": 9, "groups": [{"destination": "q", "reason": "expired", "count": count}]}
        return {"next": 9, "end": 9, "moved": min(count, arguments.get("count", count)), "discarded": 0}


def _answer(result: Any) -> Any:
    return SimpleNamespace(result=result, payload=b"")


def test_the_figures_are_those_of_all_groups() -> None:
    async def look() -> None:
        found = await Administration(Cluster()).describe("_DMQ")
        assert (found.name, found.messages, found.bytes) == ("_DMQ", 8, 800)
        assert await Administration(Cluster()).purge("_DMQ") == 8
        assert (await Administration(Cluster(empty=1)).describe("_DMQ")).messages == 5
        (group,) = await DeadMessages(Cluster()).summary()
        assert group.count == 8

    asyncio.run(look())


def test_options_change_in_all_groups() -> None:
    async def change() -> list[tuple[str, Any]]:
        cluster = Cluster()
        assert (await Administration(cluster).alter("_DMQ", messages_max=9)).messages == 8
        return cluster.asked

    assert asyncio.run(change()) == [("destination.alter", 1), ("destination.alter", 2)]


def test_browsing_looks_into_all_groups() -> None:
    async def look() -> list[tuple[str, Any]]:
        cluster = Cluster(empty=1)
        assert [message async for message in Administration(cluster).browse("_DMQ", count=10)] == []
        return cluster.asked

    assert asyncio.run(look()) == [("destination.browse", 1), ("destination.browse", 2)]


@pytest.mark.parametrize(("count", "moved"), [(None, 8), (4, 4), (2, 2)])
def test_redriving_goes_on_with_the_next_group(count: int | None, moved: int) -> None:
    async def redrive() -> int:
        return (await DeadMessages(Cluster()).redrive(count=count)).moved

    assert asyncio.run(redrive()) == moved


def test_what_died_in_another_group_than_the_new_destination_stays() -> None:
    async def redrive() -> None:
        done = await DeadMessages(Cluster()).redrive(to="elsewhere")
        assert done.moved == 5
        ((code, count),) = [(staying.code, staying.count) for staying in done.staying]
        assert (code, count) == ("other-group", 3)

    asyncio.run(redrive())

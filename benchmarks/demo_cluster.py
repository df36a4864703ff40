"""The cluster of the demonstration, as its own administration shows it."""
import asyncio
import os
import signal
from typing import Any

from rich.table import Table

import angarium
from angarium.cli.local_cluster import LocalCluster, LocalNode

_LOOK_EVERY_S = 0.1


class ClusterWatch:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._nodes: list[dict[str, Any]] = []
        self._groups: dict[str, int] = {}
        self._changed = asyncio.Event()

    @property
    def summary(self) -> str:
        primaries = [f"{n['group']}: {n['name']}" for n in self._nodes if n["primary"]]
        in_sync = sum(1 for n in self._nodes if n["in_sync"])
        return f"primaries {', '.join(primaries)}; {in_sync} copies in sync"

    def node(self, name: str) -> LocalNode:
        return next(node for node in self._cluster.nodes if node.name == name)

    def kill(self, node: LocalNode) -> None:
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGKILL)
        node.process.wait()

    async def run(self) -> None:
        """Look again and again; whichever client manager answers."""
        while True:
            try:
                async with angarium.connect(self._cluster.addresses, name="watch") as connection:
                    while True:
                        self._nodes = (await connection.request("cluster.status", {})).result["nodes"]
                        self._groups = (await connection.request("node.groups", {})).result
                        self._changed.set()
                        await asyncio.sleep(_LOOK_EVERY_S)
            except angarium.Unavailable:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def primary_with(self, destination: str) -> tuple[str, str]:
        """The group that has the destination, and its primary."""
        async with angarium.connect(self._cluster.addresses) as connection:
            for group, number in (await connection.request("node.groups", {})).result.items():
                listed = (await connection.request("destination.list", {"group": number})).result
                if destination in [described["name"] for described in listed]:
                    return group, next(n["name"] for n in self._nodes if n["group"] == group and n["primary"])
        raise LookupError(f"{destination!r} is in no group")

    async def another_primary(self, group: str, than: str) -> str:
        while True:
            primaries = [n["name"] for n in self._nodes if n["group"] == group and n["primary"] and n["name"] != than]
            if primaries:
                return str(primaries[0])
            await self._look()

    async def in_sync(self, name: str) -> None:
        while not any(n["in_sync"] and n["pid"] for n in self._nodes if n["name"] == name):
            await self._look()

    async def _look(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("node", "group", "role", "state", "pid"):
            table.add_column(name, justify="right" if name == "pid" else "left", min_width=6)
        here = {str(node["name"]): node for node in self._nodes}
        for node in sorted(self._cluster.nodes, key=lambda node: node.name):
            found = here.get(node.name)
            if found is None:
                table.add_row(node.name, "", "", "gone", "", style="red")
                continue
            role = "primary" if found["primary"] else "backup" if found["group"] else "client manager"
            state = "in sync" if found["in_sync"] else "behind" if found["group"] else "up"
            style = "bold" if found["primary"] else "yellow" if state == "behind" else ""
            table.add_row(node.name, found["group"], role, state, str(found["pid"] or "?"), style=style)
        return table

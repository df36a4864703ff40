"""A real cluster of processes on this machine, to be killed, paused and started again, node by node."""
import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import angarium
from angarium.cli.local_cluster import LocalCluster, LocalNode
from tests.process.cli_forks import Forked
from tests.process.cli_node import run
from tests.process.process_broker import MIB, WAIT_S, free_port

_SMALL: Mapping[str, Mapping[str, object]] = {
    "store": {"segment_bytes": 10 * MIB},
    "destination": {"resume_grace_s": 20.0},
}


class ForkedCluster(LocalCluster):
    def start_node(self, node: LocalNode) -> None:
        node.ended_at = None
        arguments, surroundings = ("node", "--config", str(node.config)), os.environ | {"PYTHONUNBUFFERED": "1"}
        with (node.config.parent / "log").open("ab") as log:
            started = Forked(arguments, surroundings, output=log, errors=log, is_leader=True)
        node.process = cast("subprocess.Popen[bytes]", started)


class Cluster:
    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.addresses = local.addresses
        self._nodes = {node.name: node for node in local.nodes}

    def __getitem__(self, name: str) -> LocalNode:
        return self._nodes[name]

    def signal(self, name: str, number: int) -> None:
        process = self._nodes[name].process
        assert process is not None
        os.kill(process.pid, number)

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        process = self._nodes[name].process
        assert process is not None
        process.wait(WAIT_S)

    def start(self, name: str) -> None:
        self.local.start_node(self._nodes[name])

    async def until_ready(self, name: str) -> None:
        await asyncio.to_thread(self.local.await_ready, self._nodes[name], time.monotonic() + WAIT_S)

    async def status(self) -> dict[str, Any]:
        """As any client manager says that answers."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                async with angarium.connect(self.addresses) as connection:
                    found: dict[str, Any] = (await connection.request("cluster.status", {})).result
                    return found
            except angarium.Unavailable:
                assert time.monotonic() < deadline, "no client manager answers"

    async def primary_of(self, group: str) -> str:
        """As soon as there is one."""
        deadline = time.monotonic() + WAIT_S
        while True:
            nodes = (await self.status())["nodes"]
            for node in nodes:
                if node["group"] == group and node["primary"]:
                    return str(node["name"])
            assert time.monotonic() < deadline, f"group {group} has no primary: {nodes}"
            await asyncio.sleep(0.05)

    async def group_of(self, destination: str) -> str:
        """The group that has the destination."""
        async with angarium.connect(self.addresses) as connection:
            groups = (await connection.request("node.groups", {})).result
            for name, number in groups.items():
                if destination in await self._names_in(connection, number):
                    return str(name)
        raise AssertionError(f"{destination!r} is nowhere")

    async def _names_in(self, connection: angarium.Connection, group: int) -> list[str]:
        return [described["name"] for described in await self.asked(connection, "destination.list", group=group)]

    async def asked(self, connection: angarium.Connection, command: str, **arguments: object) -> Any:
        """The result of what may be asked twice: a cluster that has just started may change its primaries meanwhile."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return (await connection.request(command, arguments)).result
            except angarium.Unavailable as error:
                assert time.monotonic() < deadline, f"{command}: {error}"
                await asyncio.sleep(0.05)

    async def until_in_sync(self, group: str, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            nodes = (await self.status())["nodes"]
            in_sync = [node["name"] for node in nodes if node["group"] == group and self.is_in_sync(node)]
            if len(in_sync) == count:
                return
            assert time.monotonic() < deadline, f"group {group}: {in_sync} in sync, not {count}: {nodes}"
            await asyncio.sleep(0.1)

    def is_in_sync(self, node: dict[str, Any]) -> bool:
        """And it is the process that runs now: of one that was killed others may not know yet."""
        process = self._nodes[node["name"]].process
        return bool(node["in_sync"] and process is not None and node["pid"] == process.pid)

    def log(self, name: str) -> str:
        return (self._nodes[name].config.parent / "log").read_text(errors="replace")


def command(cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`angarium` with these arguments, in a process of its own."""
    done = run(*arguments, "--address", ",".join(cluster.addresses))
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def running_cluster(
    path: Path, *, client_managers: int = 2, groups: int = 1, copies: int = 3, buses: int = 1,
    together: bool = False, settings: Mapping[str, Mapping[str, object]] = _SMALL,
) -> Iterator[Cluster]:  # fmt: skip
    nodes = client_managers if together else client_managers + groups * copies
    local = ForkedCluster(
        path / "cluster", free_port(client_managers + nodes + buses), client_managers=client_managers, groups=groups,
        copies=copies, buses=buses, together=together, settings=settings,
    )  # fmt: skip
    local.write_configuration()
    try:
        local.start()
        yield Cluster(local)
    finally:  # without a word: how nodes stop is a test of its own, and takes seconds
        for node in local.nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait(WAIT_S)

"""Whole nodes on hosts in network namespaces; applications on a host of theirs. Usually each node is client manager and
holds a copy."""
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import angarium
from angarium.admin.commands import Commands
from angarium.cli.local_cluster import READY_S_MAX
from tests.netns.netns_hosts import GROUP, Hosts, enter
from tests.process.process_broker import WAIT_S

NODES = 3
_CLIENT_PORT, _LINK_PORT, _BUS_PORT = 4560, 4570, 4580


@dataclass(frozen=True, slots=True)
class HostShape:
    names: tuple[str, ...] = tuple(f"n{number + 1}" for number in range(NODES))  # the first three vote
    groups: tuple[str, ...] = ("a: n1 n2 n3",)
    managers: tuple[str, ...] = names
    networks: int = 1
    is_minimal: bool = False  # nodes are told the cluster's name, secret and voters, and nothing else of it
    # Settings of the cluster's buses.
    buses: Mapping[str, object] = field(
        default_factory=lambda: {"bus": f"{GROUP}:{_BUS_PORT}", "bus_interface": "eth0"}
    )


class HostCluster:
    def __init__(self, path: Path, shape: HostShape) -> None:
        self.hosts = Hosts(len(shape.names) + 1, shape.networks)
        self.shape = shape
        self.names = list(shape.names)
        managers = [self.hosts.addresses[self.names.index(name)] for name in shape.managers]
        self.addresses = [f"angarium://{address}:{_CLIENT_PORT}" for address in managers]
        self._path = path
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for number in range(len(self.names)):
            folder = self._path / self.names[number]
            folder.mkdir(parents=True)
            (folder / "node.toml").write_text(self._configuration(number))
            self._processes.append(self._started(number))
        deadline = time.monotonic() + READY_S_MAX
        for name, process in zip(self.names, self._processes, strict=True):
            while not (self._path / name / "ready").exists():
                assert process.poll() is None and time.monotonic() < deadline, self.log(name)
                time.sleep(0.05)

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        folder = self._path / self.names[number]
        command = [*self.hosts.prefix(number), sys.executable, "-m", "angarium.cli.main", "node"]
        with (folder / "log").open("ab") as log:
            return subprocess.Popen([*command, "--config", str(folder / "node.toml")], stdout=log, stderr=log)

    def signal(self, number: int, what: signal.Signals) -> None:
        """To the node there: `ip netns exec` has become it."""
        self._processes[number].send_signal(what)

    def kill(self, number: int) -> None:
        self.signal(number, signal.SIGKILL)
        self._processes[number].wait(WAIT_S)

    def start_again(self, number: int) -> None:
        self._processes[number] = self._started(number)

    def _configuration(self, number: int) -> str:
        addresses, shape = self.hosts.addresses, self.shape
        tables: dict[str, dict[str, object]] = {
            "node": {
                "name": self.names[number], "listen": f"{addresses[number]}:{_CLIENT_PORT}",
                "data": str(self._path / self.names[number]),
            },
            "cluster": {
                "name": "hosts", "secret": "only for this test, and long enough",
                "listen": f"{addresses[number]}:{_LINK_PORT}",
                "voters": [f"{name}={addresses[n]}:{_LINK_PORT}" for n, name in enumerate(self.names[:3])],
                "groups": list(shape.groups), "client_manager": self.names[number] in shape.managers, **shape.buses,
            },
            "store": {"segment_bytes": 10 << 20},
            "destination": {"resume_grace_s": 20.0},
        }  # fmt: skip
        if shape.is_minimal:
            tables["cluster"] = {key: tables["cluster"][key] for key in ("name", "secret", "voters")}
        lines: list[str] = []
        for table, settings in tables.items():
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items()), ""]
        return "\n".join(lines)

    def log(self, name: str) -> str:
        return (self._path / name / "log").read_text(errors="replace")[-3_000:]

    async def status(self, *, but: int | None = None) -> dict[str, Any]:
        """As whichever client manager says that answers; if told so, all but one are asked."""
        asked = [address for number, address in enumerate(self.addresses) if number != but]
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    async with angarium.connect(asked) as connection:
                        found: dict[str, Any] = (await connection.request("cluster.status", {})).result
                        return found
                except angarium.Unavailable:
                    await asyncio.sleep(0.1)

    async def primary(self) -> int:
        """As soon as there is one."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for node in (await self.status())["nodes"]:
                    if node["primary"]:
                        return self.names.index(node["name"])
                await asyncio.sleep(0.05)

    async def leader(self) -> int:
        """Of group services, as soon as there is one."""
        leader = ""
        async with asyncio.timeout(WAIT_S):
            while not leader:
                await asyncio.sleep(0.05)
                leader = (await self.status())["leader"]
        return self.names.index(leader)

    async def serving(self) -> dict[str, bool]:
        """Of all that answer: who says of itself that it is primary."""
        async with angarium.connect(self.addresses) as connection:
            replies = (await Commands(connection).run("replication.status")).replies
        return {reply.node: reply.result["a"]["is_serving"] for reply in replies if not reply.code}

    async def make_primary(self, number: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self.primary() != number:
                async with angarium.connect(self.addresses) as connection:
                    await connection.request("cluster.move-primary", {"group": "a", "node": self.names[number]})
                await asyncio.sleep(0.2)

    async def until_in_sync(self, count: int = NODES) -> None:
        nodes: list[dict[str, Any]] = []
        deadline = time.monotonic() + WAIT_S
        while sum(node["in_sync"] and bool(node["pid"]) for node in nodes) != count:
            assert time.monotonic() < deadline, f"{count} in sync: {nodes}"
            await asyncio.sleep(0.1)
            nodes = (await self.status())["nodes"]

    # -- the network -----------------------------------------------------------------------------------------

    def cut(self, number: int, *others: int) -> None:
        """That host hears nothing more of those, whatever it is."""
        senders = ", ".join(self.hosts.addresses[other] for other in others)
        self.hosts.lose(number, f"ip saddr {{ {senders} }}")

    def heal(self) -> None:
        for number in range(len(self.names)):
            self.hosts.heal(number)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(WAIT_S)
        self.hosts.end()

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """On the applications' host: sockets of a thread are made in the thread's namespace."""
        failures: list[BaseException] = []

        def play() -> None:
            try:
                enter(self.hosts.name(len(self.names)))
                asyncio.run(_awaited(scenario))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=play)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]


async def _awaited(scenario: Callable[[], Awaitable[None]]) -> None:
    await scenario()


@contextmanager
def host_cluster(path: Path, shape: HostShape | None = None) -> Iterator[HostCluster]:
    cluster = HostCluster(path, shape or HostShape())
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()

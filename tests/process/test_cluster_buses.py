"""Goal: a cluster runs on several buses, in both arrangements: each replica group on one bus and client managers on
all, or each client manager on one and copies on all. What a bus carries is what it is there for, and no other's;
fail-over works as on one.
Method: real processes on loopback, and a stranger who listens to both buses."""
import asyncio
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

import angarium
from tests.process.bus_tap import BusTap
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import MIB, WAIT_S

COUNT, SIZE = 512, 2_048  # of one portion: 1 MiB for each group
PORTION = COUNT * SIZE
LITTLE = PORTION // 8  # orders, without the payloads that they refer to
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "store": {"segment_bytes": 10 * MIB}, "destination": {"resume_grace_s": 20.0},
}  # fmt: skip


class Groups:
    """A queue in each group, and what was sent there."""

    def __init__(self, names: dict[str, str], numbers: dict[str, int]) -> None:
        self.names = names
        self.numbers = numbers
        self.sent: dict[str, list[bytes]] = {group: [] for group in names}

    async def send(self, address: str | list[str]) -> None:
        """A portion to each, confirmed."""
        async with angarium.connect(address) as connection, connection.session() as session:
            for group, name in self.names.items():
                bodies = [b"%s %d " % (group.encode(), len(self.sent[group]) + n) for n in range(COUNT)]
                bodies = [body.ljust(SIZE, b".") for body in bodies]
                await asyncio.wait_for(session.send_many(name, bodies), WAIT_S)
                self.sent[group] += bodies

    async def check_received(self, address: str | list[str]) -> None:
        """Everything, once, in order."""
        async with angarium.connect(address) as connection, connection.session() as session:
            for group, name in self.names.items():
                consumer, bodies = session.consume(name), list[bytes]()
                while len(bodies) < len(self.sent[group]):
                    messages = await consumer.receive_batch(1_000, WAIT_S)
                    assert messages, f"{len(bodies)} of {len(self.sent[group])} have come from group {group}"
                    for message in messages:
                        bodies.append(message.body)
                        message.settle()
                assert bodies == self.sent[group]


async def _ask(cluster: Cluster, command: str, **arguments: str) -> Any:
    async with angarium.connect(cluster.addresses) as connection:
        return (await connection.request(command, arguments)).result


async def _groups(cluster: Cluster) -> Groups:
    names: dict[str, str] = {}
    async with angarium.connect(cluster.addresses) as connection:
        numbers = (await connection.request("node.groups", {})).result
        for number in range(100):
            place = (await connection.request("cluster.where", {"name": f"queue{number}"})).result
            names.setdefault(place["group"], f"queue{number}")
    return Groups(dict(sorted(names.items())), numbers)


async def _until_multicast(cluster: Cluster, *, but: Collection[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Each node's buses, once all others on them hear it there; `but`: on these there is nobody else."""
    async with asyncio.timeout(WAIT_S):
        while True:
            nodes = (await cluster.status())["nodes"]
            buses = [bus for node in nodes for bus in node["buses"]]
            if all(bus["bus"] in but or (bus["multicast"] and not bus["tcp"]) for bus in buses):
                return {node["name"]: node["buses"] for node in nodes}
            await asyncio.sleep(0.1)


async def _incarnation(address: str) -> str:
    """Of the client manager there: as which it sends."""
    async with angarium.connect(address) as connection:
        return str((await connection.request("node.status", {})).result["incarnation"])


def _addresses(buses: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    return {bus["bus"]: bus["address"] for mine in buses.values() for bus in mine}


def test_each_group_has_a_bus_and_client_managers_are_on_all(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=2, groups=2, copies=2, buses=2, settings=SETTINGS) as cluster:

        async def story() -> None:
            buses = await _until_multicast(cluster)
            on = {node: [bus["bus"] for bus in mine] for node, mine in buses.items()}
            assert on == {
                "a1": ["bus1"], "a2": ["bus1"], "b1": ["bus2"], "b2": ["bus2"],
                "cm1": ["bus1", "bus2"], "cm2": ["bus1", "bus2"],
            }  # fmt: skip
            with pytest.raises(angarium.Rejected, match="'b1' is on bus bus2, replica group 'a' on bus1") as refused:
                await _ask(cluster, "cluster.add-copy", group="a", node="b1")
            assert refused.value.code == "other-bus"
            groups = await _groups(cluster)
            a, b = groups.numbers["a"], groups.numbers["b"]
            with BusTap(_addresses(buses), groups=2) as tap:
                await groups.send(cluster.addresses[0])
                primary = await cluster.primary_of("a")
                cluster.kill(primary)
                await groups.send(cluster.addresses[1])
                assert await cluster.primary_of("a") != primary
                await groups.check_received(cluster.addresses)
                for bus, channel, other in (("bus1", a, b), ("bus2", b, a)):
                    assert 2 * PORTION <= tap.data_bytes(bus, channel=channel) < 3 * PORTION, "once for all copies"
                    assert tap.data_bytes(bus, channel=other) == 0

        asyncio.run(story())


def test_each_client_manager_has_a_bus_and_copies_are_on_all(tmp_path: Path) -> None:
    settings = {**SETTINGS, "cluster": {"bus": "", "buses": ["red: cm1", "blue: cm2"]}}
    with running_cluster(tmp_path, client_managers=2, groups=2, copies=2, settings=settings) as cluster:

        async def story() -> None:
            buses = await _until_multicast(cluster)
            on = {node: [bus["bus"] for bus in mine] for node, mine in buses.items()}
            both = ["red", "blue"]
            assert on == {"a1": both, "a2": both, "b1": both, "b2": both, "cm1": ["red"], "cm2": ["blue"]}
            groups = await _groups(cluster)
            with BusTap(_addresses(buses), groups=2) as tap:
                cm1, cm2 = [await _incarnation(address) for address in cluster.addresses]
                await groups.send(cluster.addresses[0])
                assert 2 * PORTION <= tap.data_bytes("red", sender=cm1) < 3 * PORTION
                assert tap.data_bytes("blue") < LITTLE, "only orders of one group: payloads went over the other bus"
                primary = await cluster.primary_of("a")
                cluster.kill(primary)
                cluster.kill("cm1")
                await groups.send(cluster.addresses)
                assert await cluster.primary_of("a") != primary
                await groups.check_received(cluster.addresses)
                assert 2 * PORTION <= tap.data_bytes("blue", sender=cm2) < 3 * PORTION
                assert tap.data_bytes("red", sender=cm2) == tap.data_bytes("blue", sender=cm1) == 0

        asyncio.run(story())


def test_a_cluster_that_runs_is_given_another_bus_node_by_node(tmp_path: Path) -> None:
    """Those that are already on it, and those that are not yet, go on together."""
    with running_cluster(tmp_path, client_managers=1, copies=2, settings=SETTINGS) as cluster:

        async def change(node: str) -> None:
            file = cluster[node].config
            lines = [line for line in file.read_text().splitlines() if not line.startswith("bus = ")]
            file.write_text("\n".join(lines).replace("[cluster]", '[cluster]\nbuses = ["red: a1 a2", "blue"]'))
            cluster.signal(node, signal.SIGTERM)
            process = cluster[node].process
            assert process is not None
            assert await asyncio.to_thread(process.wait, WAIT_S) == 0
            cluster.start(node)
            await cluster.until_ready(node)
            await cluster.until_in_sync("a", 2)

        async def story() -> None:
            groups = await _groups(cluster)
            await groups.send(cluster.addresses)
            await change("a1")
            trouble = (await cluster.status())["trouble"]
            assert len(trouble) == 1 and trouble[0].startswith("node a1 has other buses than cm1: "), trouble
            assert "blue=239.192." in trouble[0]
            await groups.send(cluster.addresses)
            await change("a2")
            await change("cm1")
            await groups.send(cluster.addresses)
            buses = await _until_multicast(cluster, but=("blue",))
            on = {node: [bus["bus"] for bus in mine] for node, mine in buses.items()}
            assert on == {"a1": ["red"], "a2": ["red"], "cm1": ["red", "blue"]}
            assert (await cluster.status())["trouble"] == []
            await groups.check_received(cluster.addresses)

        asyncio.run(story())

"""Goal: buses fail one by one. When the interface with which a client manager is on one of two buses goes away, the
group of that bus is served over TCP until it is back, and the group of the other one does not notice.
Method: whole nodes in network namespaces with three networks: links and clients, red, blue."""
import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import angarium
from tests.netns.netns_cluster import HostCluster, HostShape, host_cluster
from tests.netns.netns_hosts import why_not
from tests.process.process_broker import WAIT_S

_WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
SHAPE = HostShape(
    names=("a1", "b1", "cm", "a2"), groups=("a: a1 a2", "b: b1"), managers=("cm",), networks=3,
    buses={"buses": ["red: a1 a2", "blue: b1"], "bus_interfaces": ["red=eth1", "blue=eth2"]},
)  # fmt: skip
CM, RED = SHAPE.names.index("cm"), 1
SIZE, BURST = 1_024, 20
UNDISTURBED_S = 1.0  # less than it takes to find out that somebody does not hear (`unheard_s`)


class Stream:
    """One application that sends to one queue, as fast as it is confirmed."""

    def __init__(self, address: str, queue: str) -> None:
        self.sent = 0
        self.longest_s = 0.0  # until a burst was confirmed
        self._address, self._queue = address, queue
        self._is_over = False

    async def run(self) -> None:
        async with angarium.connect(self._address) as connection, connection.session() as session:
            while not self._is_over:
                began = time.monotonic()
                bodies = [b"%d" % number for number in range(self.sent, self.sent + BURST)]
                await asyncio.wait_for(session.send_many(self._queue, [b.ljust(SIZE) for b in bodies]), WAIT_S)
                self.sent += BURST
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                await asyncio.sleep(0.01)

    async def more(self, count: int) -> None:
        wanted = self.sent + count
        async with asyncio.timeout(WAIT_S):
            while self.sent < wanted:  # noqa: ASYNC110 (another task sends)
                await asyncio.sleep(0.02)

    async def check(self) -> None:
        """All of it is there, once, in order."""
        self._is_over = True
        async with angarium.connect(self._address) as connection, connection.session() as session:
            consumer, numbers = session.consume(self._queue), list[int]()
            while len(numbers) < self.sent:
                for message in await consumer.receive_batch(1_000, WAIT_S):
                    numbers.append(int(message.body))
                    message.settle()
        assert numbers == list(range(len(numbers)))


async def _buses(cluster: HostCluster) -> dict[str, dict[str, Any]]:
    """Of the client manager."""
    nodes = (await cluster.status())["nodes"]
    return {bus["bus"]: bus for node in nodes if node["name"] == "cm" for bus in node["buses"]}


async def _until(cluster: HostCluster, red: list[str]) -> None:
    """Until the client manager reaches these over TCP for want of the red bus; and nobody for want of the blue one."""
    buses: dict[str, dict[str, Any]] = {}
    async with asyncio.timeout(WAIT_S):
        while not buses or sorted(buses["red"]["tcp"]) != red or buses["blue"]["tcp"]:
            await asyncio.sleep(0.1)
            buses = await _buses(cluster)


async def _queues(cluster: HostCluster) -> dict[str, str]:
    names: dict[str, str] = {}
    async with angarium.connect(cluster.addresses) as connection:
        for number in range(100):
            place = (await connection.request("cluster.where", {"name": f"queue{number}"})).result
            names.setdefault(place["group"], f"queue{number}")
    return names


async def _epochs(cluster: HostCluster) -> dict[str, int]:
    return {group["group"]: group["epoch"] for group in (await cluster.status())["groups"]}


def test_the_interface_of_one_bus_goes_and_the_other_bus_does_not_notice(tmp_path: Path) -> None:
    with host_cluster(tmp_path, SHAPE) as cluster:

        async def story() -> None:
            await cluster.until_in_sync(3)
            await _until(cluster, red=[])
            queues, epochs = await _queues(cluster), await _epochs(cluster)
            a, b = (Stream(cluster.addresses[0], queues[group]) for group in ("a", "b"))
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(stream.run()) for stream in (a, b)]
                await a.more(200)
                await b.more(200)
                b.longest_s = 0.0
                cluster.hosts.pull_out(CM, RED)
                blue, sent = (await _buses(cluster))["blue"], b.sent
                await _until(cluster, red=["a1", "a2"])
                await a.more(500)
                await b.more(500)
                after = (await _buses(cluster))["blue"]
                assert after["sent_bytes"] - blue["sent_bytes"] >= (b.sent - sent - 2 * BURST) * SIZE, "by multicast"
                assert b.longest_s < UNDISTURBED_S < a.longest_s, "one waited until the self-test knew, the other not"
                assert (await _buses(cluster))["blue"]["tcp"] == []
                cluster.hosts.plug_in(CM, RED)
                await _until(cluster, red=[])
                await a.more(200)
                for stream in (a, b):
                    await stream.check()
                await asyncio.gather(*running)
            assert await _epochs(cluster) == epochs, "nobody was put out, nobody took over"

        cluster.run(story)

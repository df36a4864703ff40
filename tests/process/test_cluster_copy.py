"""Goal: a copy of a replica group that is new is made from a backup where there is one, not from the primary, which has
enough to do; what is copied is compressed on its way; and whoever of the two is killed, the copy is made, by itself.
Method: real processes; what passes between them is read from the kernel, which counts the bytes of each link."""
import asyncio
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import MIB, WAIT_S
from tests.process.process_links import received_bytes, why_not
from tests.process.process_traffic import Traffic

_WHY_NOT = why_not()
MESSAGES = 8_000
# Of what is stored: a copy that is not compressed has all of it, and headers. What is said beside it (heartbeats,
# decisions, orders of nobody's messages) is a few KB in the seconds that this takes.
SHARE_MAX, BESIDE_MAX = 0.5, 0.02
SEEN_MIN = 0.3  # of what is stored: compressed it is more than that


def _bodies() -> list[bytes]:
    """Text about as repetitive as what applications send: a third is left when it is compressed."""
    chance = random.Random(1)
    words = [f"{chance.choice('bcdfgklmnprst')}{chance.choice('aeiou')}{n:x}" for n in range(300)]
    return [" ".join(chance.choices(words, k=200)).encode() for _ in range(MESSAGES)]


def _pids(cluster: Cluster) -> dict[str, int]:
    return {node.name: node.process.pid for node in cluster.local.nodes if node.process is not None}


async def _replace_disk(cluster: Cluster, name: str, copies: int) -> None:
    """It loses its copy, and makes a new one."""
    cluster.kill(name)
    await cluster.until_in_sync("a", copies - 1)
    shutil.rmtree(cluster[name].config.parent / "replica-a")
    cluster.start(name)
    await cluster.until_in_sync("a", copies)


async def _counted(cluster: Cluster, name: str, copies: int) -> Counter[str]:
    """What it has received from whom since it was started to make a new copy."""
    await _replace_disk(cluster, name, copies)
    return received_bytes(_pids(cluster), name)


@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.parametrize("copies", (3, 2), ids=("from the other backup", "from the primary, for there is nobody else"))
def test_a_new_backup_copies_from_a_backup_and_compressed(tmp_path: Path, copies: int) -> None:
    async def run(cluster: Cluster) -> None:
        bodies = _bodies()
        stored = sum(map(len, bodies))
        await cluster.until_in_sync("a", copies)
        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await session.send_many("orders", bodies)
        primary = await cluster.primary_of("a")
        *hosts, new = [name for name in ("a1", "a2", "a3")[:copies] if name != primary]
        host = hosts[0] if hosts else primary
        received = await _counted(cluster, new, copies)
        assert await cluster.primary_of("a") == primary
        print(f"{stored:,} bytes are stored; {new} has received {dict(received)}, {primary} is primary")
        others = sum(received.values()) - received[host]
        assert stored * SEEN_MIN <= received[host] <= stored * SHARE_MAX, "compressed"
        assert others <= stored * BESIDE_MAX, "from one that is in sync, and not the primary if there is another"
        await _same_from(cluster, new, bodies)

    with running_cluster(tmp_path, client_managers=1, copies=copies) as cluster:
        asyncio.run(run(cluster))


@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.parametrize("compresses", (True, False), ids=("text", "a film"))
def test_content_of_very_large_messages_comes_from_a_backup_too(tmp_path: Path, compresses: bool) -> None:
    """Compressed if that makes it shorter; and as it is otherwise, with hardly more than that."""
    content = b"\n".join(_bodies()) if compresses else random.Random(2).randbytes(12 * MIB)
    low, high = (SEEN_MIN, SHARE_MAX) if compresses else (1.0, 1.02)

    async def run(cluster: Cluster) -> None:
        await cluster.until_in_sync("a", 3)
        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await session.send_stream("films", [content])
        primary = await cluster.primary_of("a")
        host, new = (name for name in ("a1", "a2", "a3") if name != primary)
        received = await _counted(cluster, new, 3)
        assert await cluster.primary_of("a") == primary
        print(f"{len(content):,} bytes are stored; {new} has received {dict(received)}, {primary} is primary")
        assert len(content) * low <= received[host] <= len(content) * high
        assert sum(received.values()) - received[host] <= len(content) * BESIDE_MAX
        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await _made_primary(cluster, connection, new)
            message = await session.receive("films", WAIT_S)
            assert message is not None
            async with message.open() as stream:
                assert await stream.read() == content
            await message.settle()

    with running_cluster(tmp_path, client_managers=1) as cluster:
        asyncio.run(run(cluster))


@pytest.mark.parametrize("victim", ("host", "guest"))
def test_a_copy_is_made_though_one_of_the_two_is_killed_in_the_middle(tmp_path: Path, victim: str) -> None:
    """While traffic goes on. Nobody has to come back for it but the one that is to have the copy."""
    settings = {"store": {"segment_bytes": 10 * MIB}, "replication": {"range_bytes": 64 << 10}}
    with running_cluster(tmp_path, client_managers=1, settings=settings) as cluster:
        bodies = _bodies()

        async def faults(traffic: Traffic) -> None:
            with traffic.slowly():
                await traffic.more_confirmed(200)
                primary = await cluster.primary_of("a")
                host, guest = (name for name in ("a1", "a2", "a3") if name != primary)
                percent: int | None = None
                while percent is None:
                    cluster.kill(guest)
                    traffic.note_fault()
                    await cluster.until_in_sync("a", 2)
                    shutil.rmtree(cluster[guest].config.parent / "replica-a")
                    cluster.start(guest)
                    percent = await _copying(cluster, guest)
                cluster.kill(host if victim == "host" else guest)
                print(f"{victim} killed at {percent} %")
                traffic.note_fault()
                if victim == "guest":
                    cluster.start(guest)
                await cluster.until_in_sync("a", 2 if victim == "host" else 3)
                if victim == "host":
                    cluster.start(host)
                    await cluster.until_in_sync("a", 3)
                await _same_from(cluster, guest, bodies)
                traffic.note_fault()

        async def run() -> None:
            await cluster.until_in_sync("a", 3)
            async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
                await session.send_many("orders", bodies)
            await Traffic(cluster.addresses).run(faults)

        asyncio.run(run())


async def _copying(cluster: Cluster, name: str) -> int | None:
    """In the middle of it: how many percent. None: it was over before anybody saw it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            await asyncio.sleep(0.01)
            rows = (await cluster.status())["nodes"]
            row = next(row for row in rows if row["name"] == name and row["group"])
            percent: int | None = row["copied_percent"]
            if percent is not None and 3 <= percent <= 80:
                return percent
            if cluster.is_in_sync(row):
                return None


async def _made_primary(cluster: Cluster, connection: angarium.Connection, name: str) -> None:
    while await cluster.primary_of("a") != name:
        await cluster.asked(connection, "cluster.move-primary", group="a", node=name)
        await asyncio.sleep(0.05)


async def _same_from(cluster: Cluster, name: str, bodies: list[bytes]) -> None:
    """The copy is one: made primary, it has everything."""
    async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
        await _made_primary(cluster, connection, name)
        consumer, received = session.consume("orders"), list[bytes]()
        while len(received) < len(bodies):
            for message in await consumer.receive_batch(1_000, 20.0):
                received.append(message.body)
                message.settle()
    assert received == bodies

"""Goal: a queue is moved to another replica group with the very large messages that it holds, whichever primary is
killed while their content is copied; who is sending one, or reading one, goes on where the queue is then; and no file
stays where it was. Method: real processes, kill -9 in the middle, content compared by hash, directories looked into."""
import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S
from tests.process.process_traffic import EAGER
from tests.process.test_cluster_moving import OTHER, ask, begin, until, until_moved

_PART_BYTES = 1 << 20
_PARTS = 40


def content(seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(_PART_BYTES) for _ in range(_PARTS)]


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


async def sent(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def taken(session: angarium.Session) -> str:
    """The next one, read and settled; its hash."""
    message = await session.receive("films", WAIT_S)
    assert message is not None
    found = hashlib.sha256()
    async with message.open() as stream:
        while data := await stream.read(_PART_BYTES):
            found.update(data)
    await message.settle()
    return found.hexdigest()


def files(data: Path) -> list[Path]:
    return [path for path in data.rglob("streams/*") if path.is_file()]


async def until_no_files(data: Path) -> None:
    """Nobody has any, in whatever group; nor has one who was away when they were deleted."""
    deadline = time.monotonic() + WAIT_S
    while found := files(data):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_primary_is_killed_while_content_is_copied(tmp_path: Path, victim: str) -> None:
    films = [content(1), content(2)]

    async def run(cluster: Cluster) -> None:
        async with angarium.connect(cluster.addresses, reconnect=EAGER) as connection, connection.session() as session:
            for parts in films:
                await asyncio.wait_for(session.send_stream("films", sent(parts)), 2 * WAIT_S)
            target = await begin(cluster, "films")
            await until(cluster, lambda moves: bool(moves["moving"]) and moves["moving"][0]["bytes"] > 8 * _PART_BYTES)
            primary = await cluster.primary_of(OTHER[target] if victim == "source" else target)
            assert (await ask(cluster, "cluster.moves"))["moving"], "it is still in the middle"
            cluster.kill(primary)
            await until_moved(cluster, "films", target)
            assert [await asyncio.wait_for(taken(session), 2 * WAIT_S) for _ in films] == list(map(digest, films))
            await session.sync()
        assert files(tmp_path / "cluster" / primary), "it was away"
        cluster.start(primary)
        await cluster.until_in_sync("a", 2)
        await cluster.until_in_sync("b", 2)
        await until_no_files(tmp_path)

    with running_cluster(tmp_path, client_managers=1, groups=2, copies=2) as cluster:
        asyncio.run(run(cluster))


def test_who_sends_and_who_reads_go_on_where_it_is(tmp_path: Path) -> None:
    parts = content(3)

    async def run(cluster: Cluster) -> None:
        async def move() -> None:
            await until_moved(cluster, "films", await begin(cluster, "films"))

        async def interrupted() -> AsyncIterator[bytes]:
            for number, part in enumerate(parts):
                if number == _PARTS // 2:
                    await move()
                yield part

        async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
            await asyncio.wait_for(session.send_stream("films", interrupted()), 3 * WAIT_S)
            message = await session.receive("films", WAIT_S)
            assert message is not None
            found = hashlib.sha256()
            async with message.open() as stream:
                found.update(await stream.read(_PARTS * _PART_BYTES // 3))
                await move()
                while data := await stream.read(_PART_BYTES):
                    found.update(data)
            assert found.hexdigest() == digest(parts)
            await message.settle()
            await session.sync()
        await until_no_files(tmp_path)

    with running_cluster(tmp_path, client_managers=2, groups=2, copies=2) as cluster:
        asyncio.run(run(cluster))

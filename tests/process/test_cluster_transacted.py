"""Goal: a transaction over destinations of two replica groups is all or nothing, whichever primary or client manager
dies under it, and whether or not its session comes back; also of messages of any length.
Method: messages are moved from a queue of one group to one of the other; afterwards each is in exactly one, once."""
import asyncio
import io
import random
import signal
from pathlib import Path

import pytest

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S
from tests.process.process_drain import left
from tests.process.process_traffic import EAGER

_MESSAGES = 300
_GIVES_UP = angarium.ReconnectPolicy(give_up_after_s=1.0)


async def _two_queues(cluster: Cluster, connection: angarium.Connection) -> tuple[str, str]:
    """Of different groups."""
    names: dict[str, str] = {}
    for number in range(20):
        name = f"queue.{number}"
        await cluster.asked(connection, "destination.create", name=name, kind="queue")
        names.setdefault(await cluster.group_of(name), name)
        if len(names) == 2:
            return names["a"], names["b"]
    raise AssertionError(f"all in one group: {names}")


async def _move(session: angarium.TransactedSession, source: str, target: str) -> None:
    consumer = session.consume(source, prefetch=20)
    moved = 0
    while moved < _MESSAGES:
        messages = await consumer.receive_batch(7, WAIT_S)
        for message in messages:
            session.send(target, message.body)
        try:
            await asyncio.wait_for(session.commit(), WAIT_S)
            moved += len(messages)
        except angarium.Rejected:
            await session.rollback()  # aborted: all of it comes again


def test_both_primaries_are_killed_under_transactions(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=1, groups=2, copies=2) as cluster:

        async def run() -> None:
            async with angarium.connect(cluster.addresses, reconnect=EAGER) as connection:
                source, target = await _two_queues(cluster, connection)
                async with connection.session() as filling:
                    await filling.send_many(source, [b"%d" % n for n in range(_MESSAGES)])
                async with connection.session(transacted=True) as session:
                    assert isinstance(session, angarium.TransactedSession)
                    moving = asyncio.create_task(_move(session, source, target))
                    for group in ("a", "b"):
                        await asyncio.sleep(0.3)
                        primary = await cluster.primary_of(group)
                        cluster.kill(primary)
                        cluster.start(primary)
                        await cluster.until_in_sync(group, 2)
                    await asyncio.wait_for(moving, 2 * WAIT_S)
                await _assert_moved(cluster, connection, source, target)

        asyncio.run(run())


async def _assert_moved(cluster: Cluster, connection: angarium.Connection, source: str, target: str) -> None:
    found = [message.body for message in await left(connection, target)]
    assert sorted(found, key=int) == [b"%d" % n for n in range(_MESSAGES)]
    described = await cluster.asked(connection, "destination.describe", name=source)
    assert (described["messages"], described["in_flight"]) == (0, 0)


def test_client_managers_are_killed_under_transactions(tmp_path: Path) -> None:
    """The coordinator is gone: its client commits again at another one."""
    with running_cluster(tmp_path, client_managers=2, groups=2, copies=2) as cluster:

        async def run() -> None:
            async with angarium.connect(cluster.addresses, reconnect=EAGER) as connection:
                source, target = await _two_queues(cluster, connection)
                async with connection.session() as filling:
                    await filling.send_many(source, [b"%d" % n for n in range(_MESSAGES)])
                async with connection.session(transacted=True) as session:
                    assert isinstance(session, angarium.TransactedSession)
                    moving = asyncio.create_task(_move(session, source, target))
                    for name in ("cm1", "cm2", "cm1"):
                        await asyncio.sleep(0.3)
                        cluster.kill(name)
                        await asyncio.sleep(0.3)
                        cluster.start(name)
                        await cluster.until_ready(name)
                    await asyncio.wait_for(moving, 2 * WAIT_S)
                await _assert_moved(cluster, connection, source, target)

        asyncio.run(run())


def test_who_is_in_doubt_finds_out_though_nobody_comes_back(tmp_path: Path) -> None:
    """The primary that is to decide stands still when the other group has prepared; then client manager and client die.
    Nobody is left but the two groups: what was locked is free again, what was sent is there or is not."""
    with running_cluster(tmp_path, client_managers=2, groups=2, copies=2) as cluster:

        async def run() -> None:
            async with angarium.connect(cluster.addresses[1], reconnect=EAGER) as connection:
                target, source = await _two_queues(cluster, connection)  # group a decides, b prepares
                async with connection.session() as filling:
                    await filling.send_many(source, [b"%d" % n for n in range(_MESSAGES)])
                decider = await cluster.primary_of("a")
                client = angarium.connect(cluster.addresses[0], reconnect=_GIVES_UP)
                async with client as other:
                    session = other.session(transacted=True)
                    assert isinstance(session, angarium.TransactedSession)
                    for message in await session.consume(source, prefetch=7).receive_batch(7, WAIT_S):
                        session.send(target, message.body)
                    await asyncio.sleep(0.2)  # its producer is open
                    cluster.signal(decider, signal.SIGSTOP)
                    commit = asyncio.create_task(session.commit())
                    await _until_locked(cluster, connection, source, is_locked=True)
                    cluster.kill("cm1")
                    with pytest.raises(angarium.AngariumError):
                        await asyncio.wait_for(commit, WAIT_S)
                cluster.signal(decider, signal.SIGCONT)
                await _until_locked(cluster, connection, source, is_locked=False)
                moved = [message.body for message in await left(connection, target)]
                stayed = [message.body for message in await left(connection, source)]
                assert sorted(moved + stayed, key=int) == [b"%d" % n for n in range(_MESSAGES)]
                assert len(moved) in (0, 7)

        asyncio.run(run())


async def _until_locked(
    cluster: Cluster, connection: angarium.Connection, name: str, *, is_locked: bool
) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            described = await cluster.asked(connection, "destination.describe", name=name)
            if bool(described["locked"]) == is_locked:
                return
            await asyncio.sleep(0.02)


def test_a_stream_and_a_message_of_another_group_are_sent_together(tmp_path: Path) -> None:
    """Whichever of the two groups has the stream; and the primaries that have prepared it are killed."""
    body = random.Random(1).randbytes(3 << 20)
    with running_cluster(tmp_path, client_managers=1, groups=2, copies=2) as cluster:

        async def run() -> None:
            async with angarium.connect(cluster.addresses, reconnect=EAGER) as connection:
                names = await _two_queues(cluster, connection)
                async with connection.session(transacted=True) as session:
                    for large, small in (names, names[::-1]):
                        await session.send_stream(large, io.BytesIO(b"given up"))
                        session.send(small, b"given up")
                        await session.rollback()
                        await session.send_stream(large, io.BytesIO(body))
                        session.send(small, b"beside it")
                        await asyncio.wait_for(session.commit(), WAIT_S)
                for group in ("a", "b"):
                    primary = await cluster.primary_of(group)
                    cluster.kill(primary)
                    cluster.start(primary)
                    await cluster.until_in_sync(group, 2)
                for name in names:
                    async with connection.session() as session:
                        for _ in range(2):
                            message = await session.receive(name, WAIT_S)
                            assert message is not None
                            async with message.open() as stream:
                                assert await stream.read() in (body, b"beside it")
                            await message.settle()
                        assert await session.receive(name, 0.2) is None

        asyncio.run(run())

"""Goal: a transaction over destinations of two replica groups is all or nothing, whichever primary dies under it.
Method: messages are moved from a queue of one group to one of the other; afterwards each is in exactly one, once."""
import asyncio
from pathlib import Path

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S
from tests.process.process_drain import left
from tests.process.process_traffic import EAGER

_MESSAGES = 300


async def _two_queues(cluster: Cluster, connection: angarium.Connection) -> tuple[str, str]:
    """Of different groups."""
    names: dict[str, str] = {}
    for number in range(20):
        name = f"queue.{number}"
        await connection.request("destination.create", {"name": name, "kind": "queue"})
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
                found = [message.body for message in await left(connection, target)]
                assert sorted(found, key=int) == [b"%d" % n for n in range(_MESSAGES)]
                described = (await connection.request("destination.describe", {"name": source})).result
                assert (described["messages"], described["in_flight"]) == (0, 0)

        asyncio.run(run())

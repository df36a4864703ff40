"""Goal: a destination is moved from one replica group to another while applications use it, whichever primary is killed
in the middle: nothing confirmed is lost, nothing is doubled, order holds, and the move finishes by itself.
Method: traffic through the public client on real processes (process_traffic.py), and a queue that is large enough to be
killed in the middle of; compared by count and hash."""
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S
from tests.process.process_ledger import assert_same, body_of
from tests.process.process_traffic import EAGER, Traffic
from tests.process.test_cluster_commands import command

OTHER = {"a": "b", "b": "a"}
HOARD, HOARD_MESSAGES, HOARD_BODY_BYTES = "hoard", 30_000, 1_000


async def ask(cluster: Cluster, what: str, **arguments: Any) -> Any:
    """Whichever client manager answers."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            async with angarium.connect(cluster.addresses, reconnect=EAGER) as connection:
                return (await connection.request(what, arguments)).result
        except angarium.Unavailable:
            assert time.monotonic() < deadline, f"nobody answers {what}"


async def begin(cluster: Cluster, name: str) -> str:
    """To the other group; which that is."""
    target = OTHER[(await ask(cluster, "cluster.where", name=name))["group"]]
    await ask(cluster, "cluster.move-destination", name=name, group=target)
    return target


async def until(cluster: Cluster, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_S
    while not what(moves := await ask(cluster, "cluster.moves")):
        assert time.monotonic() < deadline, str(moves)
        await asyncio.sleep(0.01)
    return dict(moves)


async def until_moved(cluster: Cluster, name: str, target: str) -> None:
    await until(cluster, lambda moves: not any(move["name"] == name for move in moves["moving"]))
    assert (await ask(cluster, "cluster.where", name=name))["group"] == target
    await ask(cluster, "destination.describe", name=name)  # until it is open there


def test_queues_and_topics_are_moved_under_load(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=2, groups=2, copies=2) as cluster:

        async def faults(traffic: Traffic) -> None:
            for name in ("work", "news", "work", "news"):
                await traffic.more_confirmed(1_000)
                traffic.note_fault()
                target = await begin(cluster, name)
                await until_moved(cluster, name, target)
                assert await cluster.group_of(name) == target
                traffic.note_fault()
                await traffic.more_confirmed(1_000)

        asyncio.run(Traffic(cluster.addresses).run(faults))


async def fill(cluster: Cluster) -> list[bytes]:
    bodies = [body_of("hoarder", number, HOARD_BODY_BYTES) for number in range(HOARD_MESSAGES)]
    async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
        for at in range(0, len(bodies), 1_000):
            await asyncio.gather(*(_sent(session, body) for body in bodies[at : at + 1_000]))
    return bodies


async def _sent(session: angarium.Session, body: bytes) -> None:
    await session.send(angarium.Queue(HOARD), body)


@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_primary_is_killed_in_the_middle_of_a_move(tmp_path: Path, victim: str) -> None:
    """And others go on sending to what is moved, and are confirmed in the end."""
    with running_cluster(tmp_path, client_managers=1, groups=2, copies=2) as cluster:

        async def run() -> None:
            bodies = await fill(cluster)
            target = await begin(cluster, HOARD)
            late = asyncio.create_task(_send_late(cluster))
            await until(cluster, lambda moves: bool(moves["moving"]) and moves["moving"][0]["rows"] > 20)
            primary = await _primary_now(cluster, OTHER[target] if victim == "source" else target)
            assert (await ask(cluster, "cluster.moves"))["moving"], "it is still in the middle"
            cluster.kill(primary)
            await until_moved(cluster, HOARD, target)
            assert await cluster.group_of(HOARD) == target
            bodies += await asyncio.wait_for(late, WAIT_S)
            received = await asyncio.wait_for(_take(cluster, len(bodies)), WAIT_S)
            assert received[:HOARD_MESSAGES] == bodies[:HOARD_MESSAGES], "in order"
            assert_same(received, bodies)
            assert (await ask(cluster, "destination.describe", name=HOARD))["messages"] == 0

        asyncio.run(run())


async def _primary_now(cluster: Cluster, group: str) -> str:
    groups = (await ask(cluster, "cluster.status"))["groups"]
    return next(str(found["primary"]) for found in groups if found["group"] == group)


async def _send_late(cluster: Cluster) -> list[bytes]:
    bodies = [body_of("late", number, HOARD_BODY_BYTES) for number in range(200)]
    async with angarium.connect(cluster.addresses, reconnect=EAGER) as connection, connection.session() as session:
        for body in bodies:
            await session.send(angarium.Queue(HOARD), body)
    return bodies


async def _take(cluster: Cluster, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
        async for message in session.consume(angarium.Queue(HOARD), prefetch=5_000):
            found.append(message.body)
            await message.settle()
            if len(found) == count:
                break
        await session.sync()
    return found


def test_the_command_says_what_it_does(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=1, groups=2, copies=1) as cluster:

        def run(*arguments: str) -> tuple[int, str, str]:
            done = command(capfd, cluster, *arguments)
            return done.code, done.out, done.err

        assert run("send", "orders", "hello")[0] == 0
        source = asyncio.run(cluster.group_of("orders"))
        target = OTHER[source]
        code, out, err = run("cluster", "move-destination", "orders", target, "--json")
        assert code == 0 and json.loads(out) == {"name": "orders", "group": target, "moved": True}
        assert f"'orders' is in group '{target}'" in err
        code, _, err = run("cluster", "move-destination", "orders", target)
        assert code == 0 and "already" in err
        listed = next(line for line in run("ls")[1].splitlines() if line.startswith("orders"))
        assert listed.split()[2] == target and f"{target}, primary {target}1" in run("describe", "orders")[1]
        assert run("receive", "orders", "--count", "1", "--timeout", "20")[1] == "hello\n"
        assert f'"orders":"{target}"' in run("admin", "cluster.moves", "--json")[1]
        code, _, err = run("cluster", "move-destination", "orders", source)
        assert code == 0 and f"'orders' is in group '{source}'" in err, "back where its name belongs"
        assert '"orders"' not in run("admin", "cluster.moves", "--json")[1], "and no exception any more"
        for group in ("a", "b"):
            code, _, err = run("cluster", "move-destination", "nothing", group, "--timeout", "20")
            assert code == 1 and "there is no destination 'nothing'" in err
        code, _, err = run("cluster", "move-destination", "orders", "z")
        assert code == 1 and "there is no replica group 'z'; there are a, b" in err
        code, _, err = run("cluster", "move-destination", "orders", source, "--cancel")
        assert code == 1 and "not being moved" in err

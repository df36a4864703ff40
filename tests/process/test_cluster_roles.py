"""Goal: every role of a cluster can be paused, restarted, moved and short of disk under load, and applications go on:
nothing confirmed is lost, nothing is doubled, order holds.
Method: traffic through the public client, on real processes; see process_traffic.py."""
import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import angarium
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import MIB, WAIT_S
from tests.process.process_bulk import BULK, BulkProducer, mounted
from tests.process.process_drain import drain
from tests.process.process_ledger import assert_same
from tests.process.process_traffic import Traffic

PAUSE_S = 3.0  # longer than it takes to be given up
ROLES = ("client manager", "primary", "backup", "leader")


async def _playing(cluster: Cluster, role: str) -> str:
    """The name of a node that has the role now."""
    primary = await cluster.primary_of("a")
    match role:
        case "client manager":
            return "cm1"
        case "primary":
            return primary
        case "backup":
            return next(name for name in ("a3", "a2", "a1") if name != primary)
    return str((await cluster.status())["leader"])


def _run(cluster: Cluster, faults: Callable[[Traffic], Awaitable[None]]) -> None:
    async def run() -> None:
        await Traffic(cluster.addresses).run(faults)

    asyncio.run(run())


@pytest.mark.parametrize("role", [role for role in ROLES if role != "primary"])
def test_whoever_is_paused_and_resumes_harms_nobody(tmp_path: Path, role: str) -> None:
    """A primary: test_cluster_kill.py."""
    with running_cluster(tmp_path) as cluster:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(500)
            name = await _playing(cluster, role)
            cluster.signal(name, signal.SIGSTOP)
            traffic.note_fault()
            await asyncio.sleep(PAUSE_S)
            cluster.signal(name, signal.SIGCONT)
            await traffic.more_confirmed(1_000)
            await cluster.until_in_sync("a", 3)
            traffic.note_fault()

        _run(cluster, faults)


def test_the_leader_is_killed_and_comes_back(tmp_path: Path) -> None:
    """One that is no primary: nobody needs it for a message, and another one decides. Primaries, backups and client
    managers: test_cluster_kill.py."""
    with running_cluster(tmp_path, groups=2, copies=2) as cluster:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(500)
            leader = str((await cluster.status())["leader"])
            async with angarium.connect(cluster.addresses) as connection:
                await connection.request("cluster.drain", {"node": leader})
            await _until(cluster, lambda status: not any(n["primary"] for n in status["nodes"] if n["name"] == leader))
            await traffic.everybody_goes_on(500)
            cluster.kill(leader)
            await traffic.everybody_goes_on(500)
            await _until(cluster, lambda status: status["leader"] not in ("", leader))
            cluster.start(leader)
            for group in ("a", "b"):
                await cluster.until_in_sync(group, 2)
            traffic.note_fault()

        _run(cluster, faults)


async def _until(cluster: Cluster, is_so: Callable[[dict[str, Any]], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if is_so(await cluster.status()):
                return
            await asyncio.sleep(0.1)


def test_every_role_is_stopped_cleanly_and_started_again(tmp_path: Path) -> None:
    """As in an upgrade, one after the other."""
    with running_cluster(tmp_path) as cluster:

        async def faults(traffic: Traffic) -> None:
            for role in ROLES:
                await traffic.more_confirmed(500)
                name = await _playing(cluster, role)
                cluster.signal(name, signal.SIGTERM)
                process = cluster[name].process
                assert process is not None
                code = await asyncio.to_thread(process.wait, WAIT_S)
                assert code == 0, f"{role} {name}: {cluster.log(name)[-2_000:]}"
                traffic.note_fault()
                await traffic.more_confirmed(500)
                with traffic.slowly():
                    cluster.start(name)
                    await cluster.until_ready(name)
                    await cluster.until_in_sync("a", 3)
            traffic.note_fault()

        _run(cluster, faults)


def test_copies_and_primaries_are_moved_by_the_administrator(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:

        async def ask(command: str, **arguments: str) -> None:
            async with angarium.connect(cluster.addresses) as connection:
                await connection.request(f"cluster.{command}", arguments)

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(500)
            primary = await cluster.primary_of("a")
            successor = next(name for name in ("a1", "a2", "a3") if name != primary)
            await ask("move-primary", group="a", node=successor)
            await _until_primary(cluster, lambda name: name == successor)
            await traffic.more_confirmed(500)
            await ask("remove-copy", group="a", node=primary)
            await cluster.until_in_sync("a", 2)
            await traffic.more_confirmed(500)
            await ask("add-copy", group="a", node=primary)
            await cluster.until_in_sync("a", 3)
            await ask("drain", node=successor)
            await _until_primary(cluster, lambda name: name != successor)
            traffic.note_fault()
            await traffic.more_confirmed(500)
            await ask("undrain", node=successor)
            traffic.note_fault()

        _run(cluster, faults)


async def _until_primary(cluster: Cluster, is_so: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so(primary := await cluster.primary_of("a")):
        assert time.monotonic() < deadline, f"{primary} is still primary"
        await asyncio.sleep(0.1)


def test_a_backup_without_room_is_left_behind_and_comes_back_when_there_is_some(tmp_path: Path) -> None:
    with _small_disk_of(tmp_path, "a3") as cluster:
        filler = tmp_path / "cluster" / "a3" / "filler"

        async def run() -> None:
            if await cluster.primary_of("a") == "a3":
                await _make_primary(cluster, "a1")
            filler.write_bytes(bytes(28 * MIB))
            async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
                producer = BulkProducer(session, 6_000)  # 24 MB
                producer.start()
                await producer.finished()
            await cluster.until_in_sync("a", 2)
            filler.unlink()
            await cluster.until_in_sync("a", 3)
            assert_same((await drain(cluster.addresses, BULK, at_least=6_000)).bodies, producer.bodies)

        asyncio.run(run())


def test_a_primary_without_room_blocks_producers_until_consumers_have_emptied_it(tmp_path: Path) -> None:
    with _small_disk_of(tmp_path, "a1") as cluster:

        async def run() -> None:
            if await cluster.primary_of("a") != "a1":
                await _make_primary(cluster, "a1")
            async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
                producer = BulkProducer(session, 14_000)
                producer.start()
                assert (await producer.blocked()).startswith("disk-full: ")
                assert producer.confirmed() < len(producer.bodies)
                draining = drain(cluster.addresses, BULK, at_least=len(producer.bodies))
                inbox, _ = await asyncio.gather(draining, producer.finished())
            assert_same(inbox.bodies, producer.bodies)
            assert inbox.disorders == []
            await cluster.until_in_sync("a", 3)

        asyncio.run(run())


def test_a_client_manager_without_room_goes_on(tmp_path: Path) -> None:
    """It keeps no messages: what it cannot write is its own log, and what is changed of its settings."""
    with _small_disk_of(tmp_path, "cm1") as cluster:
        filler = tmp_path / "cluster" / "cm1" / "filler"

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(500)
            _fill(filler)
            await traffic.everybody_goes_on(1_000)
            async with angarium.connect(cluster.addresses) as connection:
                await connection.request("config.set", {"key": "session.links_max", "value": 900})
            primary = await cluster.primary_of("a")
            cluster.kill(primary)
            traffic.note_fault()
            await traffic.everybody_goes_on(1_000)
            cluster.start(primary)
            await cluster.until_in_sync("a", 3)
            assert cluster["cm1"].process is not None and cluster["cm1"].process.poll() is None
            traffic.note_fault()

        _run(cluster, faults)


def test_a_leader_without_room_does_not_keep_others_from_deciding(tmp_path: Path) -> None:
    """Whether it writes decisions where it has room already, or another one leads: a primary is replaced."""
    with _small_disk_of(tmp_path, "a3") as cluster:
        filler = tmp_path / "cluster" / "a3" / "filler"

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(500)
            await _make_leader(cluster, "a3")
            if await cluster.primary_of("a") == "a3":
                await _make_primary(cluster, "a1")
            await cluster.until_in_sync("a", 3)
            _fill(filler)
            primary = await cluster.primary_of("a")
            cluster.kill(primary)
            traffic.note_fault()
            await _until_primary(cluster, lambda name: name not in ("", "None", primary))
            filler.unlink(missing_ok=True)
            cluster.start(primary)
            await traffic.everybody_goes_on(1_000)
            await cluster.until_in_sync("a", 3)
            traffic.note_fault()

        _run(cluster, faults)


async def _make_leader(cluster: Cluster, name: str) -> None:
    """Whoever leads before it stands still, until somebody else does."""
    deadline = time.monotonic() + WAIT_S
    while (leader := str((await cluster.status())["leader"])) != name:
        assert time.monotonic() < deadline, f"{leader} leads"
        cluster.signal(leader, signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        cluster.signal(leader, signal.SIGCONT)
        await cluster.until_in_sync("a", 3)


def _fill(path: Path) -> None:
    """All that there is; what nodes have written may have done so before."""
    with contextlib.suppress(OSError), path.open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()


@contextlib.contextmanager
def _small_disk_of(path: Path, name: str) -> Iterator[Cluster]:
    (path / "cluster").mkdir()
    with mounted(path / "cluster" / name, 62), running_cluster(path) as cluster:
        yield cluster


async def _make_primary(cluster: Cluster, name: str) -> None:
    async with angarium.connect(cluster.addresses) as connection:
        await connection.request("cluster.move-primary", {"group": "a", "node": name})
    await _until_primary(cluster, lambda primary: primary == name)

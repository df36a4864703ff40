"""Goal: group services serve users, too: named groups whose members every node lists alike, in the order in which they
joined, without those who died; and other nodes can be made to vote, also in place of one whose disk is lost.
Method: real processes, asked over the commands that there are, and killed."""
import asyncio
import shutil
import time
from pathlib import Path

import angarium
from angarium.admin.commands import Commands, Composite
from tests.process.cluster_processes import Cluster, command, running_cluster
from tests.process.process_broker import WAIT_S
from tests.process.process_traffic import Traffic

Members = list[tuple[str, str]]  # node, label


async def _run(cluster: Cluster, name: str, node: str = "", **arguments: str) -> Composite:
    async with angarium.connect(cluster.addresses) as connection:
        return await Commands(connection).run(name, arguments, node=node)


async def _members(cluster: Cluster, group: str) -> dict[str, Members]:
    """As each node says."""
    return {
        reply.node: [(member["node"], member["label"]) for member in reply.result.get(group, [])]
        for reply in (await _run(cluster, "groups.named")).replies
    }


async def _until_all_say(cluster: Cluster, group: str, wanted: Members, nodes: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = await _members(cluster, group)
        if len(found) == nodes and all(members == wanted for members in found.values()):
            return
        assert time.monotonic() < deadline, f"group {group}: {found}, not {wanted}"
        await asyncio.sleep(0.1)


async def _all_four(cluster: Cluster) -> Members:
    """Each joins when it is in the view."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = (await _members(cluster, "everybody"))["cm1"]
        if sorted(found) == [("a1", ""), ("a2", ""), ("a3", ""), ("cm1", "")]:
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)


def test_members_of_named_groups_are_the_same_list_for_all(tmp_path: Path) -> None:
    settings = {"cluster": {"named_groups": ["everybody"]}}

    async def run(cluster: Cluster) -> None:
        first, *others = await _all_four(cluster)
        await _until_all_say(cluster, "everybody", [first, *others], 4)

        for node, label in (("a3", ""), ("a1", "eth0"), ("cm1", ""), ("a1", "eth1")):
            (reply,) = (await _run(cluster, "groups.join", node, group="night", label=label)).replies
            assert not reply.code, reply
            assert (reply.result[-1]["node"], reply.result[-1]["label"]) == (node, label), "the last one to join"
        await _until_all_say(cluster, "night", [("a3", ""), ("a1", "eth0"), ("cm1", ""), ("a1", "eth1")], 4)
        await _run(cluster, "groups.leave", "a1", group="night", label="eth0")
        await _until_all_say(cluster, "night", [("a3", ""), ("cm1", ""), ("a1", "eth1")], 4)
        (reply,) = (await _run(cluster, "groups.leave", "a1", group="night", label="eth0")).replies
        assert reply.code == "not-here" and "is not in group 'night'" in reply.reason
        (reply,) = (await _run(cluster, "groups.join", "a1", group="x" * 256)).replies
        assert reply.code == "too-long"

        cluster.kill("a3")  # who dies is in no group any more, and when it is back, it is the last
        await _until_all_say(cluster, "night", [("cm1", ""), ("a1", "eth1")], 3)
        left = [member for member in (first, *others) if member[0] != "a3"]
        await _until_all_say(cluster, "everybody", left, 3)
        assert "named-group-left: a3 was in 'night'; left are cm1, a1/eth1" in cluster.log("cm1")
        cluster.start("a3")
        await _until_all_say(cluster, "everybody", [*left, ("a3", "")], 4)
        await _until_all_say(cluster, "night", [("cm1", ""), ("a1", "eth1")], 4)

    with running_cluster(tmp_path, client_managers=1, settings=settings) as cluster:
        asyncio.run(run(cluster))


def test_a_voter_whose_disk_is_lost_is_replaced_by_another_node(tmp_path: Path) -> None:
    """Under load. Afterwards its vote is not missed: not when another voter dies, and not when all nodes lose power."""
    with running_cluster(tmp_path, client_managers=2) as cluster:

        async def faults(traffic: Traffic) -> None:
            await traffic.more_confirmed(500)
            cluster.kill("a3")
            traffic.note_fault()
            for lost in ("node", "replica-a"):
                shutil.rmtree(cluster["a3"].config.parent / lost)
            with traffic.slowly():
                done = await asyncio.to_thread(command, cluster, "cluster", "set-voters", "a1", "a2", "cm1")
            assert done.returncode == 0 and "a1, a2, cm1 decide now" in done.stderr, done.stderr
            assert (await cluster.status())["voters"] == ["a1", "a2", "cm1"]
            with traffic.slowly():
                cluster.start("a3")  # to hold a copy, as before; it decides nothing any more
                await cluster.until_in_sync("a", 3)
            assert (await cluster.status())["voters"] == ["a1", "a2", "cm1"]
            cluster.kill("a1")
            traffic.note_fault()
            await traffic.more_confirmed(500)
            await _lose_power(cluster, traffic, but="a1")

        async def run() -> None:
            await Traffic(cluster.addresses).run(faults)

        asyncio.run(run())


def test_voters_are_added_online(tmp_path: Path) -> None:
    """Under load: from one to three, and to five; of which two may then be lost, the first one among them."""
    with running_cluster(tmp_path, client_managers=3) as cluster:

        async def faults(traffic: Traffic) -> None:
            for voters in (["a1"], ["a1", "cm2", "cm3"], ["a1", "a2", "a3", "cm2", "cm3"]):
                await traffic.more_confirmed(300)
                with traffic.slowly():
                    done = await asyncio.to_thread(command, cluster, "cluster", "set-voters", *voters, "--yes")
                assert done.returncode == 0, done.stderr
                assert (await cluster.status())["voters"] == voters
            for name in ("a1", "cm3"):
                cluster.kill(name)
                traffic.note_fault()
            await traffic.everybody_goes_on(300)
            done = await asyncio.to_thread(command, cluster, "config", "set", "destination.resume_grace_s", "21")
            assert "4 of 6 nodes answered; not a1" in done.stderr, "it is decided, and told who does not know it"
            assert (await cluster.status())["has_majority"]

        async def run() -> None:
            await Traffic(cluster.addresses).run(faults)

        asyncio.run(run())


async def _lose_power(cluster: Cluster, traffic: Traffic, *, but: str) -> None:
    """All at once; all come back but one."""
    names = [node.name for node in cluster.local.nodes if node.name != but]
    for name in names:
        cluster.kill(name)
    traffic.note_fault()
    with traffic.slowly():
        for name in names:
            cluster.start(name)
        for name in names:
            await cluster.until_ready(name)
    await traffic.more_confirmed(500)
    traffic.note_fault()


def test_voters_that_no_file_names_are_found(tmp_path: Path) -> None:
    """By a client manager that starts, and by each other after a power cut."""
    with running_cluster(tmp_path, client_managers=4, copies=3) as cluster:
        assert command(cluster, "cluster", "set-voters", "cm1", "cm2", "cm3").returncode == 0
        assert command(cluster, "send", "orders", "kept").returncode == 0
        cluster.kill("cm4")
        cluster.start("cm4")
        asyncio.run(cluster.until_ready("cm4"))
        names = [node.name for node in cluster.local.nodes]
        for name in names:
            cluster.kill(name)
        for name in names:
            cluster.start(name)
        received = command(cluster, "receive", "orders", "--count", "1", "--wait", "60", "--timeout", "60")
        assert (received.returncode, received.stdout) == (0, "kept\n"), received.stderr


def test_who_cannot_vote_is_not_made_to(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=1, copies=1) as cluster:
        for names, why in (
            (("cm1", "a1"), "name one, three or five nodes"),
            (("cm1", "a1", "a1"), "cm1, a1, a1: name one, three or five nodes, each once"),
            (("cm9",), "'cm9' is not in the cluster just now: start it first"),
        ):
            done = command(cluster, "cluster", "set-voters", *names, "--yes")
            assert done.returncode == 1 and why in done.stderr, done.stderr
        assert command(cluster, "cluster", "set-voters", "cm1").returncode == 0, "the only one is replaced, too"
        assert asyncio.run(cluster.status())["voters"] == ["cm1"]

"""Goal: three hosts are one server, whatever the network between them does: it loses multicast, is cut one way,
divides them into a majority and a minority or each from each, takes an interface away. Where a majority is left
applications go on meanwhile, whomever they are connected to, else when it has healed: nothing confirmed is lost,
nothing is doubled, order holds. There is no storm: repairs stay within their budget on the wire.

Method: whole nodes in network namespaces, traffic from a fourth host (tests/process/process_traffic.py)."""
import asyncio
import time
from pathlib import Path

import pytest

from tests.netns.netns_cluster import NODES, HostCluster, HostShape, host_cluster
from tests.netns.netns_hosts import why_not
from tests.netns.netns_traffic import CUT_S, run_through
from tests.process.process_broker import WAIT_S
from tests.process.process_traffic import Traffic

_WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)


async def _until_all_by_multicast(cluster: HostCluster) -> None:
    """Everybody has found out that it works with everybody else; who was too busy to answer is tried again."""
    wanted: list[tuple[int, list[str]]] = [(len(cluster.names) - 1, [])] * len(cluster.names)
    found: list[tuple[int, list[str]]] = []
    deadline = time.monotonic() + WAIT_S
    while found != wanted:
        assert time.monotonic() < deadline, f"others by multicast, and over TCP: {found}"
        buses = [bus for node in (await cluster.status())["nodes"] for bus in node["buses"]]
        found = [(bus["multicast"], bus["tcp"]) for bus in buses]
        await asyncio.sleep(0.1)


def test_machines_need_to_know_name_secret_and_voters_and_nothing_else(tmp_path: Path) -> None:
    """The voters hold a group, a fourth machine is client manager; multicast is found to work."""
    names = ("n1", "n2", "n3", "n4")
    with host_cluster(tmp_path, HostShape(names=names, managers=names, is_minimal=True)) as cluster:

        async def scenario() -> None:
            await cluster.until_in_sync()
            nodes = {node["name"]: node for node in (await cluster.status())["nodes"]}
            assert [nodes[name]["role"] for name in names] == ["mm", "mm", "mm", "cm"]
            assert [nodes[name]["address"] for name in names] == [f"{at}:4570" for at in cluster.hosts.addresses[:4]]
            await Traffic(cluster.addresses[3:]).run(lambda traffic: traffic.more_confirmed(2_000))
            await _until_all_by_multicast(cluster)

        cluster.run(scenario)


@pytest.mark.parametrize("percent", (1, 5, 20))
def test_multicast_is_lost(tmp_path: Path, percent: int) -> None:
    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        for number in range(NODES):
            cluster.hosts.lose_multicast(number, percent)
        await traffic.more_confirmed(3_000)
        cluster.heal()
        await cluster.until_in_sync()

    run_through(tmp_path, faults, percent=percent)


@pytest.mark.parametrize("is_deaf", (True, False), ids=("to the primary", "from the primary"))
def test_one_direction_is_cut(tmp_path: Path, is_deaf: bool) -> None:
    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        primary = await cluster.primary()
        pair = (primary, (primary + 1) % NODES)
        cluster.cut(*(pair if is_deaf else pair[::-1]))
        traffic.note_fault()
        await asyncio.sleep(CUT_S)
        await traffic.everybody_goes_on(500)
        cluster.heal()
        await traffic.more_confirmed(1_000)
        await cluster.until_in_sync()

    run_through(tmp_path, faults)


def test_two_are_cut_off_from_each_other_and_not_from_the_third(tmp_path: Path) -> None:
    """Applications are connected to one, the primary is the other: they have to go to a node that reaches it."""

    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        await cluster.make_primary(1)
        cluster.cut(0, 1)
        cluster.cut(1, 0)
        traffic.note_fault()
        await asyncio.sleep(CUT_S)
        await traffic.everybody_goes_on(500)
        cluster.heal()
        await traffic.more_confirmed(1_000)
        await cluster.until_in_sync()

    run_through(tmp_path, faults)


@pytest.mark.parametrize("behind", range(NODES), ids=("the primary", "a backup", "the other backup"))
def test_one_is_cut_off_from_the_others(tmp_path: Path, behind: int) -> None:
    """It may still talk to applications, but it is no majority: what it cannot have agreed on it does not confirm. So
    applications that are connected to it have to go to another."""

    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        alone = (await cluster.primary() + behind) % NODES
        others = [number for number in range(NODES) if number != alone]
        cluster.cut(alone, *others)
        for number in others:
            cluster.cut(number, alone)
        traffic.note_fault()
        await asyncio.sleep(CUT_S)
        await traffic.everybody_goes_on(500)
        cluster.heal()
        await traffic.more_confirmed(1_000)
        await cluster.until_in_sync()

    run_through(tmp_path, faults)


def test_each_is_cut_off_from_each(tmp_path: Path) -> None:
    """There is no majority: nobody confirms anything, until there is one."""

    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        for number in range(NODES):
            cluster.cut(number, *(other for other in range(NODES) if other != number))
        traffic.note_fault()
        await asyncio.sleep(CUT_S / 2)  # what was under way is done
        before = traffic.confirmed_count
        await asyncio.sleep(CUT_S)
        assert traffic.confirmed_count == before, "confirmed by one that is alone"
        cluster.heal()
        await traffic.more_confirmed(1_000)
        await cluster.until_in_sync()

    run_through(tmp_path, faults)


def test_an_interface_goes_and_comes_back(tmp_path: Path) -> None:
    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        primary = await cluster.primary()
        cluster.hosts.pull_out(primary)
        traffic.note_fault()
        await asyncio.sleep(CUT_S)
        await traffic.everybody_goes_on(500)
        cluster.hosts.plug_in(primary)
        await traffic.more_confirmed(1_000)
        await cluster.until_in_sync()

    run_through(tmp_path, faults)

"""Goal: whatever befalls the leader of group services, who decides on views and primaries, the others find another one
and applications go on: it is cut off, hears nobody, is heard by nobody, stands still, is killed. Also if it is primary,
too, so that who would decide on the successor is the one to be succeeded; when it is back there are two primaries, for
a moment, and the successor stays.
Method: as in test_netns_cluster.py, with the same checks of what applications saw, and of what passed the wire."""
import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.netns.netns_cluster import NODES, HostCluster
from tests.netns.netns_hosts import why_not
from tests.netns.netns_traffic import run_through
from tests.process.process_broker import WAIT_S
from tests.process.process_traffic import Traffic

_WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)


def _others(number: int) -> list[int]:
    return [other for other in range(NODES) if other != number]


def _hears_nobody(cluster: HostCluster, leader: int) -> None:
    cluster.cut(leader, *_others(leader))


def _is_heard_by_nobody(cluster: HostCluster, leader: int) -> None:
    for other in _others(leader):
        cluster.cut(other, leader)


def _is_cut_off(cluster: HostCluster, leader: int) -> None:
    _hears_nobody(cluster, leader)
    _is_heard_by_nobody(cluster, leader)


def _is_killed(cluster: HostCluster, leader: int) -> None:
    cluster.kill(leader)


def _stands_still(cluster: HostCluster, leader: int) -> None:
    cluster.signal(leader, signal.SIGSTOP)


def _network_heals(cluster: HostCluster, leader: int) -> None:
    cluster.heal()


def _is_started(cluster: HostCluster, leader: int) -> None:
    cluster.start_again(leader)


def _goes_on(cluster: HostCluster, leader: int) -> None:
    cluster.signal(leader, signal.SIGCONT)


Act = Callable[[HostCluster, int], None]
FATES: dict[Act, Act] = {  # what happens to it, and what ends that
    _hears_nobody: _network_heals,
    _is_heard_by_nobody: _network_heals,
    _is_cut_off: _network_heals,
    _is_killed: _is_started,
    _stands_still: _goes_on,
}


async def _leader(cluster: HostCluster, is_primary: bool) -> int:
    """Which is primary, too, or is not: on a busy machine another may lead by then."""
    before, leader = -1, await cluster.leader()
    while leader != before:
        await cluster.make_primary(leader if is_primary else (leader + 1) % NODES)
        before, leader = leader, await cluster.leader()
    return leader


async def _successor(cluster: HostCluster, before: int) -> None:
    """As the others say."""
    leader = ""
    async with asyncio.timeout(WAIT_S):
        while leader in ("", cluster.names[before]):
            await asyncio.sleep(0.1)
            leader = (await cluster.status(but=before))["leader"]


def _primary(status: dict[str, Any]) -> str:
    [group] = status["groups"]
    return str(group["primary"])


async def _settled(cluster: HostCluster, successor: str) -> None:
    """One that comes back may take itself for the primary, until it hears; then all answer, and only one is."""
    wanted = {name: name == successor for name in cluster.names}
    serving: dict[str, bool] = {}
    primary = ""
    async with asyncio.timeout(WAIT_S):
        while serving != wanted or primary != successor:
            await asyncio.sleep(0.1)
            serving, primary = await cluster.serving(), _primary(await cluster.status())


@pytest.mark.parametrize("is_primary", (False, True), ids=("and a backup", "and the primary"))
@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.__name__.strip("_"))
def test_the_leader(tmp_path: Path, fate: Act, is_primary: bool) -> None:
    async def faults(cluster: HostCluster, traffic: Traffic) -> None:
        leader = await _leader(cluster, is_primary)
        traffic.note_fault()
        await traffic.more_confirmed(300)
        fate(cluster, leader)
        traffic.note_fault()
        await _successor(cluster, leader)
        await traffic.everybody_goes_on(500)
        successor = _primary(await cluster.status(but=leader))
        assert successor != cluster.names[leader]
        with traffic.slowly():
            FATES[fate](cluster, leader)
            await _settled(cluster, successor)
            await cluster.until_in_sync()
        await traffic.more_confirmed(1_000)

    run_through(tmp_path, faults)

"""Traffic from a host of its own while something happens to a cluster on the others, and what all of it has to keep."""
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.netns.netns_cluster import NODES, HostCluster, host_cluster
from tests.netns.netns_tap import AHEAD_BYTES_MAX, Tap, allowed_bytes
from tests.process.process_traffic import Traffic

CUT_S = 4.0  # longer than it takes to find out, and to find a successor

Faults = Callable[[HostCluster, Traffic], Awaitable[None]]


def run_through(path: Path, faults: Faults, *, percent: int = 0) -> None:
    """`percent`: what is lost of multicast. Repairs are held to a tenth of the data and a constant, in all; and, where
    that is not enough, to a speed: in no stretch of time are they ahead of it by more than the constant."""
    with host_cluster(path) as cluster:

        async def scenario() -> None:
            await cluster.until_in_sync()
            await Traffic(cluster.addresses).run(lambda traffic: _watched(cluster, traffic, faults))

        for number in range(NODES):
            cluster.hosts.one_by_one(number)
        taps = [Tap(cluster.hosts, number, is_sent_only=True) for number in range(NODES)]
        try:
            cluster.run(scenario)
            data, repairs = map(sum, zip(*(tap.totals() for tap in taps), strict=True))
        finally:
            for tap in taps:
                tap.end()
        allowed = allowed_bytes(data, 0.0, NODES)
        ahead = max(tap.ahead for tap in taps)
        print(f"{data:,} bytes of data, {repairs:,} of repairs, {allowed:,.0f} allowed; at most {ahead:,} ahead")
        assert data > 100_000 and repairs <= allowed
        assert ahead <= AHEAD_BYTES_MAX
        assert repairs or not percent


async def _watched(cluster: HostCluster, traffic: Traffic, faults: Faults) -> None:
    await traffic.more_confirmed(500)
    await faults(cluster, traffic)
    traffic.note_fault()

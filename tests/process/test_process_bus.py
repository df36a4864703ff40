"""Goal: the bus works on real sockets: multicast on loopback, nodes in processes of their own that are killed, stopped
and started again. Method: every message is checked where it arrives (`bus_program.py`); conditions are waited for."""
import os
import signal
import socket
from collections.abc import Iterator

import pytest

from angarium.runtime.links import LinkSettings
from tests.process.bus_nodes import BusCluster, BusProcess, all_at, wait_until
from tests.process.process_broker import free_port


def loopback(group: int = 1) -> dict[int, tuple[str, int, str]]:
    return {0: (f"239.255.80.{group}", free_port(), "127.0.0.1")}


@pytest.fixture
def cluster() -> Iterator[BusCluster]:
    made = BusCluster()
    yield made
    made.end()


def three(cluster: BusCluster, **options: object) -> tuple[BusProcess, BusProcess, BusProcess]:
    links = loopback()
    nodes = [cluster.start(number, links, **options) for number in (1, 2, 3)]
    cluster.wait_linked()
    cluster.change(nodes[:1], nodes[1:])
    wait_until(all_at(nodes[1:], nodes[0], 1), "the stream begins")
    return nodes[0], nodes[1], nodes[2]


@pytest.mark.parametrize("segmentation", (True, False), ids=("segmented", "one by one"))
def test_everything_arrives_once_in_order_at_all_receivers(cluster: BusCluster, segmentation: bool) -> None:
    sender, *receivers = three(cluster, segmentation=segmentation)
    sender.ask("send", channel=1, count=20_000, size=1_000)
    wait_until(all_at(receivers, sender, 20_001), "20,000 messages arrive")
    sender.ask("send", channel=1, count=3, size=5_000_000)
    wait_until(all_at(receivers, sender, 20_004), "messages of 5 MB arrive")
    counters = sender.ask()["counters"]
    assert counters["data_bytes"] > 35_000_000, "each byte left once, for both"
    assert counters["data_bytes"] < 40_000_000
    assert counters["repair_bytes"] <= 0.1 * counters["data_bytes"] + (1 << 18) + 30 * (2 << 20)


def test_a_neighbour_that_is_killed_is_missed_at_once_and_its_stream_ends_alike(cluster: BusCluster) -> None:
    sender, *receivers = three(cluster)
    sender.ask("send", channel=1, count=1_000_000, size=2_000)
    wait_until(lambda: min(r.at(sender) for r in receivers) > 2_000, "it is sending")
    sender.process.kill()
    sender.process.wait()
    took_s = wait_until(lambda: all(len(r.ask()["neighbours"]) == 1 for r in receivers), "its neighbours know")
    assert took_s < 0.8 * LinkSettings().silence_s_max, "at once, and not after a silence"
    cluster.nodes.remove(sender)
    cluster.change([], receivers)
    wait_until(lambda: all(r.ask()["news"][-1][0] == "ended" for r in receivers), "the stream ends")
    ends = {r.ask()["news"][-1][3] for r in receivers}
    assert len(ends) == 1 and ends.pop() > 2_000


def test_a_stopped_receiver_is_put_out_told_and_comes_back(cluster: BusCluster) -> None:
    sender, good, slow = three(cluster, bus={"evict_after_s": 2.5})  # who is only kept waiting by others is not put out
    os.kill(slow.process.pid, signal.SIGSTOP)
    sender.ask("send", channel=1, count=20_000, size=1_000)
    wait_until(all_at([good], sender, 20_001), "the others go on")
    assert sender.ask()["events"]["Evicted"] == 1
    os.kill(slow.process.pid, signal.SIGCONT)
    wait_until(lambda: "lost" in [news[0] for news in slow.ask()["news"]], "it is told")
    slow.ask("rejoin", channel=1, sender=sender.incarnation)
    wait_until(all_at([slow], sender, 20_001), "it is back where the sender is")
    sender.ask("send", channel=1, count=100, size=1_000)
    wait_until(all_at([good, slow], sender, 20_101), "both get what follows")


def test_a_sender_that_sleeps_through_its_exclusion_is_heard_no_more(cluster: BusCluster) -> None:
    """It resumes, knows nothing, and goes on sending: nobody takes it."""
    sender, *receivers = three(cluster)
    sender.ask("send", channel=1, count=1_000_000, size=1_000)
    wait_until(lambda: min(r.at(sender) for r in receivers) > 1_000, "it is sending")
    os.kill(sender.process.pid, signal.SIGSTOP)
    cluster.nodes.remove(sender)
    cluster.change([], receivers)
    wait_until(lambda: all(r.ask()["news"][-1][0] == "ended" for r in receivers), "the stream ends")
    ends = {tuple(r.ask()["news"][-1]) for r in receivers}
    delivered = [r.ask()["counters"]["delivered_messages"] for r in receivers]
    os.kill(sender.process.pid, signal.SIGCONT)
    cluster.nodes.append(sender)  # it has to be ended with the others
    wait_until(lambda: all(r.ask()["counters"]["drops"].get("stranger", 0) > 3 for r in receivers), "it is a stranger")
    assert len(ends) == 1 and [r.ask()["counters"]["delivered_messages"] for r in receivers] == delivered


def test_a_node_that_is_started_again_is_another_one(cluster: BusCluster) -> None:
    sender, left, right = three(cluster)
    sender.ask("send", channel=1, count=10, size=100)
    wait_until(all_at([left, right], sender, 11), "all is well")
    right.end()
    cluster.nodes.remove(right)
    fresh = cluster.start(9, sender.links)
    cluster.wait_linked()
    cluster.change([sender], [left, fresh])
    wait_until(all_at([fresh], sender, 11), "it begins at the next message")
    sender.ask("send", channel=1, count=10, size=100)
    wait_until(all_at([left, fresh], sender, 21), "both get what follows")


def test_where_multicast_does_not_reach_the_same_datagrams_are_carried(cluster: BusCluster) -> None:
    links = loopback()
    sender, near = cluster.start(1, links), cluster.start(2, links)
    far = cluster.start(3, {0: ("239.255.80.99", free_port(), "127.0.0.1")})
    cluster.wait_linked()
    cluster.change([sender], [near, far])
    sender.ask("send", channel=1, count=5_000, size=1_000)
    wait_until(all_at([near, far], sender, 5_001), "both get everything")
    wait_until(lambda: sender.ask()["counters"]["carried_bytes"] > 5_000_000, "over TCP")
    sender.ask("send", channel=1, count=5_000, size=1_000)
    wait_until(all_at([near, far], sender, 10_001), "also later")
    assert sender.ask()["counters"]["carried_bytes"] < 16_000_000, "but not for the one that hears multicast"


def test_without_any_bus_everything_is_carried(cluster: BusCluster) -> None:
    sender, *receivers = (cluster.start(number, {}) for number in (1, 2, 3))
    cluster.wait_linked()
    cluster.change([sender], receivers)
    sender.ask("send", channel=1, count=5_000, size=1_000)
    wait_until(all_at(receivers, sender, 5_001), "both get everything")
    assert sender.ask()["counters"]["carried_bytes"] > 10_000_000


def test_several_buses(cluster: BusCluster) -> None:
    """Every client manager on all buses, each message manager on one; then the reverse."""
    a, b = loopback(1)[0], loopback(2)[0]
    manager = cluster.start(1, {0: a, 1: b})
    on_a, on_b = cluster.start(2, {0: a}), cluster.start(3, {1: b})
    cluster.wait_linked()
    cluster.change([manager], [on_a], channel=1)
    cluster.change([manager], [on_b], channel=2, links={manager.incarnation: 1})
    for channel, receiver in ((1, on_a), (2, on_b)):
        manager.ask("send", channel=channel, count=1_000, size=1_000)
        wait_until(all_at([receiver], manager, 1_001, channel), "its own bus brings it")
    cluster.change([on_a, on_b], [manager], channel=3, links={on_b.incarnation: 1})
    for sender in (on_a, on_b):
        sender.ask("send", channel=3, count=1_000, size=1_000)
    for sender in (on_a, on_b):
        wait_until(all_at([manager], sender, 1_001, 3), "both buses bring it")


def test_records_go_to_one_neighbour(cluster: BusCluster) -> None:
    sender, left, right = three(cluster)
    assert sender.ask("send_to", node=left.incarnation, service=20, message="hello", size=3_000_000)["sent"]
    wait_until(lambda: left.ask()["records"] == [[sender.incarnation, 20, "hello", 3_000_000]], "it arrives")
    assert right.ask()["records"] == []
    assert not sender.ask("send_to", node="ff" * 16, service=20, message="nobody", size=0)["sent"]


def test_strangers_and_noise_disturb_nobody(cluster: BusCluster) -> None:
    sender, *receivers = three(cluster)
    group, port, _ = sender.links[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        noise.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for size in (0, 1, 47, 64, 1_400):
            noise.sendto(os.urandom(size), (group, port))
    connections = []
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"ANGL" + bytes(60), os.urandom(100)):
        connections.append(socket.create_connection(("127.0.0.1", sender.port)))
        connections[-1].sendall(data)
    stranger = BusProcess(7, {0: (group, port, "127.0.0.1")}, secret="another cluster's secret")
    try:
        stranger.ask("dial", host="127.0.0.1", port=sender.port)
        sender.ask("send", channel=1, count=1_000, size=1_000)
        wait_until(all_at(receivers, sender, 1_001), "the cluster goes on")
        wait_until(lambda: sender.ask()["events"].get("PeerRefused", 0) >= 4, "they are refused")
        assert stranger.ask()["neighbours"] == [] and len(sender.ask()["neighbours"]) == 2
        drops = receivers[0].ask()["counters"]["drops"]
        assert drops["short"] >= 3
    finally:
        stranger.end()
        for connection in connections:
            connection.close()

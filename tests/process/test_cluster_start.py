"""Goal: a node that cannot be part of the cluster says so in one sentence, and disturbs nobody; one that can comes and
goes as it likes."""
import asyncio
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import angarium
from angarium.cli.local_cluster import LocalCluster, LocalNode
from tests.process.cli_node import environment
from tests.process.cluster_processes import Cluster, running_cluster
from tests.process.process_broker import WAIT_S, free_port


def _started_with(cluster: Cluster, node: LocalNode, old: str, new: str) -> "subprocess.CompletedProcess[str]":
    """The node, killed, and started with a change in its settings."""
    cluster.kill(node.name)
    text = node.config.read_text()
    assert old in text
    node.config.write_text(text.replace(old, new))
    return subprocess.run(
        [sys.executable, "-m", "angarium.cli.main", "node", "--config", str(node.config)],
        capture_output=True, text=True, timeout=WAIT_S, env=environment(),
    )  # fmt: skip


def test_a_node_whose_essential_parameters_differ_refuses_to_start(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=1, copies=3) as cluster:
        done = _started_with(cluster, cluster["a3"], "a: a1 a2 a3", "a: a1 a2 a3 cm1")
        assert done.returncode not in (0, 70)
        said = done.stderr.strip().splitlines()[-1]
        assert "essential-differs" in said
        assert said.count("digest ") == 1 and len(re.findall("[0-9a-f]{32}", said)) == 2, "both digests"
        assert "cluster.groups: ['a: a1 a2 a3 cm1'] here, ['a: a1 a2 a3'] on node" in said

        async def others_go_on() -> None:
            async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
                await asyncio.wait_for(session.send("orders", b"still here"), WAIT_S)

        asyncio.run(others_go_on())


def test_a_voter_whose_essential_parameters_differ_before_there_is_a_cluster_refuses_to_start(tmp_path: Path) -> None:
    """Once: it kept running, the cluster was never founded, and only the log of another voter said why."""
    local = LocalCluster(tmp_path, free_port(), client_managers=0, groups=1, copies=3)
    local.write_configuration()
    strange = next(node for node in local.nodes if node.name == "a3")
    strange.config.write_text(strange.config.read_text().replace("a: a1 a2 a3", "a: a1 a3"))
    command = [sys.executable, "-m", "angarium.cli.main", "node", "--config"]
    founder = subprocess.Popen(
        [*command, str(next(node.config for node in local.nodes if node.name == "a1"))],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    try:
        done = subprocess.run(
            [*command, str(strange.config)], capture_output=True, text=True, timeout=WAIT_S, env=environment()
        )
    finally:
        founder.kill()
        founder.wait()
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert "essential-differs" in said and len(re.findall("[0-9a-f]{32}", said)) == 2, "both digests"
    assert "cluster.groups: ['a: a1 a3'] here, ['a: a1 a2 a3'] on node 'a1'" in said


def test_all_nodes_stop_and_start_again_with_everything(tmp_path: Path) -> None:
    with running_cluster(tmp_path, client_managers=1, copies=3) as cluster:

        async def send() -> None:
            async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
                await session.send_many("orders", [b"%d" % n for n in range(1_000)])

        async def receive() -> list[bytes]:
            async with angarium.connect(cluster.addresses) as connection, connection.session() as session:
                consumer, bodies = session.consume("orders"), list[bytes]()
                while len(bodies) < 1_000 and (messages := await consumer.receive_batch(1_000, WAIT_S)):
                    bodies += [message.body for message in messages]
                return bodies

        asyncio.run(send())
        _check_datagram_ports(cluster)
        assert cluster.local.stop(), "every node ends with 0"
        told_before = {node.name: _left(cluster, node) for node in cluster.local.nodes}
        cluster.local.start()
        assert asyncio.run(receive()) == [b"%d" % n for n in range(1_000)]
        for node in cluster.local.nodes:
            again = _left(cluster, node)[len(told_before[node.name]) :]
            assert not set(again) & {text for texts in told_before.values() for text in texts}, "that was before"


def _left(cluster: Cluster, node: LocalNode) -> list[str]:
    return re.findall("left: node .*", cluster.log(node.name))


def _check_datagram_ports(cluster: Cluster) -> None:
    """Those that the guide says have to be open: each node takes datagrams where it takes links."""
    for node in cluster.local.nodes:
        listen = tomllib.loads(node.config.read_text())["cluster"]["listen"]
        host, _, port = listen.rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, pytest.raises(OSError, match="in use"):
            probe.bind((host, int(port)))


def test_a_node_of_a_cluster_is_not_started_as_a_broker_alone(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    lines = ['name = "orders"', 'secret = "sixteen characters"', 'voters = ["a=127.0.0.1:4570"]', 'groups = ["a: a"]']
    file.write_text("\n".join(["[cluster]", *lines, ""]))
    started = subprocess.run(
        [sys.executable, "-m", "angarium.cli.main", "up", "--config", str(file), "--data", str(tmp_path / "data")],
        capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert started.returncode == 1 and "start this with `node`" in started.stderr
    assert not (tmp_path / "data").exists()

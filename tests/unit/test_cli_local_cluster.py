"""Goal: what lies in a directory is not started as another cluster than it is."""
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from angarium.cli.failure import Failure
from angarium.cli.local_cluster import LocalCluster, LocalNode, found_shape
from angarium.node.cluster.settings import check_client_manager, named_buses
from angarium.node.config import load_config


def test_data_are_not_started_with_other_counts_or_ports(tmp_path: Path) -> None:
    def cluster(copies: int = 3, base_port: int = 4_600) -> LocalCluster:
        return LocalCluster(tmp_path / "data", base_port, client_managers=2, groups=2, copies=copies)

    assert found_shape(tmp_path / "data") == ""
    cluster().check_same()
    cluster().write_configuration()
    cluster().check_same()
    assert found_shape(tmp_path / "data") == "--cms 2 --groups 2 --copies 3 --base-port 4600"
    for other in (cluster(copies=1), cluster(base_port=5_000)):
        with pytest.raises(Failure, match="was made with --cms 2 --groups 2 --copies 3 --base-port 4600"):
            other.check_same()


def test_groups_take_turns_on_buses_and_client_managers_are_on_all(tmp_path: Path) -> None:
    def cluster(buses: int) -> LocalCluster:
        return LocalCluster(tmp_path / "data", 4_600, client_managers=2, groups=3, copies=2, buses=buses)

    made = cluster(2)
    made.write_configuration()
    for node in made.nodes:
        settings = load_config(node.config, {}).cluster
        buses = named_buses(settings)
        assert {name: " ".join(bus.nodes) for name, bus in buses.items()} == {"bus1": "a1 a2 c1 c2", "bus2": "b1 b2"}
        assert len({bus.address for bus in buses.values()}) == 2
        check_client_manager(settings, node.name)
    cluster(2).check_same()
    with pytest.raises(Failure, match="--copies 2 --buses 2 --base-port"):
        cluster(3).check_same()
    with pytest.raises(Failure, match="--buses 4 with --groups 3"):
        cluster(4)


def test_a_start_that_cannot_be_leaves_nothing_behind_that_the_next_one_would_be_held_to(tmp_path: Path) -> None:
    def at(base_port: int) -> LocalCluster:
        return LocalCluster(tmp_path / "data", base_port, client_managers=1, groups=1, copies=1)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for base_port in (port, port - 1):  # the port for clients, and one between nodes
            with pytest.raises(Failure, match=rf"listen on .*:({port}|{port - 1}): .*; use another --base-port"):
                at(base_port).check_free()
        assert list(tmp_path.iterdir()) == []
        at(port).write_configuration()
        with pytest.raises(Failure, match=r"if it is the cluster of .*data, that runs already; else stop what has"):
            at(port).check_free()
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match="file is a file; name a directory"):
        LocalCluster(tmp_path / "file" / "below", 4_600, client_managers=1, groups=1, copies=1).check_free()


class _NeverReady(LocalCluster):
    """Its nodes start, and wait for others."""

    def start_node(self, node: LocalNode) -> None:
        node.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_start_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """Once: Ctrl-C was heard when all were ready, or after a minute."""
    cluster = _NeverReady(tmp_path, 4_600, client_managers=1, groups=1, copies=1)
    stop = threading.Event()
    told = threading.Timer(0.2, stop.set)
    told.start()
    try:
        assert not cluster.start(stop)
    finally:
        told.join()
        is_clean = cluster.stop()
    assert is_clean and all(node.process is not None and node.process.poll() is not None for node in cluster.nodes)

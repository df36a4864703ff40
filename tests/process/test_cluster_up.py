"""Goal: what scripts rely on: `cluster up` stays in the foreground, says `ready` with all addresses, `cluster status`
`--json` tells of each node what it is, and a second start takes up what was there."""
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.process.cli_node import COMMAND, WAIT_S, environment, run
from tests.process.process_broker import free_port


@contextmanager
def cluster_up(data: Path, base_port: int) -> Iterator[str]:
    """The addresses that it says it is ready on. It ends by itself when it is told to, with 0."""
    shape = ["--cms", "2", "--groups", "1", "--copies", "2"]
    process = subprocess.Popen(
        [*COMMAND, "cluster", "up", "--data", str(data), "--base-port", str(base_port), *shape],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"angarium cluster ready on (\S+)\n", line)
        assert found is not None, line
        yield found[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_cluster_starts_says_so_tells_what_it_is_and_goes_on_where_it_was(tmp_path: Path) -> None:
    data, base_port = tmp_path / "cluster", free_port()
    with cluster_up(data, base_port) as addresses:
        assert addresses.count("angarium://") == 2, "of both client managers"
        for address in addresses.split(","):
            assert run("send", "orders", f"by {address}", "--address", address).returncode == 0
        done = run("cluster", "status", "--json", "--address", addresses)
        nodes = {node["name"]: node for node in json.loads(done.stdout)["nodes"]}
        assert len(nodes) == 4 and len({node["pid"] for node in nodes.values()}) == 4
        copies = [node for node in nodes.values() if node["group"]]
        assert [node["role"] for node in nodes.values()] == ["mm" if node["group"] else "cm" for node in nodes.values()]
        assert [node["roles"] for node in copies] == [["mm"], ["mm"]] and all(node["in_sync"] for node in copies)
        assert sum(node["primary"] for node in copies) == 1
        assert [node["roles"] for node in nodes.values() if not node["group"]] == [["cm"], ["cm"]]
    with cluster_up(data, base_port) as again:
        assert again == addresses
        received = run("receive", "orders", "--count", "2", "--timeout", "30", "--address", addresses)
        assert received.returncode == 0
        assert received.stdout.decode().splitlines() == [f"by {address}" for address in addresses.split(",")]

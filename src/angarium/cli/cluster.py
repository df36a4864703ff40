"""`node` and `cluster`: a node in the foreground, a whole cluster on this machine, and its administration."""
import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from angarium.cli import failure, options, output

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterReady

Config = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="Settings as TOML.")]
ClusterData = Annotated[Path, typer.Option("--data", metavar="DIR", help="Directory of all nodes' data.")]
BasePort = Annotated[
    int, typer.Option("--base-port", metavar="PORT", min=1_024, max=60_000, help="The first port that is used.")
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of a replica group.", show_default=False)]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.", show_default=False)]


def node(config: Config) -> int:
    """Run one node of a cluster in the foreground.

    Ends with Ctrl-C or SIGTERM. Prints one line with the word `ready` once it is in the cluster.
    """
    from angarium.node.cluster.main import run_cluster_node
    from angarium.node.config import load_with_sources

    settings = load_with_sources(config, {}, os.environ)
    loaded = settings.config

    def announce(ready: "ClusterReady") -> None:
        # For whoever started this process, and does not read what it prints.
        (Path(loaded.node.data) / "ready").write_text(str(os.getpid()))
        where = f" on {ready.address}" if ready.address else ""
        with contextlib.suppress(failure.OutputClosed, failure.Failure):
            output.write(f"angarium ready{where}, node {ready.name}, cluster {loaded.cluster.name}\n".encode())

    return run_cluster_node(loaded, announce, settings.sources)


def up(
    cms: Annotated[int, typer.Option("--cms", min=1, max=20, help="Client managers.")] = 2,
    groups: Annotated[int, typer.Option("--groups", min=1, max=20, help="Replica groups.")] = 2,
    copies: Annotated[int, typer.Option("--copies", min=1, max=5, help="Copies of everything.")] = 3,
    data: ClusterData = Path("var/cluster"),
    base_port: BasePort = 4_600,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Start a node that has ended again, after three seconds.")
    ] = True,
) -> int:
    """Run a whole cluster on this machine, each node a process, in the foreground.

    Ends with Ctrl-C or SIGTERM. Prints one line with the word `ready` and the addresses for clients. A second start on
    the same data takes up where the first left off.
    """
    from angarium.cli.local_cluster import LocalCluster

    cluster = LocalCluster(data, base_port, client_managers=cms, groups=groups, copies=copies)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster.write_configuration()
    try:
        cluster.start()
        addresses = ",".join(cluster.addresses)
        output.write(f"angarium cluster ready on {addresses}\n".encode())
        _show(_ask_status([addresses]))
        while not stop.wait(0.25):
            for text in cluster.look_after(restart=restart):
                failure.say(text)
    finally:
        clean = cluster.stop()
    return 0 if clean else 1


def status(address: options.Address = [], wait: options.Wait = 0.0, as_json: options.Json = False) -> None:  # noqa: B006
    """Show every node: its role, group, and whether it is primary and in sync."""
    found = _ask_status(address, wait)
    if as_json:
        output.write_json(found)
    else:
        _show(found)


def _ask_status(address: list[str], wait_s: float = 0.0) -> dict[str, Any]:
    return _request(address, wait_s, "cluster.status", {})


def _request(address: list[str], wait_s: float, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    async def work(connection: options.Connection) -> dict[str, Any]:
        answer = await connection.request(command, arguments)
        result: dict[str, Any] = answer.result
        return result

    return options.ask(options.Broker(address, wait_s), work)


def _show(found: dict[str, Any]) -> None:
    rows = [
        (
            node["name"],
            node["role"],
            node["group"],
            "primary" if node["primary"] else "",
            "in sync" if node["in_sync"] else ("" if node["role"] == "cm" else "behind"),
            str(node["pid"] or ("no answer" if node["address"] else "gone")),
            node["address"],
        )
        for node in found["nodes"]
    ]
    output.write_table(("NODE", "ROLE", "GROUP", "PRIMARY", "STATE", "PID", "ADDRESS"), rows, left=(0, 1, 2, 3, 4, 6))
    if found["missing"]:
        missing = ", ".join(found["missing"])
        failure.say(f"{len(found['missing'])} of {found['expected']} nodes did not answer: {missing}")


def drain(
    name: NodeName,
    undo: Annotated[bool, typer.Option("--undo", help="Let it be primary again.")] = False,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
) -> None:
    """Hand over all primaries of a node, and make it none again, so that it can be stopped without notice."""
    _request(address, wait, "cluster.undrain" if undo else "cluster.drain", {"node": name})


def move_primary(
    group: Group, name: NodeName, address: options.Address = [], wait: options.Wait = 0.0  # noqa: B006
) -> None:
    """Make another in-sync replica of a group its primary."""
    _request(address, wait, "cluster.move-primary", {"group": group, "node": name})


def add_copy(
    group: Group, name: NodeName, address: options.Address = [], wait: options.Wait = 0.0  # noqa: B006
) -> None:
    """Have a node hold a copy of a group; it synchronises by itself."""
    _request(address, wait, "cluster.add-copy", {"group": group, "node": name})


def remove_copy(
    group: Group, name: NodeName, address: options.Address = [], wait: options.Wait = 0.0  # noqa: B006
) -> None:
    """Have a node no longer hold a copy of a group."""
    _request(address, wait, "cluster.remove-copy", {"group": group, "node": name})

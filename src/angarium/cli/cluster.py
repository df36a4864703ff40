"""`node`, `cluster up` and `cluster status`: a node in the foreground, a whole cluster on this machine, how it is."""
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from angarium.admin.cluster import Cluster, ClusterStatus, Node, OnBus
from angarium.admin.model import convert
from angarium.cli import failure, options, output
from angarium.core.errors import Rejected
from angarium.node.cluster.health import listed

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterReady

SETTLED_S_MAX = 5.0

Config = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="Settings as TOML.")]
ClusterData = Annotated[Path, typer.Option("--data", metavar="DIR", help="Directory of all nodes' data.")]
BasePort = Annotated[
    int, typer.Option("--base-port", metavar="PORT", min=1_024, max=60_000, help="The first port that is used.")
]
Result = TypeVar("Result")
GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="Name of a replica group.", show_default=False, autocompletion=options.complete_group
    ),
]
NodeName = Annotated[
    str,
    typer.Argument(metavar="NODE", help="Name of a node.", show_default=False, autocompletion=options.complete_node),
]


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
    buses: Annotated[int, typer.Option("--buses", min=1, max=16, help="Buses; each group is on one of them.")] = 1,
    data: ClusterData = Path("var/cluster"),
    base_port: BasePort = 4_600,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Start a node that has ended again, after three seconds.")
    ] = True,
) -> int:
    """Run a whole cluster on this machine, in the foreground. Each node is a process.

    The first three nodes that hold copies vote about everything: with two of them gone nothing is decided.

    Ends with Ctrl-C or SIGTERM. Prints one line with the word `ready` and the addresses for clients. A second start on
    the same data takes up where the first left off.
    """
    from angarium.cli.local_cluster import LocalCluster

    cluster = LocalCluster(data, base_port, client_managers=cms, groups=groups, copies=copies, buses=buses)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster.check_same()
    cluster.check_free()
    cluster.write_configuration()
    failure.say(f"starting {len(cluster.nodes)} nodes; {listed(cluster.voters)} vote, their data are in {data}")
    try:
        if cluster.start(stop):
            addresses = ",".join(cluster.addresses)
            output.write(f"angarium cluster ready on {addresses}\n".encode())
            _show(when_settled(lambda: convert("cluster.status", _ask_status([addresses]), ClusterStatus), stop))
        while not stop.wait(0.25):
            for text in cluster.look_after(restart=restart):
                failure.say(text)
    finally:
        clean = cluster.stop()
    return 0 if clean else 1


def when_settled(ask: Callable[[], ClusterStatus], stop: threading.Event) -> ClusterStatus:
    """The status once nothing is wrong any more. After a second start groups look for their primaries for a moment:
    that is no trouble, until it lasts `SETTLED_S_MAX`."""
    deadline = time.monotonic() + SETTLED_S_MAX
    while (found := ask()).trouble and time.monotonic() < deadline and not stop.wait(0.25):
        pass
    return found


def status(address: options.Address = [], wait: options.Wait = 0.0, as_json: options.Json = False) -> int:  # noqa: B006
    """Show every node that should be there. Its role, group, and whether it is primary and in sync.

    The exit code is 1 if something is wrong: what, is said on standard error.
    """
    found = _ask_status(address, wait)
    typed = convert("cluster.status", found, ClusterStatus)
    if as_json:
        output.write_json(found)
    else:
        _show(typed)
    return failure.EXIT_FAILED if typed.trouble else 0


def _ask_status(address: list[str], wait_s: float = 0.0) -> dict[str, Any]:
    return ask_cluster(options.Broker(address, wait_s), lambda cluster: cluster.status_as_told())


def ask_cluster(broker: options.Broker, work: Callable[[Cluster], Awaitable[Result]]) -> Result:
    try:
        return options.ask(broker, lambda requests: work(Cluster(requests)))
    except Rejected as refusal:
        if refusal.code != "unknown-command":
            raise
        raise failure.Failure("this broker is alone, not a node of a cluster; see 'angarium status'") from None


def _show(found: ClusterStatus) -> None:
    rows = [
        (
            node.name,
            "+".join((*node.roles, *(("voter",) if node.votes else ()))),
            node.group,
            "primary" if node.primary and node.answers else "",
            state_of(node),
            str(node.pid or ""),
            node.clients_at,
            node.address,
            ", ".join(map(shown_bus, node.buses)),
        )
        for node in found.nodes
    ]
    header = ("NODE", "ROLE", "GROUP", "PRIMARY", "STATE", "PID", "CLIENTS", "NODES", "BUSES")
    shown = len(header) if len({bus.bus for node in found.nodes for bus in node.buses}) > 1 else len(header) - 1
    output.write_table(header[:shown], [row[:shown] for row in rows], left=(0, 1, 2, 3, 4, 6, 7, 8))
    for text in found.trouble:
        failure.say(text)


def shown_bus(bus: OnBus) -> str:
    """With whom it reaches over TCP for want of multicast."""
    if not bus.tcp:
        return bus.bus
    return f"{bus.bus} (tcp to {listed(bus.tcp)})" if bus.multicast else f"{bus.bus} (tcp)"


def state_of(node: Node) -> str:
    """In a few words. What was decided of a node that does not answer says nothing about how it is."""
    if not node.answers:
        return "no answer" if node.is_here else "gone"
    behind = "behind" if node.copied_percent is None else f"copying {node.copied_percent} %"
    state = ("in sync" if node.in_sync else behind) if node.group else "here"
    return f"{state}, drained" if node.draining else state

"""What more replica groups carry: python -m benchmarks.scaling

In virtual time, on machines of declared capacity, one for each copy and each client manager: this machine has not the
cores to show it. The nodes and clients are the real ones (`sim/clusters/load.py`), and every promise is checked
meanwhile; only how long things take is declared, and printed with the result.
"""
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from angarium.sim.clusters.load import BATCH_COUNT, DISK, QUEUES_PER_GROUP, Carried, LoadWorld, shape_of
from angarium.sim.hardware import Capacity


def _table(found: dict[int, Carried], *, copies: int, managers: int, body_bytes: int) -> Table:
    table = Table(title=f"{copies} copies, {managers} client managers for each group, messages of {body_bytes:,} B")
    for column in ("groups", "confirmed/s", "settled/s", "of one group"):
        table.add_column(column, justify="right")
    one = min(found)
    for groups, carried in found.items():
        ratio = carried.settled_per_s / found[one].settled_per_s * one
        table.add_row(str(groups), f"{carried.confirmed_per_s:,.0f}", f"{carried.settled_per_s:,.0f}", f"{ratio:.2f}")
    return table


def main(
    groups: Annotated[str, typer.Option(help="How many groups, one measurement for each.")] = "1,2,3,6",
    copies: Annotated[int, typer.Option(help="Copies of each group.", min=1)] = 3,
    client_managers: Annotated[int, typer.Option(help="For each group.", min=1)] = 4,
    body_bytes: Annotated[int, typer.Option(help="Of each message.", min=8)] = 1_024,
    seconds: Annotated[float, typer.Option(help="Of virtual time.", min=0.1)] = 0.5,
) -> None:
    capacity, console = Capacity(), Console(highlight=False)
    found: dict[int, Carried] = {}
    for number in track([int(each) for each in groups.split(",")], console=console, transient=True):
        shape = shape_of(groups=number, copies=copies, client_managers=number * client_managers)
        found[number] = LoadWorld(shape, capacity, body_bytes=body_bytes).measure(seconds)
    console.print(_table(found, copies=copies, managers=client_managers, body_bytes=body_bytes))
    console.print(
        f"Declared: each input or output keeps a process busy for {capacity.call_s * 1e6:g} µs and "
        f"{capacity.byte_s * 1e9:g} ns a byte; a wire takes {capacity.wire_bytes_per_s / 1e6:g} MB/s each way; "
        f"a sync takes {DISK.sync_s_min * 1e3:g} to {DISK.sync_s_max * 1e3:g} ms and {DISK.byte_s * 1e9:g} ns a byte. "
        f"{QUEUES_PER_GROUP} queues for each group, batches of {BATCH_COUNT}; clients take no time."
    )


if __name__ == "__main__":
    typer.run(main)

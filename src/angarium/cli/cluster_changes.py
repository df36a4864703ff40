"""`cluster drain`, `move-primary`, `move-destination`, `add-copy`, `remove-copy` and `set-voters`: done when they end
with 0, or they say why not."""
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from angarium.admin.cluster import (
    Cluster,
    ClusterStatus,
    MoveAsked,
    Progress,
    copied,
    destination_moved,
    drained,
    moved,
    removed,
    voting,
    what_removal_costs,
)
from angarium.cli import failure, options, output
from angarium.cli.cluster import GroupName, NodeName, ask_cluster
from angarium.node.cluster.settings import VOTERS

LOOK_S = 0.25
TELL_S = 5.0  # between two sentences about how far it is

Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Until it is done; what was decided stays.")
]


def drain(
    name: NodeName,
    undo: Annotated[bool, typer.Option("--undo", help="Let it be primary again.")] = False,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    timeout: Timeout = 60.0,
) -> int:
    """Hand over all primaries of a node. It is made none again, so that it can be stopped without notice.

    Ends when it is primary of nothing. It stays so, also when it is started again, until --undo.
    """
    broker = options.Broker(address, wait)
    if undo:
        ask_cluster(broker, lambda cluster: cluster.drain(name, undo=True))
        failure.say(f"node {name} may be primary again")
        return 0
    return _change(broker, timeout, lambda cluster: cluster.drain(name), lambda status: drained(status, name))


def _change_of_a_copy(
    about: str, timeout_s: float, change: Callable[[Cluster, str, str], Awaitable[None]],
    progress_of: Callable[[ClusterStatus, str, str], Progress],
) -> Callable[..., int]:  # fmt: skip
    def command(
        group: GroupName, name: NodeName,
        address: options.Address = [],  # noqa: B006
        wait: options.Wait = 0.0,
        timeout: Timeout = timeout_s,
    ) -> int:  # fmt: skip
        return _change(
            options.Broker(address, wait), timeout,
            lambda cluster: change(cluster, group, name), lambda status: progress_of(status, group, name),
        )  # fmt: skip

    command.__doc__ = about
    return command


move_primary = _change_of_a_copy(
    "Make another in-sync copy of a group its primary. Ends when it is.", 60.0, Cluster.move_primary, moved
)
add_copy = _change_of_a_copy(
    "Have a node hold a copy of a group. Ends when that is in sync; traffic goes on meanwhile.",
    600.0, Cluster.add_copy, copied,
)  # fmt: skip


def remove_copy(
    group: GroupName, name: NodeName,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    timeout: Timeout = 60.0,
    yes: options.Yes = False,
) -> int:  # fmt: skip
    """Have a node no longer hold a copy of a group."""
    broker = options.Broker(address, wait)
    cost = what_removal_costs(ask_cluster(broker, lambda cluster: cluster.status()), group, name)
    if cost:
        failure.say(f"warning: {cost}")
        options.confirm(f"Remove the copy of group {group!r} on node {name}?", yes)
    return _change(
        broker, timeout, lambda cluster: cluster.remove_copy(group, name), lambda status: removed(status, group, name)
    )


def set_voters(
    nodes: Annotated[
        list[str],
        typer.Argument(metavar="NODE", help="One, three or five nodes.", autocompletion=options.complete_node),
    ],
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    timeout: Timeout = 60.0,
    yes: options.Yes = False,
) -> int:
    """Have these nodes decide everything, and no others. Ends when they do; everything goes on meanwhile.

    Replaces a voter that is lost for good, or adds some. A majority of those that vote now has to be there.
    """
    broker = options.Broker(address, wait)
    before = ask_cluster(broker, lambda cluster: cluster.status()).voters
    if len(nodes) in VOTERS and len(nodes) < len(before):
        failure.say(f"warning: {len(before)} nodes vote now; with {len(nodes)} fewer can be lost")
        options.confirm(f"Have only {', '.join(nodes)} vote?", yes)
    return _change(broker, timeout, lambda cluster: cluster.set_voters(nodes), lambda status: voting(status, nodes))


def move_destination(
    destination: options.Destination, group: GroupName,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    timeout: Timeout = 600.0,
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave it where it is, if it is being moved there.")] = False,
    as_json: options.Json = False,
) -> int:  # fmt: skip
    """Move a queue or topic to another replica group. All that is stored of it goes along; ends when it is there.

    Who sends to it and receives from it waits meanwhile, and goes on by itself. The command may be repeated.
    """
    broker = options.Broker(address, wait)
    if cancel:
        ask_cluster(broker, lambda cluster: cluster.cancel_move(destination, group))
        failure.say(f"{destination!r} stays where it is")
        return 0
    asked: list[MoveAsked] = []

    async def begin(cluster: Cluster) -> None:
        asked.append(await cluster.move_destination(destination, group))

    async def look(cluster: Cluster) -> Progress:
        if asked[0].is_there:
            is_open = await cluster.is_open(destination)  # raises if there is none: it would be in that group
            return Progress(is_open, f"{destination!r} is in group {group!r} already")
        progress = destination_moved(await cluster.moves(), asked[0], await cluster.group_of(destination))
        if progress.is_done and not await cluster.is_open(destination):
            return Progress(False, f"{destination!r} is being opened in group {group!r}")
        return progress

    code = _wait_for(broker, timeout, begin, look)
    if as_json:
        found = asked[0]
        output.write_json({"name": found.name, "group": found.group, "moved": not code and not found.is_there})
    return code


def _change(
    broker: options.Broker, timeout_s: float, change: Callable[[Cluster], Awaitable[None]],
    progress_of: Callable[[ClusterStatus], Progress],
) -> int:  # fmt: skip
    """Ask for it, and wait until the status shows it."""

    async def look(cluster: Cluster) -> Progress:
        return progress_of(await cluster.status())

    return _wait_for(broker, timeout_s, change, look)


def _wait_for(
    broker: options.Broker, timeout_s: float, change: Callable[[Cluster], Awaitable[None]],
    look: Callable[[Cluster], Awaitable[Progress]],
) -> int:  # fmt: skip
    options.check_seconds("--timeout", timeout_s)
    is_watched = sys.stderr.isatty()  # then one line shows how far it is; else a sentence now and then does

    async def work(cluster: Cluster) -> Progress:
        await change(cluster)
        started = told_at = time.monotonic()
        with output.steps() as show:
            while True:
                progress = await look(cluster)
                now = time.monotonic()
                if progress.is_done or now - started >= timeout_s:
                    return progress
                if is_watched:
                    show(progress.text)
                elif now - told_at >= TELL_S:
                    failure.say(progress.text)
                    told_at = now
                await asyncio.sleep(LOOK_S)

    progress = ask_cluster(broker, work)
    if progress.is_done:
        failure.say(progress.text)
        return 0
    failure.say(f"not done after {timeout_s:g} s: {progress.text}; it was decided and goes on, see 'cluster status'")
    return failure.EXIT_FAILED

"""A cluster as its administrator sees it: typed, and whether what he asked for has come about.

A change is decided at once and done by and by: the primary lets go of what it has under way, a copy fetches what it
lacks. `Progress` says of a status how far that is.
"""
from typing import Any, NamedTuple

import msgspec

from angarium.admin.model import convert
from angarium.admin.requests import Requests
from angarium.core.errors import Rejected, Unavailable


class Group(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    number: int = 0
    epoch: int = 0
    primary: str = ""
    is_served: bool = False  # its message manager runs
    members: list[str] = []  # nodes that shall hold a copy
    in_sync: list[str] = []
    copies: int = 0
    min_copies: int = 0  # with fewer in sync nothing is confirmed
    fault: str = ""
    trouble: str = ""  # a sentence; empty: nothing is wrong


class OnBus(msgspec.Struct, frozen=True, kw_only=True):
    """A bus that a node is on: how many others hear it there, and who is reached over TCP instead."""

    bus: str
    multicast: int = 0
    tcp: list[str] = []
    sent_bytes: int = 0  # by multicast, since its start
    received_bytes: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One copy that a node holds; or the node, if it holds none."""

    name: str
    role: str = ""
    roles: list[str] = []
    pid: int | None = None
    group: str = ""
    primary: bool = False
    in_sync: bool = False
    copied_percent: int | None = None  # while it copies
    answers: bool = False
    is_here: bool = False  # in the cluster, as was decided last
    votes: bool = False
    draining: bool = False
    address: str = ""  # for other nodes
    clients_at: str = ""  # for clients
    buses: list[OnBus] = []


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    leader: str = ""
    expected: int = 0
    missing: list[str] = []
    has_majority: bool = True
    voters: list[str] = []
    draining: list[str] = []
    groups: list[Group] = []
    nodes: list[Node] = []
    trouble: list[str] = []  # sentences

    def group(self, name: str) -> Group | None:
        return next((group for group in self.groups if group.group == name), None)


class Cluster:
    def __init__(self, connection: Requests) -> None:
        self._connection = connection

    async def status(self) -> ClusterStatus:
        return convert("cluster.status", await self.status_as_told(), ClusterStatus)

    async def status_as_told(self) -> dict[str, Any]:
        """With what a newer cluster may add."""
        answer = await self._connection.request("cluster.status", {})
        return convert("cluster.status", answer.result, dict[str, Any])

    async def drain(self, node: str, *, undo: bool = False) -> None:
        await self._connection.request("cluster.undrain" if undo else "cluster.drain", {"node": node})

    async def move_primary(self, group: str, node: str) -> None:
        await self._connection.request("cluster.move-primary", {"group": group, "node": node})

    async def add_copy(self, group: str, node: str) -> None:
        await self._connection.request("cluster.add-copy", {"group": group, "node": node})

    async def remove_copy(self, group: str, node: str) -> None:
        await self._connection.request("cluster.remove-copy", {"group": group, "node": node})

    async def set_voters(self, nodes: list[str]) -> None:
        await self._connection.request("cluster.set-voters", {"nodes": nodes})

    async def move_destination(self, name: str, group: str) -> "MoveAsked":
        answer = await self._connection.request("cluster.move-destination", {"name": name, "group": group})
        return convert("cluster.move-destination", answer.result, MoveAsked)

    async def cancel_move(self, name: str, group: str = "") -> None:
        """`group`: only if it is being moved there; without it, wherever."""
        await self._connection.request("cluster.cancel-move", {"name": name, **({"group": group} if group else {})})

    async def is_open(self, name: str) -> bool:
        """Its group serves it: of one that was moved, it is not only decided where it is."""
        try:
            await self._connection.request("destination.describe", {"name": name})
        except Unavailable:
            return False
        return True

    async def group_of(self, name: str) -> str:
        """The replica group that has the destination, or would have it."""
        answer = await self._connection.request("cluster.where", {"name": name})
        return str(convert("cluster.where", answer.result, dict[str, Any]).get("group", ""))

    async def moves(self) -> "Moves":
        answer = await self._connection.request("cluster.moves", {})
        return convert("cluster.moves", answer.result, Moves)


class MoveAsked(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    group: str
    number: int = 0  # of the move, if the node that was asked knows it already
    is_there: bool = False  # there was nothing to move


class MovingDestination(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    number: int
    source: str = ""
    target: str = ""
    step: str = ""
    rows: int = 0  # copied so far
    bytes: int = 0
    bytes_total: int = 0  # of its messages; 0: not known yet


class EndedMove(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    number: int
    code: str = ""
    reason: str = ""


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    begun: int = 0  # the number of the last one
    moving: list[MovingDestination] = []
    ended: list[EndedMove] = []  # the last few that came to nothing
    moved: dict[str, str] = {}  # name -> group, of those that are not where their slot is


class Progress(NamedTuple):
    is_done: bool
    text: str  # what is so, or what is waited for


def drained(status: ClusterStatus, node: str) -> Progress:
    held = [group for group in status.groups if group.primary == node]
    if not held:
        return Progress(True, f"node {node} is primary of no group, and will be made none")
    waiting: list[str] = []
    for group in held:
        others = [name for name in group.in_sync if name != node and name not in status.draining]
        waiting.append(
            f"group {group.group!r} is being handed over"
            if others
            else f"group {group.group!r} stays: no other copy of it is in sync and not drained"
        )
    return Progress(False, f"node {node} is still primary: {'; '.join(waiting)}")


def moved(status: ClusterStatus, group: str, node: str) -> Progress:
    found = status.group(group)
    if found is not None and found.primary == node and found.is_served:
        return Progress(True, f"node {node} is primary of group {group!r}")
    now = "" if found is None else found.trouble or f"its primary is {found.primary}"
    return Progress(False, f"group {group!r} is being handed over to {node}: {now}")


def copied(status: ClusterStatus, group: str, node: str) -> Progress:
    found = status.group(group)
    if found is not None and node in found.in_sync:
        return Progress(True, f"node {node} holds a copy of group {group!r} that is in sync: {_count(found)}")
    here = [each for each in status.nodes if each.name == node and each.answers]
    if not here:
        return Progress(False, f"node {node} is to hold a copy of group {group!r}, and does not answer")
    percents = [each.copied_percent for each in here if each.group == group and each.copied_percent is not None]
    return Progress(False, f"node {node} copies group {group!r}" + (f": {percents[0]} %" if percents else ""))


def removed(status: ClusterStatus, group: str, node: str) -> Progress:
    found = status.group(group)
    if found is not None and node not in found.members:
        return Progress(True, f"node {node} holds no copy of group {group!r} any more: {_count(found)}")
    return Progress(False, f"node {node} still holds a copy of group {group!r}")


def voting(status: ClusterStatus, nodes: list[str]) -> Progress:
    """Exactly these vote."""
    if set(status.voters) == set(nodes):
        return Progress(True, f"{', '.join(nodes)} {'decides' if len(nodes) == 1 else 'decide'} now")
    missing = [name for name in nodes if name not in status.voters]
    silent = [name for name in missing if not any(each.name == name and each.answers for each in status.nodes)]
    waits = f"; {', '.join(silent)} cannot be reached" if silent else ""
    return Progress(False, f"{', '.join(status.voters)} decide, {', '.join(nodes)} are to{waits}")


def destination_moved(moves: Moves, asked: MoveAsked, place: str) -> Progress:
    """`place`: the group that has it, as was said after `moves`. Raises `Rejected` if it came to nothing."""
    name, group = asked.name, asked.group
    under_way = next((move for move in moves.moving if move.name == name), None)
    if under_way is not None:
        done, total = under_way.bytes, max(under_way.bytes, under_way.bytes_total)
        percent = f" ({100 * done // total} %)" if total else ""
        copied = f", {done:,} of {total:,} bytes copied{percent}" if under_way.step == "copying" else ""
        return Progress(False, f"{name!r} is being moved to group {group!r}: {under_way.step}{copied}")
    if moves.begun < asked.number:
        return Progress(False, f"{name!r} is to be moved to group {group!r}")
    if place == group:
        return Progress(True, f"{name!r} is in group {group!r}")
    ended = next((end for end in moves.ended if end.name == name and end.number >= asked.number), None)
    if ended is not None:
        raise Rejected(ended.code, f"{name!r} was not moved: {ended.reason}")
    return Progress(False, f"{name!r} is not yet known to be in group {group!r}")


def what_removal_costs(status: ClusterStatus, group: str, node: str) -> str:
    """What is lost in safety by taking that copy away, for a person to think about; empty if little is."""
    found = status.group(group)
    if found is None or node not in found.members:
        return ""
    left = [name for name in found.in_sync if name != node]
    if len(left) <= 1:
        only = f"only {left[0]} has" if left else "nobody has"
        return f"{only} all of group {group!r} then: the loss of that one disk loses its messages"
    before = max(len(found.members), 1)
    if len(left) <= before // 2:
        return f"only {len(left)} of {before} copies of group {group!r} are in sync then: fewer than a majority"
    return ""


def _count(group: Group) -> str:
    return f"{len(group.in_sync)} of {group.copies} {'copy' if group.copies == 1 else 'copies'} in sync"

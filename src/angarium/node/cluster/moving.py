"""A node's part in moving destinations: what is to be decided by group services, and the commands
`cluster.move-destination`, `cluster.cancel-move`, `cluster.moves` and `node.moves`.

A move is decided at once and done by and by; `cluster.moves` tells how far it is, and why one was given up.
"""
import logging
from typing import TYPE_CHECKING, Any

from angarium.core.commands import CommandSpec, Parameter, Scope
from angarium.core.errors import Rejected
from angarium.core.groups.decisions import MoveBegun, MoveDone, MoveEnded
from angarium.core.groups.records import Move
from angarium.core.names import check_name
from angarium.node.cluster.deciding import decided
from angarium.node.registry import Arguments, Registry

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_log = logging.getLogger("angarium")
_DECIDE_S_MAX = 5.0
_NAME = Parameter("name", "name of the queue or topic", required=True)
_GROUP = Parameter("group", "name of a replica group", required=True)
_TO = Parameter("group", "only if it is being moved to this one")


class Moving:
    def __init__(self, node: "ClusterNode") -> None:
        self._node = node
        self._deciding: set[tuple[str, int, str]] = set()  # names, numbers, and what is asked to be decided

    def _primary_of(self, number: int) -> str:
        found = next((c for c in self._node.configurations.values() if c.number == number), None)
        return found.primary.node if found is not None and found.primary is not None else ""

    def decide(self, decision: MoveDone | MoveEnded) -> None:
        key = (decision.destination, decision.number, type(decision).__name__)
        if key not in self._deciding:  # else it is being asked for, until there is an answer
            self._deciding.add(key)
            self._node.spawn(self._decide(decision, key))

    async def _decide(self, decision: MoveDone | MoveEnded, key: tuple[str, int, str]) -> None:
        try:
            answered = await self._node.membership.request(decision, timeout_s=_DECIDE_S_MAX)
        except TimeoutError:
            return  # asked for again by whoever wants it
        finally:
            self._deciding.discard(key)
        if answered.code:
            _log.info("move-undecided: %s of %r: %s", key[2], decision.destination, answered.reason)

    # -- commands ------------------------------------------------------------------------------------------

    def under_way(self) -> list[dict[str, Any]]:
        """Of the groups whose primary is here."""
        managers = [host.manager for host in self._node.replicas.values() if host.manager is not None]
        return [described for manager in managers for described in manager.moves.describe()]

    async def begin(self, arguments: Arguments) -> dict[str, Any]:
        name, group = arguments["name"], arguments["group"]
        check_name(name)
        if group not in self._node.configurations:
            known = ", ".join(sorted(self._node.configurations))
            raise Rejected("unknown-group", f"there is no replica group {group!r}; there are {known}")
        is_there = await self._decided(MoveBegun(name, group)) == "already-there"
        move = self._node.placement.moves.get(name)
        return {"name": name, "group": group, "is_there": is_there, "number": 0 if move is None else move.number}

    async def cancel(self, arguments: Arguments) -> dict[str, Any]:
        name = arguments["name"]
        move = self._node.placement.moves.get(name)
        if move is None:
            raise Rejected("not-moving", f"{name!r} is not being moved")
        names = {c.number: c.group for c in self._node.configurations.values()}
        group, target = arguments.get("group") or "", names.get(move.target, "")
        if group not in ("", target):
            raise Rejected("not-moving", f"{name!r} is being moved to group {target!r}, not to {group!r}")
        await self._decided(MoveEnded(name, move.number, "cancelled", "the administrator has cancelled it"))
        return {"name": name, "number": move.number}

    async def _decided(self, decision: MoveBegun | MoveEnded) -> str:
        """Known here when it returns, as a rule; the code `already-there`, or raises `Rejected`."""
        answered = await decided(self._node, decision)
        if answered.code not in ("", "already-there"):
            raise Rejected(answered.code, answered.reason)
        await self._node.membership.applied_soon(answered.index)
        return answered.code

    async def moves(self, _: Arguments) -> dict[str, Any]:
        placement = self._node.placement
        names = {c.number: c.group for c in self._node.configurations.values()}
        primaries = {self._primary_of(move.source) for move in placement.moves.values()} - {""}
        steps: dict[int, dict[str, Any]] = {}
        if primaries:
            composite = await self._node.desk.ask(sorted(primaries), "node.moves", {})
            told = [described for reply in composite.replies.values() for described in reply.result or ()]
            steps = {described["number"]: described for described in told}
        return {
            "begun": placement.moves_begun,
            "moving": [_described(name, move, names, steps) for name, move in sorted(placement.moves.items())],
            "ended": [
                {"name": name, "number": end.number, "code": end.code, "reason": end.reason}
                for name, end in sorted(placement.moves_ended.items())
            ],
            "moved": {name: names.get(number, "") for name, number in sorted(placement.exceptions.items())},
        }


def _described(name: str, move: Move, names: dict[int, str], steps: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name, "number": move.number, "source": names.get(move.source, ""),
        "target": names.get(move.target, ""), "step": "waiting for the primary of its group", "rows": 0, "bytes": 0,
        **steps.get(move.number, {}),
    }  # fmt: skip


def register_moves(registry: Registry, moving: Moving) -> None:
    register = registry.register
    register(CommandSpec("cluster.move-destination", "move a destination to another replica group", Scope.CLUSTER,
                         (_NAME, _GROUP)), moving.begin)  # fmt: skip
    register(CommandSpec("cluster.cancel-move", "leave a destination where it is", Scope.CLUSTER, (_NAME, _TO)),
             moving.cancel)  # fmt: skip
    register(CommandSpec("cluster.moves", "destinations that are being moved, and those that were", Scope.CLUSTER),
             moving.moves)  # fmt: skip
    register(CommandSpec("node.moves", "destinations that leave groups whose primary the node is", Scope.NODE),
             lambda _: moving.under_way())  # fmt: skip

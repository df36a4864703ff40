"""Who votes: the command `cluster.set-voters`.

It is decided who shall vote; the leader of group services takes voters in and out, one at a time, a new one when it has
all that was decided. So a voter that is lost for good is replaced while everything goes on, as long as there is a
majority of those that vote.
"""
from typing import TYPE_CHECKING, Any

from angarium.core.commands import CommandSpec, Kind, Parameter, Scope
from angarium.core.errors import Rejected
from angarium.core.groups.decisions import VotersWanted
from angarium.node.cluster.deciding import decided
from angarium.node.cluster.settings import VOTERS
from angarium.node.registry import Arguments, Registry

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_NODES = Parameter("nodes", "names of one, three or five nodes", Kind.TEXTS, required=True)


def register_voting(registry: Registry, node: "ClusterNode") -> None:
    async def set_voters(arguments: Arguments) -> dict[str, Any]:
        return await _set_voters(node, tuple(arguments["nodes"]))

    registry.register(
        CommandSpec("cluster.set-voters", "have these nodes decide, and no others", Scope.CLUSTER, (_NODES,)),
        set_voters,
    )


async def _set_voters(node: "ClusterNode", nodes: tuple[str, ...]) -> dict[str, Any]:
    state = node.membership.machine.state
    if len(nodes) not in VOTERS or len(set(nodes)) != len(nodes):
        raise Rejected("bad-voters", f"{', '.join(nodes)[:200]}: name one, three or five nodes, each once")
    for name in nodes:
        if name not in state.voters_wanted and name not in node.nodes.view:
            here = ", ".join(sorted(node.nodes.view))
            raise Rejected("not-here", f"node {name[:50]!r} is not in the cluster just now: start it first; {here} are")
    if set(nodes) != set(state.voters_wanted):
        answered = await decided(node, VotersWanted(state.voters_wanted, nodes))
        if answered.code:
            raise Rejected(answered.code, answered.reason)
        await node.membership.applied_soon(answered.index)
    return {"voters": list(nodes)}

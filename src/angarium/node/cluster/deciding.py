"""Have group services decide something that a person has asked for."""
from typing import TYPE_CHECKING

from angarium.core.errors import Rejected
from angarium.core.groups.protocol import Request
from angarium.node.cluster.membership import Answered
from angarium.node.cluster.status import no_majority

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

DECIDED_S_MAX = 10.0


async def decided(node: "ClusterNode", request: Request) -> Answered:
    """By group services; raises `Rejected` if nothing is decided in time."""
    try:
        return await node.membership.request(request, timeout_s=DECIDED_S_MAX)
    except TimeoutError:
        why = no_majority(node) or "the leader of group services does not answer; ask again"
        raise Rejected("undecided", f"nothing was decided within {DECIDED_S_MAX:g} s: {why}") from None

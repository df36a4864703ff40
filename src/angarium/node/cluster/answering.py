"""Between the replicas of a node and client managers, over links: answers, that a message manager serves, and pages of
logs that a backup tells."""
from typing import TYPE_CHECKING

from angarium.core.wire import frames
from angarium.core.wire.envelope import seal
from angarium.node.cluster import log_reads, services
from angarium.node.cluster.machinery import BusLike
from angarium.node.cluster.replica import ReplicaHost
from angarium.node.cluster.services import Service

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

ROLE_CM, ROLE_MM = "cm", "mm"


class Answering:
    def __init__(self, node: "ClusterNode", bus: BusLike) -> None:
        self._node = node
        self._incarnation = node.identity.incarnation
        self._bus = bus
        self._passed_on = 0

    # -- message managers ------------------------------------------------------------------------------------

    def tell_serving(self, node: bytes, replica: ReplicaHost, *, is_anew: bool = False) -> None:
        if replica.manager is None:
            return
        front = self._node.front
        if node == self._incarnation:
            if front is not None:
                front.serving(node, replica.number, replica.started_epoch)
            return
        told = services.encode(services.Serving(replica.number, replica.started_epoch, is_anew))
        if not self._bus.send_to(node, Service.SERVING, told):
            self._bus.drop(node)  # it would never hear of it; told again when it is linked anew

    def now_serving(self, replica: ReplicaHost) -> None:
        for incarnation in (self._incarnation, *self._node.nodes.linked):
            self.tell_serving(incarnation, replica)

    def answer(self, incarnation: bytes, parts: list[bytes]) -> None:
        head, payload = parts[0], parts[1] if len(parts) > 1 else b""
        if incarnation == self._incarnation:
            if self._node.front is not None:
                self._node.front.answered(incarnation, head + payload)
        elif not self._bus.send_to(incarnation, Service.ANSWERS, head, payload):
            self._bus.drop(incarnation)  # an answer that is lost must be noticed at both ends

    def pass_on(self, parts: list[bytes]) -> None:
        """Asked again until it is answered: so another one each time."""
        if managers := self._client_managers():
            self._passed_on += 1
            self.answer(managers[self._passed_on % len(managers)], parts)

    def _client_managers(self) -> list[bytes]:
        """Those that can be told something: this node, or one that there is a link to."""
        nodes = self._node.nodes
        linked = {*nodes.linked, self._incarnation}
        return [r.incarnation for r in nodes.view.values() if ROLE_CM in r.roles and r.incarnation in linked]

    def to_client_manager(self, service: Service, message: bytes) -> bool:
        """To any of them; False if there is none."""
        managers = self._client_managers()
        return bool(managers) and self._bus.send_to(managers[0], service, message)

    # -- pages of logs ---------------------------------------------------------------------------------------

    def backups(self, number: int) -> list[bytes]:
        """Nodes that can be reached with a replica of the group that is in sync, and not primary."""
        node = self._node
        found = (c for c in node.configurations.values() if c.number == number)
        names = [replica.node for c in found for replica in c.in_sync[1:]]
        if node.name in names:
            return [self._incarnation]
        nodes = [node.nodes.incarnation_of(name) for name in names]
        return [incarnation for incarnation in nodes if incarnation is not None and incarnation in node.nodes.linked]

    async def answer_log_read(self, node: bytes, group: int, session: bytes, request: frames.Request) -> None:
        reply, payload = log_reads.not_here(request), b""
        replica = self._node.replica_numbered(group)
        if replica is not None:
            reply, payload = await replica.log_reads.answer(request)
        head = seal(group, 0, session, 0, reply, payload)[0]
        self._node.send_to(node, Service.LOG_PAGES, head, payload)  # if it cannot be sent, the primary will be asked

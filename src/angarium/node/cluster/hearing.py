"""What a node of a cluster hears from the bus: messages of channels, records over links, neighbours that come and go.

Each finds its way to whom it concerns: a copy of a group, the front, group services, the desk. Nothing is decided.
"""
import asyncio
import logging
from typing import TYPE_CHECKING

from angarium.core.bus import events as b
from angarium.core.errors import RemoteProtocolError
from angarium.node.cluster import log_reads, services
from angarium.node.cluster.services import Service
from angarium.runtime import cluster_bus as bus

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_log = logging.getLogger("angarium")
_REFUSED_EVERY_S = 30.0
_REFUSED_MAX = 100  # different reasons that are remembered


class Hearing:
    def __init__(self, node: "ClusterNode") -> None:
        self._node = node
        self._nodes = node.nodes
        self._hosting = node.hosting
        self._replicas = node.replicas
        self._front = node.front
        self._refused: dict[str, float] = {}  # reasons, and when each is told again

    def told(self, event: bus.BusEvent) -> None:
        match event:
            case b.Delivered(channel, sender, number, messages):
                self._delivered(channel, sender, number, messages)
            case bus.RecordReceived(node, service, message, payload):
                try:
                    self.record(node, service, message, payload)
                except RemoteProtocolError as error:
                    _log.warning("bad-message: from %s: %s", self._nodes.shown(node), error.reason)
            case b.NeighbourFound(node, name):
                self._neighbour_found(node, name)
            case b.NeighbourLost(node):
                self._neighbour_lost(node)
            case b.ChannelBlocked(channel) | b.ChannelUnblocked(channel):
                if self._front is not None:
                    self._front.channel_blocked(channel, isinstance(event, b.ChannelBlocked))
            case b.StreamLost(channel, sender, _, reason):
                self._stream_lost(channel, sender, reason)
            case b.Evicted(channel, receiver):
                _log.warning("evicted: channel %d, %s is too slow", channel, self._nodes.shown(receiver))
                if self._front is not None:
                    self._front.lost(receiver, channel)
            case b.StreamStarted(channel, sender):
                self._stream_started(channel, sender)
            case bus.LinkBlocked(node, blocked):
                for replica in self._replicas.values():
                    replica.client_manager_stalled(node, blocked)
            case bus.PeerRefused(reason):
                self._peer_refused(reason)

    def _peer_refused(self, reason: str) -> None:
        """It dials again and again: the same is told once in a while."""
        now = asyncio.get_running_loop().time()
        if self._refused.get(reason, 0.0) <= now:
            if len(self._refused) >= _REFUSED_MAX:
                self._refused.clear()
            self._refused[reason] = now + _REFUSED_EVERY_S
            _log.warning("peer-refused: %s", reason)

    def _delivered(self, channel: int, sender: bytes, number: int, messages: list[bytes]) -> None:
        name = self._nodes.name_of(sender)
        replica = self._hosting.numbered(channel)
        if name is None or replica is None:
            return
        for at, message in enumerate(messages):
            try:
                replica.from_channel(name, sender, number + at, message)
            except RemoteProtocolError as error:
                _log.warning("bad-message: from %s: %s", name, error.reason)

    def _stream_lost(self, channel: int, sender: bytes, reason: str) -> None:
        _log.warning("stream-lost: channel %d, from %s: %s", channel, self._nodes.shown(sender), reason)
        replica = self._hosting.numbered(channel)
        if replica is not None:
            replica.client_manager_gone(sender)  # we do not know what it said
        if self._nodes.is_here and self._nodes.name_of(sender) is not None:
            self._node.bus.rejoin(channel, sender)

    def _stream_started(self, channel: int, sender: bytes) -> None:
        """What this client manager says from now on is heard: let it know. What it said before may not have been, and
        it may know nothing of that: one of us was out of the view for a moment."""
        replica = self._hosting.numbered(channel)
        if replica is not None:
            self._node.answering.tell_serving(sender, replica, is_anew=True)

    def record(self, node: bytes, service: int, message: bytes, payload: bytes) -> None:
        name = self._nodes.name_of(node)
        if name is None:
            return
        match service:
            case Service.GROUPS:
                self._node.membership.received(name, message)
            case Service.REPLICA:
                group, _, rest = message.partition(b"\0")
                host = self._replicas.get(group.decode(errors="replace"))
                if host is not None:
                    host.from_replica(name, rest + payload)
            case Service.ANSWERS if self._front is not None:
                self._front.answered(node, message + payload)
            case Service.SERVING if self._front is not None:
                told = services.decode_serving(message)
                self._front.serving(node, told.group, told.epoch, is_anew=told.is_anew)
            case Service.LOG_READS:
                self._node.spawn(self._node.answering.answer_log_read(node, *log_reads.asked_of(message)))
            case Service.LOG_PAGES if self._front is not None:
                self._front.log_reads.answered(message + payload)
            case Service.ADMIN:
                self._node.desk.received(name, services.decode_admin(message))
            case Service.EVENTS:
                self._node.desk.events_received(message)

    def _neighbour_found(self, node: bytes, name: str) -> None:
        self._nodes.found(name, node)
        self._node.membership.found(name)
        for replica in self._replicas.values():
            self._node.answering.tell_serving(node, replica)

    def _neighbour_lost(self, node: bytes) -> None:
        name = self._nodes.lost(node)
        self._node.membership.lost(name, node)
        if self._front is not None:
            self._front.lost(node)
        for replica in self._replicas.values():
            replica.client_manager_gone(node)
        record = self._nodes.view.get(name)
        if record is not None and record.incarnation == node:
            self._node.spawn(self._node.probe(record))

"""Administration, configuration and events of a node of a cluster: what a client asks, and what other nodes ask.

A question to all goes to every node that is expected: those in the view, and those that the configuration names. A
change of the configuration is decided by group services, and comes back to every node as part of the state; a node that
was away finds it there when it joins.
"""
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from angarium.core.errors import Rejected
from angarium.core.groups.decisions import SettingSet
from angarium.core.malformed import MALFORMED
from angarium.core.session import events as cm
from angarium.core.wire import frames
from angarium.node.acquired import Acquired, Setting
from angarium.node.administration import Administration, AdministrationWays, Composite
from angarium.node.cluster.asking import ANSWER_S_MAX, Asking
from angarium.node.cluster.commands import register_node
from angarium.node.cluster.deciding import decided
from angarium.node.cluster.services import Answer, Question, Service, decode_events, encode, encode_events
from angarium.node.cluster.settings import voter_addresses
from angarium.node.config_commands import ConfigCommands
from angarium.node.event_commands import register_events
from angarium.node.event_feed import EventFeed
from angarium.node.event_log import Event, EventLog
from angarium.node.live_config import LiveConfig
from angarium.node.manager_requests import ManagerRequests
from angarium.node.registry import Arguments

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_log = logging.getLogger("angarium")
_DRAIN_S_MAX = 0.5


class ClusterDesk:
    def __init__(self, node: "ClusterNode", live: LiveConfig, log: EventLog | None) -> None:
        self._node = node
        self.live = live
        self._log = log
        self._asking = Asking(self._send, lambda name: name in node.nodes.view)
        self._requests = ManagerRequests(self._own_out)
        ways = AdministrationWays(nodes=self.expected, ask=self.ask, ask_manager=self._ask_manager)
        self._administration = Administration(node.name, ways)
        registry = self._administration.registry
        register_node(registry, node)
        ConfigCommands(live, self._administration, self._decide)
        live.used_by(node.change_settings)
        self._feed: EventFeed | None = None
        if log is not None:
            register_events(registry, log)
            if node.front is not None:
                self._feed = EventFeed(log, publish=self._own_out)
            else:
                self._feed = EventFeed(log, hand_on=self._hand_on)

    # -- commands ------------------------------------------------------------------------------------------

    async def answer(self, request: frames.Request) -> frames.Reply:
        """To a client, or a message to `_ADMIN`."""
        return await self._administration.answer(request)

    def expected(self) -> list[str]:
        """All nodes that should be there: in the view, or to hold a copy, or to vote; before anything is decided, those
        that the configuration names."""
        node = self._node
        members = [name for found in node.configurations.values() for name in found.members]
        voters = node.membership.machine.state.voters_wanted or voter_addresses(node.cluster_settings)
        return list(dict.fromkeys([*node.nodes.view, *members, *voters]))

    async def ask(
        self, nodes: Iterable[str], command: str, arguments: Arguments, *, timeout_s: float = ANSWER_S_MAX
    ) -> Composite:
        return await self._asking.ask(nodes, command, arguments, timeout_s=timeout_s)

    async def ask_linked(self, nodes: Iterable[str], command: str) -> Composite:
        """For a node that is not in the cluster (yet)."""
        return await self._asking.ask(nodes, command, is_here=lambda _: True)

    async def _ask_manager(self, request: frames.Request) -> frames.Reply:
        if self._node.front is None:
            return frames.Reply(request.number, "not-here", "clients do not connect to this node: ask another")
        return await self._requests.ask(request)

    def received(self, node: str, message: Question | Answer) -> None:
        """From another node, or from this one."""
        if isinstance(message, Answer):
            self._asking.answered(node, message)
        else:
            self._node.spawn(self._answer_node(node, message))

    async def _answer_node(self, node: str, question: Question) -> None:
        reply = await self._administration.local(question.command, question.arguments)
        self._send(node, encode(Answer(question.number, reply.code, reply.reason, reply.result)))

    def _send(self, node: str, message: bytes) -> None:
        self._node.send(node, Service.ADMIN, message)

    def view_changed(self) -> None:
        self._asking.view_changed()

    # -- configuration -------------------------------------------------------------------------------------

    async def _decide(self, key: str, value: object | None) -> int:
        encoded = None if value is None else msgspec.msgpack.encode(value)
        membership = self._node.membership
        answered = await decided(self._node, SettingSet(key, encoded))
        if answered.code:
            raise Rejected(answered.code, answered.reason)
        await membership.applied_soon(answered.index)
        state = membership.machine.state
        setting = state.settings.get(key)
        return state.settings_version if setting is None else setting.version

    def settings_decided(self) -> None:
        """Take what has been decided, whole: also what this node has in its file and the cluster does not know."""
        state = self._node.membership.machine.state
        settings: dict[str, Setting] = {}
        for key, setting in state.settings.items():
            try:
                settings[key] = Setting(msgspec.msgpack.decode(setting.value), setting.version)
            except MALFORMED as error:
                _log.error("setting-left-out: %s: its decided value cannot be read: %s", key, error)
        self.live.adopt(Acquired(state.settings_version, settings))

    # -- events --------------------------------------------------------------------------------------------

    def _own_out(self, event: cm.PublishOwn | cm.AskManager) -> None:
        assert self._node.front is not None
        self._node.front.own(event)

    def own(self, command: cm.OwnPublished | cm.ManagerReplied) -> None:
        """What has become of something that the node itself published or asked."""
        if isinstance(command, cm.ManagerReplied):
            self._requests.replied(command)
        elif self._feed is not None:
            self._feed.published(command)

    def _hand_on(self, events: list[Event]) -> bool:
        return self._node.send_to_client_manager(Service.EVENTS, encode_events(events))

    def events_received(self, message: bytes) -> None:
        """Of a node that clients do not connect to."""
        if self._log is not None:
            self._log.publish(decode_events(message))

    async def stop(self) -> None:
        if self._feed is not None:
            await self._feed.stop(drain_s_max=_DRAIN_S_MAX)

"""Administration, configuration and events of a broker that is alone: a cluster of one."""
import asyncio
from typing import TYPE_CHECKING

from angarium.core.commands import CommandSpec, Scope
from angarium.core.session import events as cm
from angarium.core.wire import frames
from angarium.node.administration import Administration, AdministrationWays, Composite
from angarium.node.config_commands import ConfigCommands
from angarium.node.event_commands import register_events
from angarium.node.event_feed import EventFeed
from angarium.node.event_log import EventLog
from angarium.node.live_config import LiveConfig, with_setting
from angarium.node.manager_requests import ManagerRequests
from angarium.node.registry import Arguments

if TYPE_CHECKING:
    from angarium.node.broker import Broker

_DRAIN_S_MAX = 0.5
_STATUS = CommandSpec("node.status", "how the node is doing", Scope.NODE)


class BrokerDesk:
    def __init__(self, broker: "Broker", name: str, live: LiveConfig, log: EventLog) -> None:
        self._broker = broker
        self._name = name
        self._live = live
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = ManagerRequests(broker.own)
        ways = AdministrationWays(nodes=lambda: [name], ask=self._ask, ask_manager=self._requests.ask)
        self._administration = Administration(name, ways)
        self._administration.registry.register(_STATUS, lambda _: broker.status())
        ConfigCommands(live, self._administration, self._decide)
        register_events(self._administration.registry, log)
        live.used_by(broker.change_settings)
        self._feed = EventFeed(log, publish=broker.own)

    def asked(self, session: bytes, request: frames.Request) -> None:
        """By a client, or by a message to `_ADMIN`."""
        task = asyncio.get_running_loop().create_task(self._answer(session, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, session: bytes, request: frames.Request) -> None:
        self._broker.tell(session, await self._administration.answer(request))

    async def _ask(self, nodes: list[str], command: str, arguments: Arguments) -> Composite:
        return Composite({self._name: await self._administration.local(command, arguments)})

    async def _decide(self, key: str, value: object | None) -> int:
        self._live.adopt(with_setting(self._live.acquired, key, value))
        return self._live.version

    def own(self, command: cm.OwnPublished | cm.ManagerReplied) -> None:
        """What has become of something that the node itself published or asked."""
        if isinstance(command, cm.OwnPublished):
            self._feed.published(command)
        else:
            self._requests.replied(command)

    async def stop(self) -> None:
        await self._feed.stop(drain_s_max=_DRAIN_S_MAX)
        for task in self._tasks:
            task.cancel()


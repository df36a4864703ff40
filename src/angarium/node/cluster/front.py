"""The side of a node that clients see: listener, client manager, and the way to the message managers of all groups.

    clients <── listener ── client manager ── destination service ──> channels of the groups
                                  ▲                                          │
                                  └──────────── links: answers ──────────────┘

What is for a group whose message manager is not known yet, or was lost, is dropped: when one tells that it serves, the
group's sessions are detached, and open everything again. It is lost when another one was started, when the link to it
broke (answers may have been lost), or when it has missed something of our stream on the channel. A channel that is
blocked makes those wait who send into it.
"""
import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from angarium.core.errors import MessageTooLong
from angarium.core.groups.records import Placement
from angarium.core.ids import ANYBODY
from angarium.core.report import Report
from angarium.core.session import events as cm
from angarium.core.session.client_manager import ClientManager
from angarium.core.session.destination_service import DestinationService, Posted
from angarium.core.session.stranded import LOOK_EVERY_S, StrandedGroups
from angarium.core.session.unserved import UnservedRequests
from angarium.core.wire import frames
from angarium.core.wire.envelope import open_envelope, seal
from angarium.node.cluster.log_reads import LogReadsFront
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.services import OnChannel
from angarium.node.config import NodeConfig
from angarium.node.holding import Holding
from angarium.node.identity import Identity
from angarium.node.limits import fit_in_cluster, raise_descriptors_max

_log = logging.getLogger("angarium")
_ENVELOPE = bytes([OnChannel.ENVELOPE])
_ANEW = bytes([OnChannel.ANEW])
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class FrontWays:
    """Out of the front, to the rest of the node."""

    multicast: Callable[[int, list[bytes]], None]  # on the channel of the group with that number
    backups: Callable[[int], list[bytes]]  # nodes whose replica of that group is in sync, and not primary
    ask_backup: Callable[[bytes, bytes], bool]  # for a page of a log: node and envelope
    is_blocked: Callable[[int], bool]  # that channel takes no more, counting what was sent in this turn of the loop
    ask_node: Callable[[bytes, frames.Request], None]  # answered by `FrontEnd.tell`
    own: Callable[[cm.OwnPublished | cm.ManagerReplied], None] = lambda _: None  # of what `FrontEnd.own` was given
    out_of_reach: Callable[[], list[int]] = list  # groups that others may be served by, and nobody through this node
    why_unserved: Callable[[int], str] = "replica group {} has no primary".format  # for people


@dataclass(slots=True)
class _Waiting:
    """For a channel that is blocked."""

    parts: list[bytes]
    connection: int
    size_bytes: int
    is_passed_on: bool = False


class FrontEnd:
    def __init__(
        self, config: NodeConfig, identity: Identity, name: str, ways: FrontWays, machinery: Machinery
    ) -> None:
        self._ways = ways
        self._loop = asyncio.get_running_loop()
        self._session_settings = config.session
        settings = _fitted(config)
        self.manager = ClientManager(
            settings, identity.ids, node=name, incarnation=identity.incarnation,
            wall_ms_at_zero=machinery.wall_ms() - self._loop.time() * 1000,
        )  # fmt: skip
        self.listener = machinery.listener(config.listener, settings.frame_bytes_max, self._from_client)
        self.service = DestinationService()
        self.log_reads = LogReadsFront(ways.backups, ways.ask_backup, self._send_to_primary, self._tell)
        self._holding = Holding(unwritten_bytes_max=config.node.unwritten_bytes_max)
        self._serving: dict[int, tuple[bytes, int]] = {}  # node and epoch of the message manager of each group
        self._epochs_seen: dict[int, int] = {}  # the highest; a lower one is over
        self._unserved = UnservedRequests()
        self._stranded = StrandedGroups()
        self._look_around = self._loop.call_later(LOOK_EVERY_S, self._look_for_stranded)
        self._blocked: dict[int, list[_Waiting]] = {}  # channels that take no more, and what waits for them
        self._looking: set[int] = set()  # channels that are looked at again soon
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None

    # -- from the cluster --------------------------------------------------------------------------------

    def placed(self, placement: Placement) -> None:
        moved = self.service.placed(placement)
        if self.service.groups:
            self._run(self.manager.handle(cm.GroupsKnown(self.service.groups), now=self._loop.time()))
        if moved is not None:
            self._run(self.manager.handle(moved, now=self._loop.time()))

    def serving(self, node: bytes, group: int, epoch: int, *, is_anew: bool = False) -> None:
        """The message manager of the group runs on that node, started in that epoch: from now on it hears us.
        `is_anew`: and may have missed what we said before."""
        if epoch < self._epochs_seen.get(group, 0) or (self._serving.get(group) == (node, epoch) and not is_anew):
            return
        self._epochs_seen[group] = epoch
        self._serving[group] = (node, epoch)
        self._unserved.served(group)
        self._begin_anew(group)

    def is_served(self, group: int) -> bool:
        return group in self._serving

    def lost(self, node: bytes, group: int | None = None) -> None:
        """That node has missed something that was said to it, or we something that it said: void until it tells anew
        that it serves."""
        for serving in [g for g, (server, _) in self._serving.items() if server == node and group in (None, g)]:
            del self._serving[serving]
            self._unserved.lost(serving, now=self._loop.time())
        self._arm()

    def lost_all(self) -> None:
        """This node was out of the cluster for a while: everything between it and all groups is void."""
        for group in self._serving:
            self._begin_anew(group)

    def _begin_anew(self, group: int) -> None:
        self.service.group_lost(group)
        for waiting in self._blocked.get(group, ()):
            self._handled(waiting)
        self._blocked.pop(group, None)
        # The same message manager may serve as before. Of what we said to it some may still be on its way, and come
        # after it has ended our sessions, or after we open them again.
        if group in self.service.groups:  # else nobody here has ever said anything to it
            self._into_channel(group, [_ANEW])
        self._run(self.manager.handle(cm.GroupLost(group), now=self._loop.time()))

    def answered(self, node: bytes, data: bytes) -> None:
        """From a message manager, over a link."""
        envelope = open_envelope(data)
        if (node, envelope.epoch) != self._serving.get(envelope.group):
            return  # one that was primary, or is not yet known to be
        event = self.service.answered(envelope.group, cm.FromBus(envelope.session, envelope.frame, envelope.payload))
        if event is not None:
            self._run(self.manager.handle(event, now=self._loop.time()))

    def tell(self, session: bytes, frame: frames.Frame) -> None:
        """The answer to a request about the node, or the cluster."""
        self._tell(session, frame, b"")

    def _tell(self, session: bytes, frame: frames.Frame, payload: bytes) -> None:
        self._run(self.manager.handle(cm.FromBus(session, frame, payload), now=self._loop.time()))

    def own(self, event: cm.PublishOwn | cm.AskManager) -> None:
        """Something that the node itself publishes, or asks a message manager."""
        self._run(self.manager.handle(event, now=self._loop.time()))

    def change_settings(self, config: NodeConfig) -> None:
        self._holding.unwritten_bytes_max = config.node.unwritten_bytes_max
        self.listener.settings = config.listener
        if config.session != self._session_settings:
            self._session_settings = config.session
            self._run(self.manager.handle(cm.SettingsChanged(_fitted(config)), now=self._loop.time()))

    def channel_blocked(self, group: int, blocked: bool) -> None:
        if blocked:
            self._wait_for(group)
        else:
            self._send_waiting(group)

    def _wait_for(self, group: int) -> list[_Waiting]:
        """From now on what is for that channel waits. It tells when it is no longer blocked; unless it was closed and
        opened meanwhile, or only what was sent in one turn of the loop was too much: so somebody looks, too."""
        if group not in self._looking:
            self._looking.add(group)
            self._loop.call_later(_LOOK_AGAIN_S, self._look_again, group)
        return self._blocked.setdefault(group, [])

    def _look_again(self, group: int) -> None:
        self._looking.discard(group)
        if group in self._blocked:
            self._send_waiting(group)

    def _send_waiting(self, group: int) -> None:
        """As much of it as the channel takes: more may wait than has room there."""
        queue = self._blocked.pop(group, [])
        for sent, waiting in enumerate(queue):
            if self._ways.is_blocked(group):
                self._wait_for(group).extend(queue[sent:])
                return
            self._multicast(group, waiting.parts, waiting.is_passed_on)
            self._handled(waiting)

    def _handled(self, waiting: _Waiting) -> None:
        if waiting.connection and self._holding.handled(waiting.connection, waiting.size_bytes):
            self.listener.hold(waiting.connection, False)

    # -- from clients ------------------------------------------------------------------------------------

    def _from_client(self, event: cm.Event) -> None:
        connection = event.connection if isinstance(event, cm.FramesReceived) else 0
        self._run(self.manager.handle(event, now=self._loop.time()), connection)
        if isinstance(event, cm.FramesReceived) and self._holding.received(connection, event.received):
            self.listener.hold(connection, True)
        if isinstance(event, cm.ConnectionLost):
            self._holding.ended(event.connection)

    def _run(self, commands: list[cm.Command], connection: int = 0) -> None:
        for command in commands:
            match command:
                case cm.SendFrame(number, session, frame, payload):
                    self.listener.send(number, session, frame, payload)
                case cm.ToBus():
                    self._post(command, connection)
                case cm.CloseConnection(number):
                    self.listener.close_connection(number)
                case cm.AskNode(session, frame):
                    assert isinstance(frame, frames.Request)
                    self._loop.call_soon(self._ways.ask_node, session, frame)
                case cm.OwnPublished() | cm.ManagerReplied():
                    self._ways.own(command)
                case Report():
                    _log.log(command.level, "%s: %s", command.code, command.text)
        self.listener.flush()
        self._arm()

    def _post(self, command: cm.ToBus, connection: int) -> None:
        if isinstance(command.frame, frames.SessionEnded | frames.ClientEnded):
            self._unserved.ended(command.session)
        if not command.destination and not self.service.is_placed:
            return  # nothing has been dealt to groups yet: asked again when the first of them serves
        for posted in self.service.route(command):
            if not self.log_reads.take(posted):
                self._send(posted, connection)

    def _send_to_primary(self, posted: Posted) -> None:
        self._send(posted, 0)

    def _send(self, posted: Posted, connection: int) -> None:
        command, serving = posted.command, self._serving.get(posted.group)
        if isinstance(command.frame, frames.Request):
            self._unserved.asked(
                posted.group, command.session, command.frame.number, is_served=serving is not None,
                now=self._loop.time(),
            )  # fmt: skip
        if serving is None:
            self._arm()
            return
        parts = seal(
            posted.group, serving[1], command.session, command.destination, command.frame, command.payload,
            turn=self.manager.turn_of(command.session),
        )  # fmt: skip
        parts.insert(0, _ENVELOPE)
        self._into_channel(posted.group, parts, connection, is_passed_on=command.session == ANYBODY)

    def _multicast(self, group: int, parts: list[bytes], is_passed_on: bool) -> None:
        """What clients send is bounded by `frame_bytes_max`. What one message manager has us pass on to another is not
        ours, and must not stop this node: it is dropped, and whoever said it hears no answer."""
        try:
            self._ways.multicast(group, parts)
        except MessageTooLong as error:
            if not is_passed_on:
                raise
            _log.error("not-passed-on: between message managers: %s", error)

    def _into_channel(
        self, group: int, parts: list[bytes], connection: int = 0, *, is_passed_on: bool = False
    ) -> None:
        waiting = self._blocked.get(group)
        if waiting is None:
            if not self._ways.is_blocked(group):
                self._multicast(group, parts, is_passed_on)
                return
            waiting = self._wait_for(group)
        size_bytes = sum(map(len, parts))
        waiting.append(_Waiting(parts, connection, size_bytes, is_passed_on))
        if connection:
            self._holding.posted(connection, 1, size_bytes)

    # -- time --------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        for group, session, number in self._unserved.refused(now=self._loop.time()):
            self.service.give_up(session, number)
            self._tell(session, frames.Reply(number, "no-primary", self._ways.why_unserved(group)), b"")
        self._run(self.manager.handle(cm.Tick(), now=self._loop.time()))

    def _look_for_stranded(self) -> None:
        self._look_around = self._loop.call_later(LOOK_EVERY_S, self._look_for_stranded)
        now = self._loop.time()
        if groups := self._stranded.seen(self._ways.out_of_reach(), now=now):
            self._run(self.manager.handle(cm.GroupsStranded(groups), now=now))

    def _arm(self) -> None:
        at = min((at for at in (self.manager.deadline(), self._unserved.deadline()) if at is not None), default=None)
        if at is None or (self._timer_at is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._tick)

    async def stop(self, reason: str, *, drain_s_max: float) -> None:
        self._look_around.cancel()
        self.listener.stop_accepting()
        self._run(self.manager.handle(cm.ShutDown(reason), now=self._loop.time()))
        await self.listener.close(drain_s_max=drain_s_max)
        if self._timer is not None:
            self._timer.cancel()


def _fitted(config: NodeConfig) -> cm.SessionSettings:
    descriptors_max = raise_descriptors_max(config.session.connections_max)
    fitted = fit_in_cluster(config.session, config.destination, descriptors_max=descriptors_max)
    for text in fitted.lowered:
        _log.warning("limit-lowered: %s", text)
    return fitted.session

"""A node of a cluster: group services, the bus, the replicas it holds, and the front that clients see.

    bus (runtime/cluster_bus.py) ── links ──> membership.py     who is here, who is primary
                │                              replica.py        one for each group that names this node
                └─────────────── channels ──>  front.py          if clients connect here

This only connects. The channel of a group has the group's number; everybody who holds a copy receives on it, everybody
may send. Names of nodes are looked up in the view that group services have decided; before there is one, among the
neighbours that have proven themselves.
"""
import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from angarium.core.bus import events as b
from angarium.core.errors import MessageTooLong, Unavailable
from angarium.core.groups import changes as c
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.decisions import GroupConfigured
from angarium.core.groups.group_services import GroupServices
from angarium.core.groups.messages import FromReplicaMessage, ToReplicaMessage
from angarium.core.groups.records import NodeRecord, Placement
from angarium.core.groups.settings import GroupSettings
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.node.acquired import Acquired
from angarium.node.cluster.answering import ROLE_CM, ROLE_MM, Answering
from angarium.node.cluster.buses import Buses
from angarium.node.cluster.commands import differing
from angarium.node.cluster.desk import ClusterDesk
from angarium.node.cluster.front import FrontEnd, FrontWays
from angarium.node.cluster.hearing import Hearing
from angarium.node.cluster.hosting import Hosting, HostingWays
from angarium.node.cluster.machinery import BusLike, Machinery
from angarium.node.cluster.membership import MembershipDriver, MembershipUsers
from angarium.node.cluster.moving import Moving
from angarium.node.cluster.nodes import Nodes
from angarium.node.cluster.replica import ReplicaHost, Ways
from angarium.node.cluster.services import Service
from angarium.node.cluster.settings import (
    essential_digest,
    group_members,
    node_address,
    seed_addresses,
    voter_addresses,
)
from angarium.node.cluster.status import group_health, out_of_reach
from angarium.node.cluster.stores import Stores, store_identity, table_records
from angarium.node.cluster.telling import tell_in_sync, tell_named, tell_view
from angarium.node.config import NodeConfig, parse_address
from angarium.node.event_log import EventLog
from angarium.node.identity import take_up_identity
from angarium.node.live_config import LiveConfig
from angarium.runtime import cluster_bus as bus
from angarium.store.interface import Store

_log = logging.getLogger("angarium")
_DRAIN_S_MAX = 2.0
_LEAVE_S_MAX = 2.0


@dataclass(frozen=True, slots=True)
class ClusterReady:
    name: str
    address: str  # for clients; empty if they do not connect here


class ClusterNode:
    def __init__(
        self, config: NodeConfig, name: str, stores: Stores, machinery: Machinery, *,
        live: LiveConfig | None = None, events: EventLog | None = None,
    ) -> None:  # fmt: skip
        """`live` has the configuration as well; without it nothing that is changed is kept on disk."""
        self.name = name
        self.cluster_settings = config.cluster
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.started_at = self._loop.time()
        self._stores = stores
        self._machinery = machinery
        self.configurations: dict[str, GroupConfiguration] = {}
        self._left = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_placed = False
        self.placement = Placement()
        self.moving = Moving(self)
        self.client_address = ""  # once it is open, if clients connect here
        self.data = config.node.data
        self.entered = asyncio.Event()  # the node is in the cluster, and destinations can be located

        self.identity = identity = take_up_identity(
            table_records(stores.node, Table.NODE), site=config.node.site, wall_ms=int(machinery.wall_ms()),
            chance=int.from_bytes(machinery.bytes_by_chance(8), "big"),
        )  # fmt: skip
        stores.node.commit(identity.operations, reserved=True)
        self.nodes = Nodes(name, identity.incarnation)
        ways = HostingWays(self._replica, self._held_changed, lambda g: self.configurations[g], lambda: self.placement)
        self.hosting = Hosting(name, stores, ways)
        self.replicas = self.hosting.replicas
        self.front: FrontEnd | None = None
        if config.cluster.client_manager:
            self.front = FrontEnd(config, identity, name, self._front_ways(), machinery)
        self._hearing = Hearing(self)
        self.buses = Buses(config.cluster, name)
        self.bus = self._make_bus(config, identity.incarnation)
        self.answering = Answering(self, self.bus)
        self.desk = ClusterDesk(self, live or LiveConfig(config, {}, Acquired(), path=None), events)

    def _make_bus(self, config: NodeConfig, incarnation: bytes) -> BusLike:
        cluster = config.cluster
        host, port = node_address(cluster.listen, "cluster.listen")
        settings = bus.ClusterBusSettings(self.buses.links(), host=host, link_port=port, datagram_port=port)
        identity = bus.NodeIdentity(cluster.name, cluster.secret.encode(), self.name, incarnation)
        return self._machinery.bus(settings, identity, self._hearing.told)

    def _front_ways(self) -> FrontWays:
        return FrontWays(
            multicast=self._multicast, is_blocked=lambda group: self.bus.is_blocked(group),
            backups=lambda group: self.answering.backups(group),
            ask_backup=lambda node, message: self.send_to(node, Service.LOG_READS, message), ask_node=self._ask_node,
            own=lambda command: self.desk.own(command),
            out_of_reach=lambda: out_of_reach(self),
            why_unserved=lambda group: group_health(self, group, is_served=False).text,
        )  # fmt: skip

    def _replica(self, group: str, store: Store) -> ReplicaHost:
        prefix = group.encode() + b"\0"
        ways = Ways(
            multicast=self._multicast_order,
            send=lambda node, message, payload: self.send(node, Service.REPLICA, prefix + message, payload),
            answer=lambda incarnation, parts: self.answering.answer(incarnation, parts),
            pass_on=lambda parts: self.answering.pass_on(parts),
            serving=lambda: self.answering.now_serving(self.replicas[group]),
            pause=self._pause,
            to_groups=self._to_groups,
            decide=self.moving.decide,
            failed=self._failed,
        )
        me = Replica(self.name, store_identity(store, self._machinery.bytes_by_chance))
        data = self._stores.replica_data(group)
        return ReplicaHost(group, me, self.identity.incarnation, store, data, self._config, ways, self._machinery)

    # -- start and stop ------------------------------------------------------------------------------------

    async def start(self) -> None:
        cluster = self._config.cluster
        await self.bus.start()
        voters, seeds = voter_addresses(cluster), seed_addresses(cluster)
        self.membership = MembershipDriver(
            GroupServices(
                self.record(), seeds=tuple(voters), essential=essential_digest(cluster),
                keeps_log=True, jitter=self._machinery.jitter, more_seeds=tuple(seeds),
                settings=GroupSettings(groups_wanted=tuple(group_members(cluster))),
            ),
            self._stores.node,
            MembershipUsers(
                send=lambda node, message: self.send(node, Service.GROUPS, message),
                seek=lambda address: self.bus.dial(*node_address(address, "address")),
                changed=self._changed, led=self._led, to_replica=self._to_replica,
                stop=self._must_stop, left=self._left.set, failed=self._failed,
            ),
            self._machinery,
        )  # fmt: skip
        for name, (host, port) in (voters | seeds).items():
            if name != self.name:
                self.bus.dial(host, port)
        self.membership.start(table_records(self._stores.node, Table.GROUPS))
        self._dial_voters()
        for group in cluster.named_groups:
            self.membership.join(group)
        self._configuring = self._loop.create_task(self._configure_groups())

    def _dial_voters(self) -> None:
        """Those of the own log: after a power cut nobody tells where they are, and no file need name them."""
        raft = self.membership.machine.raft
        for record in () if raft is None else raft.log.voters_seen():
            if record.name != self.name:
                self.bus.dial(*node_address(record.addresses[0], "address"))

    async def open(self) -> ClusterReady:
        """To be called once the node is in the cluster, and destinations can be located (`entered`)."""
        if self.front is not None:
            host, port = parse_address(self._config.node.listen)
            bound_host, bound_port = (await self.front.listener.start(host, port))[0]
            shown = f"[{bound_host}]" if ":" in bound_host else bound_host
            self.client_address = f"angarium://{shown}:{bound_port}"
        return ClusterReady(self.name, self.client_address)

    def record(self) -> NodeRecord:
        roles = [ROLE_CM] if self.front is not None else []
        roles += [ROLE_MM] if self.replicas else []
        return NodeRecord(
            self.name, self.identity.incarnation, (self._config.cluster.listen,), tuple(roles),
            self.hosting.announced(),
        )  # fmt: skip

    def _held_changed(self) -> None:
        self.membership.record_changed(self.record())

    async def _configure_groups(self) -> None:
        """Groups of the configuration that nobody has decided yet: each is asked for until it is there."""
        wanted = group_members(self._config.cluster)
        while missing := [group for group in wanted if group not in self.configurations]:
            for group in missing:
                await self.membership.request(GroupConfigured(group, wanted[group]))
            await asyncio.sleep(0.2)

    async def stop(self) -> bool:
        """Leave the cluster, finish what is under way, close the stores. False if something could not be written."""
        self._configuring.cancel()
        await self.desk.stop()
        if self.front is not None:
            await self.front.stop("the node is shutting down", drain_s_max=_DRAIN_S_MAX)
        self.membership.leave()
        try:
            await asyncio.wait_for(self._left.wait(), _LEAVE_S_MAX)
        except TimeoutError:
            _log.warning("left-unheard: no majority of the voters answered within %g s", _LEAVE_S_MAX)
        written = True
        for replica in list(self.replicas.values()):  # one that was decided may still be opened
            written = await replica.stop() and written
        await self.membership.stop()
        await self.bus.close()
        await self._machinery.in_thread(self._stores.node.close)
        return written

    def fail(self, context: dict[str, object]) -> None:
        error = context.get("exception")
        self._failed(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))

    def _failed(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    # -- neighbours ----------------------------------------------------------------------------------------

    def replica_numbered(self, number: int) -> ReplicaHost | None:
        return self.hosting.numbered(number)

    def _led(self) -> None:
        """A new leader has not heard of those who died with the old one, or just before it."""
        self._dial_deciders()
        for record in self.nodes.silent():
            self.spawn(self.probe(record))

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def probe(self, record: NodeRecord) -> None:
        if await self._machinery.is_refused(*node_address(record.addresses[0], "address")):
            self.membership.refused(record.name)

    # -- from group services -------------------------------------------------------------------------------

    def _changed(self, change: c.Change) -> None:
        match change:
            case c.ViewChanged():
                self._view_changed(change)
            case c.ReplicaGroupChanged(_, configuration):
                self._group_changed(configuration)
            case c.PlacementChanged(_, placement):
                self.placement = placement
                for replica in self.replicas.values():
                    replica.placed(placement)
                if self.front is not None:
                    self.front.placed(placement)
                self._is_placed = bool(placement.slots)
                self._check_entered()
            case c.NamedGroupChanged():
                tell_named(change, is_leader=self._is_leader, is_news=self.nodes.has_entered)
            case c.SettingsChanged():
                self.desk.settings_decided()

    @property
    def _is_leader(self) -> bool:
        return self.membership.machine.leader == self.name

    def _view_changed(self, change: c.ViewChanged) -> None:
        was_here = self.nodes.is_here
        known = {record.incarnation for record in self.nodes.view.values()}
        self.nodes.changed(change.view_id, change.nodes, self._loop.time())
        for record in change.nodes:
            if record.name > self.name:  # one of each two dials
                self.bus.dial(*node_address(record.addresses[0], "address"))
        self._hang_up(change.gone)
        self._dial_deciders()
        for number in sorted(configuration.number for configuration in self.configurations.values()):
            self._change_channel(number)
        for record in change.gone:
            for replica in self.replicas.values():
                replica.client_manager_gone(record.incarnation)
        tell_view(change, known, is_leader=self._is_leader, is_news=self.nodes.has_entered)
        self.desk.view_changed()
        if self.nodes.is_here and not was_here:
            self.desk.settings_decided()
            if self.front is not None:
                self.front.lost_all()  # what was sent meanwhile has gone nowhere
        self._check_entered()

    def _dial_deciders(self) -> None:
        """Nobody dials one that is not in the view: so long it has to find voters that would dial it, too."""
        voters = () if self.nodes.is_here else self.membership.machine.state.voters
        for record in (self.nodes.view[voter.node] for voter in voters if voter.node in self.nodes.view):
            if record.name != self.name:
                self.bus.dial(*node_address(record.addresses[0], "address"))

    def _hang_up(self, gone: Sequence[NodeRecord]) -> None:
        """Voters are always looked for: through them whoever comes back is found."""
        cluster = self._config.cluster
        sought = {*voter_addresses(cluster).values(), *seed_addresses(cluster).values()}
        sought |= {node_address(record.addresses[0], "address") for record in self.nodes.view.values()}
        for record in gone:
            if (address := node_address(record.addresses[0], "address")) not in sought:
                self.bus.hang_up(*address)

    def _change_channel(self, number: int) -> None:
        configuration = next(found for found in self.configurations.values() if found.number == number)
        group, nodes = configuration.group, self.nodes.view.values()
        receivers = tuple(n.incarnation for n in nodes if any(hosted.group == group for hosted in n.hosts))
        senders = tuple(n.incarnation for n in nodes if n.incarnation in receivers or ROLE_CM in n.roles)
        for link in self.buses.links_of(group):
            self.bus.hear(link, self.identity.incarnation in receivers)
        link = self.buses.link_for(group, number, configuration.members)
        self.bus.change(b.MembersChanged(number, self.nodes.view_id, senders, receivers, link))

    def _group_changed(self, configuration: GroupConfiguration) -> None:
        before = self.configurations.get(configuration.group)
        self.configurations[configuration.group] = configuration
        if before is None and self.nodes.view:
            self._change_channel(configuration.number)
        replica = self.replicas.get(configuration.group)
        if replica is not None:
            replica.configured(configuration)
        if self.hosting.is_removed(before, configuration):
            self.spawn(self.hosting.let_go(configuration.group))
        elif self.hosting.lacks(configuration):
            self.spawn(self.hosting.open(configuration.group))
        if configuration.primary is not None:
            tell_in_sync(
                self.name, before, configuration, is_here=self.nodes.is_here, is_news=self.nodes.has_entered
            )

    def _must_stop(self, code: str, reason: str) -> None:
        self.spawn(self._stop_with_reason(code, reason))

    async def _stop_with_reason(self, code: str, reason: str) -> None:
        if code == "essential-differs":
            reason = f"{reason}; {await differing(self)}"
        self._failed(Unavailable(f"{code}: {reason}"))

    def _to_replica(self, message: ToReplicaMessage) -> None:
        replica = self.replicas.get(message.group)
        if replica is not None:
            replica.from_groups(message)

    def _to_groups(self, message: FromReplicaMessage) -> None:
        self.membership.from_replica(message)

    def _check_entered(self) -> None:
        if self.nodes.is_here and self._is_placed:
            self.entered.set()

    # -- ways out ------------------------------------------------------------------------------------------

    def send(self, node: str, service: Service, message: bytes, payload: bytes = b"") -> None:
        """What cannot be sent is dropped: whoever needs an answer asks again."""
        incarnation = self.nodes.incarnation_of(node)
        if node == self.name:
            self._loop.call_soon(self._hearing.record, self.identity.incarnation, service, message, payload)
        elif incarnation is not None:
            self.bus.send_to(incarnation, service, message, payload)

    def _multicast(self, group: int, parts: list[bytes]) -> None:
        if self.nodes.is_here:
            self.bus.send(group, [parts])

    def _multicast_order(self, group: int, parts: list[bytes]) -> None:
        """One that finds no room on the channel, or is too long for it, is lost, as on its way: backups notice, and ask
        for it over a link, which takes longer ones."""
        try:
            self._multicast(group, parts)
        except (Unavailable, MessageTooLong) as error:
            _log.warning("order-dropped: %s", error)

    def _pause(self, group: int, paused: bool) -> None:
        self.bus.pause(group, paused)

    def send_to(self, node: bytes, service: Service, message: bytes, payload: bytes = b"") -> bool:
        if node != self.identity.incarnation:
            return self.bus.send_to(node, service, message, payload)
        self._loop.call_soon(self._hearing.record, node, service, message, payload)
        return True

    def send_to_client_manager(self, service: Service, message: bytes) -> bool:
        return self.answering.to_client_manager(service, message)

    # -- administration ------------------------------------------------------------------------------------

    def _ask_node(self, session: bytes, request: frames.Request) -> None:
        self.spawn(self._answer_request(session, request))

    async def _answer_request(self, session: bytes, request: frames.Request) -> None:
        reply = await self.desk.answer(request)
        if self.front is not None:
            self.front.tell(session, reply)

    def change_settings(self, config: NodeConfig) -> None:
        """Those that count while it runs (`node/acquirable.py`)."""
        logging.getLogger().setLevel(config.node.log_level.upper())
        if self.front is not None:
            self.front.change_settings(config)
        for replica in self.replicas.values():
            replica.change_settings(config)

"""A whole cluster in virtual time: real nodes (`node/cluster/node.py`), real clients, and everything between simulated.

    safety:    trouble of the kinds that the seed has drawn; every promise is checked as things happen
    liveness:  all is healed; everything confirmed must be drained, every node be in, every replica in sync
    the end:   clients leave: nothing is remembered of them, replicas are equal; the nodes stop

The seed decides everything, the shape of the cluster too.
"""
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from angarium.core.bus.events import BusSettings
from angarium.core.client.reconnect import Address
from angarium.core.destination.administration import describe
from angarium.core.destination.events import FromSession, Report, ToSession
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.storage import Operation
from angarium.core.wire.frames import Confirm, Deliver, Settled
from angarium.node.config import NodeConfig
from angarium.sim.applications import Application, Place
from angarium.sim.client import SimClient
from angarium.sim.clock import Clock
from angarium.sim.clusters.checkers import Log, latest, left_in_front, left_in_manager, not_in_sync, unequal
from angarium.sim.clusters.faults import Troubles
from angarium.sim.clusters.node import CLIENT_PORT, Around, Machine
from angarium.sim.clusters.shapes import Shape, configuration, draw_shape
from angarium.sim.clusters.wires import Air, Wires
from angarium.sim.clusters.witness import GroupWitness, Serving
from angarium.sim.disk import SimDisk
from angarium.sim.faults import Participant
from angarium.sim.hardware import Capacity, Hardware, Unlimited
from angarium.sim.messages import Violation
from angarium.sim.network import NetworkSettings
from angarium.sim.observer import Observer
from angarium.sim.spanning import GroupLedger
from angarium.sim.trace import Trace
from angarium.sim.world import Outcome, World, WorldSettings, draw_settings

if TYPE_CHECKING:
    from angarium.node.cluster.node import ClusterNode

_START_S_MAX = 30.0
_SETTLE_S_MAX = 60.0
_LEAVE_S_MAX = 30.0
_STOP_S_MAX = 10.0
_LOOK_EVERY_S = 0.05
_MEMORY_CHANCE = 0.2
UNEVEN = (1.0, 0.99, 1.01)  # rates of clocks, worse than real ones
# A few hundred messages fill it, if somebody stands still.
NARROW_BUS = BusSettings(
    datagram_bytes_max=512, ring_datagrams_low=30, ring_datagrams_high=60, ring_datagrams_max=240, window_datagrams=64,
    ack_every_datagrams=16,
)  # fmt: skip


class ClusterWorld(World):
    spared: tuple[str, ...] = ()  # kinds of trouble that such a world cannot tell from a broken promise

    def __init__(
        self, seed: int, settings: WorldSettings | None = None, *, shape: Shape | None = None, is_traced: bool = False,
        capacity: Capacity | None = None,
    ) -> None:  # fmt: skip
        self.seed = seed
        self.settings = settings = settings or draw_settings(seed)
        self.shape = shape or draw_shape(self.chance("shape"))
        self.clock = Clock(self.chance("clock"))
        self.trace = Trace(self.clock, is_read=is_traced)
        rates = UNEVEN if "clock-set" not in self.spared and self.chance("rates").random() < 0.3 else (1.0,)
        self.ledger: GroupLedger = GroupLedger(self.clock, grace_s=settings.grace_s / max(rates))
        self.network = clients = Wires(self.clock, self.trace, self.chance("network"), settings.network)
        self.wires = Wires(self.clock, self.trace, self.chance("wires"), self._draw_links())
        self.air = Air(self.clock, self.chance("air"), self.wires)
        hardware = Unlimited() if capacity is None else Hardware(self.clock, capacity)
        clients.hardware = self.wires.hardware = self.air.hardware = hardware
        self.serving = Serving()
        self._witnesses: dict[int, GroupWitness] = {}
        self.applications: list[Participant] = []
        self._clients = 0
        self._places: list[Place] = []
        self._observer: SimClient | None = None
        self._serial = count(1)
        self._has_expiries = rates is not UNEVEN
        around = Around(
            self.clock, self.trace, clients, self.wires, self.air, self._witness, self._disk, self._count,
            self._draw_bus(), rates, hardware, self._removes,
        )  # fmt: skip
        self.machines = {
            name: Machine(around, self.shape.host(name), self._configuration(name), self.chance(f"machine {name}"))
            for name in self.shape.nodes
        }

    def _draw_links(self) -> NetworkSettings:
        chance = self.chance("links")
        return NetworkSettings(
            latency_s_max=chance.choice((0.001, 0.005)), chop_chance=chance.choice((0.0, 0.3)),
            buffer_bytes_high=chance.choice((4_096, 65_536, 1 << 20)), buffer_bytes_low=2_048,
        )  # fmt: skip

    def _draw_bus(self) -> BusSettings:
        return self.chance("bus").choice((BusSettings(), NARROW_BUS))

    def _configuration(self, name: str) -> NodeConfig:
        in_doubt_s = self.chance("configuration").choice((0.2, 1.0, 3.0))
        return configuration(self.shape, name, self.settings, in_doubt_s=in_doubt_s)

    def _witness(self, number: int) -> GroupWitness:
        if number not in self._witnesses:
            self._witnesses[number] = GroupWitness(number, self)
        return self._witnesses[number]

    def _disk(self, name: str) -> SimDisk:
        return SimDisk(
            self.clock, self.trace, self.chance(f"disk {name}"), self.settings.disk, lambda operations: None,
            self.chance(f"files {name}"),
        )  # fmt: skip

    def _removes(self, name: str, group: str) -> None:
        """Nobody else has a store of the group on that node: it is this one that is counted on."""
        decided = latest(group, list(self.nodes()))
        if decided is not None and name in [replica.node for replica in decided.in_sync]:
            raise Violation("no copy is deleted that counts", f"group {group}, epoch {decided.epoch}: that of {name}")

    def _count(self, what: str) -> None:
        self.ledger.tally[what] += 1

    def client(self, name: str = "") -> SimClient:
        self._clients += 1
        name = name or f"client-{self._clients}"
        addresses = [Address(self.shape.host(manager), CLIENT_PORT) for manager in self.shape.client_managers]
        chance = self.chance(name)
        chance.shuffle(addresses)
        world: World = self
        return SimClient(world, name, chance, addresses)

    # -- what the witnesses are shown ------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        self.ledger.to_manager(event)

    def from_manager(self, command: ToSession, token: int) -> None:
        self.ledger.last_token = lambda: token
        self.ledger.from_manager(command)

    def from_predecessor(self, command: ToSession, group: int, manager: int) -> None:
        holdings = self.ledger.group_holdings
        match command.frame:
            case Deliver() as deliver:
                self.ledger.tally["late deliveries"] += 1
                holdings.delivered_late(
                    command.session, deliver, command.payload, group=group, manager=manager, now=self.clock.now
                )
            case Confirm() as confirm:
                self.ledger.confirmed_late(command.session, confirm)
            case Settled() as settled:
                self.ledger.tally["late settlements"] += 1
                holdings.settled_late(command.session, settled, group=group, manager=manager)

    def synced(self, group: int, operations: Sequence[Operation]) -> None:
        self.ledger.messages.synced(operations)

    def reported(self, report: Report) -> None:
        self.ledger.reported(report)

    def manager_stopped(self, group: int, is_fragile: Callable[[int], bool]) -> None:
        self.ledger.messages.broker_crashed(group)
        self.ledger.group_holdings.group_stopped(group, self.clock.now, is_fragile)

    def manager_started(self, group: int) -> None:
        self.ledger.tally["managers started"] += 1
        self.ledger.group_holdings.group_started(group, self.clock.now)

    def destination_opened(self, name: str, identity: int) -> None:
        self.ledger.tally["destinations opened"] += 1
        self.ledger.group_holdings.destination_opened(name, identity, self.clock.now)

    # -- the cluster -----------------------------------------------------------------------------------

    def start(self) -> None:
        """All machines, in any order, and until all of them are in."""
        chance = self.chance("start")
        for machine in self.machines.values():
            self.clock.after(chance.choice((0.0, 0.1, 1.0)) * chance.random(), machine.start)
        self._look()
        self._wait(self._absent, _START_S_MAX, "a cluster starts")

    def _look(self) -> None:
        for node in self.nodes():
            for group, host in node.replicas.items():
                if host.manager is not None:
                    self.serving.look(group, host.started_epoch, node.identity.incarnation)
        self.clock.after(_LOOK_EVERY_S, self._look)

    def nodes(self) -> Iterator["ClusterNode"]:
        for machine in self.machines.values():
            if machine.node is not None:
                yield machine.node

    def _wait(self, missing: Callable[[], Iterator[str]], within_s: float, promise: str) -> None:
        until = self.clock.now + within_s
        while found := list(missing()):
            if self.clock.now >= until:
                raise Violation(promise, f"not within {within_s:g} s: {'; '.join(found[:6])}")
            self.run_for(0.1)

    def _absent(self) -> Iterator[str]:
        yield from (f"{machine.name} is not open" for machine in self.machines.values() if not machine.is_open)
        yield from not_in_sync(self.shape, list(self.nodes()))

    # -- a random run ----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        with Log(self.trace):
            return self._run()

    def _run(self) -> Outcome:
        self.start()
        troubles = Troubles(self, self.chance("faults"), self.settings.faults, spared=self.spared)
        self._has_expiries &= "clock-set" not in troubles.kinds
        self._settle_in()
        troubles.begin()
        self.run_for(self.settings.trouble_s)
        troubles.stop()
        for application in self.applications:
            application.calm_down()
        self._add_drainer()
        self.drain()
        self._wait(self._absent, _SETTLE_S_MAX, "every node is in sync in the end")
        self.leave()
        produced = self.ledger.messages.producers
        return Outcome(
            self.seed, self.trace.digest(), troubles.kinds, sum(len(facts.bodies) for facts in produced),
            sum(facts.confirmed for facts in produced), self.clock.happened, self.clock.now,
            dict(self.ledger.tally),
        )  # fmt: skip

    def _settle_in(self) -> None:
        """The people of this world."""
        chance = self.chance("population")
        self._populate_places(chance)
        if self.chance("confirm").random() < _MEMORY_CHANCE:
            self._create_hasty()
        if chance.random() < 0.3:
            self._observer = self.client("observer")
            Observer(self._observer, self.chance("observer"), [place.name for place in self._places])
        clients = chance.randint(2, 5)
        for number in range(clients):
            self._add_application(f"client-{number + 1}", self.settings.messages // clients)

    def _create_hasty(self) -> None:
        """A queue that confirms what is in memory."""
        administrator = self.client("administrator of queues")
        administrator.request("destination.create", name="orders", kind="queue", confirm="memory")
        logs = self.ledger.messages.by_name
        self._wait(lambda: iter(() if "orders" in logs else ("orders",)), _START_S_MAX, "a queue is made")
        administrator.close()

    def _add_application(self, name: str, messages: int) -> None:
        super()._add_application(name, messages)
        application = self.applications[-1]
        if not self._has_expiries and isinstance(application, Application):
            # A node that mistakes the hour may well deliver what is expired by ours.
            application.habits = replace(application.habits, expiry_chance=0.0)

    def _undone(self) -> Iterator[str]:
        yield from (f"{a.client.name} has {a.messages_left} to publish" for a in self.applications if not a.is_done)
        yield from self.ledger.unfinished()
        yield from self._absent()
        for node in self.nodes():
            yield from (f"{name} is being moved" for name in node.placement.moves)
            for group, host in node.replicas.items():
                if host.manager is not None:  # what is on its way nobody has, with whatever it holds
                    moves = host.manager.moves
                    yield from (f"{move.name} leaves or comes" for move in (*moves.departures, *moves.arrivals))
                    yield from (f"{name} is being opened" for name in moves._openings)
                for destination in host.manager.destinations.values() if host.manager is not None else ():
                    described = describe(destination)
                    if described["messages"] and described["name"] != DMQ:
                        yield f"{described['name']} in group {group}: {described['messages']} messages"

    def leave(self) -> None:
        for application in self.applications:
            for session in list(application.client.sessions.values()):
                session.close(timeout_s=_LEAVE_S_MAX)
        until = self.clock.now + 3 * self.settings.heartbeat_s
        while self.clock.now < until and any(application.client.sessions for application in self.applications):
            self.run_for(0.1)
        for application in self.applications:
            application.client.close()
        if self._observer is not None:
            self._observer.close()
        self.run_for(self.settings.grace_s + 1.0)
        self._wait(self._left, _LEAVE_S_MAX, "nothing is left over")
        self._wait(lambda: unequal(self.shape, self.machines, list(self.nodes())), _STOP_S_MAX, "replicas are equal")
        for machine in self.machines.values():
            machine.must_run = False
            machine.stop()
        self._wait(self._running, _STOP_S_MAX, "a node that is asked to stop stops")

    def _running(self) -> Iterator[str]:
        yield from (machine.name for machine in self.machines.values() if machine.is_up)

    def _left(self) -> Iterator[str]:
        for node in self.nodes():
            if node.front is not None:
                yield from left_in_front(node.name, node.front)
            for group, host in node.replicas.items():
                if host.manager is not None:
                    host.manager.check()
                    yield from left_in_manager(host, self.machines[node.name].disks[group].store)
